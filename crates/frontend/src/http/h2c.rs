//! HTTP/2 on the HTTP port, for clients that start with it or agree on it by ALPN. Not in Triton; requests are handled
//! as over HTTP/1. On the control address it also serves gRPC.

use super::context::HttpContext;
use super::events::Events;
use super::method::Method;
use super::reply::{JSON, OCTETS, Reply};
use super::request::RequestHead;
use super::service;
use crate::assemble::Assembler;
use crate::exchange::{BodyPlace, Exchange, HttpExchange};
use crate::failure::FAULT;
use crate::grpc::call;
use crate::grpc::connection::{CALLS_PER_LOOK, dismiss, rest, start};
use crate::grpc::context::{GrpcContext, http2_options};
use crate::hold;
use crate::idle::IdleHandle;
use crate::limits::{ANSWERS_PER_LOOK, ANSWERS_SENT_AHEAD_BYTES_MAX, BODY_BYTES_MAX, DISCARD_BYTES_MAX};
use crate::origin::{Caller, Client, Face};
use crate::record::WHY;
use crate::rope::Rope;
use crate::shared::Phase;
use crate::socket::Io;
use crate::table::routes;
use bytes::{Bytes, BytesMut};
use http2::{Body, Connection, Field, NotCollected, Options, Request, StreamWriter};
use memory::{Account, Short};
use smallvec::SmallVec;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Header fields with fixed numbers. Those of gRPC come first: a connection to the control address uses both, and each
/// protocol has its own numbers.
const FIXED: [(&str, &str); 8] = {
    let [a, b, c, d, e] = crate::grpc::reply::FIXED;
    [a, b, c, d, e, ("content-type", JSON), ("content-type", OCTETS), ("accept-encoding", "gzip, deflate")]
};

/// Serves a connection that began with `read`.
pub async fn run<S: Io>(io: S, read: BytesMut, context: Arc<HttpContext>, caller: Caller, place: &IdleHandle) {
    let mut connection = Connection::new(io, read, Options { fixed: &FIXED, ..http2_options() });
    place.transfer().follow(connection.progress());
    let client = Rc::new(Client::from(caller));
    let mut phase = context.shared.watch();
    let account = context.shared.budget().account();
    // Account of the gRPC calls on this connection.
    let shared_account = Rc::new(account.clone());
    let (mut leaving, mut called, mut taken) = (false, false, 0u32);
    loop {
        tokio::select! {
            biased;
            call = poll_fn(|cx| {
                if place.is_close_requested() {
                    dismiss(cx, &mut connection);
                    return Poll::Ready(None);
                }
                let call = connection.poll_accept(cx);
                if call.is_pending() {
                    rest(cx, &connection, place);
                }
                call
            }) => {
                let Some((request, respond)) = call else { return };
                called = true;
                if let Some(grpc) = &context.grpc
                    && is_grpc(&request.head)
                {
                    start(call_grpc(grpc.clone(), client.clone(), shared_account.clone(), request, respond)).await;
                } else {
                    start(serve(context.clone(), client.clone(), account.clone(), request, respond)).await;
                }
                if caller.face == Face::Crowded {
                    connection.drain_now();
                }
                taken = taken.wrapping_add(1);
                if taken.is_multiple_of(CALLS_PER_LOOK) {
                    // Responses are written in the next turn.
                    hold::pause().await;
                }
            }
            // A client that connects during the grace period gets its GOAWAY after its first response.
            closing = phase.wait_for(|p| is_ending(*p, called)), if !leaving => {
                if closing.is_err() {
                    return;
                }
                leaving = true;
                connection.drain();
            }
        }
    }
}

fn is_ending(phase: Phase, called: bool) -> bool {
    matches!(phase, Phase::Closing(_)) || (called && phase != Phase::Serving)
}

fn is_grpc(head: &http2::RequestHead) -> bool {
    head.get("content-type").is_some_and(|media| media.starts_with(b"application/grpc"))
}

