//! Reads a frame from its beginning to its end; what is not there is a lie, never a panic.

use std::fmt;

/// What a runner did that the protocol forbids. It is killed for that; the text is for the server's log only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lie(pub &'static str);

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// What is left of a frame.
#[derive(Clone)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    /// The next `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Lie> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Lie("a frame ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub(crate) fn head<const N: usize>(&mut self) -> Result<&'a [u8; N], Lie> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Lie("a frame ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// `length` bytes of UTF-8.
    pub(crate) fn text(&mut self, length: u32) -> Result<&'a str, Lie> {
        std::str::from_utf8(self.take(length as usize)?).map_err(|_| Lie("a text is not UTF-8"))
    }

    /// All that is left, UTF-8.
    pub(crate) fn rest(self) -> Result<&'a str, Lie> {
        std::str::from_utf8(self.0).map_err(|_| Lie("a text is not UTF-8"))
    }

    /// Nothing is left.
    pub(crate) fn end(self) -> Result<(), Lie> {
        if self.0.is_empty() { Ok(()) } else { Err(Lie("a frame has more bytes than its parts")) }
    }

    /// `count` numbers.
    pub(crate) fn ids(&mut self, count: u32) -> Result<Ids<'a>, Lie> {
        self.take((count as usize).saturating_mul(8)).map(Ids)
    }
}

/// Numbers of eight bytes in a row: ids of blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ids<'a>(&'a [u8]);

impl Ids<'_> {
    /// One by one.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.chunks_exact(8).filter_map(|id| Some(u64::from_le_bytes(*id.first_chunk()?)))
    }
}

impl fmt::Debug for Ids<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
