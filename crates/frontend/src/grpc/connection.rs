//! One HTTP/2 connection of gRPC clients: accepts streams, keeps the connection alive, ends it in time.
//!
//! A call is polled once where it was accepted: a small inference is then over, and goes out with the connection's next write
//! without any task having been woken. Only calls that wait become tasks. All calls that one read brought are accepted before the
//! first is run, because accepting writes out what is ready: so their answers leave together.
//!
//! Of the keep-alive options `keepalive_*` and `max_connection_age*` are honoured. `http2_max_pings_without_data`,
//! `http2_min_recv_ping_interval_without_data` and `http2_max_ping_strikes` are not: h2 answers pings itself and does not report
//! them (P 2.7, D12).

use super::call;
use crate::access::Restrictions;
use crate::control::Control;
use crate::forward::HeaderForward;
use crate::limits::{
    ACCEPTED_CALLS_MAX, CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, HEADER_LIST_BYTES_MAX, SEND_BUFFER_BYTES_MAX,
    STREAM_WINDOW_BYTES, STREAMS_PER_CONNECTION_MAX,
};
use crate::options::GrpcOptions;
use crate::rope::Rope;
use crate::shared::{Phase, Shared};
use engine::Engine;
use h2::server::SendResponse;
use h2::{Ping, RecvStream};
use http::Request;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tensor::Result;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until};

/// What every gRPC connection knows.
pub struct GrpcContext {
    /// Models.
    pub engine: Arc<Engine>,
    /// Decides control operations.
    pub control: Arc<dyn Control>,
    /// How far the shutdown is.
    pub shared: Arc<Shared>,
    /// Restricted protocols.
    pub restrictions: Restrictions,
    /// Forwarded metadata.
    pub forward: HeaderForward,
    /// zlib level of inference responses; `None` = not packed.
    pub compression_level: Option<u32>,
    keepalive: Keepalive,
    age: Option<Duration>,
    age_grace: Option<Duration>,
}

#[derive(Clone, Copy)]
struct Keepalive {
    time: Duration,
    timeout: Duration,
    without_calls: bool,
}

impl GrpcContext {
    /// Compiles the options.
    ///
    /// # Errors
    /// INVALID_ARG for options that cannot be.
    pub fn new(
        engine: Arc<Engine>,
        control: Arc<dyn Control>,
        shared: Arc<Shared>,
        options: &GrpcOptions,
    ) -> Result<Self> {
        let positive = |ms: u64| (ms > 0).then(|| Duration::from_millis(ms));
        Ok(Self {
            engine,
            control,
            shared,
            restrictions: Restrictions::new(&options.restrictions)?,
            forward: HeaderForward::new(&options.header_forward_pattern)?,
            compression_level: match options.infer_response_compression_level.as_str() {
                "low" => Some(1),
                "medium" => Some(6),
                "high" => Some(9),
                _ => None,
            },
            keepalive: Keepalive {
                time: positive(options.keepalive_time_ms).unwrap_or(Duration::from_secs(7200)),
                timeout: positive(options.keepalive_timeout_ms).unwrap_or(Duration::from_secs(20)),
                without_calls: options.keepalive_permit_without_calls,
            },
            age: positive(options.max_connection_age_ms),
            age_grace: positive(options.max_connection_age_grace_ms),
        })
    }
}

/// Flow control that suits tensors.
pub fn builder() -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .max_send_buffer_size(SEND_BUFFER_BYTES_MAX);
    builder
}

/// Runs `work` as far as it goes without waiting; what is left becomes a task of its own.
pub async fn start(work: impl Future<Output = ()> + 'static) {
    let mut work = Box::pin(work);
    let waits = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_pending())).await;
    if waits {
        spawn_local(work);
    }
}

/// Counts open calls of a connection.
struct OpenCall(Rc<Cell<usize>>);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Serves a connection until it ends.
pub async fn run(io: TcpStream, context: Arc<GrpcContext>) {
    let Ok(mut connection) = builder().handshake::<_, Rope>(io).await else { return };
    let calls = Rc::new(Cell::new(0usize));
    let mut pings = connection.ping_pong();
    let keepalive = context.keepalive;
    let mut ping_at = Instant::now() + keepalive.time;
    let mut pong_by: Option<Instant> = None;
    // No connection lives so long that this matters; it stands for "never".
    let never = Instant::now() + Duration::from_secs(86_400 * 365);
    let mut end_at = context.age.map_or(never, |age| Instant::now() + age);
    let mut leaving = false;
    let mut phase = context.shared.watch();
    let mut accepted = Vec::new();
    loop {
        let timer = pong_by.unwrap_or(ping_at).min(end_at);
        tokio::select! {
            biased;
            ended = accept_all(&mut connection, &mut accepted) => {
                ping_at = Instant::now() + keepalive.time;
                for (request, respond) in accepted.drain(..) {
                    calls.set(calls.get() + 1);
                    let (context, open) = (context.clone(), OpenCall(calls.clone()));
                    start(async move {
                        call::serve(context, request, respond).await;
                        drop(open);
                    })
                    .await;
                }
                if ended {
                    return;
                }
            }
            () = poll_pong(&mut pings), if pong_by.is_some() => {
                pong_by = None;
                ping_at = Instant::now() + keepalive.time;
            }
            () = sleep_until(timer) => {
                let now = Instant::now();
                if pong_by.is_some_and(|by| by <= now) {
                    return; // nobody is there any more
                }
                if end_at <= now {
                    if leaving {
                        return; // out of grace
                    }
                    leaving = true;
                    connection.graceful_shutdown();
                    end_at = context.age_grace.map_or(never, |grace| now + grace);
                } else if pong_by.is_none() && ping_at <= now {
                    ping_at = now + keepalive.time;
                    let wanted = calls.get() > 0 || keepalive.without_calls;
                    if let Some(pings) = pings.as_mut().filter(|_| wanted)
                        && pings.send_ping(Ping::opaque()).is_ok()
                    {
                        pong_by = Some(now + keepalive.timeout);
                    }
                }
            }
            closing = phase.wait_for(|p| matches!(p, Phase::Closing(_))), if !leaving => {
                if closing.is_err() {
                    return;
                }
                leaving = true;
                connection.graceful_shutdown();
                // The reactor ends us when the grace of the whole server is over.
                end_at = never;
            }
        }
    }
}

type Accepted = (Request<RecvStream>, SendResponse<Rope>);

/// Waits for a call and takes all that are there; true when there will be no more.
pub async fn accept_all<T>(connection: &mut h2::server::Connection<T, Rope>, calls: &mut Vec<Accepted>) -> bool
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    poll_fn(|cx| {
        while calls.len() < ACCEPTED_CALLS_MAX {
            match connection.poll_accept(cx) {
                Poll::Ready(Some(Ok(call))) => calls.push(call),
                Poll::Ready(_) => return Poll::Ready(true),
                Poll::Pending if calls.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(false)
    })
    .await
}

async fn poll_pong(pings: &mut Option<h2::PingPong>) {
    match pings {
        // An error means that the connection is ending, which `accept` reports.
        Some(pings) => poll_fn(|cx| pings.poll_pong(cx).map(|_| ())).await,
        None => std::future::pending().await,
    }
}