async fn call_grpc(
    context: Arc<GrpcContext>,
    client: Rc<Client>,
    account: Rc<Account>,
    request: Request,
    respond: StreamWriter,
) {
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let rest = call::begin(&context, &mut Context::from_waker(&waker), &client, &account, request, respond);
    if let Some(rest) = rest {
        rest.await;
    }
}

async fn serve(
    context: Arc<HttpContext>,
    client: Rc<Client>,
    account: Account,
    request: Request,
    mut respond: StreamWriter,
) {
    let Request { head, mut body, .. } = request;
    let method = Method::parse(head.method());
    let is_head = head.method() == b"HEAD";
    let announced = head.content_length();
    let length = announced.unwrap_or_default();
    let fields = head.fields().map(|(name, value)| (name.as_bytes(), value));
    let head = RequestHead::from_parts(method, is_head, head.path(), fields);
    let (exchange, admission) = HttpExchange::begin(&context, &client, &head, "h2", routes::find, &account);
    let work = async {
        let bytes_max = match admission {
            Ok(bytes_max) => bytes_max.min(BODY_BYTES_MAX),
            Err(reply) => return Some(*reply),
        };
        if announced.is_none_or(|length| length > DISCARD_BYTES_MAX)
            && let Some(reply) = exchange.reject_early()
        {
            return Some(reply);
        }
        let place = exchange.body_place(length as usize, false);
        Some(match read(&mut body, &account, length, bytes_max, place).await? {
            Ok(body) => service::respond(&exchange, body.into()).await,
            Err(BodyRejection::TooLarge(bytes)) => exchange.too_large(bytes),
            Err(BodyRejection::Short(short)) => exchange.short(&short),
        })
    };
    let mut work = pin!(work);
    let reply = poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(reply) => Poll::Ready(reply),
        Poll::Pending => respond.poll_reset(cx).map(|_| None),
    });
    let Some(mut reply) = reply.await else {
        exchange.needs_record();
        return;
    };
    exchange.complete(&mut reply, 0);
    // The connection writes the reply later, after this task has ended.
    exchange.hand_over(&mut reply);
    let is_sent = match send(&mut respond, reply, is_head) {
        None => true,
        Some(mut events) => poll_fn(|cx| poll_events(&mut respond, &mut events, &exchange.with, cx)).await,
    };
    // The client left before the last event otherwise.
    if is_sent {
        exchange.sent();
    }
}

/// Sends each event as soon as it is ready. Ready after the last one (true), or once the client has disconnected.
/// Responses that the client does not read stay in the inbox, which counts them.
fn poll_events(
    respond: &mut StreamWriter,
    events: &mut Events,
    exchange: &Exchange,
    cx: &mut Context<'_>,
) -> Poll<bool> {
    let mut taken = 0u32;
    loop {
        if respond.poll_reset(cx).is_ready() {
            return Poll::Ready(false);
        }
        if ready!(respond.poll_queued(ANSWERS_SENT_AHEAD_BYTES_MAX, cx)).is_none() {
            return Poll::Ready(false);
        }
        taken += 1;
        if taken.is_multiple_of(ANSWERS_PER_LOOK) && hold::is_due() {
            hold::yield_turn(cx);
            return Poll::Pending;
        }
        let sent = match ready!(events.poll_next(cx)) {
            Some(event) => respond.send_data(Rope::new(event.parts.into_iter()), false),
            None => {
                let ended = match exchange.why() {
                    None => respond.send_data(Bytes::new(), true),
                    Some(why) => respond.send_trailers(&[Field::Literal(WHY, why.as_bytes())]),
                };
                return Poll::Ready(ended.is_ok());
            }
        };
        if sent.is_err() {
            return Poll::Ready(false);
        }
    }
}

/// Reason why a body is not read.
enum BodyRejection {
    /// The body is longer than allowed: its length so far.
    TooLarge(u64),
    /// There is no memory for the body.
    Short(Short),
}

