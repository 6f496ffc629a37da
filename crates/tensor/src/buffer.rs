//! The contents of a tensor and their location.

use crate::region::{Base, RegionRef};
use crate::{Error, Result};
use bytes::Bytes;
use std::fmt;

/// Memory that holds the contents of a tensor. It decides how they may be read and copied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive] // pinned memory will be added
pub enum Location {
    /// Immutable memory of this process: can be used as a slice and sent without a copy.
    Host,
    /// Memory shared with a client or another process: only copied, or passed to a library by address.
    Region,
    /// Memory of the device with this ordinal: only copied, or passed to a library that runs there.
    Device(u32),
}

/// Contents of one tensor. Cheap to clone: the memory is reference-counted, not copied.
#[derive(Clone)]
pub enum Data {
    /// Immutable memory of this process.
    Bytes(Bytes),
    /// Shared memory. Its owner may change it at any time, so it is never a slice.
    Region(RegionRef),
}

impl Data {
    /// Empty contents.
    pub const fn empty() -> Self {
        Self::Bytes(Bytes::new())
    }

    /// The memory that holds the contents.
    pub fn location(&self) -> Location {
        match self {
            Self::Bytes(_) => Location::Host,
            Self::Region(region) => match region.base() {
                Base::Host(_) => Location::Region,
                Base::Device(memory) => Location::Device(memory.device()),
            },
        }
    }

    /// The bytes if they are in `Location::Host`.
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

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `offset` on into `to`.
    ///
    /// # Errors
    /// INTERNAL when the contents end before `offset + to.len()`: a bug of the caller, which checks sizes.
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

    /// Reads the `N` bytes at `offset`, each once.
    ///
    /// # Errors
    /// INTERNAL when the contents end before `offset + to.len()`: a bug of the caller, which checks sizes.
    pub fn read_at<const N: usize>(&self, offset: usize) -> Result<[u8; N]> {
        match self {
            Self::Bytes(bytes) => {
                bytes.get(offset..).and_then(|rest| rest.first_chunk()).copied().ok_or_else(|| self.outside(offset, N))
            }
            Self::Region(region) => region.read_at(offset),
        }
    }

    /// Copies all bytes. A region may be larger than memory: callers limit the size.
    ///
    /// # Errors
    /// INTERNAL when the driver of a device fails.
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

    /// The contents in host memory: shared if they are there already, otherwise copied.
    ///
    /// # Errors
    /// INTERNAL when the driver of a device fails.
    pub fn to_bytes(&self) -> Result<Bytes> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::Region(_) => Ok(self.to_vec()?.into()),
        }
    }

    #[cold]
    fn outside(&self, offset: usize, len: usize) -> Error {
        Error::internal(format!("{len} bytes at offset {offset} are not inside the {} bytes of a tensor", self.len()))
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
