//! The tensors of one iteration of a scope, and which of its steps have begun.

use protocol::Sequence;
use tensor::{Data, DataType, Shape};

/// A tensor on its way. Cloning counts the bytes, it does not copy them.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub datatype: DataType,
    pub shape: Shape,
    /// Batch size it was made with: 0 when whoever made it does not batch.
    pub rows: i64,
    pub data: Data,
}

#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub state: SlotState,
    /// What the response that brought the tensor said of the sequence, if anything.
    pub sequence: Option<Box<Sequence>>,
    /// Steps and answers that still want it.
    pub uses: usize,
}

#[derive(Debug, Default)]
pub(crate) enum SlotState {
    #[default]
    Missing,
    /// There is none: an optional input was not sent, a model did not give that output.
    Absent,
    Present(Value),
    /// Used by all who wanted it.
    Used,
}

impl Slot {
    /// Bytes that the tensor keeps.
    pub fn bytes(&self) -> u64 {
        match &self.state {
            SlotState::Present(value) => value.data.len() as u64,
            _ => 0,
        }
    }

    /// One use less. The bytes that are free now.
    pub fn used(&mut self) -> u64 {
        self.uses = self.uses.saturating_sub(1);
        if self.uses > 0 {
            return 0;
        }
        let bytes = self.bytes();
        self.state = SlotState::Used;
        bytes
    }
}

/// How far a step is in one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Tensors that it still waits for.
    Missing(usize),
    /// It has all of them, and perhaps waits for its turn.
    Ready,
    Begun,
}

#[derive(Debug)]
pub(crate) struct Frame {
    /// By `Tensor::place`.
    pub slots: Vec<Slot>,
    /// By `Step::place`.
    pub steps: Vec<Progress>,
    /// Steps that are ready and have not begun.
    pub ready: usize,
    /// Runs that will put tensors into this frame.
    pub running: usize,
    /// Wanted outputs that are not there yet; `None` where the answer is not made of this frame, or was given.
    pub unset: Option<usize>,
}

impl Frame {
    /// Whether nothing can happen to it any more.
    pub fn is_over(&self) -> bool {
        self.running == 0 && self.ready == 0 && self.unset != Some(0)
    }

    /// Bytes that its tensors keep.
    pub fn bytes(&self) -> u64 {
        self.slots.iter().map(Slot::bytes).sum()
    }
}
