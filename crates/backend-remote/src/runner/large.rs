//! Large tensors: whether they are copied, and how much that is.

use super::{Runner, RunnerState};
use crate::frames::{Block, Contents, ResultRef, TensorRef};
use crate::selection::selected_output;
use crate::spec::COPY_BYTES_MAX;
use backend::{BatchEntry, scatter};
use tensor::DataType;

impl Runner {
    /// Bytes to copy out of segments for a response or a call.
    pub(crate) fn copied_bytes(&self, tensors: &[TensorRef<'_>]) -> u64 {
        tensors.iter().map(bytes_to_copy).fold(0, u64::saturating_add)
    }

    /// Whether the outputs of a batch are too many bytes for a thread that serves others, without those that stay where
    /// they are.
    pub(crate) fn takes_long_to_copy(&self, result: &ResultRef<'_>) -> bool {
        let all = result.answers.iter().map(|answer| self.copied_bytes(&answer.outputs)).fold(0, u64::saturating_add);
        all > COPY_BYTES_MAX && all.saturating_sub(self.staying_bytes(result)) > COPY_BYTES_MAX
    }

    /// Bytes of the outputs of a batch that front ends send from where they are.
    fn staying_bytes(&self, result: &ResultRef<'_>) -> u64 {
        let Some(owner) = self.owner.upgrade() else { return 0 };
        let mut state = self.state.lock();
        let RunnerState { in_flight, slots, .. } = &mut *state;
        let members =
            in_flight.running().filter(|batch| batch.id == result.batch).map_or(&[][..], |batch| &batch.members);
        let mut staying = 0;
        for (&key, answer) in members.iter().zip(&result.answers) {
            let Some(pending) = slots.pending(key).filter(|pending| pending.entry.request.sends_regions) else {
                continue;
            };
            for tensor in &answer.outputs {
                if let Some((_, slot, _)) = selected_output(&*owner, &pending.entry, tensor.name)
                    && let Some(block) = block_that_stays(tensor, &pending.entry, slot)
                    && self.memory.may_lend_output(block, staying)
                {
                    staying += block.bytes;
                }
            }
        }
        staying
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

/// The block of an output that the front end may send from there: nothing else reads it.
pub(crate) fn block_that_stays(tensor: &TensorRef<'_>, entry: &BatchEntry, slot: Option<u16>) -> Option<Block> {
    let Contents::Block(block) = tensor.contents else { return None };
    let form = scatter::form_of(entry, slot);
    let is_as_it_is = form.binary && form.classification == 0 && !form.anywhere;
    let is_placed = scatter::region_for(entry, slot, usize::try_from(block.bytes).ok()?).is_some();
    // Strings are checked in a private copy.
    let stays = entry.request.sends_regions && is_as_it_is && !is_placed && tensor.datatype != DataType::Bytes;
    stays.then_some(block)
}
