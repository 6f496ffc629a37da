//! Device memory that another library allocated, as a region: for outputs that live as long as they are used.

#![allow(unsafe_code)] // vouches for memory of a library

use crate::driver::{Address, driver};
use std::any::Any;
use tensor::{Base, DeviceMemory, Error, Extent, RegionMemory, RegionRef, Result};

/// Device memory, and the owner that keeps it allocated.
pub struct Adopted {
    device: u32,
    address: Address,
    len: usize,
    _owner: Box<dyn Any + Send + Sync>,
}

impl Adopted {
    /// `len` bytes at `address` of `device`, an ordinal here. The thread that drops the region last drops `owner`.
    ///
    /// # Safety
    /// The bytes stay allocated as long as `owner` lives, and are written only through the region.
    #[must_use]
    pub unsafe fn region(device: u32, address: Address, len: usize, owner: Box<dyn Any + Send + Sync>) -> RegionRef {
        std::sync::Arc::new(Self { device, address, len, _owner: owner })
    }

    fn at(&self, offset: usize, len: usize) -> Result<Address> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            let of = self.len;
            return Err(Error::internal(format!(
                "{len} bytes at offset {offset} are not inside the {of} bytes of a device"
            )));
        }
        Ok(self.address + offset as u64)
    }
}

// SAFETY: by the contract of `region`.
unsafe impl RegionMemory for Adopted {
    fn base(&self) -> Base<'_> {
        Base::Device(self)
    }
    fn len(&self) -> usize {
        self.len
    }
    fn is_intact(&self) -> bool {
        true
    }
    fn region_name(&self) -> &'static str {
        "device memory"
    }
    fn extent(&self) -> Extent {
        // As for memory shared with clients: no file has such a device number.
        Extent { object: (u64::MAX - u64::from(self.device), self.address), start: 0 }
    }
    fn is_shared(&self) -> bool {
        false
    }
}

impl DeviceMemory for Adopted {
    fn device(&self) -> u32 {
        self.device
    }
    fn address(&self) -> Address {
        self.address
    }
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        crate::failure::check(self.device)?;
        let from = self.at(offset, to.len())?;
        let driver = driver().map_err(|why| Error::environment(format!("no GPU: {why}")))?;
        // SAFETY: `at` checked the range, and the owner keeps the memory.
        unsafe { driver.read(self.device, from, to) }
    }
    fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        crate::failure::check(self.device)?;
        let to = self.at(offset, from.len())?;
        let driver = driver().map_err(|why| Error::environment(format!("no GPU: {why}")))?;
        // SAFETY: as in `read`.
        unsafe { driver.write(self.device, to, from) }
    }
}
