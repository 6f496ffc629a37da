//! Gives memory back to the system, on a thread of its own: unmapping 64 MiB takes 3 to 9 ms, and the thread that drops the last
//! view of a body is a reactor.
//!
//! Deliberately no part of any request: whatever happens here, requests go on.
//!
//! Invariant: at most `QUEUED_BLOCKS_MAX` blocks of `QUEUED_BYTES_MAX` bytes wait; what finds the queue full is unmapped by the thread that brought it.

use crate::aligned::Block;
use crate::heap;
use crate::slab::SlabPool;
use parking_lot::{Condvar, Mutex};
use std::sync::OnceLock;
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
    /// Their pages.
    bytes: usize,
    /// Trimmed every interval.
    pool: Option<SlabPool>,
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
    let Some(shared) = shared() else { return };
    let mut queue = shared.queue.lock();
    let bytes = queue.bytes + block.touched();
    if queue.blocks.len() < QUEUED_BLOCKS_MAX && bytes <= QUEUED_BYTES_MAX {
        queue.bytes = bytes;
        queue.blocks.push(block);
        drop(queue);
        shared.filled.notify_one();
    }
}

/// Trims this pool every few seconds.
pub(crate) fn keep_trimmed(pool: SlabPool) {
    if let Some(shared) = shared() {
        shared.queue.lock().pool = Some(pool);
        shared.filled.notify_one();
    }
}

fn run(shared: &Shared) {
    let mut due = Instant::now() + TRIM_INTERVAL;
    let mut freed = 0;
    loop {
        let mut queue = shared.queue.lock();
        while queue.blocks.is_empty() && Instant::now() < due {
            shared.filled.wait_until(&mut queue, due);
        }
        let blocks = std::mem::take(&mut queue.blocks);
        freed += std::mem::take(&mut queue.bytes);
        let pool = queue.pool.clone();
        drop(queue);
        drop(blocks);
        if Instant::now() >= due {
            freed += pool.map_or(0, |pool| pool.trim());
            if std::mem::take(&mut freed) >= HEAP_TRIM_BYTES {
                heap::trim();
            }
            due = Instant::now() + TRIM_INTERVAL;
        }
    }
}
