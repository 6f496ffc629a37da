//! Requests of one model that began to run lately, and executions. Written under the lock of the model,
//! so an entry is a few stores.
//!
//! Entries are kept in chunks. A full chunk does not change any more but for the end of an execution, and is shared
//! with readers, who copy the newest chunk only.
//!
//! Invariant: at most [`MODEL_BYTES_MAX`] bytes for a model and [`SERVER_BYTES_MAX`] for all; the oldest entries leave
//! first, and those older than [`WINDOW_NS`].

use scheduler::Cause;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How long entries are kept.
pub const WINDOW_NS: u64 = 300_000_000_000;
/// Memory of a model's entries, half for requests and half for executions.
pub const MODEL_BYTES_MAX: usize = 8 << 20;
/// Memory of the entries of all models.
pub const SERVER_BYTES_MAX: usize = 256 << 20;
/// Bytes of a chunk. Until a model needs a second one, it has this much of each kind.
const CHUNK_BYTES: usize = 16 << 10;
/// One run on a reactor of so many is kept: it took microseconds and waited for nothing.
const INLINE_EVERY: u32 = 64;
/// Executions whose end may be awaited; the ends of others are not noted.
const OPEN_MAX: usize = 1024;

/// Sizes whose shortest execution is remembered: by the binary logarithm of its rows.
const FASTEST: usize = 16;

/// A request that began to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrived {
    /// When it was accepted, in ns.
    pub arrived: u64,
    /// Rows of its batch dimension.
    pub rows: u16,
    /// Part of the hash of its shapes: requests of different classes do not run together.
    pub class: u16,
    /// The `priority` parameter.
    pub priority: u16,
    /// Tokens of a text, or 0.
    pub tokens: u16,
}

/// An execution.
#[derive(Debug, Clone, Copy)]
pub struct Execution {
    /// When it began, in ns.
    pub start: u64,
    /// Duration in ns; 0 while it runs.
    pub ns: u64,
    /// Number of its first request.
    first: u64,
    /// Number of its requests.
    pub requests: u16,
    /// Instance that ran it.
    pub instance: u16,
    /// Why it began when it did.
    pub cause: Cause,
    /// Set if it ran on a reactor, and stands for more.
    pub is_inline: bool,
    /// Set if no request succeeded.
    pub failed: bool,
}

/// Bytes of the entries of all models.
#[derive(Debug, Default)]
pub struct Budget(AtomicUsize);

impl Budget {
    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        let more = |bytes: usize| bytes.checked_add(CHUNK_BYTES).filter(|bytes| *bytes <= SERVER_BYTES_MAX);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

/// Entries by number, the newest in a chunk of its own.
struct Chunks<T> {
    full: VecDeque<Arc<Vec<T>>>,
    newest: Vec<T>,
    /// Number of the first entry that is kept.
    first: u64,
}

impl<T: Clone> Chunks<T> {
    const EACH: usize = CHUNK_BYTES / size_of::<T>();
    const CHUNKS_MAX: usize = MODEL_BYTES_MAX / 2 / CHUNK_BYTES;

    const fn new() -> Self {
        Self { full: VecDeque::new(), newest: Vec::new(), first: 0 }
    }

    /// Number of the next entry.
    fn next(&self) -> u64 {
        self.first + (self.full.len() * Self::EACH + self.newest.len()) as u64
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let newest = self.full.len() * Self::EACH;
        if at >= newest {
            return self.newest.get_mut(at - newest);
        }
        // Copies 16 KiB if a reader has the chunk.
        Arc::make_mut(self.full.get_mut(at / Self::EACH)?).get_mut(at % Self::EACH)
    }

    #[inline]
    fn push(&mut self, budget: &Budget, is_old: impl Fn(&T) -> bool, entry: T) {
        let is_full = self.newest.len() == self.newest.capacity() || self.newest.len() == Self::EACH;
        if !is_full || self.begin_chunk(budget, is_old) {
            self.newest.push(entry);
        }
    }

    /// False if there is no memory: then nothing is kept.
    #[cold]
    fn begin_chunk(&mut self, budget: &Budget, is_old: impl Fn(&T) -> bool) -> bool {
        if !self.newest.is_empty() {
            self.full.push_back(Arc::new(std::mem::take(&mut self.newest)));
        }
        while self.full.front().and_then(|chunk| chunk.last()).is_some_and(&is_old) {
            self.drop_oldest();
            budget.0.fetch_sub(CHUNK_BYTES, Ordering::Relaxed);
        }
        if (self.full.len() >= Self::CHUNKS_MAX || !budget.take()) && !self.drop_oldest() {
            return false;
        }
        self.newest = Vec::with_capacity(Self::EACH);
        true
    }

