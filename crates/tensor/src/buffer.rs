//! Where the bytes of a tensor are: in a counted heap buffer of ours, or in a region another process shares with us.

#![allow(unsafe_code)] // one call: reading a region through the pointer its owner vouches for

use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// A window into a shared memory region, pinned for as long as the value lives. Implemented by `memory`.
///
/// # Safety
/// `as_ptr()` must stay valid for reads *and writes* of `len()` bytes until the value is dropped, even when the process at the
/// other end truncates or unlinks the object (the implementation replaces lost pages and then reports `is_intact() == false`).
pub unsafe trait RegionSlice: Send + Sync {
    /// First byte of the window.
    fn as_ptr(&self) -> *mut u8;
    /// Length of the window in bytes.
    fn len(&self) -> usize;
    /// Whether the window is zero bytes long.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// False once the owner took the memory away; whatever was read from it since is meaningless.
    fn is_intact(&self) -> bool;
    /// Name the region was registered under, for error texts.
    fn region_name(&self) -> &str;
    /// Where the window lies in the object behind it: (device, inode, first byte). One object may be registered under several
    /// names, so addresses do not tell whether two windows overlap. `None` = unknown, assume they do.
    fn extent(&self) -> Option<(u64, u64, u64)> {
        None
    }
}

/// A counted, pinned window into a region.
pub type RegionRef = Arc<dyn RegionSlice>;

/// The bytes of one tensor.
#[derive(Clone)]
pub enum Data {
    /// Heap memory of this process, counted; immutable.
    Bytes(Bytes),
    /// Shared memory, read in place. Its owner may change it under us: never trust a value read twice.
    Region(RegionRef),
}

impl Data {
    /// No bytes.
    pub const fn empty() -> Self {
        Self::Bytes(Bytes::new())
    }

    /// The bytes, wherever they are.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(b) => b,
            // SAFETY: `RegionSlice` promises `len()` readable bytes at `as_ptr()` for as long as the `Arc` lives, and `self`
            // borrows it. Another process may write meanwhile: the bytes are plain data without invariants, every reader
            // treats them as untrusted, and values used for memory safety (string lengths) are read once and checked.
            Self::Region(r) => unsafe { std::slice::from_raw_parts(r.as_ptr(), r.len()) },
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(b) => b.len(),
            Self::Region(r) => r.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Data {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<Bytes> for Data {
    fn from(b: Bytes) -> Self {
        Self::Bytes(b)
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(b) => write!(f, "{} bytes", b.len()),
            Self::Region(r) => write!(f, "{} bytes of region '{}'", r.len(), r.region_name()),
        }
    }
}
