//! Pooled buffers for request bodies, gathered batches and outputs.
//!
//! Sizes are rounded up to classes, two per power of two. Each class has a free list under a mutex: a lock to take and
//! a lock to return take tens of nanoseconds; 16 MiB of fresh zeroed pages cost milliseconds.
//!
//! No call maps or unmaps many pages on the calling thread: a fresh slab is address space until it is written, and the
//! thread of [`crate::reclaim`] unmaps slabs that the pool does not retain.
//!
//! Invariant: `retained_bytes <= retained_bytes_max`. A slab's old contents are unspecified: the code that takes one
//! writes all of it before any other code sees it.

use crate::aligned::{Block, MAPPINGS_MAX};
use crate::budget::Charge;
use crate::{machine, reclaim, room};
use bytes::Bytes;
use device::{NoRoom, Pinned};
use parking_lot::Mutex;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tensor::allowance::{self, Lent};
use tensor::{Error, Result};

/// Below this size malloc is faster than the pool and causes no fragmentation.
pub const SLAB_BYTES_MIN: usize = 4 << 10;
/// Larger slabs are not retained.
const SLAB_BYTES_MAX: usize = 256 << 20;
/// Default of `SlabPool::retained_bytes_max`.
const RETAINED_BYTES_MAX: usize = 256 << 20;
/// 4 KiB, 6 KiB, 8 KiB, … 256 MiB.
const CLASSES: usize = 33;

/// Pool of reusable, 64-byte-aligned (in fact page-aligned) buffers with resident pages.
#[derive(Clone)]
pub struct SlabPool(Arc<SharedSlabs>);

struct SharedSlabs {
    classes: [Mutex<Class>; CLASSES],
    retained_bytes_max: AtomicUsize,
    retained_bytes: AtomicUsize,
    live_bytes: AtomicUsize,
    hits: AtomicU64,
    misses: AtomicU64,
    has_warned_of_pageable: AtomicBool,
}

#[derive(Default)]
struct Class {
    free: Vec<Block>,
    /// Fewest free slabs since the last `trim`, that is, slabs that were not needed since then.
    idle: usize,
}

/// Counters and sizes of a pool, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolCounters {
    /// Slabs served from a free list.
    pub hits: u64,
    /// Slabs that had to be mapped.
    pub misses: u64,
    /// Bytes in free lists.
    pub retained_bytes: usize,
    /// Limit of `retained_bytes`.
    pub retained_bytes_max: usize,
    /// Bytes of slabs in use, rounded up to their classes.
    pub live_bytes: usize,
}

impl SlabPool {
    /// A pool that retains at most `retained_bytes_max` bytes of free slabs.
    pub fn new(retained_bytes_max: usize) -> Self {
        Self(Arc::new(SharedSlabs {
            classes: std::array::from_fn(|_| Mutex::default()),
            retained_bytes_max: AtomicUsize::new(retained_bytes_max),
            retained_bytes: AtomicUsize::new(0),
            live_bytes: AtomicUsize::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            has_warned_of_pageable: AtomicBool::new(false),
        }))
    }