    fn drop_oldest(&mut self) -> bool {
        let oldest = self.full.pop_front();
        self.first += oldest.as_ref().map_or(0, |chunk| chunk.len() as u64);
        oldest.is_some()
    }

    fn chunks(&self) -> usize {
        self.full.len() + usize::from(self.newest.capacity() > 0)
    }

    fn copy(&self) -> Vec<Arc<Vec<T>>> {
        self.full.iter().cloned().chain([Arc::new(self.newest.clone())]).collect()
    }
}

/// Requests and executions of a model in the last minutes.
pub struct Ring {
    budget: Arc<Budget>,
    requests: Chunks<Arrived>,
    executions: Chunks<Execution>,
    /// Executions that run: number, instance and start.
    open: SmallVec<[(u64, u16, u64); 4]>,
    inline: u32,
    fastest: [u64; FASTEST],
    busy_ns: u64,
}

impl Ring {
    /// An empty ring, which has no memory yet.
    pub fn new(budget: Arc<Budget>) -> Self {
        let (requests, executions) = (Chunks::new(), Chunks::new());
        Self { budget, requests, executions, open: SmallVec::new(), inline: 0, fastest: [0; FASTEST], busy_ns: 0 }
    }

    /// Notes a batch that begins at `now`. `on` tells its instance.
    pub fn began(&mut self, now: u64, cause: Cause, requests: impl Iterator<Item = Arrived>) {
        let first = self.requests.next();
        for request in requests {
            self.requests.push(&self.budget, |old| now.saturating_sub(old.arrived) > WINDOW_NS, request);
        }
        let requests = u16::try_from(self.requests.next() - first).unwrap_or(u16::MAX);
        if self.open.len() == OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push((self.executions.next(), u16::MAX, now));
        self.push(Execution {
            start: now,
            ns: 0,
            first,
            requests,
            instance: u16::MAX,
            cause,
            is_inline: false,
            failed: false,
        });
    }

    fn push(&mut self, execution: Execution) {
        let now = execution.start;
        self.executions.push(&self.budget, |old| now.saturating_sub(old.start) > WINDOW_NS, execution);
    }

    /// Notes the instance of the batch that began last.
    pub fn on(&mut self, instance: u32) {
        let instance = u16::try_from(instance).unwrap_or(u16::MAX);
        let Some((number, of, _)) = self.open.last_mut() else { return };
        *of = instance;
        if let Some(execution) = self.executions.get_mut(*number) {
            execution.instance = instance;
        }
    }

    /// Notes the end of the oldest batch of an instance that runs. `ns` is its duration, or 0 if it failed.
    pub fn ended(&mut self, instance: u32, rows: u32, now: u64, ns: u64) {
        if let Some(fastest) = self.fastest.get_mut(rows.max(1).ilog2() as usize).filter(|_| ns > 0)
            && (*fastest == 0 || ns < *fastest)
        {
            *fastest = ns;
        }
        self.busy_ns += ns;
        let instance = u16::try_from(instance).unwrap_or(u16::MAX);
        let Some(at) = self.open.iter().position(|(_, of, _)| *of == instance) else { return };
        let (number, ..) = self.open.remove(at);
        let Some(execution) = self.executions.get_mut(number) else { return };
        execution.failed = ns == 0;
        if ns > 0 {
            // It may have waited for a thread, or behind another batch of its instance.
            execution.start = execution.start.max(now.saturating_sub(ns));
        }
        execution.ns = now.saturating_sub(execution.start).max(1);
    }

    /// Notes a run on a reactor.
    #[inline]
    pub fn ran_inline(&mut self, now: u64, ns: u64) {
        self.inline = self.inline.wrapping_add(1);
        if self.inline.is_multiple_of(INLINE_EVERY) {
            self.keep_inline(now, ns);
        }
    }

    #[cold]
    fn keep_inline(&mut self, now: u64, ns: u64) {
        let (start, first) = (now.saturating_sub(ns), self.requests.next());
        let cause = Cause::IdleInstance;
        self.push(Execution {
            start,
            ns: ns.max(1),
            first,
            requests: 1,
            instance: 0,
            cause,
            is_inline: true,
            failed: false,
        });
        let request = Arrived { arrived: start, rows: 1, ..Arrived::default() };
        self.requests.push(&self.budget, |old| now.saturating_sub(old.arrived) > WINDOW_NS, request);
    }

