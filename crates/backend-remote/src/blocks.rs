//! Blocks of a runner's segments that front ends use in place: one that is filled with the input of a request, and one
//! whose output is sent. Between the socket and the model, only the kernel copies such a tensor.
//!
//! The runner can write to its segments at any time, so a block is a region, never a slice. A block of an input belongs
//! to its front end, and while the runner has it also to the runner: it is free when neither needs it.

#![allow(unsafe_code)] // blocks are regions through their windows

use crate::frames::Block;
use crate::generated::{BLOCK_OFFSET_BITS, Place};
use crate::memory::TensorMemory;
use crate::window::Window;
use ::memory::reclaim::drop_later;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use tensor::{Base, Extent, RegionMemory, RegionRef};

/// Smaller tensors are copied: that takes less time than the bookkeeping of a block.
pub(crate) const LENT_BYTES_MIN: usize = 64 << 10;
/// Divides the memory that a runner may have: this part of it may be lent at once, so that slow clients leave room.
const LENT_PART: u64 = 4;
/// Bytes for which the thread that frees memory takes a block, however small: it may be the last of a segment.
const DROPPED_LATER_BYTES_MIN: usize = 1 << 20;
/// Maximum bytes that are lent at once in one direction. Segments never shrink, so that the pages of a peak of slow
/// clients stay with the model.
const LENT_BYTES_MAX: u64 = 128 << 20;

impl TensorMemory {
    /// A block for an input of `bytes` bytes, which the caller fills. `None` if it should be copied instead.
    pub(crate) fn lend_input(self: &Arc<Self>, bytes: usize) -> Option<RegionRef> {
        let length = bytes as u64;
        if bytes < LENT_BYTES_MIN || !self.has_segments() {
            return None;
        }
        let mut requests = self.requests.lock();
        if requests.lent.bytes() + length > self.lent_bytes_max() {
            return None;
        }
        // Segments never shrink: clients that send at the same time, or only announce, must not take the room of a
        // large request later.
        let (segment, offset) = self.take_block(&mut requests, length, self.lent_bytes_max())?;
        let block = Block { of_requests: true, segment, offset, bytes: length };
        requests.lent.add(block.id(), length);
        drop(requests);
        match self.window(block) {
            Ok(window) => {
                Some(Arc::new(LentBlock { memory: Arc::downgrade(self), window: Some(Window::new(window)), block }))
            }
            // Not possible: the arena has the lengths of the segments.
            Err(_) => {
                self.input_dropped(block.id());
                None
            }
        }
    }

    /// The block that a region is, if it was lent by this runner and is sent now for the first time.
    pub(crate) fn send_lent(&self, region: &RegionRef) -> Option<Block> {
        let block = self.block_of(region)?;
        self.requests.lock().lent.send(block.id(), block.bytes).then_some(block)
    }

    /// Whether `send_lent` would find a block.
    pub(crate) fn has_lent(&self, region: &RegionRef) -> bool {
        self.block_of(region).is_some_and(|block| self.requests.lock().lent.may_send(block.id(), block.bytes))
    }

    fn block_of(&self, region: &RegionRef) -> Option<Block> {
        let extent = region.extent();
        let (number, start) = self.segment_of(Place::Request, extent.object)?;
        let offset = extent.start.checked_sub(start)?;
        Some(Block { of_requests: true, segment: number, offset, bytes: region.len() as u64 })
    }

    fn input_dropped(self: &Arc<Self>, id: u64) {
        let mut requests = self.requests.lock();
        // A block that the runner has, it gives back as any other.
        let is_free = requests.lent.remove(id);
        let freed = if is_free { self.free(&mut requests.arena, id).flatten() } else { None };
        drop(requests);
        self.discard_freed(freed, None);
    }

    /// Whether a tensor of a response may be lent now, after `others` bytes of the same result.
    pub(crate) fn may_lend_output(&self, block: Block, others: u64) -> bool {
        let lent = self.lent_output_bytes.load(Relaxed).saturating_add(block.bytes).saturating_add(others);
        // A model may keep views of the inputs of its requests, and name them as outputs.
        !block.of_requests && block.bytes >= LENT_BYTES_MIN as u64 && lent <= self.lent_bytes_max()
    }