/// Reads the body; `None` if the client has disconnected.
async fn read(
    body: &mut Body,
    account: &Account,
    length: u64,
    bytes_max: u64,
    place: BodyPlace,
) -> Option<Result<Bytes, BodyRejection>> {
    if length > bytes_max {
        return Some(Err(BodyRejection::TooLarge(length)));
    }
    if let BodyPlace::Slab { near_device } = place {
        let place = match Assembler::new(length as usize, 0, account, near_device) {
            Ok(place) => place,
            Err(short) => return Some(Err(BodyRejection::Short(short))),
        };
        // HTTP/2 checks that this number of bytes arrives.
        body.collect(Box::new(place));
        return match poll_fn(|cx| body.poll_collected(cx)).await? {
            Ok(bytes) => Some(Ok(bytes)),
            Err(NotCollected::NoRoom { .. }) => Some(Err(BodyRejection::Short(account.short()))),
            Err(NotCollected::Ended(_)) => None,
        };
    }
    let mut first = Bytes::new();
    let mut all: Option<Assembler> = None;
    while let Some(chunk) = poll_fn(|cx| body.poll_data(cx)).await {
        let chunk = chunk.ok()?;
        body.release(chunk.len());
        let before = all.as_ref().map_or(first.len(), |all| all.length() - all.missing());
        let total = (before + chunk.len()) as u64;
        if total > bytes_max {
            return Some(Err(BodyRejection::TooLarge(total)));
        }
        if first.is_empty() && all.is_none() {
            first = chunk;
            continue;
        }
        if all.is_none() {
            let most = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(account.most());
            match Assembler::growing(most.max(total as usize), account) {
                Ok(place) => all = Some(place),
                Err(short) => return Some(Err(BodyRejection::Short(short))),
            }
        }
        let Some(place) = &mut all else { continue };
        for piece in [std::mem::take(&mut first), chunk] {
            if let Err(short) = place.collect(&piece).await {
                return Some(Err(BodyRejection::Short(short)));
            }
        }
    }
    Some(Ok(all.map_or(first, Assembler::into_bytes)))
}

/// Sends a reply. Returns the events that follow it.
fn send(respond: &mut StreamWriter, mut reply: Reply, is_head: bool) -> Option<Box<Events>> {
    let (mut length, mut header_length, mut seconds) = (itoa::Buffer::new(), itoa::Buffer::new(), itoa::Buffer::new());
    let mut fields: SmallVec<[Field<'_>; 8]> = SmallVec::new();
    fields.push(match reply.content_type {
        JSON => Field::Fixed(5),
        OCTETS => Field::Fixed(6),
        other => Field::Literal("content-type", other.as_bytes()),
    });
    if !reply.chunked {
        fields.push(Field::Literal("content-length", length.format(reply.body_length()).as_bytes()));
    }
    if let Some(load) = &reply.load {
        fields.push(Field::Literal("endpoint-load-metrics", load.as_bytes()));
    }
    if let Some(n) = reply.header_length {
        fields.push(Field::Literal("inference-header-content-length", header_length.format(n).as_bytes()));
    }
    if let Some(encoding) = reply.content_encoding {
        fields.push(Field::Literal("content-encoding", encoding.as_bytes()));
    }
    if reply.accept_encoding {
        fields.push(Field::Fixed(7));
    }
    if let Some(failure) = reply.failure {
        fields.push(Field::Literal(FAULT, failure.fault.name().as_bytes()));
        let after = failure.retry_seconds().map(|after| seconds.format(after).as_bytes());
        fields.extend(after.map(|after| Field::Literal("retry-after", after)));
    }
    if let Some(extra) = &reply.extra {
        fields.extend(extra.iter().map(|(name, value)| Field::Literal(name, value.as_bytes())));
    }
    let rest = reply.rest.take().filter(|_| !is_head);
    let ends = is_head || (reply.body.is_empty() && rest.is_none());
    // Failures mean that the client has disconnected.
    let mut sent = respond.send_head(reply.status, &fields, ends);
    if sent.is_ok() && !ends {
        sent = respond.send_data(Rope::new(reply.body.into_iter()), rest.is_none());
    }
    rest.filter(|_| sent.is_ok())
}
