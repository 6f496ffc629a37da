//! One HTTP/2 connection of gRPC clients: accepts streams, keeps the connection alive, ends it in time.
//!
//! A call is begun where it was accepted. A small inference is done by then, and its response is sent with the
//! connection's next write, without waking a task. Only calls that wait become tasks.
//!
//! Keep-alive options (P 2.7): this file handles `keepalive_*` and `max_connection_age*`, the HTTP/2 layer `http2_*`.

use super::call;
use super::context::GrpcContext;
use super::upkeep::{Tick, Upkeep};
use crate::hold;
use crate::idle::IdleHandle;
use crate::origin::{Caller, Client, Face};
use crate::shared::{Phase, Shared};
use crate::socket::Io;
use crate::stray;
use bytes::BytesMut;
use http2::{Connection, Request, StreamWriter};
use memory::Account;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::{Instant, sleep_until};

/// Number of calls that are begun between checks of the time. A usual call takes 5 µs.
pub const CALLS_PER_LOOK: u32 = 8;

/// Polls `work` once, and makes it a task if it is not done.
pub async fn start(work: impl Future<Output = ()> + 'static) {
    let mut work = Box::pin(work);
    let waits = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_pending())).await;
    if waits {
        hold::spawn(work);
    }
}

/// Counts as an open call of a connection until it is dropped.
struct OpenCall(Rc<Cell<usize>>);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Serves a connection until it ends.
pub async fn run<S: Io>(io: S, context: Arc<GrpcContext>, caller: Caller, place: IdleHandle) {
    let mut connection = Connection::new(io, BytesMut::new(), context.http2);
    let now = Instant::now();
    let account = Rc::new(context.shared.budget().account());
    let mut calls =
        ConnectionCalls { open: Rc::default(), heard_at: now, any: Rc::default(), account, client: caller.into() };
    place.transfer().follow(connection.progress());
    let mut upkeep = Upkeep::new(context.keepalive, context.age, now);
    // Made once and not for each read, because both register with their owners under a lock.
    let mut timer = pin!(sleep_until(upkeep.due()));
    let mut leaves = pin!(until_it_leaves(&context.shared, calls.any.clone()));
    poll_fn(|cx| {
        if place.is_close_requested() {
            dismiss(cx, &mut connection);
            return Poll::Ready(());
        }
        loop {
            if calls.poll(cx, &mut connection, &context).is_ready() {
                return Poll::Ready(());
            }
            // Changes made below are sent when the connection is polled again.
            let mut changed = false;
            if upkeep.awaits_pong() && connection.take_pong() {
                upkeep.ponged(Instant::now());
                changed = true;
            }
            if timer.as_mut().poll(cx).is_ready() {
                let now = Instant::now();
                match upkeep.tick(now, calls.heard_at, calls.open.get() > 0) {
                    Tick::Wait => {}
                    Tick::Ping => {
                        if connection.ping() {
                            upkeep.pinged(now);
                        }
                    }
                    Tick::Leave => connection.drain(),
                    Tick::End => return Poll::Ready(()),
                }
                timer.as_mut().reset(upkeep.due());
                changed = true;
            }
            if caller.face == Face::Crowded && calls.any.get() && !upkeep.is_leaving() {
                upkeep.leave(None);
                connection.drain_now();
                changed = true;
            }
            if !upkeep.is_leaving() && leaves.as_mut().poll(cx).is_ready() {
                // The reactor closes the connection when the server's grace period is over.
                upkeep.leave(None);
                connection.drain();
                changed = true;
            }
            if !changed {
                rest(cx, &connection, &place);
                return Poll::Pending;
            }
        }
    })
    .await;
    if let Some((io, read)) = connection.into_stray() {
        // Boxed, because other connections do not need it.
        Box::pin(stray::end_at_grpc(io, &read, context.shared.strays(), &caller)).await;
    }
}

/// Marks a connection without calls as one that may be closed when there is no room for another.
pub fn rest<S: Io>(cx: &Context<'_>, connection: &Connection<S>, place: &IdleHandle) {
    if connection.is_idle() {
        place.wait_for_close_request(cx);
    } else if place.waits() {
        place.work_on_request();
    }
}

/// Drains an idle connection, as far as that is possible without waiting.
pub fn dismiss<S: Io>(cx: &mut Context<'_>, connection: &mut Connection<S>) {
    connection.drain_now();
    // A call that arrived in this turn is reset with the connection: the GOAWAY said that it is not served.
    while let Poll::Ready(Some(_)) = connection.poll_accept(cx) {}
}

/// Waits until the connection has to be drained. A client that connects during the shutdown is told with its first
/// response; told before its first call, it would only connect again.
async fn until_it_leaves(shared: &Shared, any: Rc<Cell<bool>>) {
    // An error means that the server was dropped.
    let mut phase = shared.watch();
    let _ = phase.wait_for(|p| *p != Phase::Serving).await;
    let mut closing = pin!(phase.wait_for(|p| matches!(p, Phase::Closing(_))));
    poll_fn(|cx| if any.get() { Poll::Ready(()) } else { closing.as_mut().poll(cx).map(|_| ()) }).await;
}

struct ConnectionCalls {
    /// Number of open calls that became tasks.
    open: Rc<Cell<usize>>,
    /// Time of the last call.
    heard_at: Instant,
    /// Whether there was a call.
    any: Rc<Cell<bool>>,
    account: Rc<Account>,
    client: Client,
}

impl ConnectionCalls {
    /// Begins the calls that have arrived; their responses are sent together. Ready when there will be no more.
    fn poll<S: Io>(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection<S>,
        context: &Arc<GrpcContext>,
    ) -> Poll<()> {
        let mut taken = 0u32;
        while let Some((request, respond)) = match connection.poll_accept(cx) {
            Poll::Ready(call) => call,
            Poll::Pending => {
                if taken > 0 {
                    self.heard_at = Instant::now();
                }
                return Poll::Pending;
            }
        } {
            taken += 1;
            self.any.set(true);
            self.begin(cx, context, request, respond);
            if taken.is_multiple_of(CALLS_PER_LOOK) && hold::is_due() {
                // Responses are sent in the next turn.
                self.heard_at = Instant::now();
                hold::yield_turn(cx);
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    fn begin(&self, cx: &mut Context<'_>, context: &Arc<GrpcContext>, request: Request, respond: StreamWriter) {
        let Some(rest) = call::begin(context, cx, &self.client, &self.account, request, respond) else { return };
        self.open.set(self.open.get() + 1);
        let open = OpenCall(self.open.clone());
        hold::spawn(async move {
            rest.await;
            drop(open);
        });
    }
}
