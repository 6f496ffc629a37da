//! The record of a request: its times, sizes, names and outcome, noted where they happen.
//!
//! The access log, the audit log and the trace of the request (O 3.4) read it. What the engine measures of the request
//! is in [`Trace`], which the record holds: it is filled from the values that statistics count.
//!
//! The model of a request is known only after the request was read. So if any model may be traced, or if there is a
//! log, each request has a record as soon as its head was read. Otherwise the record is empty: every note of it is one
//! branch, and the clock is not read.
//!
//! Invariant: the lines of the logs are written when the last owner drops the record, no matter whether the request was
//! answered, rejected or cancelled.

mod audit;
mod facts;
mod line;

pub use facts::{EventNotes, RequestName, error_text};

use crate::failure::RequestFailure;
use crate::grpc::status::{Status, code};
use crate::limits::LOG_NAMES_BYTES_MAX;
use crate::origin::Caller;
use crate::shared::Shared;
use crate::table::facts::Facts as EndpointFacts;
use backend::now_ns;
use bytes::Bytes;
use engine::{EngineResponse, ModelVersion};
use facts::{Facts, Noted, SentStatus, Target, activity_of, kept};
use line::RequestLine;
use protocol::InferRequest;
use protocol::grpc::InferHead;
use protocol::json::Value;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use tensor::{Error, Fault};
use trace::{Activity, Context, Trace};

/// The record of one request, shared by all that note something of it.
#[derive(Clone, Default)]
pub struct Record(Option<Rc<Noted>>);

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Record").field(&self.0.is_some()).finish()
    }
}

impl Record {
    /// Begins the record of an HTTP request.
    #[inline]
    pub fn http(shared: &Shared, caller: &Caller, name: impl FnOnce() -> RequestName) -> Self {
        if trace::is_any_on() { Self::begin(shared, caller, name()) } else { Self(None) }
    }

    /// Begins the record of a gRPC call. `endpoint`: `None` for an unknown one.
    #[inline]
    pub fn grpc(
        shared: &Shared,
        caller: &Caller,
        endpoint: Option<&'static EndpointFacts>,
        head: &Rc<http2::RequestHead>,
    ) -> Self {
        if !trace::is_any_on() {
            return Self(None);
        }
        Self::begin(shared, caller, RequestName::Grpc(endpoint, head.clone()))
    }

    #[cold]
    fn begin(shared: &Shared, caller: &Caller, name: RequestName) -> Self {
        let now = now_ns();
        Self(Some(Rc::new(Noted::new(shared.logs(), caller, name, [now, now]))))
    }

    /// Begins the record of a request in the stream of this call. `received`: when the wait for the request before it
    /// began, and when that was read; 0 without one, or if nothing was recorded then. Becomes those of this request.
    pub fn in_stream(&self, caller: &Caller, received: &mut [u64; 2], message: &Bytes) -> Self {
        if !trace::is_any_on() {
            // The clock is not read, so the next wait has no beginning.
            *received = [0; 2];
            return Self(None);
        }
        let (now, [_, before]) = (now_ns(), *received);
        // The wait for a request begins when the one before it was read.
        *received = [if before == 0 { now } else { before }, now];
        // Without a record of the call, which began before anything was traced, its requests may be traced.
        let logs = self.0.as_ref().and_then(|call| call.logs.as_ref());
        let noted = Noted::new(logs, caller, RequestName::InStream, *received);
        self.note(|_, of_call| {
            of_call.sizes.requests += 1;
            noted.facts.borrow_mut().key.clone_from(&of_call.key);
        });
        let record = Self(Some(Rc::new(noted)));
        record.received(message, 0);
        // The trace has the end of the wait, which `received` noted later.
        record.note(|_, facts| facts.times.read = now);
        record
    }

    #[inline]
    fn note(&self, note: impl FnOnce(&Noted, &mut Facts)) {
        if let Some(noted) = &self.0 {
            note(noted, &mut noted.facts.borrow_mut());
        }
    }

    /// Notes the key of the caller.
    #[inline]
    pub fn granted(&self, key: Option<&Arc<str>>) {
        self.note(|_, facts| {
            if key.is_some() {
                facts.key = key.cloned();
            }
        });
    }

    /// Notes that the body or message was read. `behind`: bytes of it that lie elsewhere.
    #[inline]
    pub fn received(&self, body: &Bytes, behind: usize) {
        self.note(|noted, facts| {
            facts.times.read = now_ns();
            facts.sizes.bytes_in += (body.len() + behind) as u64;
            let has_names = match &noted.name {
                RequestName::Http(..) => noted.is_write,
                RequestName::Grpc(Some(endpoint), _) if endpoint.names.is_empty() => noted.is_write,
                RequestName::Grpc(..) => noted.is_write || body.len() <= LOG_NAMES_BYTES_MAX,
                RequestName::InStream => false,
            };
            if has_names && noted.logs.is_some() {
                facts.body = Some(body.clone());
            }
        });
    }

    /// Notes the model that the request names, which may not exist, and its id.
    #[inline]
    pub fn named(&self, head: &InferHead) {
        self.note(|_, facts| {
            facts.target = Target::Named(head.model_name.clone(), head.model_version.clone());
            facts.identify(&head.id);
        });
    }

    /// Notes the version that accepts the request and samples the request. `context`: the client's own trace.
    #[inline]
    pub fn found(&self, version: &ModelVersion, context: impl FnOnce() -> Option<Context>) {
        self.note(|noted, facts| {
            facts.trace = version.trace().begin(context);
            if let Some(trace) = &facts.trace {
                let [begin, end] = noted.name.activities().received;
                trace.front(begin, facts.times.receiving);
                trace.front(end, facts.times.read);
            }
            if noted.logs.is_some() {
                facts.measured = Some(facts.trace.get_or_insert_with(Trace::measured).clone());
                facts.target = Target::Found(version.signature.clone());
            }
        });
    }

