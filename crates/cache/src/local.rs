//! The store in this process: limited in bytes, evicts the least recently used entry (S-38).
//!
//! Keys are distributed over shards, each with its own lock, which a lookup or an insertion holds for some 50 ns; bytes
//! are copied without a lock. The order of use is global: one counter numbers the uses, each shard publishes the number
//! of its oldest entry, and an eviction reads these and removes the oldest. An entry may be as large as the whole
//! store.
//!
//! Invariant: `used <= size`. Bytes are counted before they are copied, and until their entry is removed; views of it
//! in responses live on, charged to the responses.

use crate::entry::{CachedOutput, Entry, OutputSet};
use crate::key::{Key, KeySpace};
use crate::shard::{NEVER, Put, Shard};
use crate::{Cache, Counters, Found, Insertion, Lookup};
use memory::machine;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;
use tensor::{Error, Result};

const SHARDS: usize = 64;

/// Maximum evictions by one insertion, about 0.2 ms, because it may run on a reactor. A large response for which
/// a store full of small entries has no room is stored after one or two more misses.
const EVICTIONS_MAX: usize = 1024;

/// Nodes that `forget` checks per lock.
const FORGOTTEN_AT_ONCE: usize = 1024;

/// The response cache of a server, for all of its models.
pub struct LocalCache {
    shards: [Mutex<Shard>; SHARDS],
    /// Last use of each shard's oldest entry, updated when the shard is unlocked.
    oldest: [AtomicU64; SHARDS],
    /// Number of uses so far.
    clock: AtomicU64,
    used: AtomicUsize,
    size: usize,
    insertion_ns: AtomicU64,
}

/// Bytes that are reserved for an entry before it is inserted.
struct Room<'c> {
    cache: &'c LocalCache,
    bytes: usize,
}

impl Room<'_> {
    /// Keeps the reservation for the inserted entry, except for `less` bytes.
    fn keep(mut self, less: usize) {
        self.bytes = less;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.cache.used.fetch_sub(self.bytes, Relaxed);
    }
}

/// A locked shard. Publishes the last use of its oldest entry when it is unlocked.
struct Locked<'c> {
    shard: MutexGuard<'c, Shard>,
    oldest: &'c AtomicU64,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let tick = self.shard.oldest_tick();
        // Usually unchanged; a write would invalidate the caches of other cores.
        if self.oldest.load(Relaxed) != tick {
            self.oldest.store(tick, Relaxed);
        }
    }
}

impl LocalCache {
    /// Makes a store of `size` bytes.
    ///
    /// # Errors
    /// INVALID_ARG if the machine or the control group has less memory.
    pub fn new(size: usize) -> Result<Self> {
        let most = machine::memory_bytes();
        if size as u64 > most {
            return Err(Error::invalid(format!(
                "Failed to initialize LocalCache: a 'size' of {size} bytes is more than the memory of this machine or \
                 container, {most} bytes"
            )));
        }
        Ok(Self {
            shards: std::array::from_fn(|_| Mutex::new(Shard::new())),
            oldest: std::array::from_fn(|_| AtomicU64::new(NEVER)),
            clock: AtomicU64::new(0),
            used: AtomicUsize::new(0),
            size,
            insertion_ns: AtomicU64::new(0),
        })
    }

