//! When the phases of an execution were, for all its requests.

use crate::statistics::Timings;
use backend::Marks;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// State shared by the requests of one execution.
pub(crate) struct Execution {
    /// When it began. Set again for a batch that was prefetched at its instance.
    start: AtomicU64,
    pub(crate) instance: u32,
    /// Rows of the whole batch, at least one per request.
    rows: u64,
    /// Set when the backend returned, or freed the instance.
    marks: OnceLock<Marks>,
    /// When the inputs of a batch were passed on to another process.
    handed_on: OnceLock<u64>,
    is_counted: AtomicBool,
}

impl Execution {
    pub(crate) fn new(start: u64, instance: u32, rows: u64) -> Self {
        Self {
            start: AtomicU64::new(start),
            instance,
            rows,
            marks: OnceLock::new(),
            handed_on: OnceLock::new(),
            is_counted: AtomicBool::new(false),
        }
    }

    /// Timings of a request that ends now. Until the backend is done, all its time is inference.
    pub(crate) fn timings(&self, now: u64) -> Timings {
        let start = self.start();
        let inputs_ready = self.handed_on.get().map_or(start, |&at| at.max(start));
        let running = Marks { inputs_ready, inference_end: now, outputs_ready: now };
        Timings { start, marks: self.marks.get().copied().unwrap_or(running), end: now }
    }

    pub(crate) fn start(&self) -> u64 {
        self.start.load(Ordering::Relaxed)
    }

    /// Records that it begins now, after it was prefetched.
    pub(crate) fn begins(&self, at: u64) {
        self.start.fetch_max(at, Ordering::Relaxed);
    }

    /// Records the end of the batch. Only the first call counts.
    pub(crate) fn set_marks(&self, marks: Marks) {
        let _ = self.marks.set(marks);
    }

    /// Records when the batch was passed on to another process.
    pub(crate) fn set_handed_on(&self, inputs_ready: u64) {
        let _ = self.handed_on.set(inputs_ready);
    }

    /// Rows of the batch, for its first request that asks.
    pub(crate) fn count_once(&self) -> Option<u64> {
        (!self.is_counted.swap(true, Ordering::Relaxed)).then_some(self.rows)
    }
}
