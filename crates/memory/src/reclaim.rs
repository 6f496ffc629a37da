//! Gives memory back to the system, on a thread of its own: unmapping 64 MiB takes 3 to 9 ms, and the thread that drops the last
//! view of a body is a reactor.
//!
//! Deliberately no part of any request: whatever happens here, requests go on.
//!
//! Invariant: at most `QUEUED_BLOCKS_MAX` blocks and owners of `QUEUED_BYTES_MAX` bytes wait; what finds the queue full is unmapped by the
//! thread that brought it.

use crate::aligned::Block;
use crate::behind::drop_all;
use crate::heap;
use parking_lot::{Condvar, Mutex};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Blocks up to this size are unmapped where they are dropped: 15 µs, about what it takes to wake another thread.
const UNMAP_IN_PLACE_BYTES_MAX: usize = 256 << 10;
/// Blocks that wait to be unmapped.
const QUEUED_BLOCKS_MAX: usize = 1024;
/// And the bytes of them.
const QUEUED_BYTES_MAX: usize = 1 << 30;
/// How often memory that a burst left behind is given back to the system: what lay idle from one time to the next.
const TRIM_INTERVAL: Duration = Duration::from_secs(2);
/// After so many bytes went back within an interval, malloc's free memory follows: bursts of large bodies come with many small
/// pieces, which malloc keeps.
const HEAP_TRIM_BYTES: usize = 16 << 20;

#[derive(Default)]
struct Queue {
    blocks: Vec<Block>,
    /// Memory of other libraries; dropping the owner gives it back.
    owners: Vec<Box<dyn Send>>,
    /// The pages of both.
    bytes: usize,
    /// Gives back what a pool does not need; asked every interval. How many bytes that were.
    trim: Option<fn() -> usize>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
}

/// `None` when the system gave no thread; then everything is done in place.
fn shared() -> Option<&'static Shared> {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    static RUNS: OnceLock<bool> = OnceLock::new();
    let shared = SHARED.get_or_init(Shared::default);
    let body = move || run(shared);
    RUNS.get_or_init(|| std::thread::Builder::new().name("memory".into()).spawn(body).is_ok()).then_some(shared)
}

/// Unmaps a block, later and elsewhere unless it is small.
pub(crate) fn unmap(block: Block) {
    if block.touched() <= UNMAP_IN_PLACE_BYTES_MAX {
        return;
    }
    let bytes = block.touched();
    enqueue(bytes, |queue| queue.blocks.push(block));
}

/// Drops the owner of `bytes` bytes that another library allocated, later and elsewhere unless they are few: behind it is an
/// unmapping as well.
pub fn drop_later(bytes: usize, owner: impl Send + 'static) {
    if bytes > UNMAP_IN_PLACE_BYTES_MAX {
        enqueue(bytes, |queue| queue.owners.push(Box::new(owner)));
    }
}

/// Has `put` add to the queue what owns `bytes` bytes. Without room it is dropped here, after the lock is released: parameters go last.
fn enqueue(bytes: usize, put: impl FnOnce(&mut Queue)) {
    let Some(shared) = shared() else { return };
    let mut queue = shared.queue.lock();
    let sum = queue.bytes.saturating_add(bytes);
    if queue.blocks.len() + queue.owners.len() < QUEUED_BLOCKS_MAX && sum <= QUEUED_BYTES_MAX {
        queue.bytes = sum;
        put(&mut queue);
        drop(queue);
        shared.filled.notify_one();
    }
}

/// Calls this every few seconds.
pub(crate) fn keep_trimmed(trim: fn() -> usize) {
    if let Some(shared) = shared() {
        shared.queue.lock().trim = Some(trim);
        shared.filled.notify_one();
    }
}

/// Bytes of small pieces that others have freed since the last interval.
static FREED_SMALL: AtomicUsize = AtomicUsize::new(0);

/// So many bytes of small pieces were freed, which malloc keeps: they count towards `HEAP_TRIM_BYTES`. To be told of many at a time.
pub fn freed_small(bytes: usize) {
    FREED_SMALL.fetch_add(bytes, Ordering::Relaxed);
}

fn run(shared: &Shared) {
    let mut due = Instant::now() + TRIM_INTERVAL;
    let mut freed = 0;
    loop {
        let mut queue = shared.queue.lock();
        while queue.blocks.is_empty() && queue.owners.is_empty() && Instant::now() < due {
            shared.filled.wait_until(&mut queue, due);
        }
        let (blocks, owners) = (std::mem::take(&mut queue.blocks), std::mem::take(&mut queue.owners));
        freed += std::mem::take(&mut queue.bytes);
        let trim = queue.trim;
        drop(queue);
        drop(blocks);
        drop_all(owners);
        if Instant::now() >= due {
            freed += trim.map_or(0, |trim| trim()) + FREED_SMALL.swap(0, Ordering::Relaxed);
            if std::mem::take(&mut freed) >= HEAP_TRIM_BYTES {
                heap::trim();
            }
            due = Instant::now() + TRIM_INTERVAL;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Panics, Told};
    use std::sync::mpsc;
    use std::thread::current;

    #[test]
    fn an_owner_of_much_memory_is_dropped_by_another_thread_and_one_of_little_here() {
        let (sender, receiver) = mpsc::channel();
        let dropped_by = |bytes| {
            drop_later(bytes, Told(sender.clone()));
            receiver.recv_timeout(Duration::from_secs(10)).unwrap()
        };
        assert_eq!(dropped_by(UNMAP_IN_PLACE_BYTES_MAX), current().id());
        assert_ne!(dropped_by(UNMAP_IN_PLACE_BYTES_MAX + 1), current().id());
        assert_eq!(dropped_by(QUEUED_BYTES_MAX + 1), current().id(), "no room for it");
    }

    #[test]
    fn the_thread_outlives_an_owner_that_panics() {
        let (sender, receiver) = mpsc::channel();
        drop_later(1 << 20, Panics);
        drop_later(1 << 20, Told(sender));
        assert_ne!(receiver.recv_timeout(Duration::from_secs(10)).unwrap(), current().id());
    }
}
