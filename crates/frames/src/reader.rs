//! Cursor over the body of a frame. A missing byte is a protocol error, never a panic.

use std::fmt;

/// A breach of the protocol. The runner is killed; the text is only for the server's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtocolError(pub &'static str);

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The unread rest of a frame.
#[derive(Clone)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    /// The next `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], ProtocolError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ProtocolError("a frame ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub(crate) fn head<const N: usize>(&mut self) -> Result<&'a [u8; N], ProtocolError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(ProtocolError("a frame ends early"))?;
        self.0 = rest;
        Ok(taken)
    }

    /// `length` bytes of UTF-8.
    pub(crate) fn text(&mut self, length: u32) -> Result<&'a str, ProtocolError> {
        std::str::from_utf8(self.take(length as usize)?).map_err(|_| ProtocolError("a text is not UTF-8"))
    }

    /// The rest of the frame as UTF-8.
    pub(crate) fn rest(self) -> Result<&'a str, ProtocolError> {
        std::str::from_utf8(self.0).map_err(|_| ProtocolError("a text is not UTF-8"))
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Result<(), ProtocolError> {
        if self.0.is_empty() { Ok(()) } else { Err(ProtocolError("a frame has more bytes than its parts")) }
    }

    /// The next `count` block ids.
    pub(crate) fn ids(&mut self, count: u32) -> Result<Ids<'a>, ProtocolError> {
        self.take((count as usize).saturating_mul(8)).map(Ids)
    }
}

/// List of block ids, eight bytes each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ids<'a>(&'a [u8]);

impl Ids<'_> {
    /// The ids in their order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.chunks_exact(8).filter_map(|id| Some(u64::from_le_bytes(*id.first_chunk()?)))
    }
}

impl fmt::Debug for Ids<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
