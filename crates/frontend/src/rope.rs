//! Bytes in several parts that are sent as one message: a response is a head and tensors, and joining them would copy
//! the tensors.

use crate::gate::Grant;
use crate::limits::STEP_BYTES;
use bytes::{Buf, Bytes};
use memory::Charge;
use smallvec::SmallVec;
use std::io::IoSlice;

/// A queue of parts. Invariant: no part is empty.
#[derive(Debug, Default)]
pub struct Rope {
    /// In reverse order: the next part to send is the last, so that advancing moves nothing.
    parts: SmallVec<[Bytes; 4]>,
    length: usize,
}

impl Rope {
    /// Makes a rope of parts, in the order in which they are sent.
    pub fn new(parts: impl DoubleEndedIterator<Item = Bytes>) -> Self {
        let parts: SmallVec<[Bytes; 4]> = parts.rev().filter(|p| !p.is_empty()).collect();
        let length = parts.iter().map(Bytes::len).sum();
        Self { parts, length }
    }

    /// Cuts off the first `n` bytes, without copying them.
    pub fn take_front(&mut self, n: usize) -> Self {
        if n >= self.length {
            return std::mem::take(self);
        }
        let (mut parts, mut left) = (SmallVec::<[Bytes; 4]>::new(), n);
        while left > 0 {
            let Some(part) = self.parts.last_mut() else { break };
            let taken = part.split_to(left.min(part.len()));
            if part.is_empty() {
                self.parts.pop();
            }
            left -= taken.len();
            parts.push(taken);
        }
        self.length -= n;
        parts.reverse();
        Self { parts, length: n }
    }
}

/// Attaches a charge that ends with the last view of the bytes.
pub fn charged(part: Bytes, charge: Charge) -> Bytes {
    charge.hold(part)
}

impl Rope {
    /// Attaches a charge that ends when the last part is sent or dropped.
    pub fn charged(mut self, charge: Charge) -> Self {
        if let Some(last) = self.parts.first_mut() {
            *last = charged(std::mem::take(last), charge);
        }
        self
    }
}

impl Rope {
    /// Attaches a grant that is held until the last part is sent or dropped.
    #[inline]
    pub fn granted(mut self, grant: &Grant) -> Self {
        if grant.is_some() {
            grant.charge(self.parts.iter().map(Bytes::len).sum());
            if let Some(last) = self.parts.first_mut() {
                *last = grant.hold(std::mem::take(last));
            }
        }
        self
    }
}

impl From<Bytes> for Rope {
    fn from(part: Bytes) -> Self {
        Self::new(std::iter::once(part))
    }
}

impl Buf for Rope {
    fn remaining(&self) -> usize {
        self.length
    }

    fn chunk(&self) -> &[u8] {
        self.parts.last().map_or(&[], |p| p)
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [IoSlice<'a>]) -> usize {
        // At most one step, because the kernel copies it while other connections wait.
        let (mut n, mut room) = (0, STEP_BYTES);
        for (slot, part) in dst.iter_mut().zip(self.parts.iter().rev()) {
            *slot = IoSlice::new(part.get(..room).unwrap_or(part));
            n += 1;
            room = room.saturating_sub(part.len());
            if room == 0 {
                break;
            }
        }
        n
    }

    fn advance(&mut self, mut n: usize) {
        assert!(n <= self.length, "advanced past the end of a response");
        self.length -= n;
        while n > 0 {
            let Some(part) = self.parts.last_mut() else { return };
            if part.len() > n {
                part.advance(n);
                return;
            }
            n -= part.len();
            self.parts.pop();
        }
    }

    fn copy_to_bytes(&mut self, n: usize) -> Bytes {
        // A slice if one part suffices, so that an HTTP/2 frame is cut off without a copy.
        if let Some(part) = self.parts.last_mut()
            && part.len() >= n
        {
            let taken = part.split_to(n);
            self.length -= n;
            if part.is_empty() {
                self.parts.pop();
            }
            return taken;
        }
        let mut all = Vec::with_capacity(n);
        while all.len() < n && self.has_remaining() {
            let take = self.chunk().len().min(n - all.len());
            all.extend_from_slice(self.chunk().get(..take).unwrap_or_default());
            self.advance(take);
        }
        all.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rope_reads_as_one_buffer_in_steps_of_any_size() {
        for step in 1..12 {
            let mut rope = Rope::new([&b"abc"[..], b"", b"d", b"efghij"].into_iter().map(Bytes::from_static));
            let mut all = Vec::new();
            while rope.has_remaining() {
                let n = step.min(rope.remaining());
                all.extend_from_slice(&rope.copy_to_bytes(n));
            }
            assert_eq!(all, b"abcdefghij", "step {step}");
        }
        let mut rope = Rope::new([&b"abc"[..], b"de"].into_iter().map(Bytes::from_static));
        rope.advance(1);
        let mut cut = Rope::new([&b"abc"[..], b"de"].into_iter().map(Bytes::from_static));
        let mut front = cut.take_front(4);
        assert_eq!((front.copy_to_bytes(4), cut.copy_to_bytes(1)), (Bytes::from("abcd"), Bytes::from("e")));
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(rope.chunks_vectored(&mut slices), 2);
        assert_eq!((&*slices[0], &*slices[1], rope.remaining()), (&b"bc"[..], &b"de"[..], 4));
        rope.advance(4);
        assert_eq!((rope.remaining(), rope.chunk()), (0, &b""[..]));
    }
}
