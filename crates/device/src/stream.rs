//! Streams of a device: copies that are started and waited for later, and events that mark how far a stream has come.
//!
//! A driver that lacks a function for that costs only time: the copy is then made before the call returns.
//!
//! Invariant: what a copy reads or writes is kept until the stream was waited for after it. Where waiting fails, nobody knows what the
//! device still does, and what it may touch is never given back.

#![allow(unsafe_code)] // vouches for the addresses of copies

use crate::driver::{Address, Driver, Thing, driver};
use parking_lot::Mutex;
use std::ops::DerefMut;
use std::sync::Arc;
use tensor::{Base, Data, Error, RegionRef, Result};

/// Copies that are not waited for; the next one waits for them all.
const STARTED_MAX: usize = 1024;

/// Copies of one device that are made one after the other. Clones are the same stream. Any thread may use it.
#[derive(Clone)]
pub struct Stream(Arc<Inner>);

struct Inner {
    driver: &'static Driver,
    device: u32,
    /// `None` where the driver has no streams: everything is made at once.
    stream: Option<Handle>,
    /// Owners of what copies touch that were started and not waited for.
    kept: Mutex<Vec<Box<dyn Send>>>,
}

#[derive(Clone, Copy)]
struct Handle(Thing);

// SAFETY: the library allows any thread to use a stream or an event; the pointer is only handed back to it.
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
    /// A stream of `device`, an ordinal of this process. Lower numbers of `priority` go first; 0 is the usual one.
    ///
    /// # Errors
    /// UNAVAILABLE without a GPU; INTERNAL with what the driver said.
    pub fn new(device: u32, priority: i32) -> Result<Self> {
        let driver = driver().map_err(|why| Error::unavailable(format!("no GPU: {why}")))?;
        let stream = driver.make_stream(device, priority)?.map(Handle);
        Ok(Self(Arc::new(Inner { driver, device, stream, kept: Mutex::default() })))
    }

    /// Ordinal of its device.
    pub fn device(&self) -> u32 {
        self.0.device
    }

    /// The `CUstream`, for libraries that work in it; null, which is the stream without a name, where the driver has no others. Valid
    /// as long as this value or a clone of it lives.
    pub fn as_raw(&self) -> *mut std::ffi::c_void {
        self.0.stream.map_or(std::ptr::null_mut(), |stream| stream.0)
    }

    /// Starts a copy of `len` bytes of `from`, from `from_offset` on, to the bytes of `to` from `to_offset` on. At least one of them is
    /// on a device. Others see it when the stream was waited for.
    ///
    /// # Errors
    /// INTERNAL, with what the driver said, or for a range that does not lie inside.
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
        // SAFETY: both sides were checked; `from` and `to` are kept. Bytes of the host are only read, those of regions may be written.
        unsafe { self.start(target, source, len, Box::new((to.clone(), from.clone()))) }
    }

    /// Starts a copy of memory of a device, from `offset` on, into all of `to`, which comes back when it was waited for.
    ///
    /// # Errors
    /// As `copy`.
    pub fn download<T>(&self, from: &RegionRef, offset: usize, to: T) -> Result<Pending<T>>
    where
        T: DerefMut<Target = [u8]> + Send + 'static,
    {
        let mut buffer = Box::new(to);
        let bytes: &mut [u8] = &mut buffer;
        let (len, target) = (bytes.len(), Side::Host(bytes.as_mut_ptr()));
        let source = side_of_region(from, offset, len)?;
        let pending = Pending { stream: self.clone(), buffer: Some(buffer) };
        if len > 0 {
            // SAFETY: the buffer is owned by `pending`, behind a pointer that does not move, and nobody looks at it before the stream was
            // waited for; `from` is kept.
            unsafe { self.start(target, source, len, Box::new(from.clone()))? };
        }
        Ok(pending)
    }

    /// Returns when everything that was started in the stream, by whom so ever, is done.
    ///
    /// # Errors
    /// INTERNAL, with what the driver said: also of copies that were started before.
    pub fn synchronize(&self) -> Result<()> {
        self.0.synchronize()
    }

    /// Marks what was started so far.
    ///
    /// # Errors
    /// INTERNAL, with what the driver said.
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

    /// Has what is started from now on wait for the event, of whatever stream.
    ///
    /// # Errors
    /// INTERNAL, with what the driver said.
    pub fn after(&self, event: &Event) -> Result<()> {
        if let (Some(stream), Some(of)) = (self.0.stream, event.event) {
            // SAFETY: both live.
            if unsafe { self.0.driver.let_stream_wait(self.0.device, stream.0, of.0)? } {
                return Ok(());
            }
        }
        event.wait()
    }

    /// Starts a copy, or makes it where it cannot be started, and keeps `owner` until it is done.
    ///
    /// # Safety
    /// `len` bytes at `to` are writable and at `from` readable for as long as `owner` lives, and nobody has a reference into `to`.
    unsafe fn start(&self, to: Side, from: Side, len: usize, owner: Box<dyn Send>) -> Result<()> {
        let Inner { driver, device, stream, .. } = &*self.0;
        if self.0.kept.lock().len() >= STARTED_MAX {
            self.synchronize()?;
        }
        enter(driver, *device, [to, from])?;
        // Held while the copy is started: who waits takes either none of both or both.
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

/// Makes the context of `device` the current one, those of both sides being there: making one may make it current.
fn enter(driver: &Driver, device: u32, sides: [Side; 2]) -> Result<()> {
    for side in sides {
        if let Side::Device(of, _) = side {
            driver.context(of)?;
        }
    }
    driver.enter(device)
}

/// Makes a copy; it is done when this returns.
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
    // Of pageable memory, and between devices, the last part may still be on its way.
    // SAFETY: no arguments.
    driver.check("cuCtxSynchronize", f.synchronize.map(|f| unsafe { f() }))
}

