//! One HTTP/2 connection of gRPC clients: accepts streams, keeps the connection alive, ends it in time.
//!
//! A call is begun where it was accepted: a small inference is then over, and goes out with the connection's next write
//! without any task having been woken. Only calls that wait become tasks.
//!
//! Of the keep-alive options `keepalive_*` and `max_connection_age*` are honoured. `http2_max_pings_without_data`,
//! `http2_min_recv_ping_interval_without_data` and `http2_max_ping_strikes` are not: h2 answers pings itself and does not report
//! them (P 2.7, D12).

use super::call;
use super::upkeep::{Age, Keepalive, Tick, Upkeep};
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
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
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
    age: Age,
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
            age: Age {
                max: positive(options.max_connection_age_ms),
                grace: positive(options.max_connection_age_grace_ms),
            },
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
    let mut pings = connection.ping_pong();
    let now = Instant::now();
    let mut calls = Calls { open: Rc::default(), accepted: Vec::new(), single: 0, heard_at: now };
    let mut upkeep = Upkeep::new(context.keepalive, context.age, now);
    // Made once, not for each read: both register with their owners, under a lock.
    let mut timer = pin!(sleep_until(upkeep.due()));
    let mut closing = pin!(until_closing(&context.shared));
    poll_fn(|cx| {
        loop {
            if calls.poll(cx, &mut connection, &context).is_ready() {
                return Poll::Ready(());
            }
            // Whatever changes below goes out when the connection is polled again.
            let mut changed = false;
            if upkeep.awaits_pong() && poll_pong(&mut pings, cx).is_ready() {
                upkeep.ponged(Instant::now());
                changed = true;
            }
            if timer.as_mut().poll(cx).is_ready() {
                let now = Instant::now();
                match upkeep.tick(now, calls.heard_at, calls.open.get() > 0) {
                    Tick::Wait => {}
                    Tick::Ping => {
                        if pings.as_mut().is_some_and(|pings| pings.send_ping(Ping::opaque()).is_ok()) {
                            upkeep.pinged(now);
                        }
                    }
                    Tick::Leave => connection.graceful_shutdown(),
                    Tick::End => return Poll::Ready(()),
                }
                timer.as_mut().reset(upkeep.due());
                changed = true;
            }
            if !upkeep.is_leaving() && closing.as_mut().poll(cx).is_ready() {
                // The reactor ends us when the grace of the whole server is over.
                upkeep.leave(None);
                connection.graceful_shutdown();
                changed = true;
            }
            if !changed {
                return Poll::Pending;
            }
        }
    })
    .await;
}

async fn until_closing(shared: &Shared) {
    // An error means that there is no server any more.
    let _ = shared.watch().wait_for(|p| matches!(p, Phase::Closing(_))).await;
}

fn poll_pong(pings: &mut Option<h2::PingPong>, cx: &mut Context<'_>) -> Poll<()> {
    match pings {
        // An error means that the connection is ending, which `accept` reports.
        Some(pings) => pings.poll_pong(cx).map(|_| ()),
        None => Poll::Pending,
    }
}

/// Turns in a row that brought one call each, after which the next turn is expected to.
const SINGLE_TURNS: u32 = 16;

/// The calls of one connection.
struct Calls {
    /// Those that became tasks and are not over.
    open: Rc<Cell<usize>>,
    /// Taken and not yet run.
    accepted: Vec<Accepted>,
    /// How many of the last turns in a row brought no more than one call.
    single: u32,
    /// When the last call came.
    heard_at: Instant,
}

impl Calls {
    /// Takes and runs the calls that are there, and writes what they answered. Ready when there will be no more.
    fn poll(&mut self, cx: &mut Context<'_>, connection: &mut Connection, context: &Arc<GrpcContext>) -> Poll<()> {
        let mut taken = 0;
        loop {
            let poll = connection.poll_accept(cx);
            match poll {
                Poll::Ready(Some(Ok(call))) => {
                    taken += 1;
                    if taken > 1 {
                        self.single = 0;
                    }
                    // Taking another writes out what is ready. So all that one read brought are taken before the first is run,
                    // and their answers leave together; except where calls come one by one, and looking for more is in vain.
                    if self.single >= SINGLE_TURNS {
                        self.begin(cx, context, call);
                    } else {
                        self.accepted.push(call);
                        if self.accepted.len() >= ACCEPTED_CALLS_MAX {
                            self.begin_all(cx, context);
                        }
                    }
                }
                Poll::Ready(_) => {
                    self.begin_all(cx, context);
                    return Poll::Ready(());
                }
                Poll::Pending if self.accepted.is_empty() => break,
                Poll::Pending => self.begin_all(cx, context),
            }
        }
        if taken > 0 {
            self.heard_at = Instant::now();
            if taken == 1 {
                self.single = self.single.saturating_add(1);
            }
        }
        Poll::Pending
    }

    fn begin_all(&mut self, cx: &mut Context<'_>, context: &Arc<GrpcContext>) {
        let mut accepted = std::mem::take(&mut self.accepted);
        for call in accepted.drain(..) {
            self.begin(cx, context, call);
        }
        // Kept for its memory.
        self.accepted = accepted;
    }

    fn begin(&self, cx: &mut Context<'_>, context: &Arc<GrpcContext>, (request, respond): Accepted) {
        let Some(rest) = call::begin(context, cx, request, respond) else { return };
        self.open.set(self.open.get() + 1);
        let open = OpenCall(self.open.clone());
        spawn_local(async move {
            rest.await;
            drop(open);
        });
    }
}

type Connection = h2::server::Connection<TcpStream, Rope>;
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
