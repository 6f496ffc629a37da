//! Large tensors: whether they are copied, and how much that is.

use super::{COPY_BYTES_MAX, Runner, RunnerState};
use crate::frames::{Contents, ResultRef, TensorRef};
use backend::{BatchEntry, scatter};
use tensor::DataType;

impl Runner {
    /// Bytes to copy out of segments for a response or a call.
    pub(crate) fn copied_bytes(&self, tensors: &[TensorRef<'_>]) -> u64 {
        tensors.iter().map(bytes_to_copy).fold(0, u64::saturating_add)
    }

    /// Bytes to copy out of segments for the result of a batch.
    pub(crate) fn copied_bytes_of(&self, result: &ResultRef<'_>) -> u64 {
        let mut state = self.state.lock();
        let RunnerState { batch, slots, .. } = &mut *state;
        let members = batch.as_ref().filter(|batch| batch.id == result.batch).map_or(&[][..], |batch| &batch.members);
        let mut all = 0u64;
        for (at, answer) in result.answers.iter().enumerate() {
            let pending = members.get(at).and_then(|&key| slots.pending(key));
            let sends_regions = pending.is_some_and(|pending| pending.entry.request.sends_regions);
            let stays = |tensor: &TensorRef<'_>| match tensor.contents {
                Contents::Block(block) if sends_regions && tensor.datatype != DataType::Bytes => {
                    self.memory.may_lend_output(block)
                }
                _ => false,
            };
            let copied = answer.outputs.iter().filter(|tensor| !stays(tensor));
            all = copied.map(bytes_to_copy).fold(all, u64::saturating_add);
        }
        all
    }
}

fn bytes_to_copy(tensor: &TensorRef<'_>) -> u64 {
    match tensor.contents {
        Contents::Inline(_) => 0,
        Contents::Block(block) => block.bytes,
        // A copy from a device takes an unknown time.
        Contents::Device(_) => COPY_BYTES_MAX + 1,
    }
}

/// Whether the front end may send an output from the memory of the runner: nothing else reads it.
pub(crate) fn may_lend(entry: &BatchEntry, slot: Option<u16>, datatype: DataType) -> bool {
    let form = scatter::form_of(entry, slot);
    let is_as_it_is = form.binary && form.classification == 0 && !form.anywhere;
    // Strings are checked in a private copy.
    entry.request.sends_regions && is_as_it_is && datatype != DataType::Bytes
}
