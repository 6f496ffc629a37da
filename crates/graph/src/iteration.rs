//! The tensors and the progress of the steps in one iteration of a scope.

use protocol::Sequence;
use tensor::{Data, DataType, Shape};

/// The value of a tensor. Cheap to clone: the contents are shared.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub datatype: DataType,
    pub shape: Shape,
    /// Batch size; 0 if the producer does not batch.
    pub rows: i64,
    pub data: Data,
}

#[derive(Debug, Default)]
pub(crate) struct TensorSlot {
    pub state: SlotState,
    /// Sequence in the parameters of the response with the tensor, if any.
    pub sequence: Option<Box<Sequence>>,
    /// Steps and responses that still need the tensor.
    pub uses: usize,
}

#[derive(Debug, Default)]
pub(crate) enum SlotState {
    #[default]
    Missing,
    /// No tensor: an optional input was omitted, or the model did not return that output.
    Absent,
    Present(Value),
    /// All uses are done.
    Used,
}

impl TensorSlot {
    pub fn bytes(&self) -> u64 {
        match &self.state {
            SlotState::Present(value) => value.data.len() as u64,
            _ => 0,
        }
    }

    /// Counts one use; returns the bytes that it freed.
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

/// Progress of a step in one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Number of tensors that are missing.
    Missing(usize),
    /// All tensors are present; may wait for earlier iterations.
    Ready,
    Begun,
}

#[derive(Debug)]
pub(crate) struct Iteration {
    /// Tensors by `Tensor::place`.
    pub slots: Vec<TensorSlot>,
    /// Steps by `Step::place`.
    pub steps: Vec<Progress>,
    /// Number of steps that are ready and have not begun.
    pub ready: usize,
    /// Number of runs that will set tensors of this iteration.
    pub running: usize,
    /// Number of missing requested outputs; `None` if the response is sent, or is not made of this iteration.
    pub unset: Option<usize>,
}

impl Iteration {
    /// True if the iteration cannot change any more.
    pub fn is_over(&self) -> bool {
        self.running == 0 && self.ready == 0 && self.unset != Some(0)
    }

    pub fn bytes(&self) -> u64 {
        self.slots.iter().map(TensorSlot::bytes).sum()
    }
}
