//! The measured cost of an execution.

use scheduler::profile::{HoldTime, RunClass};

/// Measurements of an execution, from which the profile learns.
#[derive(Clone, Copy)]
pub(crate) struct Ran {
    pub(crate) class: u64,
    pub(crate) kind: RunClass,
    pub(crate) rows: u32,
    /// Bytes of the padded inputs if the model's requests may be padded, otherwise 0.
    pub(crate) padded_bytes: u64,
    /// 0 = failed: failures say nothing about cost.
    pub(crate) duration: u64,
    /// Set if the run was inline.
    pub(crate) inline: Option<(Inline, HoldTime)>,
    /// End of the execution, used as the current time by what follows.
    pub(crate) end: u64,
}

/// An inline run.
#[derive(Clone, Copy)]
pub(crate) struct Inline {
    pub(crate) limit_ns: u64,
    /// True if the CPU time is measured exactly.
    pub(crate) exact: bool,
}
