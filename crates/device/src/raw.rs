//! Calls the driver's functions for memory, streams and events. An error contains the name of the function.
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
/// Flags of an event: a waiting thread sleeps, and no timestamps are recorded.
const BLOCKING_WITHOUT_TIME: u32 = 1 | 2;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: c_int = 600;
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

    /// Creates a stream, which `end_stream` destroys; `None` if the driver has no functions for streams.
    pub(crate) fn make_stream(&self, device: u32, priority: i32) -> Result<Option<Thing>> {
        let f = &self.functions;
        let (Some(make), Some(_), Some(_)) = (f.make_stream, f.end_stream, f.wait_for_stream) else { return Ok(None) };
        self.enter(device)?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let made = unsafe { make(&raw mut stream, NON_BLOCKING, priority) };
        self.check("cuStreamCreateWithPriority", Some(made))?;
        Ok(Some(stream))
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

    /// Creates an event that marks the work started in the stream so far; `None` without functions for events.
    ///
    /// # Safety
    /// The conditions of `wait_for_stream` hold for `stream`.
    pub(crate) unsafe fn record(&self, device: u32, stream: Thing) -> Result<Option<Thing>> {
        let f = &self.functions;
        let all = (f.make_event, f.end_event, f.record_event, f.wait_for_event);
        let (Some(make), Some(end), Some(record), Some(_)) = all else { return Ok(None) };
        self.enter(device)?;
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let made = unsafe { make(&raw mut event, BLOCKING_WITHOUT_TIME) };
        self.check("cuEventCreate", Some(made))?;
        // SAFETY: the event was just created, and the stream is not destroyed, by contract.
        let recorded = self.check("cuEventRecord", Some(unsafe { record(event, stream) }));
        if recorded.is_err() {
            // SAFETY: the event was just created, and nothing else uses it.
            unsafe { end(event) };
        }
        recorded.map(|()| Some(event))
    }

    /// Destroys an event.
    ///
    /// # Safety
    /// `record` returned `event` for this device, and nothing uses it afterwards.
    pub(crate) unsafe fn end_event(&self, device: u32, event: Thing) -> Result<()> {
        self.enter(device)?;
        // SAFETY: by contract.
        self.check("cuEventDestroy", self.functions.end_event.map(|f| unsafe { f(event) }))
    }

    /// Blocks until the work that an event marks has ended.
    ///
    /// # Safety
    /// `record` returned `event` for this device, and it is not destroyed.
    pub(crate) unsafe fn wait_for_event(&self, device: u32, event: Thing) -> Result<()> {
        self.enter(device)?;
        // SAFETY: by contract.
        self.check("cuEventSynchronize", self.functions.wait_for_event.map(|f| unsafe { f(event) }))
    }

    /// Returns whether the work that an event marks has ended.
    ///
    /// # Safety
    /// The conditions of `wait_for_event` hold for `event`.
    pub(crate) unsafe fn is_over(&self, device: u32, event: Thing) -> Result<bool> {
        self.enter(device)?;
        // SAFETY: by contract.
        match self.functions.ask_event.map(|f| unsafe { f(event) }) {
            Some(NOT_READY) => Ok(false),
            code => self.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Makes later work of a stream wait for an event. Returns false if the driver has no such function.
    ///
    /// # Safety
    /// `stream` and `event` are handles of this driver and are not destroyed.
    pub(crate) unsafe fn let_stream_wait(&self, device: u32, stream: Thing, event: Thing) -> Result<bool> {
        let Some(wait) = self.functions.let_stream_wait else { return Ok(false) };
        self.enter(device)?;
        // SAFETY: by contract.
        self.check("cuStreamWaitEvent", Some(unsafe { wait(stream, event, 0) })).map(|()| true)
    }
}