    /// The pool of the process, which retains 256 MiB. The reclaim thread trims it.
    pub fn global() -> &'static Self {
        static POOL: OnceLock<SlabPool> = OnceLock::new();
        POOL.get_or_init(|| {
            let pool = Self::new(RETAINED_BYTES_MAX);
            reclaim::keep_trimmed(|| Self::global().trim());
            // Buffers that are not slabs respect the same reserve.
            allowance::allocate_with(room::take_with);
            pool
        })
    }

    /// Sets the bytes to retain, at most 256 MiB.
    pub fn retain_at_most(&self, bytes: usize) {
        self.0.retained_bytes_max.store(bytes.min(RETAINED_BYTES_MAX), Relaxed);
    }

    /// Returns a buffer of `len` bytes with unspecified, but initialised contents.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if `len` exceeds the memory of the machine or the control group, or the system has none left.
    pub fn get(&self, len: usize) -> Result<SlabMut> {
        let most = machine::memory_bytes();
        if len as u64 > most {
            return Err(Error::exhausted(format!(
                "cannot allocate {len} bytes: the memory of this machine or container is {most} bytes"
            )));
        }
        self.reserve(len)
    }

    /// Like [`Self::get`], for a body of announced length that is then written with [`SlabMut::window`]: until it is
    /// written it is only address space.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if no address space is left beyond the reserve of `room`, or there are too many mappings.
    pub fn reserve(&self, len: usize) -> Result<SlabMut> {
        // Beyond the kernel's limit on mappings every allocation of the process would fail, malloc's too.
        let slab = if Block::count() < MAPPINGS_MAX { self.take_or_map(len) } else { None };
        slab.ok_or_else(|| Error::exhausted(format!("cannot allocate {len} bytes: the system has no memory left")))
    }

    /// Like [`Self::get`], in pinned memory (`--pinned-memory-pool-byte-size`). If there is none, returns ordinary
    /// memory, which is slower, and warns once.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if `len` exceeds the memory of the machine or the control group, or the system has none left.
    pub fn pinned(&self, len: usize) -> Result<SlabMut> {
        match Self::only_pinned(len) {
            Ok(slab) => Ok(slab),
            Err(why) => {
                if !self.0.has_warned_of_pageable.swap(true, Relaxed) {
                    warn_of_pageable(why);
                }
                self.get(len)
            }
        }
    }

    /// Like [`Self::pinned`], without a fallback.
    ///
    /// # Errors
    /// Why there is no pinned memory.
    pub fn only_pinned(len: usize) -> Result<SlabMut, NoRoom> {
        device::pinned(len).map(|pinned| SlabMut { memory: SlabMemory::Pinned(pinned), len })
    }

    /// Pinned memory for a request body, if any: see [`device::pinned_for_body`]. Takes microseconds.
    pub fn pinned_for_body(len: usize) -> Option<SlabMut> {
        device::pinned_for_body(len).map(|pinned| SlabMut { memory: SlabMemory::Pinned(pinned), len })
    }

    /// Memory of the global pool for the output of a parser or printer; see `tensor::allowance`.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if no address space is left beyond the reserve of `room`, or there are too many mappings.
    pub fn lend(len: usize) -> Result<Box<dyn Lent>> {
        Ok(Box::new(Self::global().reserve(len)?))
    }

    fn take_or_map(&self, len: usize) -> Option<SlabMut> {
        if len < SLAB_BYTES_MIN {
            return Some(SlabMut { memory: SlabMemory::Small(vec![0; len]), len });
        }
        let (class, bytes) = class_of(len);
        let reused = class.and_then(|c| self.0.take(c));
        let block = match reused {
            Some(block) => {
                self.0.hits.fetch_add(1, Relaxed);
                block
            }
            None => {
                self.0.misses.fetch_add(1, Relaxed);
                room::take(bytes, || Block::new(bytes))?
            }
        };
        self.0.live_bytes.fetch_add(bytes, Relaxed);
        Some(SlabMut { memory: SlabMemory::Slab(Slab { block: Some(block), pool: Arc::clone(&self.0), class }), len })
    }

    /// A slab filled with `contents`.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the length exceeds the memory of the machine or the control group, or the system has none
    /// left.
    pub fn copy_of(&self, contents: &[u8]) -> Result<SlabMut> {
        let mut slab = self.get(contents.len())?;
        slab.copy_from_slice(contents);
        Ok(slab)
    }

    /// Returns slabs to the system that were not needed since the last call; returns the number of bytes. Takes
    /// milliseconds per 64 MiB: the thread of [`crate::reclaim`] calls it every few seconds for the global pool, so
    /// that the memory of a burst is freed soon after the burst.
    pub fn trim(&self) -> usize {
        let mut all = 0;
        for class in &self.0.classes {
            let mut state = class.lock();
            let keep = state.free.len().saturating_sub(state.idle);
            let dropped: Vec<Block> = state.free.drain(keep..).collect();
            state.idle = state.free.len();
            drop(state);
            // Unmapped outside the lock: munmap of many megabytes takes a while.
            let bytes: usize = dropped.iter().map(|b| b.len()).sum();
            self.0.retained_bytes.fetch_sub(bytes, Relaxed);
            all += bytes;
        }
        all
    }

    /// Current counters.
    pub fn counters(&self) -> PoolCounters {
        let i = &*self.0;
        PoolCounters {
            hits: i.hits.load(Relaxed),
            misses: i.misses.load(Relaxed),
            retained_bytes: i.retained_bytes.load(Relaxed),
            retained_bytes_max: i.retained_bytes_max.load(Relaxed),
            live_bytes: i.live_bytes.load(Relaxed),
        }
    }
}

