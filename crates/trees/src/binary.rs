//! A reader of binary formats.

use tensor::{Error, Result};

/// The unread part of a file.
pub(crate) struct Bytes<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(file: &'a [u8]) -> Self {
        Self { file, at: 0 }
    }

    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    pub(crate) fn error(&self, text: impl std::fmt::Display) -> Error {
        Error::invalid(format!("byte {}: {text}", self.at))
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.file.get(self.at).copied()
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at >= self.file.len()
    }

    /// The next `count` items of `size` bytes. Announced sizes are compared with the file before anything is allocated.
    pub(crate) fn take(&mut self, count: u64, size: u64) -> Result<&'a [u8]> {
        let left = self.file.len().saturating_sub(self.at);
        let length = count.checked_mul(size).and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= left);
        let Some(length) = length else {
            return Err(
                self.error(format_args!("{count} × {size} bytes are announced, but the file has only {left} more"))
            );
        };
        let taken = self.file.get(self.at..self.at + length).unwrap_or_default();
        self.at += length;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let taken = self.take(1, N as u64)?;
        taken.try_into().map_err(|_| self.error("the file ends too early"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A little-endian number of four bytes.
    pub(crate) fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(crate) fn f32(&mut self) -> Result<f32> {
        self.array().map(f32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Item `index` of consecutive items of `N` bytes.
pub(crate) fn item<const N: usize>(bytes: &[u8], index: usize) -> Option<[u8; N]> {
    let at = index.checked_mul(N)?;
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}
