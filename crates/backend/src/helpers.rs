//! Threads that help a run with its rows. All runs together have one for each CPU but one: more would not be faster,
//! and take CPUs from the threads that serve requests.

use crate::RunControl;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static HELPERS: AtomicUsize = AtomicUsize::new(0);

struct Helper;

impl Helper {
    fn admit() -> Option<Self> {
        let more = |helpers| (helpers + 1 < memory::machine::cpus()).then_some(helpers + 1);
        HELPERS.fetch_update(Relaxed, Relaxed, more).ok().map(|_| Self)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        HELPERS.fetch_sub(1, Relaxed);
    }
}

/// Does `work` with each item, on this thread and on others named `name`, `threads` at most; ends early when all
/// requests of the batch are cancelled. A thread takes some 50 microseconds to start.
pub fn each<T: Send>(
    name: &str,
    threads: usize,
    items: impl ExactSizeIterator<Item = T> + Send,
    control: &RunControl,
    work: impl Fn(T) + Sync,
) {
    let threads = threads.min(items.len());
    let items = Mutex::new(items);
    let next = || items.lock().next().filter(|_| !control.is_stopped());
    let all = || {
        while let Some(item) = next() {
            work(item);
        }
    };
    if threads <= 1 {
        return all();
    }
    std::thread::scope(|scope| {
        // A thread that cannot start leaves its items to the others.
        for helper in (1..threads).map_while(|_| Helper::admit()) {
            let help = || {
                let _helper = helper;
                all();
            };
            let _ = std::thread::Builder::new().name(name.into()).spawn_scoped(scope, help);
        }
        all();
    });
}
