//! Waiting, on the thread that runs a batch or on one of its own.
//!
//! The thread of its own is one for all models: it runs whatever is due, in order of time, and ends when nothing has been for a
//! while. Tasks may take a while themselves, but do a part at a time, so that others have their turn.

use backend::{RunControl, now_ns};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Waits; false when the batch was cancelled meanwhile.
pub(crate) fn wait(duration: Duration, control: &RunControl) -> bool {
    if duration.is_zero() {
        return true;
    }
    let stop = Arc::new((Mutex::new(false), Condvar::new()));
    let signal = Arc::clone(&stop);
    let armed = control.arm(|| {
        move || {
            *signal.0.lock() = true;
            signal.1.notify_all();
        }
    });
    if !armed {
        return false;
    }
    let until = Instant::now() + duration;
    let mut stopped = stop.0.lock();
    while !*stopped && !stop.1.wait_until(&mut stopped, until).timed_out() {}
    let went_through = !*stopped;
    drop(stopped);
    control.disarm();
    went_through
}

/// Work in parts.
pub(crate) trait Task: Send {
    /// Does a part. Returns when the next one is due, in `now_ns` time; `None` when there is none.
    fn step(&mut self) -> Option<u64>;
}

/// Does the first part of a task here, and the rest when it is due.
pub(crate) fn begin(mut task: Box<dyn Task>) {
    if let Some(due) = task.step() {
        CLOCK.push(due, task);
    }
}

/// How often a task that waits looks whether its request is still wanted.
pub(crate) const CANCEL_CHECK_NS: u64 = 20_000_000;

/// How long the thread stays without a task.
const IDLE_MAX: Duration = Duration::from_secs(10);

static CLOCK: Clock = Clock { state: Mutex::new(State::new()), changed: Condvar::new() };

struct Clock {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// By time, and by the order in which they were put there.
    tasks: BTreeMap<(u64, u64), Box<dyn Task>>,
    pushed: u64,
    is_running: bool,
}

impl State {
    const fn new() -> Self {
        Self { tasks: BTreeMap::new(), pushed: 0, is_running: false }
    }
}

impl Clock {
    fn push(&'static self, due: u64, task: Box<dyn Task>) {
        let mut state = self.state.lock();
        let is_earliest = state.tasks.first_key_value().is_none_or(|(&(at, _), _)| due < at);
        state.pushed += 1;
        let key = (due, state.pushed);
        state.tasks.insert(key, task);
        if state.is_running {
            if is_earliest {
                self.changed.notify_one();
            }
            return;
        }
        state.is_running = std::thread::Builder::new().name("nereid-test-clock".into()).spawn(|| self.run()).is_ok();
        if !state.is_running {
            // Dropped, a task ends its requests with an error.
            let orphans = std::mem::take(&mut state.tasks);
            drop(state);
            drop(orphans);
        }
    }

    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            let now = now_ns();
            match state.tasks.first_entry() {
                Some(first) if first.key().0 <= now => {
                    let mut task = first.remove();
                    drop(state);
                    // One that panics is dropped, and ends its requests with that.
                    let step = catch_unwind(AssertUnwindSafe(|| task.step()));
                    state = self.state.lock();
                    if let Ok(Some(due)) = step {
                        state.pushed += 1;
                        let key = (due, state.pushed);
                        state.tasks.insert(key, task);
                    } else {
                        parking_lot::MutexGuard::unlocked(&mut state, || drop(task));
                    }
                }
                Some(first) => {
                    let pause = Duration::from_nanos(first.key().0 - now);
                    self.changed.wait_for(&mut state, pause);
                }
                None => {
                    if self.changed.wait_for(&mut state, IDLE_MAX).timed_out() && state.tasks.is_empty() {
                        state.is_running = false;
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    struct Count {
        name: &'static str,
        left: u32,
        pause_ns: u64,
        seen: Sender<&'static str>,
    }

    impl Task for Count {
        fn step(&mut self) -> Option<u64> {
            assert!(self.left > 0, "a planted panic, in a task");
            let _ = self.seen.send(self.name);
            self.left -= 1;
            (self.left > 0 || self.name == "panics").then(|| now_ns() + self.pause_ns)
        }
    }

    #[test]
    fn tasks_take_turns_in_order_of_time_and_survive_one_that_panics() {
        let (send, seen) = channel();
        let task = |name, left, pause_ms: u64| {
            let pause_ns = pause_ms * 1_000_000;
            begin(Box::new(Count { name, left, pause_ns, seen: send.clone() }));
        };
        task("slow", 2, 300);
        task("panics", 1, 1);
        task("fast", 3, 50);
        drop(send);
        let all: Vec<_> = seen.iter().collect();
        assert_eq!(all, ["slow", "panics", "fast", "fast", "fast", "slow"]);
    }
}
