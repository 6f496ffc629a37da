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
        for (line, part) in copy.lines.iter_mut().zip(bytes.chunks(ALIGNMENT)) {
            line.0[..part.len()].copy_from_slice(part);
        }
        copy
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

    /// Appends the bytes to `to`.
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let mut left = self.len;
        for line in &self.lines {
            let part = left.min(ALIGNMENT);
            to.extend_from_slice(&line.0[..part]);
            left -= part;
        }
    }
}