impl Inner {
    fn synchronize(&self) -> Result<()> {
        let Some(stream) = self.stream else { return Ok(()) };
        // Those of copies that are started from now on are not waited for, and not dropped.
        let kept = std::mem::take(&mut *self.kept.lock());
        // SAFETY: the stream lives as long as `self`.
        let waited = unsafe { self.driver.wait_for_stream(self.device, stream.0) };
        if waited.is_err() {
            std::mem::forget(kept);
        }
        waited
    }
}

impl Drop for Inner {
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

/// How far a stream had come.
pub struct Event {
    driver: &'static Driver,
    device: u32,
    /// `None` where it had happened before this was made.
    event: Option<Handle>,
}

impl Event {
    /// Returns when it has happened. What copies of the stream touch is still kept until the stream itself is waited for.
    ///
    /// # Errors
    /// INTERNAL, with what the driver said: also of what was started before.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the event lives as long as `self`.
        self.event.map_or(Ok(()), |event| unsafe { self.driver.wait_for_event(self.device, event.0) })
    }

    /// Whether it has happened.
    ///
    /// # Errors
    /// As `wait`.
    pub fn is_over(&self) -> Result<bool> {
        // SAFETY: as in `wait`.
        self.event.map_or(Ok(true), |event| unsafe { self.driver.is_over(self.device, event.0) })
    }

    /// The `CUevent`; null where it had happened before this was made.
    pub fn as_raw(&self) -> *mut std::ffi::c_void {
        self.event.map_or(std::ptr::null_mut(), |event| event.0)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Some(event) = self.event else { return };
        // SAFETY: this is its owner. The library keeps what streams still wait for.
        if let Err(e) = unsafe { self.driver.end_event(self.device, event.0) } {
            log::warn!("{}", e.message());
        }
    }
}

/// A buffer of the host that a device writes.
pub struct Pending<T> {
    stream: Stream,
    buffer: Option<Box<T>>,
}

impl<T> Pending<T> {
    /// The buffer, written.
    ///
    /// # Errors
    /// INTERNAL, with what the driver said. The buffer is lost then: nobody knows whether the device still writes it.
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

impl<T> Drop for Pending<T> {
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
        // SAFETY: inside, as was just checked, of memory that is one allocation by the trait's contract.
        Base::Host(first) => Side::Host(unsafe { first.add(offset) }),
        Base::Device(memory) => Side::Device(memory.device(), memory.address() + offset as u64),
    })
}

#[cold]
fn outside(offset: usize, len: usize, of: usize) -> Error {
    Error::internal(format!("a copy of {len} bytes at offset {offset} does not lie inside {of} bytes"))
}
