//! Allocator of blocks in a list of segments. Pure: offsets and lengths only.
//!
//! A block is cut from the smallest hole that has room, and joins its neighbours when it is freed. So an arena with
//! little in use hands out the same few pages again and again, which are in the caches.
//!
//! Invariant: holes and blocks of a segment cover it, do not overlap, and no two holes touch.

use crate::generated::{ALIGNMENT, BLOCK_OFFSET_BITS};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Holes and blocks of the segments that one side allocates from.
#[derive(Default)]
pub struct Arena {
    /// Length of each hole by segment and offset.
    holes: BTreeMap<(u16, u64), u64>,
    by_size: BTreeSet<(u64, u16, u64)>,
    /// Length of each block by its id.
    blocks: HashMap<u64, u64>,
    used: u64,
}

impl Arena {
    /// Adds a segment of `bytes` bytes.
    pub fn add(&mut self, segment: u16, bytes: u64) {
        self.put(segment, 0, bytes - bytes % ALIGNMENT);
    }

    /// Allocates a block; returns its segment and offset. `None` if no hole is large enough.
    pub fn take(&mut self, bytes: u64) -> Option<(u16, u64)> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let &(length, segment, offset) = self.by_size.range((bytes, 0, 0)..).next()?;
        self.by_size.remove(&(length, segment, offset));
        self.holes.remove(&(segment, offset));
        if length > bytes {
            self.holes.insert((segment, offset + bytes), length - bytes);
            self.by_size.insert((length - bytes, segment, offset + bytes));
        }
        self.blocks.insert(id(segment, offset), bytes);
        self.used += bytes;
        Some((segment, offset))
    }

    /// Frees a block and returns its length. `None` if there is no such block.
    pub fn give(&mut self, block: u64) -> Option<u64> {
        let bytes = self.release(block)?;
        self.reuse(block, bytes);
        Some(bytes)
    }

    /// Frees a block like `give`, but its memory is not handed out again before `reuse`.
    pub fn release(&mut self, block: u64) -> Option<u64> {
        let bytes = self.blocks.remove(&block)?;
        self.used -= bytes;
        Some(bytes)
    }

    /// Makes a hole of a block that was released.
    pub fn reuse(&mut self, block: u64, bytes: u64) {
        self.put((block >> BLOCK_OFFSET_BITS) as u16, block & ((1 << BLOCK_OFFSET_BITS) - 1), bytes);
    }

    /// Takes the largest hole if it has more than `bytes` bytes, for its memory to be returned: id and length.
    pub fn take_hole(&mut self, bytes: u64) -> Option<(u64, u64)> {
        let &(length, segment, offset) = self.by_size.last().filter(|(length, ..)| *length > bytes)?;
        self.remove(segment, offset, length);
        Some((id(segment, offset), length))
    }

    /// Bytes of all blocks.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Adds a hole and joins it with the holes that it touches.
    fn put(&mut self, segment: u16, mut offset: u64, mut bytes: u64) {
        if let Some((&(of, start), &length)) = self.holes.range(..(segment, offset)).next_back()
            && of == segment
            && start + length == offset
        {
            self.remove(segment, start, length);
            (offset, bytes) = (start, bytes + length);
        }
        if let Some(&length) = self.holes.get(&(segment, offset + bytes)) {
            self.remove(segment, offset + bytes, length);
            bytes += length;
        }
        if bytes > 0 {
            self.holes.insert((segment, offset), bytes);
            self.by_size.insert((bytes, segment, offset));
        }
    }

    fn remove(&mut self, segment: u16, offset: u64, bytes: u64) {
        self.holes.remove(&(segment, offset));
        self.by_size.remove(&(bytes, segment, offset));
    }
}

fn id(segment: u16, offset: u64) -> u64 {
    (u64::from(segment) << BLOCK_OFFSET_BITS) | offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_disjoint_and_freed_space_is_merged() {
        let mut arena = Arena::default();
        arena.add(0, 1000);
        arena.add(1, 4096);
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut live: Vec<(u64, u64)> = Vec::new();
        let mut rejected = 0;
        for _ in 0..20_000 {
            if random(2) == 0 || live.is_empty() {
                let bytes = random(700);
                let Some((segment, offset)) = arena.take(bytes) else {
                    rejected += 1;
                    continue;
                };
                assert!(offset % ALIGNMENT == 0 && offset + bytes <= if segment == 0 { 960 } else { 4096 });
                let new = id(segment, offset);
                for &(old, length) in &live {
                    assert!(new + bytes.max(1) <= old || old + length <= new, "blocks overlap");
                }
                live.push((new, bytes.max(1)));
            } else {
                let at = random(live.len() as u64) as usize;
                let (block, _) = live.swap_remove(at);
                assert!(arena.give(block).is_some());
                assert_eq!(arena.give(block), None, "a block is freed once");
            }
        }
        assert!(rejected > 100);
        for (block, _) in live.drain(..) {
            assert!(arena.give(block).is_some());
        }
        assert_eq!((arena.used(), arena.holes.len(), arena.by_size.len()), (0, 2, 2));
        assert_eq!(arena.take(4097), None);
        assert_eq!(arena.take(4096), Some((1, 0)));
        assert_eq!(arena.give(64), None, "never allocated");
        assert_eq!(arena.take(u64::MAX), None);
    }
}
