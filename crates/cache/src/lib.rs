//! Answers that are kept for requests that come again (S-37 to S-40, S-44).
//!
//! A [`Scope`] makes the [`Key`] of a request: which model is asked, and the name, datatype, shape and bytes of each input. A
//! [`Cache`] keeps under it what the model answered. [`LocalCache`] is the one in this process; `cache-redis` has the one that servers
//! share, for which [`store`] and [`restore`] say what an answer looks like outside of a process.
//!
//! Not here: which models have the cache, when it is asked, response parameters (a hit has none, as in Triton), and what is counted
//! per model.
//!
//! Invariants: a request never gets the answer of another one, whatever clients send; entries together never hold more than the
//! cache's size; an entry owns its bytes, and neither a request's body, a batch, nor shared memory.

mod entry;
mod fingerprint;
mod key;
mod local;
mod shard;
mod siphash;
mod stored;

pub use entry::{Asked, Entry, Output};
pub use fingerprint::{FINGERPRINT_FILES_MAX, Fingerprint};
pub use key::{Input, Key, Scope, Secret};
pub use local::LocalCache;
pub use stored::{fuzz, restore, store, stored_bytes};

use std::sync::Arc;
use tensor::Error;

/// Takes what an asynchronous lookup found. Called once, on a thread of the cache's own, and must not block.
pub type Found = Box<dyn FnOnce(Option<Arc<Entry>>) + Send>;

/// What a lookup led to.
pub enum Lookup {
    /// The answer was there.
    Hit(Arc<Entry>),
    /// It was not, or it lacks an output that is asked for now.
    Miss,
    /// The cache has to ask another process. It took the [`Found`] it was offered, and will call it.
    Later,
}

/// What an insertion led to. Whatever it was, the request has its answer already.
#[derive(Debug, PartialEq, Eq)]
pub enum Insertion {
    /// The answer is kept: a miss is counted (S-44).
    Stored,
    /// An equal request was faster. Neither a hit nor a miss is counted for this one (S-44).
    Present,
    /// The answer is not kept, for this reason: a miss is counted, and the reason is logged.
    Refused(Error),
}

/// A store of answers. It is called by threads that must not wait: what takes longer than memory does is done elsewhere.
pub trait Cache: Send + Sync {
    /// Looks for an answer that has the outputs in `asked`.
    ///
    /// A cache that must wait for another process calls `found` for a receiver, returns [`Lookup::Later`] and gives the receiver what there
    /// is, within a time of its own: nothing, when that process cannot be reached. Any other does not call it.
    fn lookup(&self, key: &Key, asked: &Asked, found: &mut dyn FnMut() -> Found) -> Lookup;

    /// Keeps the outputs of a successful answer, `asked` of which were asked for. Copies their bytes.
    fn insert(&self, key: &Key, asked: &Asked, outputs: &[Output]) -> Insertion;

    /// Drops the answers of a model that is unloaded. Nothing finds them from then on in any case, as no two loads have one scope.
    /// Takes a time that grows with the cache: not for a reactor.
    fn forget(&self, scope: &Scope);

    /// What the cache did and holds, where it tells (O-15).
    fn counters(&self) -> Option<Counters>;

    /// Whether other servers find what is kept here: then versions are told apart by their files, not by their load.
    fn is_shared(&self) -> bool {
        false
    }

    /// Name, meaning and value of what else it shows in metrics.
    fn gauges(&self) -> Vec<(&'static str, &'static str, f64)> {
        Vec::new()
    }

    /// Ends its threads. Lookups find nothing from then on.
    fn close(&self) {}
}

/// What a cache did since it was made, and holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Answers kept now.
    pub entries: u64,
    /// Bytes they take, with what it takes to find them.
    pub used_bytes: usize,
    /// Most bytes they may take.
    pub size_bytes: usize,
    /// Lookups; each is a hit or a miss.
    pub lookups: u64,
    /// Lookups that found an answer.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Answers that made room for others.
    pub evictions: u64,
    /// Time of all lookups, in ns.
    pub lookup_ns: u64,
    /// Time of all insertions, in ns, with that of the evictions they needed.
    pub insertion_ns: u64,
}

impl Counters {
    /// Part of the size that is in use, from 0 to 1.
    pub fn utilisation(&self) -> f64 {
        if self.size_bytes == 0 { 0.0 } else { self.used_bytes as f64 / self.size_bytes as f64 }
    }
}
