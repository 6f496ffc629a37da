//! Collects a body of announced length into one slab. A length is a promise of the client's, so only so much is reserved on the
//! strength of it, by one body and by all together; beyond that the buffer doubles as the bytes arrive, and who makes us hold
//! memory has sent half of it.

use crate::limits::{RESERVE_BYTES_MAX, RESERVE_BYTES_MIN, RESERVE_TOTAL_BYTES_MAX};
use bytes::Bytes;
use memory::{SlabMut, SlabPool};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes reserved on promises, over all bodies being collected.
static PROMISED: AtomicUsize = AtomicUsize::new(0);

/// A share of `PROMISED`, for as long as it lives.
struct Promise(usize);

impl Promise {
    /// As much of `wanted` as may be reserved now.
    fn new(wanted: usize) -> Self {
        let wanted = wanted.min(RESERVE_BYTES_MAX);
        if wanted <= RESERVE_BYTES_MIN {
            return Self(0);
        }
        if PROMISED.fetch_add(wanted, Ordering::Relaxed) + wanted > RESERVE_TOTAL_BYTES_MAX {
            PROMISED.fetch_sub(wanted, Ordering::Relaxed);
            return Self(0);
        }
        Self(wanted)
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        PROMISED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// A body being collected. Invariant: `at <= slab.len() <= length`.
pub struct Assembler {
    slab: SlabMut,
    at: usize,
    length: usize,
    _promise: Promise,
}

impl Assembler {
    /// Room for `length` bytes.
    pub fn new(length: usize) -> Self {
        let promise = Promise::new(length);
        let first = length.min(promise.0.max(RESERVE_BYTES_MIN));
        Self { slab: SlabPool::global().get(first), at: 0, length, _promise: promise }
    }

    /// Bytes still to come.
    pub fn missing(&self) -> usize {
        self.length - self.at
    }

    /// Where the next bytes go; empty only when none are missing.
    pub fn spare(&mut self) -> &mut [u8] {
        if self.at == self.slab.len() && self.at < self.length {
            let mut larger = SlabPool::global().get(self.length.min(self.at.saturating_mul(2)));
            if let Some(to) = larger.get_mut(..self.at) {
                to.copy_from_slice(&self.slab);
            }
            self.slab = larger;
        }
        self.slab.get_mut(self.at..).unwrap_or_default()
    }

    /// `n` bytes were written to `spare`.
    pub fn filled(&mut self, n: usize) {
        self.at = (self.at + n).min(self.slab.len());
    }

    /// Takes as much of `bytes` as is missing and returns how much that was.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && self.missing() > 0 {
            let spare = self.spare();
            let n = spare.len().min(bytes.len() - taken);
            if let (Some(to), Some(from)) = (spare.get_mut(..n), bytes.get(taken..taken + n)) {
                to.copy_from_slice(from);
            }
            self.filled(n);
            taken += n;
        }
        taken
    }

    /// What was collected.
    pub fn into_bytes(mut self) -> Bytes {
        self.slab.truncate(self.at);
        self.slab.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_little_more_than_what_came_until_it_came() {
        let mut a = Assembler::new(3 * RESERVE_BYTES_MAX);
        assert_eq!(a.spare().len(), RESERVE_BYTES_MAX);
        let piece = vec![7u8; RESERVE_BYTES_MAX];
        assert_eq!(a.push(&piece), piece.len());
        assert_eq!(a.spare().len(), RESERVE_BYTES_MAX, "doubled");
        assert_eq!(a.push(&piece), piece.len());
        assert_eq!((a.push(&piece), a.push(&piece), a.missing()), (piece.len(), 0, 0));
        // Too many promises at once: the next ones start small.
        let many: Vec<_> = (0..40).map(|_| Promise::new(RESERVE_BYTES_MAX)).collect();
        assert_eq!(Assembler::new(RESERVE_BYTES_MAX).spare().len(), RESERVE_BYTES_MIN);
        drop(many);
        assert_eq!(Assembler::new(RESERVE_BYTES_MAX).spare().len(), RESERVE_BYTES_MAX);
        let all = a.into_bytes();
        assert!(all.len() == 3 * piece.len() && all.iter().all(|&b| b == 7));
    }
}
