//! Collects a body of announced length into one slab. The announcement reserves address space and nothing else; memory comes with
//! the bytes, a step at a time, and what has come is never copied to a larger place.

use crate::limits::STEP_BYTES;
use bytes::Bytes;
use memory::{SlabMut, SlabPool};
use tensor::Result;

/// A body being collected. Invariant: `at <= slab.len()`, the announced length.
pub struct Assembler {
    slab: SlabMut,
    at: usize,
}

impl Assembler {
    /// Room for `length` bytes.
    ///
    /// # Errors
    /// UNAVAILABLE when the system has not even the address space.
    pub fn new(length: usize) -> Result<Self> {
        Ok(Self { slab: SlabPool::global().reserve(length)?, at: 0 })
    }

    /// Bytes still to come.
    pub fn missing(&self) -> usize {
        self.slab.len() - self.at
    }

    /// Where the next bytes go, at most `STEP_BYTES` of them: a reader that fills it lets others run before it asks again.
    /// Empty only when none are missing.
    pub fn spare(&mut self) -> &mut [u8] {
        self.slab.window(self.at..self.at + STEP_BYTES)
    }

    /// `n` bytes were written to `spare`.
    pub fn filled(&mut self, n: usize) {
        self.at = (self.at + n).min(self.slab.len());
    }

    /// Takes as much of `bytes` as is missing and returns how much that was.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.missing());
        if let Some(from) = bytes.get(..taken) {
            self.slab.window(self.at..self.at + taken).copy_from_slice(from);
        }
        self.at += taken;
        taken
    }

    /// What was collected.
    pub fn into_bytes(mut self) -> Bytes {
        self.slab.truncate(self.at);
        self.slab.freeze()
    }
}

impl http2::Collect for Assembler {
    fn spare(&mut self) -> &mut [u8] {
        self.spare()
    }

    fn filled(&mut self, n: usize) {
        self.filled(n);
    }

    fn missing(&self) -> usize {
        self.missing()
    }

    fn into_bytes(self: Box<Self>) -> Bytes {
        (*self).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collects_in_steps_whatever_was_announced() {
        let length = 5 * STEP_BYTES / 2;
        let mut a = Assembler::new(length).expect("address space");
        assert_eq!(a.spare().len(), STEP_BYTES);
        let before = a.spare().as_ptr() as usize;
        a.spare().fill(7);
        a.filled(STEP_BYTES);
        assert_eq!(a.push(&vec![7; STEP_BYTES + 1]), STEP_BYTES + 1);
        assert_eq!((a.spare().len(), a.missing()), (STEP_BYTES / 2 - 1, STEP_BYTES / 2 - 1));
        assert_eq!((a.push(&vec![7; length]), a.missing(), a.spare().len()), (STEP_BYTES / 2 - 1, 0, 0));
        let all = a.into_bytes();
        assert!(all.len() == length && all.iter().all(|&b| b == 7));
        assert_eq!(all.as_ptr() as usize, before, "nothing was moved");
    }
}
