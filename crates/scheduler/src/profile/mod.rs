//! Learned cost of the executions of one model. Pure: the caller measures.
//!
//! | user | question | source |
//! |---|---|---|
//! | a reactor, for a request and at the end of its turn | may this run inline ([`Profile::is_cheap`]) | undisturbed
//! runs by class (`estimate`), and overruns by the thread's CPU clock (`overruns`) |
//! | the batcher | which sizes pay, what a wait gains | means by class and size, and the line through them (`curve`);
//! for batches of texts by tokens (`crate::padding`) |
//!
//! The two views differ on purpose: rare long runs must not hold a reactor, while a batch is worth its mean cost.

mod curve;
mod estimate;
mod overruns;
mod remembered;

pub use estimate::RunClass;
pub use overruns::{HoldTime, OVERRUN};

use crate::cores::{Plan, Speedup};
use crate::padding::Fit;
pub(crate) use curve::CostLine;
use curve::Costs;
use estimate::Estimates;
use overruns::Inline;

/// A finished execution in which at least one request succeeded.
#[derive(Debug, Clone, Copy)]
pub struct FinishedRun {
    /// Class of its shapes, as in `Waiting::class`.
    pub class: u64,
    /// Class of its shapes, rows and bytes.
    pub kind: RunClass,
    /// Number of rows.
    pub rows: u32,
    /// Tokens of a batch of texts, padding included; 0 for others.
    pub tokens: u64,
    /// Time from the start of the batch to its outputs.
    pub duration_ns: u64,
    /// The cores that it had.
    pub plan: Plan,
}

/// Learned cost of one version of a model, on one core if it has plans (`cores`).
#[derive(Default)]
pub struct Profile {
    estimates: Estimates,
    inline: Inline,
    curves: Costs,
    texts: Fit,
    speedup: Speedup,
}

impl Profile {
    /// Learns from an execution on any thread.
    #[inline]
    pub fn observe(&mut self, ran: &FinishedRun) {
        self.estimates.observe(ran.kind, ran.duration_ns);
        let expected = match (ran.plan, ran.tokens) {
            (Plan::On { .. }, 0) => self.curves.predict(ran.class, ran.rows),
            (Plan::On { .. }, tokens) => self.texts.predict(tokens),
            _ => None,
        };
        let Some(duration_ns) = self.speedup.on_one_core(ran.plan, ran.duration_ns, expected) else { return };
        self.curves.observe(ran.class, ran.rows, duration_ns);
        if ran.tokens > 0 {
            self.texts.observe(ran.tokens, duration_ns);
        }
    }

    /// True if an inline run is expected to take less than `limit_ns`. False for a class that was not measured.
    #[inline]
    pub fn is_cheap(&self, kind: RunClass, limit_ns: u64) -> bool {
        self.estimates.is_below(kind, limit_ns) && !self.inline.is_resting()
    }

    /// True if the CPU time of the next inline run has to be measured exactly.
    #[inline]
    pub fn needs_exact_time(&self) -> bool {
        self.inline.needs_exact_time()
    }

    /// Judges an inline run that ended at `now`, failed or not. Returns the length of a rest (ns) if overruns were too
    /// much.
    #[inline]
    pub fn ran_inline(&mut self, ran: HoldTime, limit_ns: u64, now: u64) -> Option<u64> {
        self.inline.ran(ran, limit_ns, now)
    }

    /// Called when a run on another thread ends: checks whether inline runs may resume.
    #[inline]
    pub fn ran_on_pool(&mut self, now: u64) {
        self.inline.wake(now);
    }

    /// Predicted duration of an execution, ns; `None` before there are enough measurements.
    pub fn predict(&self, class: u64, rows: u32) -> Option<u64> {
        self.curves.predict(class, rows)
    }

    /// Maximum number of the `rows` to take; `None` for no limit.
    pub(crate) fn rows_worth(&self, class: u64, rows: u32) -> Option<u32> {
        self.curves.rows_worth(class, rows)
    }

    /// The line through the measured means; `None` before two sizes were measured.
    pub(crate) fn line(&self, class: u64) -> Option<CostLine> {
        self.curves.line(class)
    }

    /// The line of the most frequent class: fixed cost and cost of a row, in ns.
    pub fn usual_line(&self) -> Option<(f64, f64)> {
        self.curves.usual_line().map(|line| (line.fixed, line.per_row))
    }

    /// Number of runs to have in progress; see `cores`.
    pub(crate) fn runs(&self, cores: u32, free: u32, requests: u32, cost: Option<(f64, f64)>) -> u32 {
        self.speedup.runs(cores, free, requests, cost)
    }

    /// Cost of batches of texts.
    pub(crate) fn texts(&self) -> &Fit {
        &self.texts
    }
}
