//! `grpc.health.v1.Health/Watch`: the readiness of the server now and after each change. Triton has only `Check`.
//!
//! As in `Check`, every `service` stands for the whole server. Watchers are woken when readiness changes: the thread
//! that changes a model computes it once for all. Models whose own code decides their readiness are queried when a
//! watch begins, and every second by one watcher for all. A client that reads late gets only the latest status.
//!
//! When a shutdown begins, the last message is NOT_SERVING and the call ends, so that no drain waits for a watcher.

use super::context::{Call, GrpcContext};
use super::decode::decode_long;
use super::message::frame;
use super::reply;
use super::status::Status;
use super::unary::required;
use crate::encoding::Encoding;
use crate::exchange::GrpcStream;
use crate::limits::{HEALTH_WATCH_ASK, HEALTH_WATCH_RETRY, HEALTH_WATCHERS_MAX};
use crate::shared::{Counted, Phase};
use http2::{Gone, StreamWriter};
use prost::Message;
use protocol::pb::health::{HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus};
use std::future::poll_fn;
use std::time::Duration;
use tensor::{Error, Fault};
use tokio::time::{Instant, sleep, sleep_until};

/// Serves one watcher until it disconnects, its deadline passes or the server shuts down.
pub async fn serve(stream: GrpcStream<'_>) {
    let GrpcStream { context, mut call, mut respond, deadline } = stream;
    let until = deadline.map(|limit| Instant::now() + limit);
    let full = format!("health is watched by {HEALTH_WATCHERS_MAX} clients, which is the limit; use Check");
    let Some((HealthCheckRequest { .. }, _counted)) = begin(context, &mut call, &mut respond, until, full).await else {
        return;
    };
    let mut phase = context.shared.watch();
    let mut readiness = context.shared.readiness();
    let mut models = context.shared.models_readiness();
    let mut asking = Box::pin(ask(context, Duration::ZERO));
    if *readiness.borrow_and_update() {
        // Without a watcher the readiness of models is unknown, so the first status waits for them, up to the deadline.
        tokio::select! {
            () = &mut asking => asking = Box::pin(ask(context, HEALTH_WATCH_ASK)),
            _ = phase.wait_for(|p| *p != Phase::Serving) => {}
            _ = poll_fn(|cx| respond.poll_reset(cx)) => return,
            () = sleep_for(until) => {}
        }
    }
    let mut last_sent = None;
    let status = loop {
        let ready = *readiness.borrow_and_update() && *models.borrow_and_update() && !context.shared.is_parting();
        let now = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        // Without room the last message was not sent yet.
        let behind = last_sent.is_some_and(|told| told != now) && respond.capacity() == 0;
        if last_sent != Some(now) && !behind {
            if send_status(&mut respond, now).is_err() {
                return;
            }
            last_sent = Some(now);
        }
        tokio::select! {
            biased;
            // An error means that the server was dropped.
            _ = phase.wait_for(|p| *p != Phase::Serving) => {
                let now = ServingStatus::NotServing;
                if last_sent != Some(now) && send_status(&mut respond, now).is_err() {
                    return;
                }
                break Status::ok();
            }
            _ = poll_fn(|cx| respond.poll_reset(cx)) => return,
            () = sleep_for(until) => break Status::deadline_exceeded(),
            () = sleep(HEALTH_WATCH_RETRY), if behind => {}
            // Cannot fail: the sender is in `shared`.
            _ = readiness.changed(), if !behind => {}
            _ = models.changed(), if !behind => {}
            () = &mut asking => asking = Box::pin(ask(context, HEALTH_WATCH_ASK)),
        }
    };
    reply::end(&mut respond, &status);
}

/// Queries the readiness of models after a while, unless another watcher did.
async fn ask(context: &GrpcContext, after: Duration) {
    if !after.is_zero() {
        sleep(after).await;
        if !context.shared.is_query_due() {
            return;
        }
    }
    let engine = &context.engine;
    // While the server is not ready for another reason, models are not queried and count as ready.
    let ready = !engine.is_ready() || engine.readiness().get().await || !engine.is_ready();
    context.shared.set_models_ready(ready);
}

/// Begins a call that reports changes until its client disconnects: reads its request and counts it. `None` if it was
/// rejected or the client disconnected.
///
/// `full`: error text if there are too many such calls.
pub(super) async fn begin<'c, M: Message + Default>(
    context: &'c GrpcContext,
    call: &mut Call,
    respond: &mut StreamWriter,
    until: Option<Instant>,
    full: String,
) -> Option<(M, Counted<'c>)> {
    let asked = tokio::select! {
        biased;
        asked = request(call) => asked,
        () = sleep_for(until) => Err(Status::deadline_exceeded()),
    };
    let counted = asked.and_then(|asked| match context.shared.watcher() {
        Some(counted) => Ok((asked, counted)),
        None => Err(Error::exhausted(full).by(Fault::Server).into()),
    });
    match counted {
        Ok(begun) => reply::begin(respond, Encoding::Identity).is_ok().then_some(begun),
        Err(status) => {
            reply::reject(respond, &status);
            None
        }
    }
}

async fn request<M: Message + Default>(call: &mut Call) -> Result<M, Status> {
    let message = required(poll_fn(|cx| call.messages.poll_next(cx)).await)?;
    decode_long(message)
}

pub(super) async fn sleep_for(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

fn send_status(respond: &mut StreamWriter, status: ServingStatus) -> Result<(), Gone> {
    respond.send_data(frame(&HealthCheckResponse { status: status.into() }), false)
}
