//! The response cache: stores responses for equal requests (S-37 to S-40, S-44).
//!
//! A [`KeySpace`] makes the [`Key`] of a request from the model and the name, datatype, shape and contents of each
//! input. A [`Cache`] stores the model's response with it. [`LocalCache`] is in this process; `cache-redis` has the
//! cache that servers share, with entries in the format of [`store`] and [`restore`].
//!
//! The engine decides which models use the cache and when, and counts per model. A hit has no response parameters, as
//! in Triton.
//!
//! Invariants: a request never receives the response of a different request, even if clients try; the entries never
//! exceed the cache's size; an entry owns its contents, and keeps no request body, batch or shared memory.

mod entry;
mod fingerprint;
mod key;
mod local;
mod shard;
mod siphash;
mod stored;

pub use entry::{CachedOutput, Entry, OutputSet};
pub use fingerprint::{FINGERPRINT_FILES_MAX, Fingerprint};
pub use key::{Input, Key, KeySpace, Secret};
pub use local::LocalCache;
pub use stored::{fuzz, restore, store, stored_bytes};

use std::sync::Arc;
use tensor::Error;

/// Receives the result of an asynchronous lookup. Called once, on a thread of the cache, and must not block.
pub type Found = Box<dyn FnOnce(Option<Arc<Entry>>) + Send>;

/// Result of a lookup.
pub enum Lookup {
    /// The response is in the cache.
    Hit(Arc<Entry>),
    /// The response is not in the cache, or lacks a requested output.
    Miss,
    /// The cache asks another process, and will call the [`Found`] that it took.
    Later,
}

/// Result of an insertion. The request has its response in any case.
#[derive(Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The response is stored: counts as a miss (S-44).
    Stored,
    /// An equal request was faster: counts neither as a hit nor as a miss (S-44).
    Present,
    /// The response is not stored, for this reason: counts as a miss, and the reason is logged.
    Refused(Error),
}

/// A response cache. Its callers must not wait: anything slower than memory runs on other threads.
pub trait Cache: Send + Sync {
    /// Looks up a response that has the outputs in `asked`.
    ///
    /// A cache that must wait for another process calls `found` for a receiver, returns [`Lookup::Later`] and calls the
    /// receiver within its own time limit, with `None` if that process is unreachable. Other caches do not call
    /// `found`.
    fn lookup(&self, key: &Key, asked: &OutputSet, found: &mut dyn FnMut() -> Found) -> Lookup;

    /// Stores copies of the outputs of a successful response to a request for `asked`.
    fn insert(&self, key: &Key, asked: &OutputSet, outputs: &[CachedOutput]) -> Insertion;

    /// Drops the entries of an unloaded model, which no request finds any more, as each load has its own keys. The time
    /// grows with the cache: not for a reactor.
    fn forget(&self, scope: &KeySpace);

    /// Counters of the cache, if it has any (O-15).
    fn counters(&self) -> Option<Counters>;

    /// True if other servers use the same entries: versions then differ by their files instead of their load.
    fn is_shared(&self) -> bool {
        false
    }

    /// Name, help text and value of its other metrics.
    fn gauges(&self) -> Vec<(&'static str, &'static str, f64)> {
        Vec::new()
    }

    /// Ends its threads. Later lookups are misses.
    fn close(&self) {}
}

/// Counters of a cache since its start, and its current size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of entries.
    pub entries: u64,
    /// Bytes of the entries, all overhead included.
    pub used_bytes: usize,
    /// Most bytes of the entries.
    pub size_bytes: usize,
    /// Lookups; each is a hit or a miss.
    pub lookups: u64,
    /// Lookups that found a response.
    pub hits: u64,
    /// Lookups that found no response.
    pub misses: u64,
    /// Evicted entries.
    pub evictions: u64,
    /// Time of all lookups, in ns.
    pub lookup_ns: u64,
    /// Time of all insertions, in ns, evictions included.
    pub insertion_ns: u64,
}

impl Counters {
    /// Part of the size that is in use, from 0 to 1.
    pub fn utilisation(&self) -> f64 {
        if self.size_bytes == 0 { 0.0 } else { self.used_bytes as f64 / self.size_bytes as f64 }
    }
}