    fn lock(&self, index: usize) -> Option<Locked<'_>> {
        let (shard, oldest) = (self.shards.get(index)?, self.oldest.get(index)?);
        Some(Locked { shard: shard.lock(), oldest })
    }

    /// Locks the shard of a key, selected by bits that the shard's table does not use.
    fn shard_of(&self, key: &Key) -> Option<Locked<'_>> {
        self.lock((key.hash >> 64) as usize % SHARDS)
    }

    /// The number of a use. Called with the shard locked, so that numbers ascend in each shard.
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Relaxed)
    }

    fn put(&self, key: &Key, asked: &OutputSet, outputs: &[CachedOutput]) -> Result<Insertion> {
        let bytes = Entry::bytes_of(asked, outputs);
        if bytes > self.size {
            return Err(Error::invalid(format!(
                "Requested byte_size: {bytes} is greater than total cache size: {}",
                self.size
            )));
        }
        if self.shard_of(key).is_some_and(|s| s.shard.has(key, asked)) {
            return Ok(Insertion::Present);
        }
        let room = self.reserve(bytes)?;
        let entry = Entry::copied(asked, outputs)?;
        let put = self.shard_of(key).map(|mut s| {
            let tick = self.tick();
            s.shard.put(key, asked, entry, bytes, tick)
        });
        match put {
            Some(Put::Stored { less, replaced }) => {
                room.keep(less);
                drop(replaced);
                Ok(Insertion::Stored)
            }
            Some(Put::Present) => Ok(Insertion::Present),
            Some(Put::Full) | None => Err(Error::exhausted("the response cache has the maximum number of entries")),
        }
    }

    /// Reserves bytes, and evicts entries to make room.
    fn reserve(&self, bytes: usize) -> Result<Room<'_>> {
        let more = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= self.size);
        let mut evicted = 0;
        loop {
            if self.used.fetch_update(Relaxed, Relaxed, more).is_ok() {
                return Ok(Room { cache: self, bytes });
            }
            if evicted == EVICTIONS_MAX || !self.evict() {
                break;
            }
            evicted += 1;
        }
        Err(Error::exhausted(format!(
            "the response cache has no room for {bytes} bytes at the moment: other responses are being stored, or \
             many small ones are being removed"
        )))
    }

    /// Evicts the least recently used entry; false if there is none.
    fn evict(&self) -> bool {
        // Tries again if another thread has just emptied the shard.
        for _ in 0..SHARDS {
            let ages = self.oldest.iter().map(|tick| tick.load(Relaxed));
            let Some((index, _)) = ages.enumerate().min_by_key(|&(_, tick)| tick).filter(|&(_, tick)| tick != NEVER)
            else {
                return false;
            };
            let removed = self.lock(index).and_then(|mut s| s.shard.pop_oldest());
            if let Some(removed) = removed {
                drop(removed.entry);
                self.used.fetch_sub(removed.bytes, Relaxed);
                return true;
            }
        }
        false
    }
}

impl Cache for LocalCache {
    fn lookup(&self, key: &Key, asked: &OutputSet, _found: &mut dyn FnMut() -> Found) -> Lookup {
        let start = Instant::now();
        let Some(mut locked) = self.shard_of(key) else { return Lookup::Miss };
        let shard = &mut *locked.shard;
        let entry = shard.find(key, asked, || self.tick());
        let counters = &mut shard.counters;
        *(if entry.is_some() { &mut counters.hits } else { &mut counters.misses }) += 1;
        counters.lookup_ns += nanoseconds(start);
        entry.map_or(Lookup::Miss, Lookup::Hit)
    }

    fn insert(&self, key: &Key, asked: &OutputSet, outputs: &[CachedOutput]) -> Insertion {
        let start = Instant::now();
        let insertion = self.put(key, asked, outputs).unwrap_or_else(Insertion::Refused);
        self.insertion_ns.fetch_add(nanoseconds(start), Relaxed);
        insertion
    }

    fn forget(&self, scope: &KeySpace) {
        for index in 0..SHARDS {
            let mut from = Some(0);
            while let Some(at) = from {
                let mut removed = Vec::new();
                from =
                    self.lock(index).and_then(|mut s| s.shard.forget(scope.id(), at, FORGOTTEN_AT_ONCE, &mut removed));
                self.used.fetch_sub(removed.iter().map(|r| r.bytes).sum(), Relaxed);
            }
        }
    }

    fn counters(&self) -> Option<Counters> {
        let mut all = Counters {
            used_bytes: self.used.load(Relaxed),
            size_bytes: self.size,
            insertion_ns: self.insertion_ns.load(Relaxed),
            ..Counters::default()
        };
        for shard in &self.shards {
            let shard = shard.lock();
            let one = shard.counters;
            all.entries += shard.len() as u64;
            all.hits += one.hits;
            all.misses += one.misses;
            all.evictions += one.evictions;
            all.lookup_ns += one.lookup_ns;
        }
        all.lookups = all.hits + all.misses;
        Some(all)
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
