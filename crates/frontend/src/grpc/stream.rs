//! `ModelStreamInfer` (P 2.5): any number of requests, started as they arrive, for any mix of models.
//!
//! Responses of models that are not decoupled leave in request order; those of decoupled models leave when they are there.
//! Errors are messages and do not end the stream, unless the client asked for that with `triton_grpc_error: true`.
//!
//! One future, no task per request. Nothing is read while too many requests wait for their answer or the client does not take
//! what is ready for it.

use super::call::{Call, deadline_exceeded, shutting_down};
use super::connection::GrpcContext;
use super::message::frame_encoded;
use super::reply;
use super::status::{Status, code};
use super::unary::forward;
use crate::flight::{self, Flight};
use crate::limits::{SEND_BUFFER_BYTES_MAX, STREAM_REQUESTS_PENDING_MAX};
use crate::rope::Rope;
use crate::shared::Counted;
use crate::verbose;
use bytes::{Buf, Bytes};
use engine::ModelVersion;
use http2::Responder;
use protocol::InferResponse;
use protocol::grpc::{Encoded, InferHead, StreamFailure, encode_stream_error, encode_stream_response, peek};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tensor::{Error, Name, Result};

/// A request that has no answer yet.
struct Waiting<'a> {
    /// Taken when its answer is.
    flight: Option<Flight>,
    version: Arc<ModelVersion>,
    id: Name,
    model_name: Name,
    /// As requested, possibly empty: that is what errors repeat.
    model_version: Name,
    _counted: Counted<'a>,
}

impl Waiting<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<InferResponse>> {
        if let Some(Flight::Airborne(airborne)) = &mut self.flight {
            return Pin::new(airborne).poll(cx);
        }
        match self.flight.take() {
            Some(Flight::Landed(result)) => Poll::Ready(result),
            _ => Poll::Ready(Err(Error::internal("a request was answered twice"))),
        }
    }
}

enum Slot<'a> {
    Waiting(Box<Waiting<'a>>),
    /// Refused before it was queued; its place in the order remains.
    Refused(Encoded),
}

struct Session<'a> {
    context: &'a GrpcContext,
    call: Call,
    respond: Responder,
    /// In request order.
    ordered: VecDeque<Slot<'a>>,
    /// Requests to decoupled models.
    unordered: Vec<Waiting<'a>>,
    /// Encoded and not yet handed to HTTP/2.
    out: VecDeque<Rope>,
    out_bytes: usize,
    errors_end_stream: bool,
    /// Set once no more requests are read: how the stream ends when everything is out.
    ending: Option<Status>,
}

/// The client is gone.
struct Gone;

/// Serves one stream to its end.
pub async fn serve(context: &GrpcContext, call: Call, mut respond: Responder, deadline: Option<Duration>) {
    if reply::begin(&mut respond, call.response_encoding).is_err() {
        return;
    }
    let errors_end_stream = call.head.get("triton_grpc_error").is_some_and(|v| v == b"true");
    let mut session = Session {
        context,
        call,
        respond,
        ordered: VecDeque::new(),
        unordered: Vec::new(),
        out: VecDeque::new(),
        out_bytes: 0,
        errors_end_stream,
        ending: None,
    };
    let ended = match deadline {
        None => poll_fn(|cx| session.poll(cx)).await,
        Some(limit) => {
            let limited = tokio::time::timeout(limit, poll_fn(|cx| session.poll(cx))).await;
            limited.unwrap_or_else(|_| Ok(deadline_exceeded()))
        }
    };
    // Dropping the session cancels what is still running.
    if let Ok(status) = ended {
        reply::end(&mut session.respond, &status);
    }
}

