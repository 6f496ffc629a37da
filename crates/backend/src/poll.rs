//! Threads of the front ends that already wait for sockets and can also watch the sockets of a backend.
//!
//! A response from a runner usually ends a request on a connection that a reactor serves. If that reactor also reads
//! the runner's socket, no other thread is woken: that saves 7 µs of a round trip of 17 µs (4 KiB, two cores).
//!
//! Invariant: a poller drops the callback when it stops watching its socket, so the owner of the callback finds out.

use parking_lot::{Mutex, RwLock};
use std::any::Any;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Tells a poller what to do with a socket whose callback ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The socket is drained: wait until it is readable again.
    Wait,
    /// More data may be there: call again.
    Again,
    /// The socket is finished: drop it and the callback.
    Leave,
}

/// Called when a socket is readable. Each call reads a limited amount, because the thread serves other sockets, too.
pub type OnReadable = Box<dyn FnMut() -> Next + Send>;

/// A thread that waits for connected Unix domain sockets.
pub trait Poller: Send + Sync {
    /// Calls `ready` on its own thread whenever the socket is readable, until `ready` returns `Leave`, then drops both.
    fn watch(&self, socket: OwnedFd, ready: OnReadable);
}

/// A turn of a reactor: what it does between two waits for its sockets.
struct Turn {
    kept: Vec<Box<dyn Any>>,
    wake: Box<dyn Fn()>,
}

thread_local! {
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// Gives this thread turns. `wake` is called for the first value of a turn; call [`end_turn`] after all other ready
/// work.
pub fn begin_turns(wake: impl Fn() + 'static) {
    TURN.with_borrow_mut(|turn| *turn = Some(Turn { kept: Vec::new(), wake: Box::new(wake) }));
}

/// Keeps a value until the end of this thread's turn, which may drop it. Drops it at once on a thread without turns.
pub fn keep_for_turn(value: Box<dyn Any>) {
    // A value that is not kept is dropped after the borrow.
    let _left = TURN.try_with(|turn| match &mut *turn.borrow_mut() {
        Some(turn) => {
            if turn.kept.is_empty() {
                (turn.wake)();
            }
            turn.kept.push(value);
            None
        }
        None => Some(value),
    });
}

/// Drops what was kept for this turn.
pub fn end_turn() {
    let kept = TURN.with_borrow_mut(|turn| turn.as_mut().map(|turn| std::mem::take(&mut turn.kept)));
    drop(kept);
}

type OnOffer = Box<dyn Fn() + Send + Sync>;

/// Pollers of all servers of the process.
struct Offered {
    pollers: RwLock<Vec<Weak<dyn Poller>>>,
    next: AtomicUsize,
    on_offer: Mutex<Vec<OnOffer>>,
}

static OFFERED: Offered =
    Offered { pollers: RwLock::new(Vec::new()), next: AtomicUsize::new(0), on_offer: Mutex::new(Vec::new()) };

/// Adds a poller, which is used for as long as it lives.
pub fn offer(poller: &Arc<dyn Poller>) {
    let mut pollers = OFFERED.pollers.write();
    pollers.retain(|p| p.strong_count() > 0);
    pollers.push(Arc::downgrade(poller));
    drop(pollers);
    for on_offer in OFFERED.on_offer.lock().iter() {
        on_offer();
    }
}

/// Registers a callback for each poller that is added later. Each kind of backend registers at most one.
pub fn when_offered(on_offer: impl Fn() + Send + Sync + 'static) {
    OFFERED.on_offer.lock().push(Box::new(on_offer));
}

/// The next living poller, round robin.
pub fn pick() -> Option<Arc<dyn Poller>> {
    let pollers = OFFERED.pollers.read();
    let living: Vec<_> = pollers.iter().filter_map(Weak::upgrade).collect();
    let at = OFFERED.next.fetch_add(1, Ordering::Relaxed).checked_rem(living.len())?;
    living.into_iter().nth(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn what_is_kept_for_a_turn_is_dropped_at_its_end_and_without_turns_at_once() {
        let (kept, woken) = (Rc::new(()), Rc::new(Cell::new(0)));
        let keep = || keep_for_turn(Box::new(Rc::clone(&kept)));
        keep();
        assert_eq!(Rc::strong_count(&kept), 1, "this thread has no turns");
        let count = Rc::clone(&woken);
        begin_turns(move || count.set(count.get() + 1));
        for turn in 1..3 {
            keep();
            keep();
            assert_eq!((Rc::strong_count(&kept), woken.get()), (3, turn), "once for each turn");
            end_turn();
            assert_eq!(Rc::strong_count(&kept), 1);
        }
    }
}
