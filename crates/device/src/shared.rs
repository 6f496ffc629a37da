//! Device memory that another process shares, opened by the handle it sent (memory.md 2.2).

#![allow(unsafe_code)] // vouches for ranges of device memory

use crate::closing;
use crate::driver::{Driver, Handle, driver};
use crate::failure;
use crate::library::Unavailable;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tensor::{Error, Result};

/// An open handle, closed when the last owner drops it.
///
/// The process that exported the memory must not free it before that, which the driver cannot detect.
pub struct Imported {
    driver: &'static Driver,
    device: u32,
    handle: Handle,
    address: u64,
    len: usize,
}

/// Reason why memory was not opened.
#[derive(Debug)]
pub enum OpenError {
    /// There is no GPU.
    NoDevice(&'static Unavailable),
    /// Error of the driver, for the log.
    Failed(Error),
    /// The device failed earlier, permanently.
    Lost(Error),
}

/// Each handle is opened once, for any number of registrations, because opening is slow and the driver counts it.
static OPEN: Mutex<BTreeMap<(u32, Handle), Weak<Imported>>> = Mutex::new(BTreeMap::new());

impl Imported {
    /// Opens the handle on a device, an ordinal of this process.
    ///
    /// # Errors
    /// `OpenError`, with the driver's error.
    pub fn open(device: u32, handle: Handle) -> Result<Arc<Self>, OpenError> {
        let driver = driver().map_err(OpenError::NoDevice)?;
        failure::check(device).map_err(OpenError::Lost)?;
        let mut open = OPEN.lock();
        if let Some(known) = open.get(&(device, handle)).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let (address, len) = driver.open_handle(device, handle).map_err(OpenError::Failed)?;
        let made = Arc::new(Self { driver, device, handle, address, len });
        open.insert((device, handle), Arc::downgrade(&made));
        Ok(made)
    }

    /// Ordinal of its device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Size of the allocation.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false in practice: the driver exports no empty memory.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The handle; other processes can open it too, except the one that exported it.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Address in the device's memory, for libraries that run there.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Copies the bytes from `offset` on into `to`. Blocks, so not for a reactor.
    ///
    /// # Errors
    /// INTERNAL, with the driver's error, or beyond the end of the memory; UNAVAILABLE once the device has failed.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        let from = self.at(offset, to.len())?;
        // SAFETY: `at` checked the range, and the handle is open as long as `self` lives.
        unsafe { self.driver.read(self.device, from, to) }
    }

    /// Copies `from` to the bytes from `offset` on, and waits until others see it.
    ///
    /// # Errors
    /// INTERNAL, with the driver's error, or beyond the end of the memory; UNAVAILABLE once the device has failed.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        let to = self.at(offset, from.len())?;
        // SAFETY: as in `read`.
        unsafe { self.driver.write(self.device, to, from) }
    }

    fn at(&self, offset: usize, len: usize) -> Result<u64> {
        failure::check(self.device)?;
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            let of = self.len;
            return Err(Error::internal(format!(
                "{len} bytes at offset {offset} are not inside the {of} bytes of a device"
            )));
        }
        Ok(self.address + offset as u64)
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        closing::notify(self.device, &self.handle);
        let mut open = OPEN.lock();
        // Another thread may have opened it again meanwhile, which is counted separately.
        if open.get(&(self.device, self.handle)).is_some_and(|known| known.strong_count() == 0) {
            open.remove(&(self.device, self.handle));
        }
        let closed = self.driver.close_handle(self.device, self.address);
        if let (Err(e), None) = (closed, failure::failed(self.device)) {
            log::warn!("failed to close CUDA IPC handle: {}", e.message());
        }
    }
}
