//! Timer of batch delays and queue timeouts: wakes versions whose scheduler has to be stepped again.
//!
//! One thread for all models, started with the first timer. A version arms a timer only if it has no earlier one, so
//! the heap is small however many requests wait.

use backend::now_ns;
use parking_lot::{Condvar, Mutex};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// An object that a timer wakes.
pub(crate) trait Timed: Send + Sync {
    /// Called when a timer armed for `at` fires.
    fn wake(&self, at: u64);
}

pub(crate) struct Timer {
    state: Mutex<TimerState>,
    changed: Condvar,
}

#[derive(Default)]
struct TimerState {
    heap: BinaryHeap<Reverse<Due>>,
    running: bool,
    closed: bool,
}

struct Due {
    at: u64,
    who: Weak<dyn Timed>,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.cmp(&other.at)
    }
}

impl Timer {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: Condvar::new() })
    }

    /// Calls `who.wake(at)` at `at` ([`now_ns`] time) or soon after, if it still exists. False without a thread.
    pub(crate) fn arm(self: &Arc<Self>, at: u64, who: Weak<dyn Timed>) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        let earliest = state.heap.peek().is_none_or(|d| at < d.0.at);
        state.heap.push(Reverse(Due { at, who }));
        if !state.running {
            state.running = true;
            let timer = self.clone();
            // Without a thread, arrivals and completions still step the queue; only exact expiry suffers.
            if memory::serving::spawn("nereid-timer", move || timer.run()).is_err() {
                state.running = false;
            }
        } else if earliest {
            self.changed.notify_one();
        }
        state.running
    }

    fn run(&self) {
        let mut state = self.state.lock();
        while !state.closed {
            let now = now_ns();
            match state.heap.peek() {
                Some(Reverse(due)) if due.at <= now => {
                    let at = due.at;
                    let who = state.heap.pop().and_then(|d| d.0.who.upgrade());
                    drop(state);
                    if let Some(who) = who {
                        // The timers of all models are on this thread.
                        let _ = catch_unwind(AssertUnwindSafe(|| who.wake(at)));
                    }
                    state = self.state.lock();
                }
                Some(Reverse(due)) => {
                    let wait = Duration::from_nanos(due.at - now);
                    self.changed.wait_for(&mut state, wait);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }

    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}
