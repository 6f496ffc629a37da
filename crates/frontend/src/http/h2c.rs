//! HTTP/2 without TLS on the HTTP port, for clients that begin with it. Triton has none; requests mean the same as over HTTP/1.

use super::reply::{JSON, OCTETS, Reply};
use super::request::Head;
use super::route::Method;
use super::service::{self, HttpContext, Plan};
use crate::assemble::Assembler;
use crate::grpc::connection::{http2_options, start};
use crate::limits::{BODY_BYTES_MAX, INLINE_BODY_BYTES_MAX};
use crate::rope::Rope;
use crate::shared::Phase;
use bytes::{Bytes, BytesMut};
use http2::{Body, Connection, Field, Options, Request, Responder};
use smallvec::SmallVec;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::net::TcpStream;

/// Fields that repeat.
const FIXED: &[(&str, &str)] =
    &[("content-type", JSON), ("content-type", OCTETS), ("accept-encoding", "gzip, deflate")];

/// Serves a connection that began with `read`.
pub async fn run(io: TcpStream, read: BytesMut, context: Arc<HttpContext>) {
    let mut connection = Connection::new(io, read, Options { fixed: FIXED, ..http2_options() });
    let mut phase = context.shared.watch();
    let (mut leaving, mut called) = (false, false);
    loop {
        tokio::select! {
            biased;
            call = poll_fn(|cx| connection.poll_accept(cx)) => {
                let Some((request, respond)) = call else { return };
                called = true;
                start(serve(context.clone(), request, respond)).await;
            }
            // A client that connects during the grace is told so with its first answer, not before it could ask anything.
            closing = phase.wait_for(|p| matches!(p, Phase::Closing(_)) || (called && *p != Phase::Serving)), if !leaving => {
                if closing.is_err() {
                    return;
                }
                leaving = true;
                connection.leave();
            }
        }
    }
}

async fn serve(context: Arc<HttpContext>, request: Request, mut respond: Responder) {
    let _inflight = context.shared.request();
    let Request { head, mut body, .. } = request;
    let method = match head.method() {
        b"GET" => Method::Get,
        b"POST" => Method::Post,
        _ => Method::Other,
    };
    let is_head = head.method() == b"HEAD";
    let length = head.content_length().unwrap_or_default();
    let path = head.path().split(|b| matches!(b, b'?' | b'#')).next().unwrap_or_default();
    let head = Head::from_parts(method, is_head, path, head.fields().map(|(name, value)| (name.as_bytes(), value)));
    let work = async {
        match service::admit(&context, &head) {
            Plan::Reply(reply) => Some(reply),
            Plan::Read { route, bytes_max } => match read(&mut body, length, bytes_max.min(BODY_BYTES_MAX)).await? {
                Ok(body) => Some(service::respond(&context, route, &head, body).await),
                Err(bytes) => Some(service::too_large(&context, route, bytes)),
            },
        }
    };
    let mut work = pin!(work);
    let reply = poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(reply) => Poll::Ready(reply),
        Poll::Pending => respond.poll_reset(cx).map(|_| None),
    });
    if let Some(reply) = reply.await {
        send(&mut respond, reply, is_head);
    }
}

/// The body; its length so far when that is too long; `None` when the client is gone.
async fn read(body: &mut Body, length: u64, bytes_max: u64) -> Option<Result<Bytes, u64>> {
    if length > INLINE_BODY_BYTES_MAX as u64
        && length <= bytes_max
        && let Ok(place) = Assembler::new(length as usize)
    {
        // HTTP/2 sees to it that so many bytes come.
        body.collect(Box::new(place));
        return poll_fn(|cx| body.poll_collected(cx)).await?.ok().map(Ok);
    }
    let mut all = BytesMut::new();
    let mut first = Bytes::new();
    while let Some(chunk) = poll_fn(|cx| body.poll_data(cx)).await {
        let chunk = chunk.ok()?;
        body.release(chunk.len());
        let total = (first.len() + all.len() + chunk.len()) as u64;
        if total > bytes_max {
            return Some(Err(total));
        }
        if first.is_empty() && all.is_empty() {
            first = chunk;
            continue;
        }
        all.extend_from_slice(&std::mem::take(&mut first));
        all.extend_from_slice(&chunk);
    }
    Some(Ok(if all.is_empty() { first } else { all.freeze() }))
}

fn send(respond: &mut Responder, reply: Reply, is_head: bool) {
    let (mut length, mut header_length) = (itoa::Buffer::new(), itoa::Buffer::new());
    let mut fields: SmallVec<[Field<'_>; 8]> = SmallVec::new();
    fields.push(match reply.content_type {
        JSON => Field::Fixed(0),
        OCTETS => Field::Fixed(1),
        other => Field::Literal("content-type", other.as_bytes()),
    });
    if !reply.chunked {
        fields.push(Field::Literal("content-length", length.format(reply.body_length()).as_bytes()));
    }
    if let Some(n) = reply.header_length {
        fields.push(Field::Literal("inference-header-content-length", header_length.format(n).as_bytes()));
    }
    if let Some(encoding) = reply.content_encoding {
        fields.push(Field::Literal("content-encoding", encoding.as_bytes()));
    }
    if reply.accept_encoding {
        fields.push(Field::Fixed(2));
    }
    let ends = is_head || reply.body.is_empty();
    // Failures mean that the client is gone.
    if respond.send_head(reply.status, &fields, ends).is_ok() && !ends {
        let _ = respond.send_data(Rope::new(reply.body.into_iter()), true);
    }
}
