//! Facts of an endpoint: its name, its permission, and how logs show its requests.

use crate::access::{Act, Ask, Category};
use crate::access_log::json_line::JsonLine;
use crate::access_log::parameters::put_members;
use crate::failure::ErrorForm;
use prost::DecodeError;
use protocol::json::Value;

/// Facts of an endpoint that do not depend on a request.
#[derive(Clone, Copy)]
pub struct Facts {
    /// Name in logs, the same for both protocols.
    pub name: &'static str,
    /// Category that a key must allow; `None` if the endpoint needs no permission.
    pub category: Option<Category>,
    /// Whether it changes the server. Those endpoints are in the audit log.
    pub act: Act,
    pub form: CallForm,
    /// Whether gRPC calls are answered while the server shuts down.
    pub draining: Draining,
    /// Whether it is answered to connections beyond the limit: questions about health with one answer are.
    pub is_for_crowd: bool,
    /// Names in the messages of calls, for log lines: their keys, and the numbers of the protobuf fields. Without any,
    /// no message is kept.
    pub names: &'static [(&'static str, u32)],
    /// Whether a message only reads, in a call that may change the server. Then it is not in the audit log.
    pub reads: Option<fn(&[u8]) -> bool>,
    /// Whether the query may name a model, or the answer has only what the caller may see: then a key of some models
    /// passes the gate, and the endpoint decides.
    pub is_filtered: bool,
    /// See [`Ask::is_near`].
    pub is_near: bool,
    /// Whether requests that accept HTML get a page, which needs no permission.
    pub has_page: bool,
    /// Set for text endpoints, whose bodies name the model: the form of their errors.
    pub text: Option<ErrorForm>,
    /// Writes the parameters of an HTTP request to a line of the audit log.
    pub audit_body: fn(Value<'_>, &mut JsonLine<'_>),
    /// Writes the parameters of a call to a line of the audit log.
    pub audit_message: fn(&[u8], &mut JsonLine<'_>) -> Result<(), DecodeError>,
}

/// Form of a call over gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallForm {
    /// One message each way.
    Unary,
    /// One message with tensors each way.
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
            names: &[],
            reads: None,
            is_filtered: false,
            is_near: false,
            has_page: false,
            text: None,
            audit_body: |body, line| put_members(Some(body), line),
            audit_message: |_, _| Ok(()),
        }
    }

    /// A page that is the same on every server, and needs no permission.
    pub const fn page() -> Self {
        Self { category: None, ..Self::read("page", Category::Metadata) }
    }

    /// A text endpoint.
    pub const fn text(name: &'static str, form: ErrorForm) -> Self {
        Self { text: Some(form), ..Self::read(name, Category::Inference) }
    }

    /// An endpoint that changes the server.
    pub const fn write(name: &'static str, category: Category) -> Self {
        Self { act: Act::Write, ..Self::read(name, category) }
    }

    /// Whether a request runs a model. A stream of requests is none itself.
    #[inline]
    pub fn is_inference(&self) -> bool {
        self.category == Some(Category::Inference) && !matches!(self.form, CallForm::Inferences | CallForm::Stream)
    }

    /// Whether a call may change the server.
    pub fn may_change(&self) -> bool {
        self.act == Act::Write || self.reads.is_some()
    }

    /// The endpoint as the gate checks it; `None` if it needs no permission.
    #[inline]
    pub fn ask<'a>(&self, model: Option<&'a str>) -> Option<Ask<'a>> {
        Some(Ask {
            category: self.category?,
            act: self.act,
            model: model.filter(|_| self.text.is_none()),
            is_in_body: self.text.is_some() || self.is_filtered,
            is_near: self.is_near,
        })
    }
}