    /// Makes the engine note in the record what it measures of a request, and notes the id of the request.
    #[inline]
    pub fn follow(&self, request: &mut InferRequest) {
        self.note(|_, facts| {
            request.trace = facts.trace.clone();
            facts.identify(&request.id);
        });
    }

    /// Takes the trace, for events that are made elsewhere; nothing more is traced here.
    #[inline]
    pub fn take_trace(&self) -> Option<Trace> {
        self.0.as_ref()?.facts.borrow_mut().trace.take()
    }

    /// Whether a rejected body has to be examined for [`refused`](Self::refused).
    pub fn is_sampled(&self) -> bool {
        self.0.as_ref().is_some_and(|noted| noted.facts.borrow().trace.as_ref().is_some_and(Trace::is_recorded))
    }

    /// Ends the trace of a request whose body was rejected. The trace is kept only if the body [`is_no_json`].
    pub fn refused(&self, is_no_json: bool) {
        if let Some(trace) = self.take_trace()
            && is_no_json
        {
            trace.keep();
        }
    }

    /// Notes that the responses are complete.
    pub fn completed(&self) {
        self.note(|_, facts| completed(facts.trace.as_ref()));
    }

    /// Notes one of several responses. The end counts as one more, as in Triton.
    #[inline]
    pub fn responded(&self, answer: &EngineResponse) {
        self.note(|_, facts| responded(facts.trace.as_ref(), answer));
    }

    /// Notes an HTTP reply that is about to be sent: status, failure, length, and body as far as it is text.
    #[inline]
    pub fn replying(&self, status: u16, failure: Option<RequestFailure>, bytes: usize, body: &[Bytes]) {
        self.note(|noted, facts| {
            facts.sending(noted, bytes);
            facts.status = SentStatus::Http(status);
            if status >= 400 {
                let failure = failure.unwrap_or(RequestFailure::new(None, Fault::Server));
                facts.error = Some((failure, error_text(body)));
            }
        });
    }

    /// Notes a message that is about to be sent, one of several.
    #[inline]
    pub fn sending(&self, bytes: usize) {
        self.note(|noted, facts| facts.sending(noted, bytes));
    }

    /// Notes that one message of a stream was sent, or the whole response of another request.
    #[inline]
    pub fn sent(&self) {
        self.note(|noted, facts| facts.sent(noted));
    }

    /// Counter for the events that follow the head of a reply. Their activities are traced where they are made.
    pub fn events(&self) -> Option<Arc<EventNotes>> {
        let noted = self.0.as_ref().filter(|noted| noted.logs.is_some())?;
        Some(noted.facts.borrow_mut().events.get_or_insert_default().clone())
    }

    /// Notes the status at the end of a call.
    #[inline]
    pub fn ending(&self, status: &Status) {
        self.note(|_, facts| facts.end(status));
    }

    /// Notes the end of a call without a message.
    #[inline]
    pub fn refusing(&self, status: &Status) {
        self.note(|noted, facts| {
            facts.end(status);
            // The whole response is one frame, so its sending begins and ends at once.
            noted.name.activities().sent.into_iter().for_each(|activity| activity_of(facts.trace.as_ref(), activity));
        });
    }

    /// Notes success, unless one of the responses was an error.
    #[inline]
    pub fn succeeded(&self) {
        self.note(|_, facts| {
            if facts.error.is_none() {
                facts.status = SentStatus::Grpc(code::OK);
            }
        });
    }

    /// Notes a failure, which may follow some responses.
    #[inline]
    pub fn failed(&self, error: &Error) {
        self.note(|noted, facts| {
            facts.error = Some((error.into(), kept(error.message())));
            if matches!(noted.name, RequestName::InStream) {
                facts.status = SentStatus::Grpc(error.code().grpc_status());
            }
        });
    }
}

/// Whether a body is not empty and not JSON; parses all of it.
pub fn is_no_json(text: &[u8]) -> bool {
    !text.is_empty() && Value::parse(text).is_err()
}

/// Trace of the client of a call.
pub fn grpc_context(head: &http2::RequestHead) -> Option<Context> {
    let states = head.fields().filter(|(name, _)| *name == "tracestate");
    Context::parse(head.get("traceparent")?, states.map(|(_, value)| value))
}

/// Notes in a trace that the response is complete.
#[inline]
pub fn completed(trace: Option<&Trace>) {
    activity_of(trace, Activity::InferResponseComplete);
}

/// Notes one of several responses in a trace.
pub fn responded(trace: Option<&Trace>, answer: &EngineResponse) {
    let count = usize::from(answer.response.is_some()) + usize::from(answer.is_final);
    (0..count).for_each(|_| completed(trace));
}

/// Notes in a trace that an event is about to be sent.
pub fn event_sending(trace: Option<&Trace>) {
    activity_of(trace, facts::HTTP.sent[0]);
}

/// Notes in a trace that an event was sent.
pub fn event_sent(trace: Option<&Trace>) {
    activity_of(trace, facts::HTTP.sent[1]);
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(logs) = &self.logs {
            let mut facts = self.facts.take();
            facts.add_events();
            let line = RequestLine { noted: self, facts: &facts };
            logs.access(facts.is_failed(), |to| line.fill(to));
            if self.is_write {
                line.audit(logs, facts.body.clone());
            }
        }
    }
}
