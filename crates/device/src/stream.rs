//! Streams of a device: copies that run asynchronously.
//!
//! Invariant: sources and targets of a copy are kept until the stream was waited for. If waiting fails, the device may
//! still access them, so they are never freed.

#![allow(unsafe_code)] // vouches for the addresses of copies

use crate::driver::{Address, Driver, Thing, driver};
use parking_lot::Mutex;
use std::ops::DerefMut;
use std::sync::Arc;
use tensor::{Base, Data, Error, RegionRef, Result};

/// Maximum number of copies in progress; the next one first waits for all of them.
const STARTED_MAX: usize = 1024;

/// A sequence of copies of one device. Clones are the same stream, which any thread may use.
#[derive(Clone)]
pub struct Stream(Arc<RawStream>);

struct RawStream {
    driver: &'static Driver,
    device: u32,
    stream: Handle,
    /// Owners of the memory of copies in progress.
    kept: Mutex<Vec<Box<dyn Send>>>,
}

#[derive(Clone, Copy)]
struct Handle(Thing);

// SAFETY: any thread may use a stream; the pointer is only passed back to the library.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// One side of a copy, checked.
#[derive(Clone, Copy)]
enum Side {
    Host(*mut u8),
    Device(u32, Address),
}

impl Stream {
    /// A stream of `device`, an ordinal of this process. Lower values of `priority` are more urgent; 0 is the default.
    ///
    /// # Errors
    /// UNAVAILABLE without a GPU; INTERNAL with the driver's error.
    pub fn new(device: u32, priority: i32) -> Result<Self> {
        let driver = driver().map_err(|why| Error::environment(format!("no GPU: {why}")))?;
        let stream = Handle(driver.make_stream(device, priority)?);
        Ok(Self(Arc::new(RawStream { driver, device, stream, kept: Mutex::default() })))
    }

    /// The `CUstream`, for other libraries. Valid as long as a clone of this lives.
    pub fn as_raw(&self) -> *mut std::ffi::c_void {
        self.0.stream.0
    }

    /// Starts a copy of `len` bytes from `from_offset` in `from` to `to_offset` in `to`, at least one of which is on a
    /// device. Others see it after a wait for the stream.
    ///
    /// # Errors
    /// INTERNAL, with the driver's error, or for a range out of bounds.
    pub fn copy(&self, to: &RegionRef, to_offset: usize, from: &Data, from_offset: usize, len: usize) -> Result<()> {
        let target = side_of_region(to, to_offset, len)?;
        let source = match from {
            Data::Region(region) => side_of_region(region, from_offset, len)?,
            Data::Bytes(bytes) => {
                let inside = from_offset.checked_add(len).and_then(|end| bytes.get(from_offset..end));
                Side::Host(inside.ok_or_else(|| outside(from_offset, len, bytes.len()))?.as_ptr().cast_mut())
            }
        };
        if len == 0 {
            return Ok(());
        }
        // SAFETY: both sides were checked and are kept. Host bytes are only read; those of regions may be written.
        unsafe { self.start(target, source, len, Box::new((to.clone(), from.clone()))) }
    }

    /// Starts a copy of device memory from `offset` on into all of `to`, which is returned after waiting.
    ///
    /// # Errors
    /// INTERNAL, with the driver's error, or for a range out of bounds.
    pub fn download<T>(&self, from: &RegionRef, offset: usize, to: T) -> Result<DeviceRead<T>>
    where
        T: DerefMut<Target = [u8]> + Send + 'static,
    {
        let mut buffer = Box::new(to);
        let bytes: &mut [u8] = &mut buffer;
        let (len, target) = (bytes.len(), Side::Host(bytes.as_mut_ptr()));
        let source = side_of_region(from, offset, len)?;
        let pending = DeviceRead { stream: self.clone(), buffer: Some(buffer) };
        if len > 0 {
            // SAFETY: `pending` owns the buffer, at an address that does not change, and no code reads it before the
            // stream was waited for; `from` is kept.
            unsafe { self.start(target, source, len, Box::new(from.clone()))? };
        }
        Ok(pending)
    }