    /// Forgets everything, because the model has other instances now.
    pub fn clear(&mut self) {
        let (fastest, busy_ns) = (self.fastest, self.busy_ns);
        *self = Self::new(self.budget.clone());
        (self.fastest, self.busy_ns) = (fastest, busy_ns);
    }

    /// Shortest duration of an execution by the binary logarithm of its rows, since the model was loaded; 0: none.
    pub fn fastest(&self) -> [u64; FASTEST] {
        self.fastest
    }

    /// Duration of all executions that were not on a reactor, in ns.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns
    }

    /// The entries, to be read without the lock.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            first: self.requests.first,
            requests: self.requests.copy(),
            executions: self.executions.copy(),
            open_since: self.open.iter().map(|(.., start)| *start).min(),
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let chunks = self.requests.chunks() + self.executions.chunks();
        self.budget.0.fetch_sub(chunks * CHUNK_BYTES, Ordering::Relaxed);
    }
}

/// Entries of a ring.
pub struct Snapshot {
    /// Number of the first request.
    first: u64,
    requests: Vec<Arc<Vec<Arrived>>>,
    executions: Vec<Arc<Vec<Execution>>>,
    /// When the oldest running execution began. Its entry may have left.
    pub(crate) open_since: Option<u64>,
}

impl Snapshot {
    /// Number of requests that a run on a reactor stands for.
    pub const INLINE_EVERY: u32 = INLINE_EVERY;

    /// Executions in the order in which they began, with their requests; those whose requests left are left out.
    pub fn executions(&self) -> impl Iterator<Item = (Execution, impl Iterator<Item = Arrived> + '_)> {
        self.executions.iter().flat_map(|chunk| chunk.iter()).filter_map(|execution| {
            let first = usize::try_from(execution.first.checked_sub(self.first)?).ok()?;
            let requests = (first..first + usize::from(execution.requests)).filter_map(|at| self.request(at));
            Some((*execution, requests))
        })
    }

    fn request(&self, at: usize) -> Option<Arrived> {
        let each = Chunks::<Arrived>::EACH;
        self.requests.get(at / each)?.get(at % each).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(arrived: u64) -> Arrived {
        Arrived { arrived, rows: 1, ..Arrived::default() }
    }

    fn ran(ring: &mut Ring, now: u64, requests: u64) {
        ring.began(now, Cause::Full, (0..requests).map(|i| one(now - 1 - i)));
        ring.on(3);
        ring.ended(3, 1, now + 10, 7);
    }

    #[test]
    fn an_execution_has_its_requests_and_its_end() {
        let mut ring = Ring::new(Arc::default());
        ran(&mut ring, 1000, 2);
        ring.began(2000, Cause::IdleInstance, [one(1999)].into_iter());
        let snapshot = ring.snapshot();
        let all: Vec<_> = snapshot.executions().map(|(e, r)| (e, r.map(|r| r.arrived).collect::<Vec<_>>())).collect();
        assert_eq!((all[0].0.start, all[0].0.ns, all[0].0.instance, &all[0].1[..]), (1003, 7, 3, &[999, 998][..]));
        assert_eq!((all[1].0.ns, &all[1].1[..]), (0, &[1999][..]), "it runs");
        assert_eq!(snapshot.open_since, Some(2000));
        ring.on(3);
        ring.ended(3, 1, 2500, 400);
        assert_eq!(ring.snapshot().open_since, None);
    }

    #[test]
    fn memory_is_bounded_and_the_newest_stay() {
        let budget = Arc::<Budget>::default();
        let mut ring = Ring::new(budget.clone());
        for i in 1..=600_000 {
            ran(&mut ring, 100 * i, 1);
        }
        assert_eq!(budget.bytes(), MODEL_BYTES_MAX);
        let snapshot = ring.snapshot();
        let last = snapshot.executions().last().map(|(e, r)| (e.start, r.count()));
        assert_eq!(last, Some((60_000_003, 1)));
        assert!(snapshot.executions().count() > 130_000);
        let mut second = Ring::new(budget.clone());
        ran(&mut second, 100, 1);
        drop(ring);
        assert_eq!(budget.bytes(), 2 * CHUNK_BYTES);
        drop(second);
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn entries_leave_after_five_minutes() {
        let mut ring = Ring::new(Arc::default());
        for i in 0..5000 {
            ran(&mut ring, 1000 + i, 1);
        }
        for i in 0..2000 {
            ran(&mut ring, 2 * WINDOW_NS + i, 1);
        }
        let old = ring.snapshot().executions().filter(|(e, _)| e.start < WINDOW_NS).count();
        assert!(old < 2 * CHUNK_BYTES / size_of::<Execution>(), "{old}");
    }
}
