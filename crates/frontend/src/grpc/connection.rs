//! One HTTP/2 connection of gRPC clients: accepts streams, keeps the connection alive, ends it in time.
//!
//! A call is begun where it was accepted: a small inference is then over, and goes out with the connection's next write
//! without any task having been woken. Only calls that wait become tasks.
//!
//! Keep-alive options (P 2.7): `keepalive_*` and `max_connection_age*` are seen to here, `http2_*` by the HTTP/2 layer.

use super::call;
use super::context::GrpcContext;
use super::upkeep::{Tick, Upkeep};
use crate::hold;
use crate::idle::IdleHandle;
use crate::origin::{Caller, Client};
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

/// How many calls one read brought are begun between looks at how long that took. A usual call takes 5 µs.
pub const CALLS_PER_LOOK: u32 = 8;

/// Runs `work` as far as it goes without waiting; what is left becomes a task of its own.
pub async fn start(work: impl Future<Output = ()> + 'static) {
    let mut work = Box::pin(work);
    let waits = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_pending())).await;
    if waits {
        hold::spawn(work);
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
pub async fn run<S: Io>(io: S, context: Arc<GrpcContext>, caller: Caller, place: IdleHandle) {
    let mut connection = Connection::new(io, BytesMut::new(), context.http2);
    let now = Instant::now();
    let account = Rc::new(context.shared.budget().account());
    let mut calls = Calls { open: Rc::default(), heard_at: now, any: Rc::default(), account, client: caller.into() };
    let mut upkeep = Upkeep::new(context.keepalive, context.age, now);
    // Made once, not for each read: both register with their owners, under a lock.
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
            // Whatever changes below goes out when the connection is polled again.
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
            if !upkeep.is_leaving() && leaves.as_mut().poll(cx).is_ready() {
                // The reactor ends us when the grace of the whole server is over.
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
        // In a box: no other connection needs it.
        Box::pin(stray::end_at_grpc(io, &read, context.shared.strays(), &caller)).await;
    }
}

/// Marks a connection without calls as one that may be closed when there is no room for another.
pub fn rest<S: Io>(cx: &Context<'_>, connection: &Connection<S>, place: &IdleHandle) {
    if connection.is_idle() {
        place.wait_for_close_request(cx);
    } else if place.waits() {
        place.work();
    }
}

/// Tells the client of an idle connection that it ends; as far as that goes at once.
pub fn dismiss<S: Io>(cx: &mut Context<'_>, connection: &mut Connection<S>) {
    connection.drain_now();
    // A call that came with this very turn is reset with the connection: it was told that it is not served.
    while let Poll::Ready(Some(_)) = connection.poll_accept(cx) {}
}

/// Until the client is to be asked to go. One that connects while the server leaves is asked with its first answer:
/// asked before it made a call, it would only connect again.
async fn until_it_leaves(shared: &Shared, any: Rc<Cell<bool>>) {
    // An error means that there is no server any more.
    let mut phase = shared.watch();
    let _ = phase.wait_for(|p| *p != Phase::Serving).await;
    let mut closing = pin!(phase.wait_for(|p| matches!(p, Phase::Closing(_))));
    poll_fn(|cx| if any.get() { Poll::Ready(()) } else { closing.as_mut().poll(cx).map(|_| ()) }).await;
}

/// The calls of one connection.
struct Calls {
    /// Those that became tasks and are not over.
    open: Rc<Cell<usize>>,
    /// When the last call came.
    heard_at: Instant,
    /// Whether one ever came.
    any: Rc<Cell<bool>>,
    /// What they make us hold.
    account: Rc<Account>,
    /// Who makes them.
    client: Client,
}

impl Calls {
    /// Runs the calls that have come; their responses are sent together. Ready when no more will come.
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
                // What was answered goes out with the rest, in the next turn.
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
