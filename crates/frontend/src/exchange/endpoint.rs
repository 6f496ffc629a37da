//! Endpoints as an exchange sees them: how much body one takes, where the body goes, its responses over HTTP and gRPC.

use super::Exchange;
use crate::access::Ask;
use crate::gate::Grant;
use crate::gate_error::GateError;
use crate::grpc::context::{Call, GrpcContext};
use crate::grpc::status::{Status, code};
use crate::http::body::RequestBody;
use crate::http::context::HttpContext;
use crate::http::method::Method;
use crate::http::reply::{JSON, Reply};
use crate::http::request::RequestHead;
use crate::limits::DISCARD_BYTES_MAX;
use crate::rope::Rope;
use crate::shared::Counted;
use crate::table::facts::Facts;
use crate::table::paths::PathNames;
use bytes::Bytes;
use http2::StreamWriter;
use memory::Charge;
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Error, RegionRef};

/// An endpoint, as the tables name it.
pub type EndpointRef = &'static dyn Endpoint;

/// A response that is not there yet. Boxed, because the future of every request is as large as its largest state.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Route of a request.
#[derive(Clone, Copy)]
pub struct Route<'a> {
    /// The endpoint; that of another method if the path does not take the method.
    pub endpoint: EndpointRef,
    /// Whether the path takes the method.
    pub is_allowed: bool,
    /// Names in the path, as sent; empty where the path has none.
    pub names: PathNames<'a>,
}

impl<'a> Route<'a> {
    /// The endpoint as the gate checks it.
    #[inline]
    pub fn ask(&self) -> Option<Ask<'a>> {
        self.endpoint.facts().ask((!self.names.model.is_empty()).then_some(self.names.model))
    }
}

/// Finds the route of a request: `routes::find`.
pub type FindRoute = for<'a> fn(Method, &'a str) -> Option<Route<'a>>;

/// Where a body is read to.
pub enum BodyPlace {
    /// The buffer of the connection.
    Buffer,
    /// A slab, in memory from which devices copy if `near_device`.
    Slab { near_device: bool },
    /// `json` bytes into the buffer, the rest into memory of the model's process.
    Region { json: usize, region: RegionRef },
}

/// A request over HTTP.
pub struct HttpExchange<'a> {
    pub context: &'a HttpContext,
    pub head: &'a RequestHead,
    /// Version of HTTP, as in the logs.
    pub(super) protocol: &'static str,
    /// `None` if no row of the table has the path.
    pub(super) route: Option<Route<'a>>,
    /// Finds routes, to name the one that a wrong path may mean.
    pub(super) find: FindRoute,
    pub with: Exchange,
    /// Charge of the response until it is written.
    pub(super) charge: Cell<Option<Charge>>,
    /// Counted until the last byte is written: a drain waits for that.
    pub(super) _inflight: Counted<'a>,
}

/// A call that may last indefinitely.
pub struct GrpcStream<'a> {
    pub context: &'a GrpcContext,
    pub call: Call,
    pub respond: StreamWriter,
    pub deadline: Option<Duration>,
}

/// A call whose message was read.
#[derive(Clone, Copy)]
pub struct GrpcExchange<'a> {
    pub context: &'a Arc<GrpcContext>,
    pub call: &'a Call,
}

/// Answer of an endpoint over gRPC.
pub type GrpcAnswer<'a> = Later<'a, Result<Rope, Status>>;

/// Answer of an endpoint over HTTP.
pub enum HttpAnswer<'a> {
    Ready(Reply),
    Later(Later<'a, Reply>),
    /// An inference, which the exchange runs without a box.
    Inference(RequestBody),
}

/// The work that the server does for a client at the rows that name the endpoint.
pub trait Endpoint: Sync {
    fn facts(&self) -> &'static Facts;

    /// Checks the names that are neither in the path nor in the body.
    ///
    /// # Errors
    /// The caller may not have that model.
    fn admit(&self, _grant: &Grant, _head: &RequestHead) -> Result<(), GateError> {
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
        Reply::error(JSON, &checked.err().unwrap_or_else(|| Error::invalid("the request must not have a body")))
    }

    /// Answers over HTTP.
    fn http<'a>(&'a self, _exchange: &'a HttpExchange<'a>, _body: RequestBody) -> HttpAnswer<'a> {
        HttpAnswer::Ready(Reply::error(JSON, &Error::not_found("Not Found")))
    }

    /// Answers a call of [`CallForm::Unary`](crate::table::facts::CallForm::Unary).
    fn grpc<'a>(&'a self, _exchange: GrpcExchange<'a>, _message: Bytes) -> GrpcAnswer<'a> {
        Box::pin(std::future::ready(Err(Status::new(code::UNIMPLEMENTED, ""))))
    }

    /// Serves a call of a stream to its end.
    fn serve<'a>(&'a self, _stream: GrpcStream<'a>) -> Later<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}
