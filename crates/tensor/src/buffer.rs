//! The bytes of a tensor, and the place where they lie.

use crate::region::{Base, RegionRef};
use crate::{Error, Result};
use bytes::Bytes;
use std::fmt;

/// Where the bytes of a tensor lie. Decides who may read them how, and what it takes to bring them elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive] // pinned memory follows
pub enum Location {
    /// Memory of this process that does not change: may be a slice, may be sent as it is.
    Host,
    /// Memory shared with a client or another process: only copied, or handed to a library by address.
    Region,
    /// Memory of the device with this ordinal, shared with a client: only copied, or handed to a library that runs there.
    Device(u32),
}

/// The bytes of one tensor. Cheap to clone: bytes are counted, not copied.
#[derive(Clone)]
pub enum Data {
    /// Memory of this process, counted; immutable.
    Bytes(Bytes),
    /// Shared memory. Its owner may change it under us, so it is never a slice.
    Region(RegionRef),
}

impl Data {
    /// No bytes.
    pub const fn empty() -> Self {
        Self::Bytes(Bytes::new())
    }

    /// Where the bytes lie.
    pub fn location(&self) -> Location {
        match self {
            Self::Bytes(_) => Location::Host,
            Self::Region(region) => match region.base() {
                Base::Host(_) => Location::Region,
                Base::Device(memory) => Location::Device(memory.device()),
            },
        }
    }

    /// The bytes, where they lie in the host's own memory.
    pub fn host(&self) -> Option<&Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Region(_) => None,
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

    /// Copies the bytes from `offset` on into `to`.
    ///
    /// # Errors
    /// INTERNAL when there are fewer than `offset + to.len()`: callers check sizes, so this is a mistake of ours.
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        match self {
            Self::Bytes(bytes) => {
                let end = offset.checked_add(to.len());
                let from = end.and_then(|end| bytes.get(offset..end)).ok_or_else(|| self.outside(offset, to.len()))?;
                to.copy_from_slice(from);
                Ok(())
            }
            Self::Region(region) => region.copy_to(offset, to),
        }
    }

    /// The `N` bytes at `offset`, each read once.
    ///
    /// # Errors
    /// As `copy_to`.
    pub fn read_at<const N: usize>(&self, offset: usize) -> Result<[u8; N]> {
        match self {
            Self::Bytes(bytes) => {
                bytes.get(offset..).and_then(|rest| rest.first_chunk()).copied().ok_or_else(|| self.outside(offset, N))
            }
            Self::Region(region) => region.read_at(offset),
        }
    }

    /// A copy of all bytes. A region may be larger than memory: callers limit what they copy.
    ///
    /// # Errors
    /// What the driver of a device said.
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.to_vec()),
            Self::Region(region) => {
                let mut all = vec![0; region.len()];
                region.copy_to(0, &mut all)?;
                Ok(all)
            }
        }
    }

    /// The bytes in the host's own memory: the same ones where they are there already, else a copy, as by `to_vec`.
    ///
    /// # Errors
    /// As `to_vec`.
    pub fn to_bytes(&self) -> Result<Bytes> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::Region(_) => Ok(self.to_vec()?.into()),
        }
    }

    #[cold]
    fn outside(&self, offset: usize, len: usize) -> Error {
        Error::internal(format!(
            "{len} bytes at offset {offset} do not lie inside the {} bytes of a tensor",
            self.len()
        ))
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
