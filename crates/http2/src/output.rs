//! Output waiting to be written: small frames share one buffer, large pieces stay in their own memory.

use crate::limits::{COPY_BYTES_MAX, WRITE_BYTES};
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Capacity kept after a burst.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Output buffer. Invariant: no segment is empty, `at <= tail.len()`, and everything in `segments` precedes `tail`.
#[derive(Default)]
pub struct OutputBuffer {
    segments: VecDeque<Bytes>,
    tail: Vec<u8>,
    /// Bytes of `tail` already written.
    at: usize,
    segment_bytes: usize,
    written: u64,
}

impl OutputBuffer {
    /// Bytes not yet written.
    pub fn len(&self) -> usize {
        self.segment_bytes + self.tail.len() - self.at
    }

    /// Bytes written since the connection began.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// True if everything is written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Buffer for small frames. Callers only append.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Adds a piece of a body, copied if that is cheaper than another part in a vectored write.
    pub fn put(&mut self, piece: Bytes) {
        if piece.len() <= COPY_BYTES_MAX {
            return self.tail.extend_from_slice(&piece);
        }
        if self.at < self.tail.len() {
            let mut before = Bytes::from(std::mem::take(&mut self.tail));
            before.advance(self.at);
            self.segment_bytes += before.len();
            self.segments.push_back(before);
        } else {
            self.tail.clear();
        }
        self.at = 0;
        self.segment_bytes += piece.len();
        self.segments.push_back(piece);
    }

    /// The whole output, if it is one slice no longer than one write.
    pub fn single(&self) -> Option<&[u8]> {
        if !self.segments.is_empty() {
            return None;
        }
        self.tail.get(self.at..).filter(|tail| tail.len() <= WRITE_BYTES)
    }

    /// Fills `to` for a vectored write of at most `WRITE_BYTES`; returns the number of slices.
    pub fn slices<'a>(&'a self, to: &mut [IoSlice<'a>]) -> usize {
        let mut room = WRITE_BYTES;
        let tail = self.tail.get(self.at..).filter(|t| !t.is_empty());
        let all = self.segments.iter().map(|s| &s[..]).chain(tail);
        let mut n = 0;
        for (slot, slice) in to.iter_mut().zip(all) {
            let part = slice.get(..room).unwrap_or(slice);
            room -= part.len();
            *slot = IoSlice::new(part);
            n += 1;
            if room == 0 {
                break;
            }
        }
        n
    }

    /// Removes `n` written bytes.
    pub fn advance(&mut self, mut n: usize) {
        self.written += n as u64;
        while let Some(first) = self.segments.front_mut() {
            let part = first.len().min(n);
            first.advance(part);
            self.segment_bytes -= part;
            n -= part;
            if !first.is_empty() {
                return;
            }
            self.segments.pop_front();
        }
        self.at = (self.at + n).min(self.tail.len());
        if self.at == self.tail.len() {
            self.at = 0;
            self.tail.clear();
            self.tail.shrink_to(KEPT_BYTES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_read_in_order_for_any_size_of_writes() {
        for step in [1, 7, 4096, 5000, 1 << 20] {
            let (mut output, mut expected, mut written) = (OutputBuffer::default(), Vec::new(), Vec::new());
            for round in 0..3u8 {
                for n in [1usize, 9, 4096, 4097, 70_000, 3] {
                    let piece = vec![n as u8 ^ round; n];
                    expected.extend_from_slice(&piece);
                    if n < 10 { output.tail().extend_from_slice(&piece) } else { output.put(piece.into()) }
                }
                // Writes half, then adds more.
                let mut left = output.len() / (2 - usize::from(round) / 2);
                while left > 0 {
                    let mut slices = [IoSlice::new(&[]); 4];
                    let n = output.slices(&mut slices);
                    let all = slices[..n].iter().flat_map(|s| s.iter().copied());
                    let some: Vec<u8> = all.take(step.min(left)).collect();
                    output.advance(some.len());
                    left -= some.len();
                    written.extend(some);
                }
            }
            assert!(output.is_empty() && output.single() == Some(&[][..]), "step {step}");
            assert_eq!(written, expected, "step {step}");
        }
    }
}
