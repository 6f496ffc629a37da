//! When the phases of an execution were, for all its requests: one value for statistics, traces and the access log.

use crate::limits::REPORTED_FUTURE_NS_MAX;
use backend::{Marks, ReportedTimes};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Phases of one execution, shared by the requests of a batch, in nanoseconds of `backend::now_ns`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Timings {
    /// C: when the backend got the batch.
    pub start: u64,
    /// D, E, F: ends of input, inference and output.
    pub marks: Marks,
    /// G: when responses were about to be sent.
    pub end: u64,
}

impl Timings {
    /// Durations of input, inference and output.
    #[inline]
    pub(crate) fn phases(&self) -> [u64; 3] {
        let m = &self.marks;
        [
            m.inputs_ready.saturating_sub(self.start),
            m.inference_end.saturating_sub(m.inputs_ready),
            m.outputs_ready.saturating_sub(m.inference_end),
        ]
    }
}

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

/// Times that a model reports, none of which is far in the future: they would spoil the totals for good.
pub(crate) fn believable(times: ReportedTimes) -> ReportedTimes {
    let latest = backend::now_ns().saturating_add(REPORTED_FUTURE_NS_MAX);
    let ReportedTimes { start, compute_start, compute_end, end } = times;
    let [start, compute_start, compute_end, end] = [start, compute_start, compute_end, end].map(|ns| ns.min(latest));
    ReportedTimes { start, compute_start, compute_end, end }
}

/// Ends of input, inference and output.
pub(crate) fn marks(times: ReportedTimes) -> Marks {
    let ReportedTimes { compute_start, compute_end, end, .. } = times;
    Marks { inputs_ready: compute_start, inference_end: compute_end, outputs_ready: end }
}
