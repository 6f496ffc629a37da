//! Returns memory to the system on its own thread: unmapping 64 MiB takes 3 to 9 ms, and reactors drop bodies.
//!
//! No request depends on this thread.
//!
//! Invariant: at most `QUEUED_BLOCKS_MAX` blocks and `QUEUED_BYTES_MAX` bytes are queued; beyond it the caller unmaps.

use crate::aligned::Block;
use crate::budget::Budget;
use crate::release::drop_all;
use crate::served::Served;
use crate::{heap, pressure};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};

/// Blocks up to this size are unmapped by the thread that drops them: 15 µs, about the cost of waking another thread.
const UNMAP_IN_PLACE_BYTES_MAX: usize = 256 << 10;
const QUEUED_BLOCKS_MAX: usize = 1024;
const QUEUED_BYTES_MAX: usize = 1 << 30;
/// Interval of returning idle memory to the system: blocks that were not used for one interval.
const TRIM_INTERVAL: Duration = Duration::from_secs(2);
/// Bytes returned within an interval after which malloc's free memory is trimmed: large bodies leave small pieces.
const HEAP_TRIM_BYTES: usize = 16 << 20;
/// Time after a charge found no room in which samples are taken often. Between rare samples a peak of what others use
/// would be remembered for minutes, and all large requests rejected.
const LACK_TIME: Duration = Duration::from_secs(10);

#[derive(Default)]
struct QueuedBlocks {
    blocks: Vec<Block>,
    /// Owners of memory of other libraries; dropping one frees it.
    owners: Vec<Box<dyn Send>>,
    /// Bytes of both.
    bytes: usize,
    /// Each trims a pool and returns the number of bytes; called every interval, and when requests wait for memory.
    trims: Vec<fn() -> usize>,
    /// A sample of `pressure` is due.
    samples: bool,
}

#[derive(Default)]
struct ReclaimQueue {
    queue: Mutex<QueuedBlocks>,
    filled: Condvar,
    /// Bytes of small pieces freed since the last interval.
    freed_small: AtomicUsize,
}

static QUEUE: Served<ReclaimQueue> = Served::new();

/// The queue; `None` if no thread could be started, then memory is freed in place.
fn shared() -> Option<&'static ReclaimQueue> {
    QUEUE.get(ReclaimQueue::default, |shared| {
        std::thread::Builder::new().name("memory".into()).spawn(move || run(shared)).is_ok()
    })
}

/// Unmaps a block; a large one later, on the reclaim thread.
pub(crate) fn unmap(block: Block) {
    if block.touched() <= UNMAP_IN_PLACE_BYTES_MAX {
        return;
    }
    let bytes = block.touched();
    enqueue(bytes, |queue| queue.blocks.push(block));
}

/// Drops the owner of `bytes` bytes that another library mapped; many bytes later, on the reclaim thread.
pub fn drop_later(bytes: usize, owner: impl Send + 'static) {
    if bytes > UNMAP_IN_PLACE_BYTES_MAX {
        enqueue(bytes, |queue| queue.owners.push(Box::new(owner)));
    }
}

/// Has `put` queue an owner of `bytes` bytes. If the queue is full, the owner is dropped here after the lock is
/// released, because parameters are dropped last.
fn enqueue(bytes: usize, put: impl FnOnce(&mut QueuedBlocks)) {
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

/// Calls `trim` every few seconds, and while requests wait for memory.
pub fn keep_trimmed(trim: fn() -> usize) {
    if let Some(shared) = shared() {
        shared.queue.lock().trims.push(trim);
        shared.filled.notify_one();
    }
}

/// Owners of idle memory, which are trimmed while they live.
pub struct Trimmed<T: ?Sized> {
    all: Mutex<Vec<Weak<T>>>,
    started: Once,
}

impl<T: ?Sized> Trimmed<T> {
    /// No owner.
    #[expect(clippy::new_without_default, reason = "only for statics")]
    pub const fn new() -> Self {
        Self { all: Mutex::new(Vec::new()), started: Once::new() }
    }

    /// Adds an owner. `trim`, the same for all, is then called as by [`keep_trimmed`].
    pub fn watch(&self, owner: Weak<T>, trim: fn() -> usize) {
        self.started.call_once(|| keep_trimmed(trim));
        self.all.lock().push(owner);
    }

    /// Owners that live.
    pub fn living(&self) -> Vec<Arc<T>> {
        let mut all = self.all.lock();
        all.retain(|one| one.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Has the use of memory compared with the charges soon.
pub(crate) fn sample_soon() {
    if let Some(shared) = shared() {
        shared.queue.lock().samples = true;
        shared.filled.notify_one();
    }
}

/// Counts freed small pieces, which malloc keeps, towards `HEAP_TRIM_BYTES`. Callers report many at a time.
pub fn freed_small(bytes: usize) {
    if let Some(shared) = QUEUE.made() {
        shared.freed_small.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn run(shared: &ReclaimQueue) {
    Budget::global().on_use(sample_soon);
    let mut due = Instant::now() + TRIM_INTERVAL;
    let mut sample_due = due;
    let mut freed = 0;
    let mut lacks_until = Instant::now();
    loop {
        let mut queue = shared.queue.lock();
        let is_idle = |queue: &QueuedBlocks| queue.blocks.is_empty() && queue.owners.is_empty() && !queue.samples;
        while is_idle(&queue) && Instant::now() < due.min(sample_due) {
            shared.filled.wait_until(&mut queue, due.min(sample_due));
        }
        let (blocks, owners) = (std::mem::take(&mut queue.blocks), std::mem::take(&mut queue.owners));
        freed += std::mem::take(&mut queue.bytes);
        let trims = queue.trims.clone();
        let samples = std::mem::take(&mut queue.samples);
        drop(queue);
        drop(blocks);
        drop_all(owners);
        let budget = Budget::global();
        if Instant::now() >= due || budget.is_short() {
            freed += trims.iter().map(|trim| trim()).sum::<usize>() + shared.freed_small.swap(0, Ordering::Relaxed);
            let lacks = budget.take_lack();
            if lacks {
                lacks_until = Instant::now() + LACK_TIME;
            }
            // Much of what malloc keeps was counted by nobody: that of models and libraries.
            if std::mem::take(&mut freed) >= HEAP_TRIM_BYTES || lacks {
                heap::trim();
            }
            due = Instant::now() + TRIM_INTERVAL;
        }
        if samples || Instant::now() >= sample_due {
            sample_due =
                Instant::now() + pressure::sample(budget, Instant::now() < lacks_until).unwrap_or(TRIM_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{DropProbe, Panics};
    use std::sync::mpsc;
    use std::thread::current;

    #[test]
    fn large_owners_are_dropped_by_another_thread_and_small_ones_by_the_caller() {
        let (sender, receiver) = mpsc::channel();
        let dropped_by = |bytes| {
            drop_later(bytes, DropProbe(sender.clone()));
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
        drop_later(1 << 20, DropProbe(sender));
        assert_ne!(receiver.recv_timeout(Duration::from_secs(10)).unwrap(), current().id());
    }
}
