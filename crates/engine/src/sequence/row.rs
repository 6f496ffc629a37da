//! A row in a batch of sequences.

use scheduler::sequence::{Origin, SequenceId, SlotId};
use tensor::{Data, Shape};

/// The default is a null row.
#[derive(Default)]
pub(crate) struct Row {
    /// Slot of its state; `None` = the state is dropped.
    pub(crate) slot: Option<SlotId>,
    /// Rows of its batch, including null rows.
    pub(crate) rows: usize,
    /// `None` for a null row.
    pub(crate) id: Option<SequenceId>,
    pub(crate) start: bool,
    pub(crate) end: bool,
    /// Passed back to the scheduler when the request is over, then `None`.
    pub(crate) origin: Option<Origin>,
    /// The states from which it continues.
    pub(crate) life: Life,
}

/// The state of a sequence in its slot.
#[derive(Clone, Default)]
pub(crate) struct Life {
    /// Unique among the lives of the slot.
    pub(super) number: u64,
    /// A value for each state of the model; `None` until a request returned some.
    pub(super) values: Option<Vec<StateValue>>,
}

#[derive(Clone)]
pub(crate) struct StateValue {
    pub(super) shape: Shape,
    pub(super) data: Data,
}
