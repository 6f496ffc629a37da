//! Divides a block of memory into pieces. Pure: knows offsets, not addresses.
//!
//! The smallest free piece that is large enough is taken; a piece that comes back is joined with its free neighbours.
//!
//! Invariant: pieces that were handed out do not overlap, begin at multiples of `ALIGNMENT` and lie inside the block; no two free
//! pieces touch each other.

use std::collections::{BTreeMap, BTreeSet};

/// What kernels and copies of devices like best; `cuMemAlloc` promises as much.
pub const ALIGNMENT: usize = 256;

/// The pieces of one block.
#[derive(Debug, Default)]
pub struct Arena {
    size: usize,
    /// Free pieces: length by offset.
    free: BTreeMap<usize, usize>,
    /// The same, as (length, offset).
    by_length: BTreeSet<(usize, usize)>,
    used: usize,
}

/// A part of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins in the block.
    pub offset: usize,
    /// Bytes, a multiple of `ALIGNMENT`.
    pub len: usize,
}

impl Arena {
    /// Of a block of `size` bytes, of which those beyond a multiple of `ALIGNMENT` are not used.
    pub fn new(size: usize) -> Self {
        let size = size / ALIGNMENT * ALIGNMENT;
        let mut arena = Self { size, ..Self::default() };
        arena.add(Piece { offset: 0, len: size });
        arena
    }

    /// Bytes of the block.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes that are handed out.
    pub fn used(&self) -> usize {
        self.used
    }

    /// A piece of at least `len` bytes; `None` where no free one is so long.
    pub fn take(&mut self, len: usize) -> Option<Piece> {
        let len = len.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let &(room, offset) = self.by_length.range((len, 0)..).next()?;
        self.remove(offset, room);
        self.add(Piece { offset: offset + len, len: room - len });
        self.used += len;
        Some(Piece { offset, len })
    }

    /// Takes a piece back. One that was not handed out, or partly came back before, is refused: false.
    pub fn give(&mut self, piece: Piece) -> bool {
        let Some(end) = piece.offset.checked_add(piece.len).filter(|&end| end <= self.size) else { return false };
        let before = self.free.range(..=piece.offset).next_back().map(|(&offset, &len)| (offset, len));
        let after = self.free.range(piece.offset..).next().map(|(&offset, &len)| (offset, len));
        if before.is_some_and(|(offset, len)| offset + len > piece.offset)
            || after.is_some_and(|(offset, _)| offset < end)
        {
            return false;
        }
        let (mut start, mut stop) = (piece.offset, end);
        if let Some((offset, len)) = before.filter(|(offset, len)| offset + len == piece.offset) {
            self.remove(offset, len);
            start = offset;
        }
        if let Some((offset, len)) = after.filter(|&(offset, _)| offset == end) {
            self.remove(offset, len);
            stop = offset + len;
        }
        self.add(Piece { offset: start, len: stop - start });
        self.used = self.used.saturating_sub(piece.len);
        true
    }

    fn add(&mut self, piece: Piece) {
        if piece.len > 0 {
            self.free.insert(piece.offset, piece.len);
            self.by_length.insert((piece.len, piece.offset));
        }
    }

    fn remove(&mut self, offset: usize, len: usize) {
        self.free.remove(&offset);
        self.by_length.remove(&(len, offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn overlap(a: Piece, b: Piece) -> bool {
        a.offset < b.offset + b.len && b.offset < a.offset + a.len
    }

    fn is_whole(arena: &Arena) -> bool {
        arena.used() == 0 && arena.free.len() == 1 && arena.free.get(&0) == Some(&arena.size())
    }

    #[test]
    fn m_28_pieces_are_aligned_and_come_back_whole() {
        let mut arena = Arena::new(4096 + 100);
        assert_eq!(arena.size(), 4096);
        let all: Vec<Piece> = std::iter::from_fn(|| arena.take(200)).collect();
        assert_eq!((all.len(), arena.used()), (16, 4096));
        assert_eq!(arena.take(0), None, "full");
        // Every other one first: nothing can be joined until the rest follows.
        assert!(all.iter().step_by(2).all(|&piece| arena.give(piece)));
        assert_eq!((arena.take(257), arena.free.len()), (None, 8), "half is free, in pieces");
        assert!(all.iter().skip(1).step_by(2).all(|&piece| arena.give(piece)));
        assert!(is_whole(&arena));
        assert_eq!(arena.take(4096), Some(Piece { offset: 0, len: 4096 }));
    }

    #[test]
    fn m_28_what_was_not_handed_out_is_not_taken_back() {
        let mut arena = Arena::new(4096);
        let piece = arena.take(1000).expect("room");
        for wrong in [
            Piece { offset: 0, len: 2048 },
            Piece { offset: 2048, len: 256 },
            Piece { offset: 4096, len: 256 },
            Piece { offset: usize::MAX, len: 256 },
        ] {
            assert!(!arena.give(wrong), "{wrong:?}");
        }
        assert_eq!(arena.used(), 1024);
        assert!(arena.give(piece) && !arena.give(piece), "once");
        assert!(is_whole(&arena));
        assert_eq!((Arena::new(0).take(1), Arena::new(255).take(1), arena.take(usize::MAX)), (None, None, None));
    }

    proptest! {
        #[test]
        fn m_28_pieces_never_overlap_and_nothing_is_lost(steps in prop::collection::vec((any::<bool>(), 0..5000usize), 1..200)) {
            let mut arena = Arena::new(64 << 10);
            let mut held: Vec<Piece> = Vec::new();
            for (take, n) in steps {
                if take {
                    if let Some(piece) = arena.take(n) {
                        prop_assert!(piece.len >= n && piece.offset.is_multiple_of(ALIGNMENT) && piece.offset + piece.len <= arena.size());
                        prop_assert!(held.iter().all(|&other| !overlap(piece, other)));
                        held.push(piece);
                    }
                } else if !held.is_empty() {
                    let piece = held.swap_remove(n % held.len());
                    prop_assert!(arena.give(piece));
                }
                let of_held: usize = held.iter().map(|p| p.len).sum();
                let of_free: usize = arena.free.values().sum();
                prop_assert_eq!((arena.used(), of_free), (of_held, arena.size() - of_held));
                let pieces: Vec<_> = arena.free.iter().collect();
                prop_assert!(pieces.windows(2).all(|w| w[0].0 + w[0].1 < *w[1].0), "free neighbours are joined");
                prop_assert_eq!(arena.by_length.len(), arena.free.len());
            }
            for piece in held {
                prop_assert!(arena.give(piece));
            }
            prop_assert!(is_whole(&arena));
        }
    }
}
