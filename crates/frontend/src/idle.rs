//! Connections of a reactor that wait for their client: for a request, the rest of its head, or the close. Clients pool
//! connections, so they stay open. When there is no room for a new connection, one of them is closed: the oldest that
//! never made a request, else the oldest. Connections of HTTP/1.1 are also closed after `IDLE_TIME_MAX`.
//!
//! While most connections wait for clients that are slower than the smallest rate (`transfer`), no connection that has
//! made a request is closed for a new one, which then gets one of a few seats for health checks.
//!
//! An HTTP/2 connection without an open stream waits, too. It is woken and closes itself with a GOAWAY, so that its
//! client can repeat calls that are still on their way on another connection.
//!
//! Invariant: this module closes only connections that wait, that are too slow, or that have a seat for health checks.

use crate::transfer::{Shortage, Transfer, Verdict};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The connections of one reactor.
pub struct Idle {
    slots: RefCell<Vec<Rc<IdleConnection>>>,
    /// Number of waits begun, which orders them: cheaper than reading the clock for each request.
    waits: Cell<u64>,
    /// Time of the last sweep, from which ages of waits are counted.
    now: Cell<Instant>,
}

#[derive(Default)]
struct IdleConnection {
    /// Number of its front end.
    kind: Cell<usize>,
    at: Cell<usize>,
    /// Number of the wait before which it was accepted, if it has a seat for health checks.
    seat: Cell<Option<u64>>,
    /// True once the client has made a request.
    has_worked: Cell<bool>,
    transfer: Transfer,
    /// Order and time of the wait; `None` = not waiting.
    waits: Cell<Option<(u64, Instant)>>,
    task: RefCell<Option<AbortHandle>>,
    /// Wakes a connection that closes itself; `None` once woken, or before its first wait.
    close_waker: RefCell<Option<Waker>>,
    closes_itself: Cell<bool>,
}

impl Idle {
    pub fn new() -> Rc<Self> {
        Rc::new(Self { slots: RefCell::default(), waits: Cell::new(0), now: Cell::new(Instant::now()) })
    }

    /// Registers a new connection of a front end. It does not wait at first.
    pub fn register(self: &Rc<Self>, kind: usize) -> IdleHandle {
        let mut slots = self.slots.borrow_mut();
        let slot = Rc::new(IdleConnection {
            kind: Cell::new(kind),
            at: Cell::new(slots.len()),
            waits: Cell::new(None),
            ..IdleConnection::default()
        });
        slots.push(slot.clone());
        IdleHandle { slot, idle: self.clone() }
    }

    /// Makes room by closing a connection that waits, of one front end or of any. Returns false if there is none that
    /// may be closed. Scans all connections, because it is needed only when there is no room.
    pub fn close_oldest(&self, kind: Option<usize>, rate_min: u64) -> bool {
        let slots = self.slots.borrow();
        let oldest = slots.iter().filter(|s| s.seat.get().is_none() && kind.is_none_or(|kind| s.kind.get() == kind));
        // One that was told that it is too slow may wait for its end.
        let is_good = |s: &IdleConnection| s.has_worked.get() && !s.transfer.is_too_slow();
        let oldest = oldest.filter_map(|s| Some((is_good(s), s.waits.get()?.0, s)));
        let Some((is_good, _, slot)) = oldest.min_by_key(|(is_good, order, _)| (*is_good, *order)) else {
            return false;
        };
        let is_behind = |s: &&Rc<IdleConnection>| s.waits.get().is_none() && s.transfer.is_behind(rate_min);
        if is_good && rate_min > 0 && slots.iter().filter(is_behind).count() > slots.len() / 2 {
            return false;
        }
        slot.close()
    }

    /// Registers a connection that gets one of `seats` seats for health checks, if necessary that of the oldest.
    pub fn register_seat(self: &Rc<Self>, kind: usize, seats: usize) -> Option<IdleHandle> {
        {
            let slots = self.slots.borrow();
            let taken = || slots.iter().filter(|s| s.seat.get().is_some() && s.task.borrow().is_some());
            if taken().count() >= seats {
                taken().min_by_key(|s| s.seat.get())?.abort();
            }
        }
        let handle = self.register(kind);
        handle.slot.seat.set(Some(self.next_order()));
        Some(handle)
    }

