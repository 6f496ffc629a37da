//! Endpoints: what the server does for a client, each in one file: its name in logs, its permission, how much body it
//! takes and where the body goes, its responses over HTTP and gRPC, and its line in the audit log.
//!
//! A row of [`table`](crate::table) gives an endpoint its path. HTTP, gRPC and an embedded server drive the same
//! endpoints: a new route is a row and a file here. Routing, permissions, names in logs, the OpenAPI document and the
//! suite `exposed` derive from the rows.

pub mod config;
#[cfg(test)]
pub mod example;
pub mod generate;
pub mod health;
pub mod index;
pub mod infer;
pub mod load;
pub mod metadata;
pub mod models;
pub mod openapi;
pub mod pages;
pub mod reflection;
pub mod regions;
pub mod settings;
pub mod statistics;
pub mod unload;

use crate::access::{Act, Ask, Category};
use crate::access_log::json_line::JsonLine;
use crate::access_log::put_members;
use crate::control::{Control, ControlOperation};
use crate::exchange::{BodyPlace, Exchange, GrpcExchange, HttpExchange};
use crate::gate::{Gate, Grant};
use crate::gate_error::GateError;
use crate::grpc::context::{Call, GrpcContext};
use crate::grpc::status::{Status, code};
use crate::http::body::RequestBody;
use crate::http::method::Method;
use crate::http::reply::{JSON, Reply};
use crate::http::request::RequestHead as HttpHead;
use crate::limits::{CONTROL_ARGUMENT_BYTES_MAX, DISCARD_BYTES_MAX};
use crate::rope::Rope;
use crate::text::Text;
use bytes::Bytes;
use engine::Engine;
use http2::{RequestHead, StreamWriter};
use prost::DecodeError;
use protocol::json::Value;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tensor::Error;

/// An endpoint, as the tables name it.
pub type EndpointRef = &'static dyn Endpoint;

/// A response that is not there yet. Boxed, because the future of every request is as large as its largest state.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

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

/// Answer of an endpoint over gRPC.
pub type GrpcAnswer<'a> = Later<'a, std::result::Result<Rope, Status>>;

/// Answer of an endpoint over HTTP.
pub enum HttpAnswer<'a> {
    Ready(Reply),
    Later(Later<'a, Reply>),
    /// An inference, which the exchange runs without a box.
    Inference(RequestBody),
}

/// What the server does for a client at the rows that name it.
pub trait Endpoint: Sync {
    fn facts(&self) -> Facts;

    /// Whether a call may change the server; its message may decide.
    fn may_change(&self) -> bool {
        self.facts().act == Act::Write
    }

    /// Checks the names that are neither in the path nor in the body.
    ///
    /// # Errors
    /// The caller may not have that model.
    fn admit(&self, _grant: &Grant, _head: &HttpHead) -> std::result::Result<(), GateError> {
        Ok(())
    }

    /// Maximum of bytes in a body over HTTP.
    #[inline]
    fn body_bytes_max(&self, exchange: &HttpExchange<'_>) -> u64 {
        match exchange.head.method {
            Method::Get | Method::HEAD => DISCARD_BYTES_MAX,
            _ => exchange.context.limits.input_bytes_max as u64,
        }
    }

    /// See [`HttpExchange::reject_early`].
    fn reject_early(&self, _exchange: &HttpExchange<'_>) -> Option<Reply> {
        None
    }

    /// Where a long body is read to; see [`HttpExchange::body_place`].
    fn body_place(&self, _exchange: &HttpExchange<'_>, _length: usize, _takes_regions: bool) -> BodyPlace {
        BodyPlace::Slab { near_device: false }
    }

    /// The reply to a body of `bytes` bytes, more than `body_bytes_max`.
    fn too_large(&self, exchange: &HttpExchange<'_>, bytes: u64) -> Reply {
        let checked = exchange.context.limits.check_json(usize::try_from(bytes).unwrap_or(usize::MAX));
        Reply::error(
            JSON,
            &checked.err().unwrap_or_else(|| Error::invalid("the request has a body that is not wanted")),
        )
    }

