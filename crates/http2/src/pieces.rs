//! Received bytes of a body that were not read yet.

use crate::limits::{JOINED_BYTES, PIECES_MAX, SMALL_PIECE_BYTES};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Pieces of a received body. Many small ones are joined, because each piece costs more than its bytes.
#[derive(Default)]
pub struct Pieces {
    whole: VecDeque<Bytes>,
    /// Follows all of `whole`.
    joined: BytesMut,
}

impl Pieces {
    pub fn push(&mut self, piece: Bytes) {
        if self.whole.len() < PIECES_MAX && self.joined.is_empty() || piece.len() > SMALL_PIECE_BYTES {
            self.flush();
            return self.whole.push_back(piece);
        }
        if self.joined.len() + piece.len() > JOINED_BYTES {
            self.flush();
        }
        self.joined.extend_from_slice(&piece);
    }

    /// Puts back the rest of a piece.
    pub fn unpop(&mut self, piece: Bytes) {
        self.whole.push_front(piece);
    }

    fn flush(&mut self) {
        if !self.joined.is_empty() {
            self.whole.push_back(std::mem::take(&mut self.joined).freeze());
        }
    }

    pub fn pop(&mut self) -> Option<Bytes> {
        if self.whole.is_empty() {
            self.flush();
        }
        self.whole.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.joined.is_empty()
    }

    pub fn clear(&mut self) {
        self.whole.clear();
        self.whole.shrink_to(PIECES_MAX);
        self.joined = BytesMut::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_are_read_unchanged() {
        for size in [1, 100, 1024, 1025, 5000] {
            let (mut pieces, mut all, mut read) = (Pieces::default(), Vec::new(), Vec::new());
            for n in 0..200u32 {
                let piece = vec![n as u8; if n % 7 == 0 { 2000 } else { size }];
                all.extend_from_slice(&piece);
                pieces.push(piece.into());
                if n % 50 == 49 {
                    read.extend_from_slice(&pieces.pop().unwrap());
                }
            }
            while let Some(piece) = pieces.pop() {
                read.extend_from_slice(&piece);
            }
            assert_eq!(read, all, "pieces of {size}");
        }
        let mut pieces = Pieces::default();
        (0..100_000).for_each(|_| pieces.push(Bytes::from_static(b"x")));
        assert!(pieces.whole.len() <= PIECES_MAX + 100_000 / JOINED_BYTES + 1);
    }
}