    fn next_order(&self) -> u64 {
        let order = self.waits.get();
        self.waits.set(order + 1);
        order
    }

    /// Closes connections whose clients are slower than `rate_min` bytes per second while there `is_shortage`. Calls
    /// `closed` for each. Called after each `passed`.
    pub fn sweep_slow(&self, passed: Duration, rate_min: u64, is_shortage: bool, mut closed: impl FnMut(Shortage)) {
        for slot in self.slots.borrow().iter() {
            if !is_shortage || slot.waits.get().is_some() {
                slot.transfer.restart();
                continue;
            }
            match slot.transfer.look(passed, rate_min) {
                Verdict::Keep => {}
                Verdict::Told(delayed) => closed(delayed),
                Verdict::Close(delayed) => {
                    delayed.into_iter().for_each(&mut closed);
                    slot.abort();
                }
            }
        }
    }

    /// Closes connections that have waited longer than `age_max`; returns their number.
    pub fn sweep(&self, now: Instant, age_max: Duration) -> usize {
        self.now.set(now);
        let is_old = |slot: &&Rc<IdleConnection>| {
            !slot.closes_itself.get() && slot.waits.get().is_some_and(|(_, since)| now.duration_since(since) >= age_max)
        };
        self.slots.borrow().iter().filter(is_old).filter(|slot| slot.close()).count()
    }
}

impl IdleConnection {
    fn close(&self) -> bool {
        self.waits.set(None);
        if self.closes_itself.get() {
            return self.close_waker.take().map(Waker::wake).is_some();
        }
        self.abort()
    }

    fn abort(&self) -> bool {
        let task = self.task.borrow_mut().take();
        task.inspect(AbortHandle::abort).is_some()
    }
}

/// A connection's registration with its reactor's [`Idle`]. Dropping it removes the connection.
pub struct IdleHandle {
    slot: Rc<IdleConnection>,
    idle: Rc<Idle>,
}

impl IdleHandle {
    /// Returns a function that takes the task whose abort closes the connection.
    pub fn task_setter(&self) -> impl FnOnce(AbortHandle) + use<> {
        let slot = self.slot.clone();
        move |task| *slot.task.borrow_mut() = Some(task)
    }

    /// Marks the connection as waiting.
    pub fn wait(&self) {
        self.slot.waits.set(Some((self.idle.next_order(), self.idle.now.get())));
    }

    /// Like `wait`, for a connection that closes itself: to close it, it is woken and `is_close_requested` is true.
    pub fn wait_for_close_request(&self, cx: &Context<'_>) {
        self.slot.closes_itself.set(true);
        self.wait();
        let mut close_waker = self.slot.close_waker.borrow_mut();
        if !close_waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *close_waker = Some(cx.waker().clone());
        }
    }

    /// Whether a connection that called `wait_for_close_request` has to close itself.
    pub fn is_close_requested(&self) -> bool {
        self.slot.closes_itself.get() && self.slot.close_waker.borrow().is_none()
    }

    pub fn waits(&self) -> bool {
        self.slot.waits.get().is_some()
    }

    /// Marks the connection as not waiting.
    pub fn work(&self) {
        self.slot.waits.set(None);
    }

    /// Marks the connection as not waiting, because its client has made a request.
    pub fn work_on_request(&self) {
        self.work();
        self.slot.has_worked.set(true);
    }

    /// Bytes that the connection moves.
    pub fn transfer(&self) -> &Transfer {
        &self.slot.transfer
    }
}

