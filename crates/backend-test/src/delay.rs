//! Delays on the thread that runs a batch, or on a timer thread.
//!
//! All models share one timer thread. It runs due tasks in order of time, one step at a time so that tasks alternate,
//! and ends after a period without tasks.
//!
//! It wakes at whole ticks only. Delays are in milliseconds, and everything due within a tick runs together: 64 streams
//! with a response every 5 ms wake this thread and a reactor 1,000 times a second instead of 12,800.

use backend::{RunControl, now_ns};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Waits; returns false if the batch was cancelled meanwhile.
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

/// Work that is done in steps.
pub(crate) trait Task: Send {
    /// Does a step. Returns when the next one is due, in `now_ns` time; `None` after the last one.
    fn step(&mut self) -> Option<u64>;
}

/// Identifies a task for [`expedite`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(u64);

pub(crate) fn new_id() -> TaskId {
    let mut state = CLOCK.state.lock();
    state.ids += 1;
    let id = TaskId(state.ids);
    state.states.insert(id, TaskState::Running { expedited: false });
    id
}

/// Runs the first step of a task on this thread, and the rest on the timer thread.
pub(crate) fn begin(id: TaskId, mut task: Box<dyn Task>) {
    match task.step() {
        Some(due) => CLOCK.push(due, id, task),
        None => drop(CLOCK.state.lock().states.remove(&id)),
    }
}

/// Makes the next step of a task due now, because the condition that it waits for has changed.
pub(crate) fn expedite(id: TaskId) {
    let mut state = CLOCK.state.lock();
    match state.states.get_mut(&id) {
        None => {}
        Some(TaskState::Running { expedited }) => *expedited = true,
        Some(TaskState::Waiting { until }) => {
            let was = std::mem::take(until);
            if let Some(task) = state.tasks.remove(&(was, id)) {
                state.tasks.insert((0, id), task);
            }
            CLOCK.changed.notify_one();
        }
    }
}

enum TaskState {
    /// A step is running.
    Running {
        expedited: bool,
    },
    Waiting {
        until: u64,
    },
}

/// Time without tasks after which the thread ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Interval at which the thread may wake.
pub(crate) const TICK_NS: u64 = 1_000_000;

static CLOCK: Clock = Clock { state: Mutex::new(State::new()), changed: Condvar::new() };

struct Clock {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// By due time, then by id.
    tasks: BTreeMap<(u64, TaskId), Box<dyn Task>>,
    states: BTreeMap<TaskId, TaskState>,
    ids: u64,
    is_running: bool,
}

impl State {
    const fn new() -> Self {
        Self { tasks: BTreeMap::new(), states: BTreeMap::new(), ids: 0, is_running: false }
    }

    /// Queues a task, due at `due` at the latest.
    fn put(&mut self, due: u64, id: TaskId, task: Box<dyn Task>) {
        let expedited = matches!(self.states.get(&id), Some(TaskState::Running { expedited: true }));
        let until = if expedited { 0 } else { due };
        self.states.insert(id, TaskState::Waiting { until });
        self.tasks.insert((until, id), task);
    }
}

impl Clock {
    fn push(&'static self, due: u64, id: TaskId, task: Box<dyn Task>) {
        let mut state = self.state.lock();
        state.put(due, id, task);
        if state.is_running {
            if state.tasks.first_key_value().is_some_and(|(&(_, first), _)| first == id) {
                self.changed.notify_one();
            }
            return;
        }
        state.is_running = std::thread::Builder::new().name("nereid-test-clock".into()).spawn(|| self.run()).is_ok();
        if !state.is_running {
            // Dropping a task ends its requests with an error.
            let orphans = std::mem::take(&mut state.tasks);
            state.states.clear();
            drop(state);
            drop(orphans);
        }
    }

    fn run(&self) {
        let mut state = self.state.lock();
        let mut now = now_ns();
        loop {
            match state.tasks.first_entry() {
                Some(first) if first.key().0 <= now => {
                    let ((_, id), mut task) = first.remove_entry();
                    state.states.insert(id, TaskState::Running { expedited: false });
                    drop(state);
                    // A task that panics is dropped, which ends its requests.
                    let step = catch_unwind(AssertUnwindSafe(|| task.step()));
                    state = self.state.lock();
                    if let Ok(Some(due)) = step {
                        state.put(due, id, task);
                    } else {
                        state.states.remove(&id);
                        parking_lot::MutexGuard::unlocked(&mut state, || drop(task));
                    }
                }
                Some(first) => {
                    let due = first.key().0;
                    // Running tasks took time.
                    now = now_ns();
                    if due > now {
                        let pause = Duration::from_nanos(due.next_multiple_of(TICK_NS) - now);
                        self.changed.wait_for(&mut state, pause);
                        now = now_ns();
                    }
                }
                None => {
                    if self.changed.wait_for(&mut state, IDLE_MAX).timed_out() && state.tasks.is_empty() {
                        state.is_running = false;
                        return;
                    }
                    now = now_ns();
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
    fn tasks_alternate_in_order_of_time_and_survive_one_that_panics() {
        let (send, seen) = channel();
        let task = |name, left, pause_ms: u64| {
            let pause_ns = pause_ms * 1_000_000;
            begin(super::new_id(), Box::new(Count { name, left, pause_ns, seen: send.clone() }));
        };
        task("slow", 2, 1500);
        task("panics", 1, 1);
        task("fast", 3, 10);
        drop(send);
        let all: Vec<_> = seen.iter().collect();
        assert_eq!(all, ["slow", "panics", "fast", "fast", "fast", "slow"]);
    }
}
