//! Drops what takes long to drop, such as a model, on a thread that steps behind those that serve.
//!
//! The last owner of a model is ordinarily the thread that unloads it, but may be any: a reactor that has just written the answer of a
//! request that was in flight. Giving back 100 MB of weights takes 8 ms of CPU, handing it over 0.06; no reactor has the former.
//!
//! Invariant: what was handed over is dropped once, also when no thread can be had or the queue is full: then by the caller.

use crate::thread;
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Owners that wait. Models are few; beyond it the caller drops its own.
const QUEUED_MAX: usize = 1024;

#[derive(Default)]
struct Queue {
    owners: Vec<Box<dyn Send>>,
    /// The thread is dropping some.
    busy: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

static SHARED: OnceLock<Shared> = OnceLock::new();

thread_local! {
    static SERVES_NOBODY: Cell<bool> = const { Cell::new(false) };
}

/// No request waits for this thread: from now on it drops in place what it is the last owner of.
pub fn drop_in_place() {
    SERVES_NOBODY.set(true);
}

/// Drops `owner` elsewhere, unless this thread called [`drop_in_place`].
pub fn drop_behind(owner: impl Send + 'static) {
    // A thread that ends has no such value any more.
    if SERVES_NOBODY.try_with(Cell::get).unwrap_or(false) {
        return;
    }
    let Some(shared) = shared() else { return };
    let mut queue = shared.queue.lock();
    if queue.owners.len() < QUEUED_MAX {
        queue.owners.push(Box::new(owner));
        shared.changed.notify_all();
    }
    // Without room it is dropped here, after the lock is released: parameters go last.
}

/// Waits until nothing is left to be dropped, at most `limit`; false when something is. For the end of a process: a library must not be
/// inside its own clean-up while the process ends.
pub fn finish(limit: Duration) -> bool {
    let Some(shared) = SHARED.get() else { return true };
    let until = Instant::now() + limit;
    let mut queue = shared.queue.lock();
    while queue.busy || !queue.owners.is_empty() {
        if shared.changed.wait_until(&mut queue, until).timed_out() {
            return !queue.busy && queue.owners.is_empty();
        }
    }
    true
}

/// `None` when the system gave no thread.
fn shared() -> Option<&'static Shared> {
    static RUNS: OnceLock<bool> = OnceLock::new();
    let shared = SHARED.get_or_init(Shared::default);
    let body = move || run(shared);
    RUNS.get_or_init(|| std::thread::Builder::new().name("nereid-unload".into()).spawn(body).is_ok()).then_some(shared)
}

fn run(shared: &Shared) {
    thread::step_behind();
    drop_in_place();
    let mut queue = shared.queue.lock();
    loop {
        while queue.owners.is_empty() {
            shared.changed.wait(&mut queue);
        }
        let owners = std::mem::take(&mut queue.owners);
        queue.busy = true;
        drop(queue);
        drop_all(owners);
        queue = shared.queue.lock();
        queue.busy = false;
        shared.changed.notify_all();
    }
}

/// Drops what was handed over, one after the other. The code behind each is not ours, and the thread serves the whole process: a panic
/// ends with its owner.
pub(crate) fn drop_all(owners: Vec<Box<dyn Send>>) {
    for owner in owners {
        let _ = catch_unwind(AssertUnwindSafe(move || drop(owner)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Panics, Told};
    use std::sync::mpsc;
    use std::thread::current;

    #[test]
    fn a_thread_that_serves_hands_over_and_one_that_unloads_drops_itself() {
        let (sender, receiver) = mpsc::channel();
        let of_serving = Told(sender.clone());
        drop_behind(of_serving);
        assert_ne!(receiver.recv_timeout(Duration::from_secs(10)).unwrap(), current().id());
        let unloading = std::thread::spawn(move || {
            drop_in_place();
            drop_behind(Told(sender));
            current().id()
        });
        let id = unloading.join().unwrap();
        assert_eq!(receiver.try_recv(), Ok(id));
    }

    #[test]
    fn the_thread_outlives_a_panic_and_finish_waits_for_it() {
        struct Slow(mpsc::Sender<()>);
        impl Drop for Slow {
            fn drop(&mut self) {
                std::thread::sleep(Duration::from_millis(20));
                self.0.send(()).unwrap();
            }
        }
        let (sender, receiver) = mpsc::channel();
        drop_behind(Panics);
        drop_behind(Slow(sender));
        assert!(finish(Duration::from_secs(10)));
        assert_eq!(receiver.try_recv(), Ok(()));
    }
}