    /// Waits for everything that was started in the stream, by any thread.
    ///
    /// # Errors
    /// INTERNAL, with the driver's error, also of earlier copies.
    pub fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }

    /// Starts a copy, and keeps `owner` until it is done.
    ///
    /// # Safety
    /// While `owner` lives, `len` bytes at `to` are writable, without references, and those at `from` readable.
    unsafe fn start(&self, to: Side, from: Side, len: usize, owner: Box<dyn Send>) -> Result<()> {
        let RawStream { driver, device, stream, .. } = &*self.0;
        if self.0.kept.lock().len() >= STARTED_MAX {
            self.synchronize()?;
        }
        enter(driver, *device, [to, from])?;
        // Locked while the copy is started, so that a waiter takes the copy and its owner together or not at all.
        let mut kept = self.0.kept.lock();
        let f = &driver.functions;
        let (function, started) = match (to, from) {
            (Side::Device(_, to), Side::Host(from)) => {
                // SAFETY: by contract.
                ("cuMemcpyHtoDAsync", f.start_in.map(|f| unsafe { f(to, from.cast(), len, stream.0) }))
            }
            (Side::Host(to), Side::Device(_, from)) => {
                // SAFETY: by contract.
                ("cuMemcpyDtoHAsync", f.start_out.map(|f| unsafe { f(to.cast(), from, len, stream.0) }))
            }
            (Side::Device(here, to), Side::Device(there, from)) if here == there => {
                // SAFETY: by contract.
                ("cuMemcpyDtoDAsync", f.start_within.map(|f| unsafe { f(to, from, len, stream.0) }))
            }
            (Side::Device(here, to), Side::Device(there, from)) => {
                let (here, there) = (driver.context(here)?, driver.context(there)?);
                // SAFETY: by contract; the contexts are never released.
                let started = f.start_between.map(|f| unsafe { f(to, here.0, from, there.0, len, stream.0) });
                ("cuMemcpyPeerAsync", started)
            }
            (Side::Host(_), Side::Host(_)) => return Err(Error::internal("a stream copies to or from a device")),
        };
        driver.check(function, started)?;
        kept.push(owner);
        Ok(())
    }
}

/// Makes the context of `device` current after creating those of both sides, because creating one may make it current.
fn enter(driver: &Driver, device: u32, sides: [Side; 2]) -> Result<()> {
    for side in sides {
        if let Side::Device(of, _) = side {
            driver.context(of)?;
        }
    }
    driver.enter(device)
}

impl RawStream {
    fn synchronize(&self) -> Result<()> {
        // Owners of copies that are started from now on are not dropped.
        let kept = std::mem::take(&mut *self.kept.lock());
        // SAFETY: the stream lives as long as `self`.
        let waited = unsafe { self.driver.wait_for_stream(self.device, self.stream.0) };
        if waited.is_err() {
            std::mem::forget(kept);
        }
        waited
    }
}

impl Drop for RawStream {
    fn drop(&mut self) {
        if let Err(e) = self.synchronize() {
            log::warn!("a stream of device {} ends with an error: {}", self.device, e.message());
        }
        // SAFETY: this is its last owner.
        if let Err(e) = unsafe { self.driver.end_stream(self.device, self.stream.0) } {
            log::warn!("{}", e.message());
        }
    }
}

/// A host buffer that a device is writing.
pub struct DeviceRead<T> {
    stream: Stream,
    buffer: Option<Box<T>>,
}

impl<T> DeviceRead<T> {
    /// Waits, and returns the written buffer.
    ///
    /// # Errors
    /// INTERNAL, with the driver's error. The buffer is leaked then, because the device may still write it.
    pub fn wait(mut self) -> Result<T> {
        match (self.stream.synchronize(), self.buffer.take()) {
            (Ok(()), Some(buffer)) => Ok(*buffer),
            (Err(e), buffer) => {
                std::mem::forget(buffer);
                Err(e)
            }
            (Ok(()), None) => Err(Error::internal("a buffer was taken before")),
        }
    }
}

impl<T> Drop for DeviceRead<T> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take()
            && self.stream.synchronize().is_err()
        {
            std::mem::forget(buffer);
        }
    }
}

fn side_of_region(region: &RegionRef, offset: usize, len: usize) -> Result<Side> {
    if offset.checked_add(len).is_none_or(|end| end > region.len()) {
        return Err(outside(offset, len, region.len()));
    }
    Ok(match region.base() {
        // SAFETY: in bounds, as checked, of memory that is one allocation by the trait's contract.
        Base::Host(first) => Side::Host(unsafe { first.add(offset) }),
        Base::Device(memory) => Side::Device(memory.device(), memory.address() + offset as u64),
    })
}

#[cold]
fn outside(offset: usize, len: usize, of: usize) -> Error {
    Error::internal(format!("a copy of {len} bytes at offset {offset} is not inside the {of} bytes"))
}
