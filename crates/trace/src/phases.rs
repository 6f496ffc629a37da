//! Times of the phases of a request, for the access log. Any thread sets them without a lock; the thread that receives
//! the last response reads them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tensor::Name;

/// Times on the engine's clock; 0 = not reached.
#[derive(Debug, Default)]
pub struct Phases {
    accepted: AtomicU64,
    marks: [AtomicU64; 4],
    ended: AtomicU64,
    rows: AtomicU32,
    /// Why the batch of the request began; the first one, if the request ran several times.
    pub cause: OnceLock<&'static str>,
    /// Set if the request could not start at once, unless it waited for more requests.
    pub behind: OnceLock<Behind>,
    /// The beginning of the request's id; unset if it has none.
    pub id: OnceLock<Box<[u8]>>,
    /// Id of the trace that is exported, in a copy that outlives it.
    pub(crate) trace_id: OnceLock<String>,
    /// Bytes of inputs and of outputs that were copied for the request on the way to and from its model.
    copied: [AtomicU64; 2],
}

/// Reasons why a request could not start at once when it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behind {
    /// Model whose executions had all instances, or the resources of the rate limiter.
    pub model: Name,
    /// Version of the model.
    pub version: Name,
    /// True if it had the resources of the rate limiter that an instance needs, and not the instances.
    pub has_resources: bool,
    /// Highest priority level of the requests that waited before this one; 0 = none, or the model has no levels.
    pub priority: u32,
    /// Rows of the requests that waited before this one.
    pub rows: u64,
}

/// A copy of the times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// When the model accepted the request.
    pub accepted: u64,
    /// When the batch began, its inputs were ready, inference ended, and outputs were ready. All 0 if the request had
    /// no execution of its own: a hit of the response cache, an ensemble.
    pub marks: [u64; 4],
    /// When the last response was complete.
    pub ended: u64,
    /// Rows of the batch; 0 if unknown.
    pub rows: u32,
}

// Relaxed, because passing the response to the reader orders all of these writes.
impl Phases {
    /// Adds bytes of inputs that were copied.
    pub fn copied_in(&self, bytes: usize) {
        self.add_copied(0, bytes);
    }

    /// Adds bytes of outputs that were copied.
    pub fn copied_out(&self, bytes: usize) {
        self.add_copied(1, bytes);
    }

    fn add_copied(&self, side: usize, bytes: usize) {
        if let Some(copied) = self.copied.get(side) {
            copied.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Bytes of inputs and of outputs that were copied so far.
    pub fn copied(&self) -> [u64; 2] {
        self.copied.each_ref().map(|bytes| bytes.load(Ordering::Relaxed))
    }

    pub(crate) fn accepted(&self, ns: u64) {
        self.accepted.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn computed(&self, marks: [u64; 4]) {
        self.marks.iter().zip(marks).for_each(|(mark, ns)| mark.store(ns, Ordering::Relaxed));
    }

    pub(crate) fn ended(&self, ns: u64) {
        self.ended.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn batched(&self, rows: u32) {
        self.rows.store(rows, Ordering::Relaxed);
    }

    /// A copy, when nothing is added any more.
    pub(crate) fn copied_at_end(&self) -> Self {
        let Measured { accepted, marks, ended, rows } = self.measured();
        Self {
            accepted: accepted.into(),
            marks: marks.map(AtomicU64::new),
            ended: ended.into(),
            rows: rows.into(),
            cause: self.cause.clone(),
            behind: self.behind.clone(),
            id: self.id.clone(),
            trace_id: self.trace_id.clone(),
            copied: self.copied().map(AtomicU64::new),
        }
    }

    /// The times so far.
    pub fn measured(&self) -> Measured {
        Measured {
            accepted: self.accepted.load(Ordering::Relaxed),
            marks: self.marks.each_ref().map(|mark| mark.load(Ordering::Relaxed)),
            ended: self.ended.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
        }
    }
}