    /// A tensor of a response as a region, whose block is given back when it is dropped. `None` if it should be copied.
    pub(crate) fn lend_output(self: &Arc<Self>, block: Block) -> Option<RegionRef> {
        if !self.may_lend_output(block, 0) {
            return None;
        }
        let window = Window::new(self.window(block).ok()?);
        self.lent_output_bytes.fetch_add(block.bytes, Relaxed);
        self.lent_outputs.lock().push((block.id(), block.bytes));
        Some(Arc::new(LentBlock { memory: Arc::downgrade(self), window: Some(window), block }))
    }

    fn output_dropped(&self, block: Block) {
        let mut outputs = self.lent_outputs.lock();
        if let Some(at) = outputs.iter().position(|&lent| lent == (block.id(), block.bytes)) {
            outputs.swap_remove(at);
        }
        drop(outputs);
        self.lent_output_bytes.fetch_sub(block.bytes, Relaxed);
    }

    /// Gives the memory of segments back except for blocks that front ends still have. Each of them keeps its whole
    /// segment mapped, and its client may take minutes for it. Called when nothing else uses the segments.
    fn discard_all_but_lent(&self) {
        let inputs = self.requests.lock().lent.all().collect();
        discard_all_but(&self.request_segments.read(), inputs);
        discard_all_but(&self.response_segments.read(), std::mem::take(&mut *self.lent_outputs.lock()));
    }

    fn lent_bytes_max(&self) -> u64 {
        LENT_BYTES_MAX.min(self.limits.arena_bytes_max / LENT_PART)
    }
}

impl Drop for TensorMemory {
    fn drop(&mut self) {
        self.discard_all_but_lent();
    }
}

/// Gives back the memory of those segments that have some of these blocks, which keep theirs. The others are unmapped.
fn discard_all_but(segments: &[RegionRef], mut blocks: Vec<(u64, u64)>) {
    blocks.sort_unstable();
    let number = |&(id, _): &(u64, u64)| id >> BLOCK_OFFSET_BITS;
    for blocks in blocks.chunk_by(|a, b| number(a) == number(b)) {
        let number = blocks.first().map_or(u64::MAX, number);
        let Some(segment) = usize::try_from(number).ok().and_then(|number| segments.get(number)) else { continue };
        let mut from = 0;
        for &(id, bytes) in blocks {
            let start = (id & ((1 << BLOCK_OFFSET_BITS) - 1)) as usize;
            segment.discard(from..start.max(from));
            from = from.max(start.saturating_add(bytes as usize));
        }
        segment.discard(from..segment.len().max(from));
    }
}

/// A block that a front end has: with an input that it fills, or with an output that it sends.
struct LentBlock {
    memory: Weak<TensorMemory>,
    /// `None` only while `drop` runs.
    window: Option<Window>,
    block: Block,
}

impl Drop for LentBlock {
    fn drop(&mut self) {
        // This thread may serve others, and to unmap segments takes long: 10 ms for 100 MiB.
        let later = (self.block.bytes as usize).max(DROPPED_LATER_BYTES_MIN);
        let Some(memory) = self.memory.upgrade() else {
            // The last block of a process that is gone unmaps the segment.
            return drop_later(later, self.window.take());
        };
        if self.block.of_requests {
            memory.input_dropped(self.block.id());
        } else {
            memory.output_dropped(self.block);
            memory.block_read(self.block);
            memory.give_back_many();
        }
        if Arc::strong_count(&memory) == 1 {
            // Its runner was dropped meanwhile.
            drop_later(later, (memory, self.window.take()));
        }
    }
}

// SAFETY: those of the window, which keeps the segment mapped. There is one until `drop` runs.
unsafe impl RegionMemory for LentBlock {
    fn base(&self) -> Base<'_> {
        self.window.as_ref().map_or(Base::Host(std::ptr::dangling_mut()), Window::base)
    }
    fn len(&self) -> usize {
        self.window.as_ref().map_or(0, Window::len)
    }
    fn extent(&self) -> Extent {
        self.window.as_ref().map_or(Extent { object: (0, 0), start: 0 }, Window::extent)
    }
    fn is_lent(&self) -> bool {
        true
    }
}
