//! Calls the driver's functions for memory and streams. An error contains the name of the function.
//!
//! Callers free the returned resources: `pool`, `locked` and `stream` own them.

#![allow(unsafe_code)] // calls a C library whose prototypes are written down in `driver`

use crate::driver::{Address, Driver, Thing};
use std::ffi::c_int;
use std::ptr::NonNull;
use tensor::{Error, Result};

/// Flag of page-locked memory: every context can access it.
const PORTABLE: u32 = 1;
/// Flag of a stream: it does not wait for the default stream, which libraries use.
const NON_BLOCKING: u32 = 1;
/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
const PEERS_ALREADY: c_int = 704;

/// Memory of a device, as all processes together use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that no process uses.
    pub free: u64,
    /// Size in bytes.
    pub total: u64,
}

impl Driver {
    /// Returns the total and the free memory of a device.
    ///
    /// # Errors
    /// INTERNAL, with the driver's error.
    pub fn memory(&self, device: u32) -> Result<MemoryInfo> {
        self.enter(device)?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes.
        let code = self.functions.memory_info.map(|f| unsafe { f(&raw mut free, &raw mut total) });
        self.check("cuMemGetInfo", code)?;
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }

    /// Enables direct access of `device` to the memory of `peer`, if supported. Returns whether it is enabled.
    ///
    /// # Errors
    /// INTERNAL, with the driver's error.
    pub fn enable_peer(&self, device: u32, peer: u32) -> Result<bool> {
        if !self.can_access_peer(device, peer)? {
            return Ok(false);
        }
        let context = self.context(peer)?;
        self.enter(device)?;
        // SAFETY: a retained context that is never released.
        match self.functions.enable_peer.map(|f| unsafe { f(context.0, 0) }) {
            Some(PEERS_ALREADY) => Ok(true),
            code => self.check("cuCtxEnablePeerAccess", code).map(|()| true),
        }
    }

    /// Allocates `len` bytes of a device. The caller frees them with `free`.
    pub(crate) fn allocate(&self, device: u32, len: usize) -> Result<Address> {
        self.enter(device)?;
        let mut address = 0;
        // SAFETY: writes one address.
        self.check("cuMemAlloc", self.functions.allocate.map(|f| unsafe { f(&raw mut address, len) }))?;
        Ok(address)
    }

    pub(crate) fn free(&self, device: u32, address: Address) -> Result<()> {
        self.enter(device)?;
        // SAFETY: the driver rejects addresses that it did not allocate. The only owner calls this.
        self.check("cuMemFree", self.functions.free.map(|f| unsafe { f(address) }))
    }

    /// Allocates `len` page-locked host bytes with undefined contents for all devices. `free_host` frees them.
    pub(crate) fn allocate_host(&self, device: u32, len: usize) -> Result<NonNull<u8>> {
        self.enter(device)?;
        let mut block = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        let code = self.functions.allocate_host.map(|f| unsafe { f(&raw mut block, len, PORTABLE) });
        self.check("cuMemHostAlloc", code)?;
        NonNull::new(block.cast()).ok_or_else(|| Error::internal("cuMemHostAlloc returned no memory"))
    }

    /// Frees memory that `allocate_host` returned.
    ///
    /// # Safety
    /// Nothing accesses the memory any more.
    pub(crate) unsafe fn free_host(&self, device: u32, block: NonNull<u8>) -> Result<()> {
        self.enter(device)?;
        // SAFETY: by contract; the driver rejects memory that it did not allocate.
        self.check("cuMemFreeHost", self.functions.free_host.map(|f| unsafe { f(block.as_ptr().cast()) }))
    }

    /// Locks the pages of a mapping, so that devices can access it directly. `unlock` must precede unmapping.
    ///
    /// # Safety
    /// `len` bytes at `start` are mapped, and stay so until `unlock`.
    pub(crate) unsafe fn lock(&self, device: u32, start: NonNull<u8>, len: usize) -> Result<()> {
        self.enter(device)?;
        let code = self.functions.lock_host.map(|f| {
            // SAFETY: by contract. The contents do not change.
            unsafe { f(start.as_ptr().cast(), len, PORTABLE) }
        });
        self.check("cuMemHostRegister", code)
    }

    pub(crate) fn unlock(&self, device: u32, start: NonNull<u8>) -> Result<()> {
        self.enter(device)?;
        // SAFETY: the driver rejects memory that it did not lock.
        self.check("cuMemHostUnregister", self.functions.unlock_host.map(|f| unsafe { f(start.as_ptr().cast()) }))
    }

    /// Creates a stream, which `end_stream` destroys.
    pub(crate) fn make_stream(&self, device: u32, priority: i32) -> Result<Thing> {
        self.enter(device)?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let made = self.functions.make_stream.map(|f| unsafe { f(&raw mut stream, NON_BLOCKING, priority) });
        self.check("cuStreamCreateWithPriority", made)?;
        Ok(stream)
    }

    /// Destroys a stream.
    ///
    /// # Safety
    /// `make_stream` returned `stream` for this device, and nothing uses it afterwards.
    pub(crate) unsafe fn end_stream(&self, device: u32, stream: Thing) -> Result<()> {
        self.enter(device)?;
        // SAFETY: by contract.
        self.check("cuStreamDestroy", self.functions.end_stream.map(|f| unsafe { f(stream) }))
    }

    /// Blocks until the work started in a stream so far has ended.
    ///
    /// # Safety
    /// `make_stream` returned `stream` for this device, and it is not destroyed.
    pub(crate) unsafe fn wait_for_stream(&self, device: u32, stream: Thing) -> Result<()> {
        self.enter(device)?;
        // SAFETY: by contract.
        self.check("cuStreamSynchronize", self.functions.wait_for_stream.map(|f| unsafe { f(stream) }))
    }
}
