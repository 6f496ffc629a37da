//! Returns memory of runners to the system. Segments never shrink, but the pages of a free block need not stay: they do
//! while memory is plentiful, because fresh pages take 0.2 ms per MiB, and go when the budget is tight.
//!
//! The thread of `memory::reclaim` does it. A block is not handed out again before it is done.

use crate::frames::arena::Arena;
use crate::frames::{Block, write};
use crate::generated::{BLOCK_OFFSET_BITS, Frame};
use crate::memory::{Responses, TensorMemory};
use crate::transport::Way;
use ::memory::reclaim::{Trimmed, drop_later};
use ::memory::{Budget, Charge, Kind};
use std::sync::{Arc, Weak};

/// Smaller free blocks keep their pages: together they are at most the first segments.
const DISCARDED_BYTES_MIN: u64 = 256 << 10;

/// A block that is free once its pages were returned, by `drop`.
pub(crate) struct Freed {
    memory: Arc<TensorMemory>,
    id: u64,
    bytes: u64,
}

impl Drop for Freed {
    fn drop(&mut self) {
        self.memory.discard(Block { of_requests: true, ..block(self.id, self.bytes) });
        self.memory.requests.lock().arena.reuse(self.id, self.bytes);
    }
}

/// Blocks of responses that are given back once their pages were returned, by `drop`.
struct Read {
    memory: Arc<TensorMemory>,
    blocks: Vec<Block>,
}

impl Drop for Read {
    fn drop(&mut self) {
        let ids: Vec<u64> = self.blocks.iter().map(Block::id).collect();
        for (block, id) in self.blocks.drain(..).zip(&ids) {
            // A runner may have sent a block twice.
            if !self.memory.lent_outputs.lock().iter().any(|(lent, _)| lent == id) {
                self.memory.discard(block);
            }
        }
        self.memory.give_back(ids);
    }
}

fn block(id: u64, bytes: u64) -> Block {
    let offset = id & ((1 << BLOCK_OFFSET_BITS) - 1);
    Block { of_requests: true, segment: (id >> BLOCK_OFFSET_BITS) as u16, offset, bytes }
}

impl TensorMemory {
    /// Whether a block of this size loses its pages when it is free.
    pub(crate) fn is_discarded(bytes: u64) -> bool {
        bytes > DISCARDED_BYTES_MIN && Budget::global().is_tight()
    }

    /// Returns the pages of a freed block on the reclaim thread; the charge ends after it.
    pub(crate) fn discard_freed(&self, freed: Option<Freed>, charge: Option<Charge>) {
        if let Some(freed) = freed {
            drop_later(freed.bytes as usize, (freed, charge));
        }
    }

    /// Frees a block of the requests' arena; a large one is free when the result is dropped. `None` if there is no such
    /// block.
    pub(crate) fn free(self: &Arc<Self>, arena: &mut Arena, id: u64) -> Option<Option<Freed>> {
        let bytes = arena.release(id)?;
        if Self::is_discarded(bytes) {
            return Some(Some(Freed { memory: Arc::clone(self), id, bytes }));
        }
        arena.reuse(id, bytes);
        Some(None)
    }

    /// Gives these blocks of responses back once their pages were returned.
    pub(crate) fn discard_later(self: &Arc<Self>, blocks: Vec<Block>) {
        if !blocks.is_empty() {
            let bytes: u64 = blocks.iter().map(|block| block.bytes).sum();
            drop_later(bytes as usize, Read { memory: Arc::clone(self), blocks });
        }
    }

    fn discard(&self, block: Block) {
        if let Ok((segment, at, bytes)) = self.window(block) {
            segment.discard(at..at + bytes);
        }
    }

    /// Called again and again while no request of the runner is open: what it still has of earlier ones is not theirs
    /// any more, and free memory is not needed soon.
    fn rest(self: &Arc<Self>) {
        let mut requests = self.requests.lock();
        let holds = !requests.charges.is_empty();
        requests.charges.values_mut().for_each(|charge| charge.becomes(Kind::Kept));
        let mut holes = Vec::new();
        while Self::is_discarded(u64::MAX)
            && let Some((id, bytes)) = requests.arena.take_hole(DISCARDED_BYTES_MIN)
        {
            holes.push(Freed { memory: Arc::clone(self), id, bytes });
        }
        drop(requests);
        drop(holes);
        let Responses { free, .. } = self.free_blocks();
        if !free.is_empty() {
            self.give_back(free);
        }
        self.give_back_many();
        if holds {
            // The runner answers with the blocks that it has not reported yet.
            let mut frame = Vec::new();
            write::question(&mut frame, crate::frames::InstanceId::PROCESS, Frame::Ping, 0);
            self.transport.send(Way::Side, &frame);
        }
    }
}

/// An owner of memory for tensors.
pub(crate) trait IdleMemory: Send + Sync {
    /// The memory, if its runner serves and has no request.
    fn idle_memory(&self) -> Option<&Arc<TensorMemory>>;
}

static RUNNERS: Trimmed<dyn IdleMemory> = Trimmed::new();

/// Has the memory of a runner trimmed while it has nothing to do.
pub(crate) fn watch(runner: Weak<dyn IdleMemory>) {
    RUNNERS.watch(runner, trim);
}

fn trim() -> usize {
    RUNNERS.living().iter().filter_map(|runner| runner.idle_memory()).for_each(TensorMemory::rest);
    0
}
