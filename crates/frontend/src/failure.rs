//! Facts of a failed request for logs, metrics and clients, besides its text: whose fault it is, and whether a repeat
//! can help.

use crate::gate_error::GateError;
use crate::limits::RETRY_AFTER;
use memory::Short;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tensor::{Error, Fault};

/// Name of the header field and the trailer that names the fault.
pub const FAULT: &str = "nereid-fault";

static COUNTS: [AtomicU64; Fault::ALL.len()] = [const { AtomicU64::new(0) }; _];

/// Failed requests of this process since it started, by fault.
pub fn counts() -> [(&'static str, u64); Fault::ALL.len()] {
    Fault::ALL.map(|fault| (fault.name(), COUNTS.get(fault as usize).map_or(0, |count| count.load(Ordering::Relaxed))))
}

/// Form of the errors of a text endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorForm {
    /// The form of OpenAI's API.
    OpenAi,
    /// The form of text-embeddings-inference.
    Tei,
}

/// Facts of a failure for the error forms of text endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TextFailure {
    /// The kind.
    pub kind: FailureKind,
    /// The field of the body that is wrong.
    pub field: Option<&'static str>,
    /// The form, if it is not that of the route.
    pub form: Option<ErrorForm>,
}

/// Kinds of failures that error forms tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FailureKind {
    /// All others.
    #[default]
    Other,
    /// The body has not the form of the endpoint.
    Form,
    /// A list or a text that needs content has none.
    Empty,
    /// A text has more tokens than the model takes.
    TooLong,
    /// The body is too large.
    TooLarge,
    /// There is no such model.
    UnknownModel,
    /// The header of a restricted API is missing, on the port of OpenAI's form.
    Restricted,
}

/// A failed request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestFailure {
    /// gRPC status of the error; `None` if only an HTTP status is known.
    pub number: Option<u8>,
    /// Party at fault.
    pub fault: Fault,
    /// Time after which a repeat may succeed; `None` if it cannot.
    pub retry_after: Option<Duration>,
    /// More of it, for text endpoints.
    pub text: TextFailure,
}

impl RequestFailure {
    /// A failure that is known by its status only, and that a repeat does not mend.
    pub fn new(number: Option<u8>, fault: Fault) -> Self {
        Self { number, fault, retry_after: None, text: TextFailure::default() }
    }

    /// Counts the failure when it is sent to its client. Returns the name of the fault.
    pub fn count(self) -> &'static str {
        if let Some(count) = COUNTS.get(self.fault as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.fault.name()
    }

    /// Value of `Retry-After`: whole seconds, rounded up.
    pub fn retry_seconds(self) -> Option<u64> {
        self.retry_after.map(|after| after.as_secs() + u64::from(after.subsec_nanos() > 0))
    }
}

impl From<&Error> for RequestFailure {
    fn from(error: &Error) -> Self {
        let retry_after = error.is_retryable().then_some(RETRY_AFTER);
        let kind = if error.is_too_long() { FailureKind::TooLong } else { FailureKind::Other };
        let text = TextFailure { kind, ..TextFailure::default() };
        Self { number: Some(error.code().grpc_status()), fault: error.fault(), retry_after, text }
    }
}

impl From<&GateError> for RequestFailure {
    fn from(refusal: &GateError) -> Self {
        Self { retry_after: refusal.retry_after(), ..Self::new(None, refusal.fault()) }
    }
}

impl From<&Short> for RequestFailure {
    fn from(short: &Short) -> Self {
        match short {
            Short::Now { .. } => Self { retry_after: Some(RETRY_AFTER), ..Self::new(None, Fault::Environment) },
            _ => Self::new(None, Fault::Client),
        }
    }
}