impl<'a> Session<'a> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Status, Gone>> {
        loop {
            let read = match self.read(cx) {
                Ok(read) => read,
                Err(Gone) => return Poll::Ready(Err(Gone)),
            };
            self.collect(cx);
            match self.flush(cx) {
                Ok(()) => {}
                Err(Gone) => return Poll::Ready(Err(Gone)),
            }
            let idle = self.out.is_empty() && self.ordered.is_empty() && self.unordered.is_empty();
            if idle && let Some(status) = self.ending.take() {
                return Poll::Ready(Ok(status));
            }
            if self.respond.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(Gone));
            }
            // Reading stopped because of a limit that the steps above may have lifted: then nobody would wake us.
            if !read || !self.may_read() {
                return Poll::Pending;
            }
        }
    }

    fn may_read(&self) -> bool {
        self.ending.is_none()
            && self.ordered.len() + self.unordered.len() < STREAM_REQUESTS_PENDING_MAX
            && self.out_bytes < SEND_BUFFER_BYTES_MAX
    }

    /// Starts requests until there are none, or a limit is reached; true in the latter case.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, Gone> {
        while self.may_read() {
            match self.call.messages.poll_next(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(Some(message))) => self.accept(&message),
                Poll::Ready(Ok(None)) => self.ending = Some(Status::ok()),
                Poll::Ready(Err(status)) if status.code == code::CANCELLED => return Err(Gone),
                Poll::Ready(Err(status)) => self.end(status),
            }
        }
        Ok(true)
    }

    fn accept(&mut self, message: &Bytes) {
        let head = match peek(message) {
            Ok(head) => head,
            // Without its fields there is no request to answer, and no telling what follows.
            Err(error) => return self.end(error.into()),
        };
        match self.start(&head) {
            Ok(waiting) if waiting.version.signature.decoupled => self.unordered.push(waiting),
            Ok(waiting) => self.ordered.push_back(Slot::Waiting(Box::new(waiting))),
            Err(error) => {
                let refusal = encode_stream_error(&error, &head.id, StreamFailure::BeforeEnqueue);
                self.ordered.push_back(Slot::Refused(refusal));
            }
        }
    }

    fn start(&self, head: &InferHead) -> Result<Waiting<'a>> {
        if self.context.shared.is_draining() {
            return Err(Error::unavailable(shutting_down().message));
        }
        let counted = self.context.shared.request();
        let read = || {
            let version = self.context.engine.model(&head.model_name, &head.model_version)?;
            let mut request = head.into_request(&version.signature, &*self.context.engine)?;
            forward(&self.context.forward, &self.call.head, &mut request)?;
            Ok((version, request))
        };
        let (version, request) = read().inspect_err(|e| verbose::infer_failed(Some(&head.id), e))?;
        let flight = flight::start(&version, request)?;
        Ok(Waiting {
            flight: Some(flight),
            version,
            id: head.id.clone(),
            model_name: head.model_name.clone(),
            model_version: head.model_version.clone(),
            _counted: counted,
        })
    }

    /// Moves answers that are there to the output.
    fn collect(&mut self, cx: &mut Context<'_>) {
        let mut i = 0;
        while let Some(waiting) = self.unordered.get_mut(i) {
            match waiting.poll(cx) {
                Poll::Pending => i += 1,
                Poll::Ready(result) => {
                    let waiting = self.unordered.swap_remove(i);
                    self.answer(&waiting, result);
                }
            }
        }
        while let Some(slot) = self.ordered.front_mut() {
            let result = match slot {
                Slot::Refused(_) => None,
                Slot::Waiting(waiting) => match waiting.poll(cx) {
                    Poll::Pending => return,
                    Poll::Ready(result) => Some(result),
                },
            };
            match (self.ordered.pop_front(), result) {
                (Some(Slot::Waiting(waiting)), Some(result)) => self.answer(&waiting, result),
                (Some(Slot::Refused(refusal)), _) => self.put(refusal),
                _ => {}
            }
        }
    }

    fn answer(&mut self, waiting: &Waiting<'_>, result: Result<InferResponse>) {
        // Every answer is the last of its request: models that answer more than once do not exist here yet.
        let encoded = result.and_then(|r| encode_stream_response(&r, &waiting.version.signature, true));
        match encoded {
            Ok(encoded) => self.put(encoded),
            Err(error) if self.errors_end_stream => self.end(error.into()),
            Err(error) => {
                let Waiting { model_name, model_version, id, .. } = waiting;
                let after = StreamFailure::AfterEnqueue { model_name, model_version, is_final: true };
                self.put(encode_stream_error(&error, id, after));
            }
        }
    }

    /// Ends the stream with a failure: what is ready still goes out, what is not is cancelled.
    fn end(&mut self, status: Status) {
        self.ordered.clear();
        self.unordered.clear();
        self.ending = Some(status);
    }

    fn put(&mut self, encoded: Encoded) {
        let level = self.context.compression_level.unwrap_or_default();
        let frame = frame_encoded(encoded, self.call.response_encoding, level);
        self.out_bytes += frame.remaining();
        self.out.push_back(frame);
    }

    /// Hands HTTP/2 as much as the client's windows allow.
    fn flush(&mut self, cx: &mut Context<'_>) -> Result<(), Gone> {
        while let Some(frame) = self.out.front_mut() {
            let capacity = match self.respond.poll_capacity(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Some(capacity)) => capacity,
                Poll::Ready(None) => return Err(Gone),
            };
            let piece = frame.take_front(capacity);
            self.out_bytes -= piece.remaining();
            if !frame.has_remaining() {
                self.out.pop_front();
            }
            self.respond.send_data(piece, false).map_err(|_| Gone)?;
        }
        Ok(())
    }
}