/// Logs Triton's text (memory.md 3.1).
fn warn_of_pageable(why: NoRoom) {
    let why = match why {
        NoRoom::NoPool => ": no pinned memory pool",
        NoRoom::Exhausted => "",
    };
    log::warn!("failed to allocate pinned system memory{why}, falling back to non-pinned system memory");
}

/// Class index and rounded size; no class if the slab is too large to retain.
fn class_of(len: usize) -> (Option<usize>, usize) {
    if len > SLAB_BYTES_MAX {
        // Rounded to a page, as the kernel does anyway.
        return (None, len.checked_next_multiple_of(4096).unwrap_or(len));
    }
    let power = len.next_power_of_two().max(SLAB_BYTES_MIN);
    let step = (power.trailing_zeros() - SLAB_BYTES_MIN.trailing_zeros()) as usize * 2;
    let three_quarters = power / 4 * 3;
    // Classes 0, 2, 4, … are the powers of two from 4 KiB; 1, 3, 5, … the sizes half way to the next.
    if step > 0 && len <= three_quarters { (Some(step - 1), three_quarters) } else { (Some(step), power) }
}

impl SharedSlabs {
    fn take(&self, class: usize) -> Option<Block> {
        let mut state = self.classes.get(class)?.lock();
        let block = state.free.pop()?;
        state.idle = state.idle.min(state.free.len());
        drop(state);
        self.retained_bytes.fetch_sub(block.len(), Relaxed);
        Some(block)
    }

    fn give(&self, block: Block, class: Option<usize>) {
        let bytes = block.len();
        self.live_bytes.fetch_sub(bytes, Relaxed);
        let Some(class) = class.and_then(|c| self.classes.get(c)) else { return reclaim::unmap(block) };
        // Slabs are retained for their resident pages: a mostly unwritten one would displace a better one.
        if block.touched() < bytes / 2 {
            return reclaim::unmap(block);
        }
        // Counted before it is inserted, and uncounted if it is too much: the maximum is never exceeded.
        if self.retained_bytes.fetch_add(bytes, Relaxed) + bytes > self.retained_bytes_max.load(Relaxed) {
            self.retained_bytes.fetch_sub(bytes, Relaxed);
            return reclaim::unmap(block);
        }
        class.lock().free.push(block);
    }
}

/// A buffer with one owner; `freeze` makes it shareable. Dropping it returns the memory to its pool.
pub struct SlabMut {
    memory: SlabMemory,
    len: usize,
}

enum SlabMemory {
    Small(Vec<u8>),
    Slab(Slab),
    /// From the pinned pool, not from this one.
    Pinned(Pinned),
}

struct Slab {
    /// `None` only while `drop` runs.
    block: Option<Block>,
    pool: Arc<SharedSlabs>,
    class: Option<usize>,
}

impl Drop for Slab {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.give(block, self.class);
        }
    }
}

/// Owner of a frozen slab's `Bytes`.
struct Frozen {
    slab: Slab,
    len: usize,
    /// Dropped with the last view, after the slab is returned.
    _charge: Option<Charge>,
}

impl AsRef<[u8]> for Frozen {
    fn as_ref(&self) -> &[u8] {
        self.slab.block.as_ref().and_then(|b| b.get(..self.len)).unwrap_or(&[])
    }
}

impl SlabMut {
    /// Makes it immutable and shareable without a copy; the last clone returns the memory.
    pub fn freeze(self) -> Bytes {
        self.frozen(None)
    }

    /// Like `freeze`; the charge for these bytes ends with the last clone.
    pub fn freeze_with(self, charge: Charge) -> Bytes {
        self.frozen(Some(charge))
    }

