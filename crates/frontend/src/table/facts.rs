//! Facts of an endpoint that do not depend on a request: its name, its permission, and how logs show its requests.

use crate::access::{Act, Ask, Category};
use crate::access_log::json_line::JsonLine;
use crate::access_log::parameters::put_members;
use prost::DecodeError;
use protocol::json::Value;

/// Facts of an endpoint that do not depend on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Name in logs, the same for both protocols.
    pub name: &'static str,
    /// What a key must allow; `None` if the endpoint needs no permission.
    pub category: Option<Category>,
    /// Whether it changes the server. Those endpoints are in the audit log.
    pub act: Act,
    pub form: CallForm,
    /// Whether gRPC calls are answered while the server shuts down.
    pub draining: Draining,
    /// Whether it is answered to connections beyond the limit: questions about health with one answer are.
    pub is_for_crowd: bool,
}

/// Form of a call over gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallForm {
    /// One message each way.
    Unary,
    /// As above, with tensors.
    Inference,
    /// Messages with tensors, each a request.
    Inferences,
    /// May last indefinitely. The client ends it.
    Stream,
}

impl CallForm {
    /// Whether the call may last indefinitely. Its requests are counted, if at all, instead of the call.
    pub fn is_stream(self) -> bool {
        matches!(self, Self::Inferences | Self::Stream)
    }

    /// Whether messages have tensors.
    pub fn has_tensors(self) -> bool {
        matches!(self, Self::Inference | Self::Inferences)
    }
}

/// Calls during a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draining {
    Rejected,
    /// Answered while a sequence is in progress. The engine decides whether a request belongs to one.
    Sequences,
    Answered,
}

impl Facts {
    /// An endpoint that reads.
    pub const fn read(name: &'static str, category: Category) -> Self {
        Self {
            name,
            category: Some(category),
            act: Act::Read,
            form: CallForm::Unary,
            draining: Draining::Rejected,
            is_for_crowd: false,
        }
    }

    /// An endpoint that changes the server.
    pub const fn write(name: &'static str, category: Category) -> Self {
        Self { act: Act::Write, ..Self::read(name, category) }
    }

    /// The endpoint as the gate checks it; `None` if it needs no permission.
    #[inline]
    pub fn ask(self, model: Option<&str>) -> Option<Ask<'_>> {
        Some(Ask { category: self.category?, act: self.act, model })
    }
}

/// An endpoint as the gate and the logs see it.
pub trait Described: Sync {
    fn facts(&self) -> Facts;

    /// Whether a call may change the server; its message may decide.
    fn may_change(&self) -> bool {
        self.facts().act == Act::Write
    }

    /// Names in the messages of calls, for log lines: their keys, and the numbers of the protobuf fields. Without any,
    /// no message is kept.
    fn names(&self) -> &'static [(&'static str, u32)] {
        &[]
    }

    /// Whether a message only reads, in a call that may change the server. It is not in the audit log.
    fn only_reads(&self, _message: &[u8]) -> bool {
        false
    }

    /// Writes the parameters of an HTTP request to a line of the audit log.
    fn audit_body(&self, body: Value<'_>, line: &mut JsonLine<'_>) {
        put_members(Some(body), line);
    }

    /// Writes the parameters of a call to a line of the audit log.
    ///
    /// # Errors
    /// The message is invalid.
    fn audit_message(&self, _message: &[u8], _line: &mut JsonLine<'_>) -> Result<(), DecodeError> {
        Ok(())
    }
}
