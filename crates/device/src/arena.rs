//! Divides a block of memory into pieces. Pure: knows offsets, not addresses.
//!
//! Takes the smallest free piece that is large enough; a returned piece is merged with its free neighbours.
//!
//! Invariant: pieces in use are disjoint, aligned to `ALIGNMENT` and inside the block; no free pieces are adjacent.

use std::collections::{BTreeMap, BTreeSet};

/// Alignment for kernels and copies of devices; `cuMemAlloc` guarantees the same.
pub const ALIGNMENT: usize = 256;

/// The pieces of one block.
#[derive(Debug, Default)]
pub struct Arena {
    size: usize,
    /// Lengths of free pieces by offset.
    free: BTreeMap<usize, usize>,
    /// Free pieces as (length, offset).
    by_length: BTreeSet<(usize, usize)>,
    used: usize,
}

/// A part of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the block.
    pub offset: usize,
    /// Bytes, a multiple of `ALIGNMENT`.
    pub len: usize,
}

impl Arena {
    /// An arena for a block of `size` bytes, rounded down to a multiple of `ALIGNMENT`.
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

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Takes a piece of at least `len` bytes; `None` if no free piece is large enough.
    pub fn take(&mut self, len: usize) -> Option<Piece> {
        let len = len.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let &(room, offset) = self.by_length.range((len, 0)..).next()?;
        self.remove(offset, room);
        self.add(Piece { offset: offset + len, len: room - len });
        self.used += len;
        Some(Piece { offset, len })
    }

    /// Returns a piece. Rejects, with false, one that is not in use entirely.
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
    fn m_28_pieces_are_aligned_and_can_all_be_returned() {
        let mut arena = Arena::new(4096 + 100);
        assert_eq!(arena.size(), 4096);
        let all: Vec<Piece> = std::iter::from_fn(|| arena.take(200)).collect();
        assert_eq!((all.len(), arena.used()), (16, 4096));
        assert_eq!(arena.take(0), None, "full");
        // Pieces with neighbours in use cannot be merged.
        assert!(all.iter().step_by(2).all(|&piece| arena.give(piece)));
        assert_eq!((arena.take(257), arena.free.len()), (None, 8), "half is free, in pieces");
        assert!(all.iter().skip(1).step_by(2).all(|&piece| arena.give(piece)));
        assert!(is_whole(&arena));
        assert_eq!(arena.take(4096), Some(Piece { offset: 0, len: 4096 }));
    }

    #[test]
    fn m_28_pieces_that_are_not_in_use_are_rejected() {
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
        fn m_28_pieces_never_overlap_and_nothing_is_lost(
            steps in prop::collection::vec((any::<bool>(), 0..5000usize), 1..200)
        ) {
            let mut arena = Arena::new(64 << 10);
            let mut held: Vec<Piece> = Vec::new();
            for (take, n) in steps {
                if take {
                    if let Some(piece) = arena.take(n) {
                        prop_assert!(piece.len >= n && piece.offset.is_multiple_of(ALIGNMENT));
                        prop_assert!(piece.offset + piece.len <= arena.size());
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