    fn frozen(self, charge: Option<Charge>) -> Bytes {
        match self.memory {
            SlabMemory::Small(mut vec) => {
                vec.truncate(self.len);
                Bytes::from(vec)
            }
            SlabMemory::Slab(slab) => Bytes::from_owner(Frozen { slab, len: self.len, _charge: charge }),
            SlabMemory::Pinned(mut pinned) => {
                pinned.truncate(self.len);
                let bytes = pinned.freeze();
                charge.map_or(bytes.clone(), |charge| charge.hold(bytes))
            }
        }
    }

    /// A part of it that will be written next; empty beyond the end. Only these parts of a fresh slab take memory;
    /// `deref_mut` counts as writing all of it.
    pub fn window(&mut self, range: Range<usize>) -> &mut [u8] {
        let range = range.start..range.end.min(self.len);
        match &mut self.memory {
            SlabMemory::Small(vec) => vec.get_mut(range).unwrap_or_default(),
            SlabMemory::Slab(slab) => {
                let Some(block) = &mut slab.block else { return &mut [] };
                block.prepare(range.clone());
                block.get_mut(range).unwrap_or_default()
            }
            SlabMemory::Pinned(pinned) => pinned.get_mut(range).unwrap_or_default(),
        }
    }

    /// True if devices can read and write it directly.
    pub fn is_pinned(&self) -> bool {
        matches!(self.memory, SlabMemory::Pinned(_))
    }

    /// Shortens it; longer lengths have no effect.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl Lent for SlabMut {
    fn window(&mut self, range: Range<usize>) -> &mut [u8] {
        self.window(range)
    }

    fn freeze(mut self: Box<Self>, len: usize) -> Bytes {
        self.truncate(len);
        (*self).freeze()
    }
}

impl Deref for SlabMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.memory {
            SlabMemory::Small(vec) => vec,
            SlabMemory::Slab(slab) => slab.block.as_deref().unwrap_or(&[]),
            SlabMemory::Pinned(pinned) => pinned,
        };
        all.get(..self.len).unwrap_or(&[])
    }
}

impl DerefMut for SlabMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        let all: &mut [u8] = match &mut self.memory {
            SlabMemory::Small(vec) => vec,
            SlabMemory::Slab(Slab { block: Some(block), .. }) => {
                block.touch(self.len);
                block
            }
            SlabMemory::Slab(_) => &mut [],
            SlabMemory::Pinned(pinned) => pinned,
        };
        all.get_mut(..self.len).unwrap_or(&mut [])
    }
}

