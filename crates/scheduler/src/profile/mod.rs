//! What executions of one model cost: the only place that learns it. Pure: the caller measures, and tells.
//!
//! | who asks | what | from |
//! |---|---|---|
//! | the thread that brings a request, and the end of its turn | may this run here ([`Profile::is_cheap`]) | undisturbed runs by class (`estimate`), and overruns by the thread's CPU clock (`overruns`) |
//! | the batcher | which sizes pay, what a wait gains | means by class and size, and the line through them (`curve`); for padded batches by volume (`crate::padding`) |
//!
//! They look at the same executions in different ways on purpose: a thread must not be held by what is rare, a batch is worth what it
//! costs on the whole.

mod curve;
mod estimate;
mod overruns;

pub use estimate::RunClass;
pub use overruns::{Held, OVERRUN};

use crate::padding::Fit;
use curve::Costs;
pub(crate) use curve::Line;
use estimate::Estimates;
use overruns::Inline;

/// What is remembered of one class, made when there is nothing, frequent classes first: each time it is asked for one moves a step
/// towards the front. So it is found quickly, and a flood of rare ones cannot push it out.
#[inline]
fn remembered<T>(
    all: &mut Vec<T>,
    most: usize,
    is_wanted: impl Fn(&T) -> bool,
    new: impl FnOnce() -> T,
) -> Option<&mut T> {
    let at = match all.iter().position(is_wanted) {
        Some(at) if at > 0 => {
            all.swap(at, at - 1);
            at - 1
        }
        Some(at) => at,
        None => {
            all.truncate(most - 1);
            all.push(new());
            all.len() - 1
        }
    };
    all.get_mut(at)
}

/// A finished execution, none of whose requests failed for all.
#[derive(Debug, Clone, Copy)]
pub struct Execution {
    /// Its shapes, as `Waiting::class`.
    pub class: u64,
    /// The same with rows and bytes.
    pub kind: RunClass,
    /// Its rows.
    pub rows: u32,
    /// Bytes of its inputs where those were padded; 0 where none was.
    pub padded_bytes: u64,
    /// From the batch's start to its outputs.
    pub duration_ns: u64,
}

/// Learned cost of one version of a model.
#[derive(Default)]
pub struct Profile {
    estimates: Estimates,
    inline: Inline,
    curves: Costs,
    padded: Fit,
}

impl Profile {
    /// Learns from an execution, wherever it ran.
    #[inline]
    pub fn observe(&mut self, ran: &Execution) {
        self.curves.observe(ran.class, ran.rows, ran.duration_ns);
        if ran.padded_bytes > 0 {
            self.padded.observe(ran.padded_bytes, ran.duration_ns);
        }
        self.estimates.observe(ran.kind, ran.duration_ns);
    }

    /// Whether a run is expected to take less than `limit_ns`, and may hold the thread that brings it. False for what was not seen.
    #[inline]
    pub fn is_cheap(&self, kind: RunClass, limit_ns: u64) -> bool {
        self.estimates.is_below(kind, limit_ns) && !self.inline.is_resting()
    }

    /// Whether the next run on the thread that brings it is to be measured exactly.
    #[inline]
    pub fn is_doubted(&self) -> bool {
        self.inline.is_doubted()
    }

    /// Judges a run that held the thread that brought it until `now`, failed or not. Returns for how long, in ns, there are no further ones of the
    /// model when it was too much.
    #[inline]
    pub fn ran_inline(&mut self, ran: Held, limit_ns: u64, now: u64) -> Option<u64> {
        self.inline.ran(ran, limit_ns, now)
    }

    /// A run elsewhere ended: whether runs on the thread that brings them may go on.
    #[inline]
    pub fn ran_elsewhere(&mut self, now: u64) {
        self.inline.wake(now);
    }

    /// Learned duration of an execution, ns; `None` before there is enough to go by.
    pub fn predict(&self, class: u64, rows: u32) -> Option<u64> {
        self.curves.predict(class, rows)
    }

    /// Rows to take at most of the `rows` there are; `None` when nothing speaks against all of them.
    pub(crate) fn rows_worth(&self, class: u64, rows: u32) -> Option<u32> {
        self.curves.rows_worth(class, rows)
    }

    /// The line through what was measured, `None` before two sizes were.
    pub(crate) fn line(&self, class: u64) -> Option<Line> {
        self.curves.line(class)
    }

    /// What padded batches take.
    pub(crate) fn padded(&self) -> &Fit {
        &self.padded
    }
}
