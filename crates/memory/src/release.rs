//! Drops values that take long to drop, such as models, on a thread of low priority.
//!
//! The last owner of a model is usually the thread that unloads it, but may be a reactor that has just written the
//! response of the last request. Freeing 100 MB of weights takes 8 ms of CPU; handing them over takes 0.06 ms.
//!
//! Invariant: each value is dropped once, also if no thread can be started or the queue is full: then by the caller.

use crate::served::Served;
use crate::thread;
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Queued values. There are few models; beyond this limit the caller drops its value itself.
const QUEUED_MAX: usize = 1024;

#[derive(Default)]
struct QueuedValues {
    owners: Vec<Box<dyn Send>>,
    /// The thread is dropping values.
    busy: bool,
}

#[derive(Default)]
struct ReleaseQueue {
    queue: Mutex<QueuedValues>,
    changed: Condvar,
}

static QUEUE: Served<ReleaseQueue> = Served::new();

thread_local! {
    static DROPS_IN_PLACE: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as one that no request waits for: from now on it drops its values itself.
pub fn drop_in_place() {
    DROPS_IN_PLACE.set(true);
}

/// Drops `owner` on another thread, unless this thread called [`drop_in_place`].
pub fn drop_in_background(owner: impl Send + 'static) {
    // Fails only while the thread ends.
    if DROPS_IN_PLACE.try_with(Cell::get).unwrap_or(false) {
        return;
    }
    let Some(shared) = shared() else { return };
    let mut queue = shared.queue.lock();
    if queue.owners.len() < QUEUED_MAX {
        queue.owners.push(Box::new(owner));
        shared.changed.notify_all();
    }
    // If the queue is full, the owner is dropped here after the lock is released, because parameters are dropped last.
}

/// Waits until all values are dropped, at most `limit`; returns false if some are left. For the end of the process,
/// which must not begin inside a library's clean-up.
pub fn finish(limit: Duration) -> bool {
    let Some(shared) = QUEUE.made() else { return true };
    let until = Instant::now() + limit;
    let mut queue = shared.queue.lock();
    while queue.busy || !queue.owners.is_empty() {
        if shared.changed.wait_until(&mut queue, until).timed_out() {
            return !queue.busy && queue.owners.is_empty();
        }
    }
    true
}

/// The queue; `None` if no thread could be started.
fn shared() -> Option<&'static ReleaseQueue> {
    QUEUE.get(ReleaseQueue::default, |shared| {
        std::thread::Builder::new().name("nereid-unload".into()).spawn(move || run(shared)).is_ok()
    })
}

fn run(shared: &ReleaseQueue) {
    thread::lower_priority();
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

/// Drops queued owners one by one. Their code is not ours and the thread is shared, so panics are caught.
pub(crate) fn drop_all(owners: Vec<Box<dyn Send>>) {
    for owner in owners {
        let _ = catch_unwind(AssertUnwindSafe(move || drop(owner)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{DropProbe, Panics};
    use std::sync::mpsc;
    use std::thread::current;

    #[test]
    fn a_serving_thread_hands_over_and_an_unloading_one_drops_in_place() {
        let (sender, receiver) = mpsc::channel();
        let of_serving = DropProbe(sender.clone());
        drop_in_background(of_serving);
        assert_ne!(receiver.recv_timeout(Duration::from_secs(10)).unwrap(), current().id());
        let unloading = std::thread::spawn(move || {
            drop_in_place();
            drop_in_background(DropProbe(sender));
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
        drop_in_background(Panics);
        drop_in_background(Slow(sender));
        assert!(finish(Duration::from_secs(10)));
        assert_eq!(receiver.try_recv(), Ok(()));
    }
}