impl fmt::Debug for SlabMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slab of {} bytes", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slab(pool: &SlabPool, len: usize) -> SlabMut {
        pool.get(len).expect("memory")
    }

    #[test]
    fn classes_are_the_smallest_that_fit() {
        let check = |len: usize, bytes: usize| assert_eq!(class_of(len).1, bytes, "{len}");
        check(4096, 4096);
        check(4097, 6144);
        check(6144, 6144);
        check(6145, 8192);
        check(16 << 20, 16 << 20);
        check((16 << 20) + 1, 24 << 20);
        check(SLAB_BYTES_MAX, SLAB_BYTES_MAX);
        check(SLAB_BYTES_MAX + 1, SLAB_BYTES_MAX + 4096);
        let mut last = None;
        for len in (4096..1 << 22).step_by(1000).chain([SLAB_BYTES_MAX]) {
            let (class, bytes) = class_of(len);
            assert!(bytes >= len && class.is_some_and(|c| c < CLASSES) && class >= last);
            last = class;
        }
        assert_eq!(class_of(SLAB_BYTES_MAX).0, Some(CLASSES - 1));
        assert_eq!(class_of(SLAB_BYTES_MAX + 1).0, None);
    }

    #[test]
    fn a_dropped_slab_is_reused_frozen_or_not() {
        let pool = SlabPool::new(1 << 20);
        let first = slab(&pool, 5000).as_ptr();
        let frozen = slab(&pool, 5500).freeze();
        assert_eq!((frozen.as_ptr(), frozen.len()), (first, 5500));
        assert_eq!(pool.counters().live_bytes, 6144);
        let row = frozen.slice(10..20);
        drop(frozen);
        assert_ne!(slab(&pool, 5000).as_ptr(), first, "a slice still reads it");
        drop(row);
        let c = pool.counters();
        assert_eq!((c.hits, c.misses, c.live_bytes, c.retained_bytes), (1, 2, 0, 2 * 6144));
    }

    #[test]
    fn slabs_are_aligned_to_64_bytes_and_small_ones_are_plain() {
        let pool = SlabPool::new(1 << 20);
        for len in [4096, 5000, 1 << 20] {
            assert_eq!(slab(&pool, len).as_ptr() as usize % 64, 0);
        }
        let before = pool.counters();
        let small = pool.copy_of(b"abc").expect("memory").freeze();
        assert_eq!(&small[..], b"abc");
        assert_eq!(slab(&pool, 0).len(), 0);
        assert_eq!(pool.counters(), before);
    }

    #[test]
    fn at_most_the_maximum_is_retained() {
        let pool = SlabPool::new(10_000);
        let all: Vec<_> = (0..4).map(|_| slab(&pool, 4096)).collect();
        drop(all);
        assert_eq!(pool.counters().retained_bytes, 8192);
        drop(slab(&pool, SLAB_BYTES_MAX + 1));
        assert_eq!(pool.counters().live_bytes, 0);
        pool.retain_at_most(4096);
        drop([slab(&pool, 4096), slab(&pool, 4096)]);
        assert_eq!(pool.counters().retained_bytes, 4096);
    }

    #[test]
    fn a_mostly_unwritten_slab_is_not_retained() {
        let pool = SlabPool::new(64 << 20);
        let announced = |written: usize| {
            let mut slab = pool.reserve(16 << 20).expect("address space");
            slab.window(0..written).fill(1);
            drop(slab);
            pool.counters().retained_bytes
        };
        assert_eq!(announced(1), 0);
        assert_eq!(announced(9 << 20), 16 << 20);
        assert_eq!(announced(1), 16 << 20, "now its pages are there");
        let mut slab = pool.reserve(16 << 20).expect("address space");
        assert_eq!((slab.window(100..200).len(), slab.window((16 << 20) - 10..usize::MAX).len()), (100, 10));
        assert!(slab.window(17 << 20..18 << 20).is_empty());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends where a system would say no")]
    fn a_length_beyond_the_machine_is_an_error() {
        let pool = SlabPool::new(0);
        for len in [1 << 50, usize::MAX] {
            let text = pool.get(len).expect_err("no machine has it").message().to_owned();
            assert!(text.starts_with(&format!("cannot allocate {len} bytes")), "{text}");
            assert!(pool.reserve(len).is_err());
        }
        assert_eq!(pool.get(100_000).map(|s| s.len()), Ok(100_000));
    }

    #[test]
    fn trim_frees_what_was_idle_since_the_last_trim_and_no_more() {
        let pool = SlabPool::new(1 << 20);
        let burst: Vec<_> = (0..4).map(|_| slab(&pool, 4096)).collect();
        drop(burst);
        pool.trim();
        assert_eq!(pool.counters().retained_bytes, 4 * 4096, "all four were in use since the last trim");
        drop([slab(&pool, 4096), slab(&pool, 4096)]);
        pool.trim();
        assert_eq!(pool.counters().retained_bytes, 2 * 4096, "two of four were needed");
        pool.trim();
        assert_eq!(pool.counters().retained_bytes, 0);
    }

    #[test]
    fn threads_share_a_pool() {
        const ROUNDS: usize = if cfg!(miri) { 2 } else { 500 };
        let pool = SlabPool::new(1 << 20);
        std::thread::scope(|s| {
            for t in 0..4u8 {
                let pool = &pool;
                s.spawn(move || {
                    for i in 0..ROUNDS {
                        let mut slab = slab(pool, 4096 + i * 8);
                        slab.fill(t);
                        let bytes = slab.freeze();
                        assert!(bytes.iter().all(|&b| b == t));
                    }
                });
            }
        });
        let c = pool.counters();
        assert_eq!((c.live_bytes, c.hits + c.misses), (0, 4 * ROUNDS as u64));
        assert!(c.retained_bytes <= c.retained_bytes_max);
    }
}
