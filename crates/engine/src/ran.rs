//! What an execution cost.

use scheduler::profile::{HoldTime, RunClass};

/// What is learned from an execution.
#[derive(Clone, Copy)]
pub(crate) struct Ran {
    pub(crate) class: u64,
    pub(crate) kind: RunClass,
    pub(crate) rows: u32,
    /// Bytes of the padded inputs, of a batch of a model whose requests may be padded; else 0.
    pub(crate) padded_bytes: u64,
    /// 0 = failed; failures say nothing about cost.
    pub(crate) duration: u64,
    /// It held the thread that brought the request.
    pub(crate) inline: Option<(Inline, HoldTime)>,
    /// When it ended: as good as now for what follows.
    pub(crate) end: u64,
}

/// A run on the thread that brings the request.
#[derive(Clone, Copy)]
pub(crate) struct Inline {
    pub(crate) limit_ns: u64,
    /// Its CPU is measured exactly.
    pub(crate) exact: bool,
}