impl Drop for IdleHandle {
    fn drop(&mut self) {
        let mut slots = self.idle.slots.borrow_mut();
        let at = self.slot.at.get();
        if at < slots.len() {
            slots.swap_remove(at);
        }
        if let Some(moved) = slots.get(at) {
            moved.at.set(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn the_connection_that_waited_longest_is_closed_first_and_a_busy_one_never() {
        let idle = Idle::new();
        let start = Instant::now();
        let mut connections = Vec::new();
        for _ in 0..4 {
            let place = idle.register(0);
            let task = tokio::spawn(std::future::pending::<()>());
            place.task_setter()(task.abort_handle());
            connections.push((place, task));
        }
        assert!(!idle.close_oldest(None, 0), "none waits");
        for i in [2, 0, 3] {
            connections[i].0.wait();
        }
        connections[2].0.work();
        connections[2].0.wait();
        drop(connections.remove(1));
        // Now 0, 2, 3 of the first four are left; they waited in the order 0, 3, 2.
        assert!(idle.close_oldest(None, 0));
        assert!((&mut connections[0].1).await.unwrap_err().is_cancelled());
        assert_eq!(idle.sweep(start + Duration::from_secs(10), Duration::from_secs(3600)), 0);
        connections[1].0.wait();
        assert_eq!(
            idle.sweep(start + Duration::from_secs(3605), Duration::from_secs(3600)),
            1,
            "the one from the start"
        );
        assert!((&mut connections[2].1).await.unwrap_err().is_cancelled());
        assert!(!connections[1].1.is_finished());
        assert!(idle.close_oldest(None, 0) && !idle.close_oldest(None, 0));
        // A connection that closes itself is woken once, and not because of its age.
        let place = idle.register(0);
        place.wait_for_close_request(&Context::from_waker(Waker::noop()));
        assert_eq!(idle.sweep(start + Duration::from_secs(9000), Duration::from_secs(3600)), 0);
        assert!(!place.is_close_requested() && place.waits());
        assert!(!idle.close_oldest(Some(1), 0), "another front end's");
        assert!(idle.close_oldest(Some(0), 0) && place.is_close_requested() && !idle.close_oldest(None, 0));
    }

    fn connected(idle: &Rc<Idle>, seats: Option<usize>) -> (IdleHandle, tokio::task::JoinHandle<()>) {
        let place = match seats {
            Some(seats) => idle.register_seat(0, seats).expect("there are seats"),
            None => idle.register(0),
        };
        let task = tokio::spawn(std::future::pending::<()>());
        place.task_setter()(task.abort_handle());
        (place, task)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn no_client_that_made_a_request_is_closed_while_most_are_slow() {
        let idle = Idle::new();
        let all: Vec<_> = (0..5).map(|_| connected(&idle, None)).collect();
        for (place, _) in &all {
            place.work_on_request();
        }
        all[0].0.wait();
        for (place, _) in &all[1..4] {
            place.transfer().wait_for(Some(Shortage::SlowBody));
        }
        assert!(!idle.close_oldest(None, 1024), "three of five have moved nothing");
        all[4].0.wait();
        let fresh = connected(&idle, None);
        fresh.0.wait();
        assert!(idle.close_oldest(None, 1024) && fresh.0.slot.waits.get().is_none(), "it made no request");
        let (told, good) = (&all[1].0, &all[4].0);
        while told.transfer().look(Duration::from_secs(30), 1024) == Verdict::Keep {}
        told.wait();
        assert!(idle.close_oldest(None, 1024) && !told.waits() && good.waits(), "it was too slow, and ends");
        told.transfer().moved(30 * 1024);
        assert!(idle.close_oldest(None, 1024) && !all[0].0.waits(), "two of six are slow");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_oldest_seat_is_given_to_a_new_connection() {
        let idle = Idle::new();
        assert!(idle.register_seat(0, 0).is_none());
        let mut taken: Vec<_> = (0..4).map(|_| connected(&idle, Some(2))).collect();
        for (_, task) in &mut taken[..2] {
            assert!(task.await.unwrap_err().is_cancelled());
        }
        assert!(taken[2..].iter().all(|(_, task)| !task.is_finished()));
        taken[2].0.wait();
        assert!(!idle.close_oldest(None, 0), "a seat is no room for others");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn slow_clients_are_closed_only_during_a_shortage() {
        let idle = Idle::new();
        let (place, task) = connected(&idle, None);
        place.work();
        place.transfer().wait_for(Some(Shortage::SlowResponse));
        let mut closed = Vec::new();
        let mut sweep = |is_shortage| {
            idle.sweep_slow(Duration::from_secs(10), 1024, is_shortage, |shortage| closed.push(shortage));
            closed.len()
        };
        assert!((0..9).all(|_| sweep(false) == 0) && (0..3).all(|_| sweep(true) == 0));
        assert_eq!(sweep(true), 1, "after 30 s");
        assert!(task.await.unwrap_err().is_cancelled());
        assert_eq!(closed, [Shortage::SlowResponse]);
    }
}
