//! Streams of a device: copies that run asynchronously, and events that mark positions in a stream.
//!
//! If the driver lacks a function for this, copies are made synchronously, which costs only time.
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
    /// `None` if the driver has no streams and all copies are synchronous.
    stream: Option<Handle>,
    /// Owners of the memory of copies in progress.
    kept: Mutex<Vec<Box<dyn Send>>>,
}

#[derive(Clone, Copy)]
struct Handle(Thing);

// SAFETY: any thread may use a stream or an event; the pointer is only passed back to the library.
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
        let stream = driver.make_stream(device, priority)?.map(Handle);
        Ok(Self(Arc::new(RawStream { driver, device, stream, kept: Mutex::default() })))
    }

    /// Ordinal of its device.
    pub fn device(&self) -> u32 {
        self.0.device
    }

    /// The `CUstream`, or null for the default stream; for other libraries. Valid as long as a clone of this lives.
    pub fn as_raw(&self) -> *mut std::ffi::c_void {
        self.0.stream.map_or(std::ptr::null_mut(), |stream| stream.0)
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
    /// As `copy`.
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

    /// Records an event after everything that was started so far.
    ///
    /// # Errors
    /// INTERNAL, with the driver's error.
    pub fn record(&self) -> Result<Event> {
        let inner = &self.0;
        let recorded = match inner.stream {
            // SAFETY: the stream lives as long as `inner`.
            Some(stream) => unsafe { inner.driver.record(inner.device, stream.0)? },
            None => None,
        };
        if recorded.is_none() {
            self.synchronize()?;
        }
        Ok(Event { driver: inner.driver, device: inner.device, event: recorded.map(Handle) })
    }

    /// Makes later work of this stream wait for an event of any stream.
    ///
    /// # Errors
    /// INTERNAL, with the driver's error.
    pub fn after(&self, event: &Event) -> Result<()> {
        if let (Some(stream), Some(of)) = (self.0.stream, event.event) {
            // SAFETY: both live.
            if unsafe { self.0.driver.let_stream_wait(self.0.device, stream.0, of.0)? } {
                return Ok(());
            }
        }
        event.wait()
    }

    /// Starts a copy, or makes it synchronously if that is impossible, and keeps `owner` until it is done.
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
        let started = match (stream, to, from) {
            (Some(s), Side::Device(_, to), Side::Host(from)) => {
                // SAFETY: by contract.
                f.start_in.map(|f| ("cuMemcpyHtoDAsync", unsafe { f(to, from.cast(), len, s.0) }))
            }
            (Some(s), Side::Host(to), Side::Device(_, from)) => {
                // SAFETY: by contract.
                f.start_out.map(|f| ("cuMemcpyDtoHAsync", unsafe { f(to.cast(), from, len, s.0) }))
            }
            (Some(s), Side::Device(here, to), Side::Device(there, from)) if here == there => {
                // SAFETY: by contract.
                f.start_within.map(|f| ("cuMemcpyDtoDAsync", unsafe { f(to, from, len, s.0) }))
            }
            (Some(s), Side::Device(here, to), Side::Device(there, from)) => {
                let (here, there) = (driver.context(here)?, driver.context(there)?);
                // SAFETY: by contract; the contexts are never released.
                f.start_between.map(|f| ("cuMemcpyPeerAsync", unsafe { f(to, here.0, from, there.0, len, s.0) }))
            }
            _ => None,
        };
        if let Some((function, code)) = started {
            driver.check(function, Some(code))?;
            kept.push(owner);
            return Ok(());
        }
        drop(kept);
        self.synchronize()?;
        // SAFETY: by contract; `owner` lives until this returns.
        unsafe { copy_now(driver, *device, to, from, len) }
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

/// Makes a copy synchronously.
///
/// # Safety
/// As `Stream::start`.
unsafe fn copy_now(driver: &Driver, device: u32, to: Side, from: Side, len: usize) -> Result<()> {
    enter(driver, device, [to, from])?;
    let f = &driver.functions;
    let (function, made) = match (to, from) {
        (Side::Device(_, to), Side::Host(from)) => {
            // SAFETY: by contract.
            ("cuMemcpyHtoD", f.copy_from_host.map(|f| unsafe { f(to, from.cast(), len) }))
        }
        (Side::Host(to), Side::Device(_, from)) => {
            // SAFETY: as above.
            ("cuMemcpyDtoH", f.copy_to_host.map(|f| unsafe { f(to.cast(), from, len) }))
        }
        (Side::Device(here, to), Side::Device(there, from)) if here == there => {
            // SAFETY: as above.
            ("cuMemcpyDtoD", f.copy_within.map(|f| unsafe { f(to, from, len) }))
        }
        (Side::Device(here, to), Side::Device(there, from)) => {
            let (here, there) = (driver.context(here)?, driver.context(there)?);
            // SAFETY: as above; the contexts are never released.
            ("cuMemcpyPeer", f.copy_between.map(|f| unsafe { f(to, here.0, from, there.0, len) }))
        }
        (Side::Host(_), Side::Host(_)) => return Err(Error::internal("a stream copies to or from a device")),
    };
    driver.check(function, made)?;
    // For pageable memory and between devices, the last part may still be in transfer.
    // SAFETY: no arguments.
    driver.check("cuCtxSynchronize", f.synchronize.map(|f| unsafe { f() }))
}

impl RawStream {
    fn synchronize(&self) -> Result<()> {
        let Some(stream) = self.stream else { return Ok(()) };
        // Owners of copies that are started from now on are not dropped.
        let kept = std::mem::take(&mut *self.kept.lock());
        // SAFETY: the stream lives as long as `self`.
        let waited = unsafe { self.driver.wait_for_stream(self.device, stream.0) };
        if waited.is_err() {
            std::mem::forget(kept);
        }
        waited
    }
}

impl Drop for RawStream {
    fn drop(&mut self) {
        let Some(stream) = self.stream else { return };
        if let Err(e) = self.synchronize() {
            log::warn!("a stream of device {} ends with an error: {}", self.device, e.message());
        }
        // SAFETY: this is its last owner.
        if let Err(e) = unsafe { self.driver.end_stream(self.device, stream.0) } {
            log::warn!("{}", e.message());
        }
    }
}

/// A position in a stream.
pub struct Event {
    driver: &'static Driver,
    device: u32,
    /// `None` if it had been reached when this was made.
    event: Option<Handle>,
}

impl Event {
    /// Waits until the position is reached. Memory of copies is still kept until the stream itself is waited for.
    ///
    /// # Errors
    /// INTERNAL, with the driver's error, also of earlier work.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the event lives as long as `self`.
        self.event.map_or(Ok(()), |event| unsafe { self.driver.wait_for_event(self.device, event.0) })
    }

    /// Whether the position was reached.
    ///
    /// # Errors
    /// As `wait`.
    pub fn is_over(&self) -> Result<bool> {
        // SAFETY: as in `wait`.
        self.event.map_or(Ok(true), |event| unsafe { self.driver.is_over(self.device, event.0) })
    }

    /// The `CUevent`; null if the position had been reached when this was made.
    pub fn as_raw(&self) -> *mut std::ffi::c_void {
        self.event.map_or(std::ptr::null_mut(), |event| event.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Some(event) = self.event else { return };
        // SAFETY: this is its owner. The library keeps events that streams still wait for.
        if let Err(e) = unsafe { self.driver.end_event(self.device, event.0) } {
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