    /// Answers over HTTP.
    fn http<'a>(&'a self, _exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        HttpAnswer::Ready(Reply::error(JSON, &Error::not_found("Not Found")))
    }

    /// Answers a call of [`CallForm::Unary`].
    fn grpc<'a>(&'a self, _exchange: GrpcExchange<'a>, _message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(std::future::ready(Err(Status::new(code::UNIMPLEMENTED, ""))))
    }

    /// Serves a call that [`CallForm::is_stream`] to its end.
    fn serve<'a>(
        &'a self,
        _context: &'a GrpcContext,
        _call: Call,
        _respond: StreamWriter,
        _deadline: Option<Duration>,
    ) -> Later<'a, ()> {
        Box::pin(std::future::ready(()))
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
    fn audit_message(&self, _message: &[u8], _line: &mut JsonLine<'_>) -> std::result::Result<(), DecodeError> {
        Ok(())
    }
}

impl PartialEq for dyn Endpoint {
    fn eq(&self, other: &Self) -> bool {
        self.facts() == other.facts()
    }
}

impl std::fmt::Debug for dyn Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.facts().name)
    }
}

/// Context of an operation that is not an inference, whatever its protocol.
pub struct Context<'a> {
    pub engine: &'a Arc<Engine>,
    pub control: &'a dyn Control,
    pub permission: Permission<'a>,
}

/// Permission of a request, as checked before its body was read.
pub enum Permission<'a> {
    /// Checked completely: the path of an HTTP request names the operation and the model.
    Checked,
    /// Checked except for facts of the message of a gRPC call: the model, and whether settings change.
    OfMessage { gate: &'a Gate, exchange: &'a Exchange, head: &'a RequestHead },
}

/// Reason why an operation has no response: the gate rejected it, or it failed.
#[derive(Debug)]
pub enum OperationError {
    Rejected(GateError),
    Failed(Error),
}

pub type Result<T> = std::result::Result<T, OperationError>;

impl From<GateError> for OperationError {
    fn from(error: GateError) -> Self {
        Self::Rejected(error)
    }
}

impl From<Error> for OperationError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Context<'_> {
    /// Checks that the caller may name this model.
    fn admit_model(&self, model: &str) -> Result<()> {
        match &self.permission {
            Permission::Checked => Ok(()),
            Permission::OfMessage { exchange, .. } => Ok(exchange.grant.admit_model(model)?),
        }
    }

    /// Checks that the caller may change settings: those of a model, or of all if `model` is empty.
    fn admit_change(&self, facts: Facts, model: &str) -> Result<()> {
        match (&self.permission, facts.ask((!model.is_empty()).then_some(model))) {
            (Permission::OfMessage { gate, exchange: Exchange { caller, grant, .. }, head }, Some(ask)) => {
                Ok(gate.admit_change(caller, grant, &ask, &|name, at| head.all(name).nth(at))?)
            }
            _ => Ok(()),
        }
    }

    /// Runs an operation that TypeScript decides. Its argument and response are the JSON of the native contract.
    ///
    /// # Errors
    /// INVALID_ARG for an argument above [`CONTROL_ARGUMENT_BYTES_MAX`]; those of the operation.
    pub async fn control(&self, operation: ControlOperation, argument: Text) -> Result<String> {
        let (bytes, most) = (argument.len(), CONTROL_ARGUMENT_BYTES_MAX);
        if bytes <= most {
            return Ok(self.control.call(operation, argument.into_string()?.into()).await?);
        }
        // The caller is a reactor, which unmaps 60 MB in 3 ms.
        memory::reclaim::drop_later(bytes, argument.into_bytes());
        let text = format!("the request has {bytes} bytes, and a control operation other than a load may have {most}");
        Err(Error::invalid(text).into())
    }
}

/// An answer whose body is made by `work`: JSON, or nothing if the status is the answer.
fn later<'a>(work: impl Future<Output = Result<Bytes>> + 'a) -> HttpAnswer<'a> {
    HttpAnswer::Later(Box::pin(async move { answered(work.await) }))
}

fn answered(answer: Result<Bytes>) -> Reply {
    match answer {
        Ok(body) => Reply::json(body),
        Err(error) => Reply::failed(&error),
    }
}
