//! Small buffers of our own, aligned as libraries expect.

/// Alignment of buffers in bytes.
const ALIGNMENT: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

/// Bytes that begin at a multiple of 64.
pub(crate) struct AlignedBytes {
    lines: Vec<Line>,
    len: usize,
}

impl AlignedBytes {
    /// Zeros. A pointer to it is never null.
    pub(crate) fn zeros(len: usize) -> Self {
        Self { lines: vec![Line([0; ALIGNMENT]); len.div_ceil(ALIGNMENT).max(1)], len }
    }

    /// A copy.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut copy = Self::zeros(bytes.len());
        copy.fill(bytes);
        copy
    }

    /// Copies bytes to its beginning, as many as it has room for.
    pub(crate) fn fill(&mut self, from: &[u8]) {
        let from = from.get(..self.len).unwrap_or(from);
        for (line, part) in self.lines.iter_mut().zip(from.chunks(ALIGNMENT)) {
            line.0[..part.len()].copy_from_slice(part);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn pointer(&self) -> *const u8 {
        self.lines.as_ptr().cast()
    }

    pub(crate) fn pointer_mut(&mut self) -> *mut u8 {
        self.lines.as_mut_ptr().cast()
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.lines.len() * ALIGNMENT);
        self.lines.iter().for_each(|line| copy.extend_from_slice(&line.0));
        copy.truncate(self.len);
        copy
    }
}
