//! The cost of an execution: its class, and what was measured.

use crate::pending::Requests;
use crate::scheduling::Scheduling;
use scheduler::Waiting;
use scheduler::cores::Plan;
use scheduler::profile::{HoldTime, RunClass};

impl Scheduling {
    /// The cost class of a batch.
    pub(crate) fn kind_of(&self, requests: &Requests) -> RunClass {
        let rows = requests.iter().map(Waiting::rows).fold(0, u32::saturating_add);
        let bytes = self.bytes_of(requests.iter().map(|q| &q.0.entry));
        RunClass::new(self.class_of(requests), rows, bytes)
    }

    /// The shape class of a batch, which is that of each request, and of the longest text.
    pub(crate) fn class_of(&self, requests: &Requests) -> u64 {
        requests.iter().map(Waiting::class).max().unwrap_or(0)
    }
}

/// Measurements of an execution, from which the profile learns.
#[derive(Clone, Copy)]
pub(crate) struct ExecutionCost {
    pub(crate) class: u64,
    pub(crate) kind: RunClass,
    pub(crate) rows: u32,
    /// Tokens of a batch of texts, padding included; 0 for others.
    pub(crate) tokens: u64,
    /// 0 = failed: failures say nothing about cost.
    pub(crate) duration: u64,
    /// The cores that it had.
    pub(crate) plan: Plan,
    /// Set if the run was inline.
    pub(crate) inline: Option<(InlineRun, HoldTime)>,
    /// End of the execution, used as the current time by what follows.
    pub(crate) end: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct InlineRun {
    pub(crate) limit_ns: u64,
    /// True if the CPU time is measured exactly.
    pub(crate) exact: bool,
}
