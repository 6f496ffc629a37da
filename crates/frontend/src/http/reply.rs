//! A reply before it is written, and its head as bytes. Header names are spelled as the protocol document spells them.

use super::events::{Event, Events};
use crate::failure::{FAULT, RequestFailure};
use crate::gate_error::GateError;
use crate::gate_error::OperationError;
use crate::grpc::status::percent_encode;
use crate::rope::charged;
use crate::text::cut;
use bytes::Bytes;
use memory::{Charge, Short};
use smallvec::SmallVec;
use std::borrow::Cow;
use tensor::{Data, Error, Fault};

/// `application/json`, without charset.
pub const JSON: &str = "application/json";
/// Default.
pub const PLAIN: &str = "text/plain";
/// Inference response with raw tensors.
pub const OCTETS: &str = "application/octet-stream";
/// Server-sent events.
pub const EVENTS: &str = "text/event-stream; charset=utf-8";

/// Parts of a body, which are written without being joined. Small ones have one part: a reply changes hands often.
pub type BodyParts = SmallVec<[Bytes; 1]>;

pub type Fields = Vec<(&'static str, Cow<'static, str>)>;

/// A reply: complete, but for events that follow its body.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    /// Set if the request failed. Adds `nereid-fault`, and `Retry-After` if a repeat can help.
    pub failure: Option<RequestFailure>,
    pub content_type: &'static str,
    /// `Inference-Header-Content-Length`.
    pub header_length: Option<usize>,
    pub content_encoding: Option<&'static str>,
    /// Adds `Accept-Encoding: gzip, deflate`.
    pub accept_encoding: bool,
    /// Sent with `Transfer-Encoding: chunked` (the generate endpoints) instead of a length.
    pub chunked: bool,
    /// `endpoint-load-metrics`.
    pub load: Option<Box<str>>,
    /// Fields that few replies have, by their names in lower case.
    pub extra: Option<Box<Fields>>,
    /// Whether the connection is closed after the reply.
    pub close: bool,
    pub body: BodyParts,
    /// Parts behind `body`, from the first output on that lies in memory of its model's process.
    pub tail: Vec<Data>,
    /// Whether the body contains its charge.
    pub is_charged: bool,
    /// Events that follow the body.
    pub rest: Option<Box<Events>>,
}

impl Reply {
    /// A reply with a body in one piece.
    pub fn new(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let body: Bytes = body.into();
        let mut parts = BodyParts::new();
        if !body.is_empty() {
            parts.push(body);
        }
        Self {
            status,
            failure: None,
            content_type,
            header_length: None,
            content_encoding: None,
            accept_encoding: false,
            chunked: false,
            load: None,
            extra: None,
            close: false,
            body: parts,
            tail: Vec::new(),
            is_charged: false,
            rest: None,
        }
    }

    /// A stream of events, of which the first decides the status (P 1.13).
    pub fn events(first: Event, rest: Option<Box<Events>>) -> Self {
        let failure = first.error.as_ref().map(RequestFailure::from);
        let status = if failure.is_none() { 200 } else { 400 };
        // A long text was printed and charged by another thread.
        let body = first.parts.into_iter().filter(|part| !part.is_empty()).collect();
        Self { body, is_charged: true, failure, rest, ..Self::new(status, EVENTS, Bytes::new()).chunked() }
    }

    /// 200 with JSON.
    pub fn json(body: impl Into<Bytes>) -> Self {
        Self::new(200, JSON, body)
    }

    /// 200 without a body.
    pub fn empty(content_type: &'static str) -> Self {
        Self::new(200, content_type, Bytes::new())
    }

    /// `{"error":…}` with the status of the error's class.
    pub fn error(content_type: &'static str, error: &Error) -> Self {
        let reply = Self::text_error(error.code().http_status(), content_type, &cut(error.message()));
        Self { failure: Some(error.into()), ..reply }
    }

    /// `{"error":…}` with this status, by the client.
    pub fn text_error(status: u16, content_type: &'static str, message: &str) -> Self {
        let failure = Some(RequestFailure::new(None, Fault::Client));
        Self { failure, ..Self::new(status, content_type, protocol::json::error_json(message)) }
    }

    /// Ends a gRPC call that is not served here.
    pub fn grpc(code: u8, message: &str) -> Self {
        // Without a length: the response has no body.
        let mut reply = Self::empty("application/grpc").chunked();
        reply.add("grpc-status", code.to_string());
        reply.add("grpc-message", percent_encode(message));
        reply
    }

    /// Rejects a caller without permission.
    pub fn refused(refusal: &GateError) -> Self {
        let mut reply = Self::text_error(refusal.http_status(), JSON, &refusal.text());
        if matches!(refusal, GateError::Unauthenticated(_)) {
            reply.add("www-authenticate", "Bearer");
        }
        reply.failure = Some(refusal.into());
        reply
    }

    pub fn failed(error: &OperationError) -> Self {
        match error {
            OperationError::Rejected(refusal) => Self::refused(refusal),
            OperationError::Failed(error) => Self::error(JSON, error),
        }
    }

