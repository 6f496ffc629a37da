//! Connections of a reactor that wait for their client: for a request, the rest of its head, or the close. Clients pool
//! connections, so they stay open. The oldest are closed when there is no room for a new connection, and connections of
//! HTTP/1.1 after `IDLE_TIME_MAX`.
//!
//! An HTTP/2 connection without an open stream waits, too. It is woken and closes itself with a GOAWAY, so that its
//! client can repeat calls that are still on their way on another connection.
//!
//! Invariant: this module closes only connections that wait.

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

    /// Closes the connection that has waited longest, of one front end or of any. Returns false if none waits. Scans
    /// all connections, because it is needed only when there is no room.
    pub fn close_oldest(&self, kind: Option<usize>) -> bool {
        let slots = self.slots.borrow();
        let oldest = slots.iter().filter(|s| kind.is_none_or(|kind| s.kind.get() == kind));
        let oldest = oldest.filter_map(|s| Some((s.waits.get()?.0, s))).min_by_key(|(order, _)| *order);
        oldest.is_some_and(|(_, slot)| slot.close())
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
        let order = self.idle.waits.get();
        self.idle.waits.set(order + 1);
        self.slot.waits.set(Some((order, self.idle.now.get())));
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
        assert!(!idle.close_oldest(None), "none waits");
        for i in [2, 0, 3] {
            connections[i].0.wait();
        }
        connections[2].0.work();
        connections[2].0.wait();
        drop(connections.remove(1));
        // Now 0, 2, 3 of the first four are left; they waited in the order 0, 3, 2.
        assert!(idle.close_oldest(None));
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
        assert!(idle.close_oldest(None) && !idle.close_oldest(None));
        // A connection that closes itself is woken once, and not because of its age.
        let place = idle.register(0);
        place.wait_for_close_request(&Context::from_waker(Waker::noop()));
        assert_eq!(idle.sweep(start + Duration::from_secs(9000), Duration::from_secs(3600)), 0);
        assert!(!place.is_close_requested() && place.waits());
        assert!(!idle.close_oldest(Some(1)), "another front end's");
        assert!(idle.close_oldest(Some(0)) && place.is_close_requested() && !idle.close_oldest(None));
    }
}