    /// Adds a field, which may stand once.
    pub fn add(&mut self, name: &'static str, value: impl Into<Cow<'static, str>>) {
        let extra = self.extra.get_or_insert_default();
        debug_assert!(extra.iter().all(|(other, _)| *other != name), "{name} is there");
        extra.push((name, value.into()));
    }

    /// Adds a request field that the reply depends on to `vary`.
    pub fn vary(&mut self, on: &'static str) {
        let mut found = self.extra.iter_mut().flat_map(|extra| extra.iter_mut());
        match found.find(|(name, _)| *name == "vary") {
            Some((_, all)) => *all = format!("{all}, {on}").into(),
            None => self.add("vary", on),
        }
    }

    /// Error for lack of memory for the request or its response. The body may not have been read to its end.
    pub fn short(short: &Short) -> Self {
        let failure = RequestFailure::from(short);
        let status = if failure.retry_after.is_some() { 503 } else { 400 };
        Self { failure: Some(failure), ..Self::text_error(status, JSON, &short.to_string()).closing() }
    }

    pub fn closing(mut self) -> Self {
        self.close = true;
        self
    }

    pub fn chunked(mut self) -> Self {
        self.chunked = true;
        self
    }

    /// Adds the charge of its body.
    pub fn charged(mut self, mut charge: Charge) -> Self {
        charge.shrink(self.body_length());
        if charge.bytes() > 0
            && let Some(last) = self.body.last_mut()
        {
            *last = charged(std::mem::take(last), charge);
            self.is_charged = true;
        }
        self
    }

    pub fn body_length(&self) -> usize {
        self.body.iter().map(Bytes::len).chain(self.tail.iter().map(Data::len)).sum()
    }

    /// Appends the head for HTTP/1.
    pub fn write_head(&self, out: &mut Vec<u8>, http11: bool, keep_alive: bool) {
        out.extend_from_slice(status_line(self.status));
        out.extend_from_slice(b"Content-Type: ");
        out.extend_from_slice(self.content_type.as_bytes());
        let mut digits = itoa::Buffer::new();
        if let Some(n) = self.header_length {
            out.extend_from_slice(b"\r\nInference-Header-Content-Length: ");
            out.extend_from_slice(digits.format(n).as_bytes());
        }
        if let Some(encoding) = self.content_encoding {
            out.extend_from_slice(b"\r\nContent-Encoding: ");
            out.extend_from_slice(encoding.as_bytes());
        }
        if self.accept_encoding {
            out.extend_from_slice(b"\r\nAccept-Encoding: gzip, deflate");
        }
        if let Some(failure) = self.failure {
            for part in ["\r\n", FAULT, ": ", failure.fault.name()] {
                out.extend_from_slice(part.as_bytes());
            }
            if let Some(seconds) = failure.retry_seconds() {
                out.extend_from_slice(b"\r\nRetry-After: ");
                out.extend_from_slice(digits.format(seconds).as_bytes());
            }
        }
        if let Some(extra) = &self.extra {
            for (name, value) in &**extra {
                for part in ["\r\n", name, ": ", value] {
                    out.extend_from_slice(part.as_bytes());
                }
            }
        }
        if let Some(load) = &self.load {
            out.extend_from_slice(b"\r\nendpoint-load-metrics: ");
            out.extend_from_slice(load.as_bytes());
        }
        // HTTP/1.0 has no chunks: the body ends by its length or, if that is unknown, with the connection.
        if self.chunked && http11 {
            out.extend_from_slice(b"\r\nTransfer-Encoding: chunked");
        } else if self.rest.is_none() {
            out.extend_from_slice(b"\r\nContent-Length: ");
            out.extend_from_slice(digits.format(self.body_length()).as_bytes());
        }
        match (keep_alive, http11) {
            (false, _) => out.extend_from_slice(b"\r\nConnection: close\r\n\r\n"),
            (true, false) => out.extend_from_slice(b"\r\nConnection: keep-alive\r\n\r\n"),
            (true, true) => out.extend_from_slice(b"\r\n\r\n"),
        }
    }
}

fn status_line(status: u16) -> &'static [u8] {
    match status {
        200 => b"HTTP/1.1 200 OK\r\n",
        400 => b"HTTP/1.1 400 Bad Request\r\n",
        401 => b"HTTP/1.1 401 Unauthorized\r\n",
        403 => b"HTTP/1.1 403 Forbidden\r\n",
        404 => b"HTTP/1.1 404 Not Found\r\n",
        408 => b"HTTP/1.1 408 Request Timeout\r\n",
        405 => b"HTTP/1.1 405 Method Not Allowed\r\n",
        413 => b"HTTP/1.1 413 Content Too Large\r\n",
        422 => b"HTTP/1.1 422 Unprocessable Content\r\n",
        424 => b"HTTP/1.1 424 Failed Dependency\r\n",
        429 => b"HTTP/1.1 429 Too Many Requests\r\n",
        501 => b"HTTP/1.1 501 Not Implemented\r\n",
        503 => b"HTTP/1.1 503 Service Unavailable\r\n",
        // The only status left; no other is ever made (P 1.16).
        _ => b"HTTP/1.1 500 Internal Server Error\r\n",
    }
}
