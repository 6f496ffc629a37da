//! `TRITONSERVER_ResponseAllocator`: a library's own functions that make and free the buffers of responses.

#![allow(unsafe_code)] // pointers of a C API

use super::Err;
use super::attributes::BufferAttributes;
use super::error::ServerError;
use super::exports::{Out, exports, objects, plain};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use tensor::{Error, Result};

/// Memory type of buffers on a device, which this process cannot write.
const DEVICE: u32 = 2;

type Allocate = unsafe extern "C" fn(
    *const ResponseAllocator,
    *const c_char,
    usize,
    u32,
    i64,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
    *mut u32,
    *mut i64,
) -> Err;
type Describe = unsafe extern "C" fn(
    *const ResponseAllocator,
    *const c_char,
    *mut BufferAttributes,
    *mut c_void,
    *mut c_void,
) -> Err;
type Query =
    unsafe extern "C" fn(*const ResponseAllocator, *mut c_void, *const c_char, *mut usize, *mut u32, *mut i64) -> Err;
type Release = unsafe extern "C" fn(*const ResponseAllocator, *mut c_void, *mut c_void, usize, u32, i64) -> Err;
type Start = unsafe extern "C" fn(*const ResponseAllocator, *mut c_void) -> Err;

/// The functions of a library. It keeps the allocator until the last response is deleted.
pub(crate) struct ResponseAllocator {
    allocate: Allocate,
    release: Release,
    start: Option<Start>,
    describe: Option<Describe>,
    /// Never called: where an output should lie is asked in the process of the called model, which is another one.
    query: Option<Query>,
}

/// An allocator and what its library passes to it.
#[derive(Clone, Copy)]
pub(crate) struct Allocation {
    allocator: *const ResponseAllocator,
    userp: *mut c_void,
}

// SAFETY: the C API lets a server call an allocator on any thread.
unsafe impl Send for Allocation {}

impl Allocation {
    pub(crate) fn new(allocator: *const ResponseAllocator, userp: *mut c_void) -> Self {
        Self { allocator, userp }
    }

    /// The allocator's functions; `None` if there is no allocator.
    fn functions(&self) -> Option<&ResponseAllocator> {
        // SAFETY: the library keeps the allocator while responses need it.
        unsafe { self.allocator.as_ref() }
    }

    /// Says that a response begins.
    pub(crate) fn start(&self) -> Result<()> {
        let Some(start) = self.functions().and_then(|of| of.start) else { return Ok(()) };
        // SAFETY: the library's function, with its own pointers.
        unsafe { ServerError::take(start(self.allocator, self.userp)) }.map_or(Ok(()), Err)
    }

    /// A buffer for an output.
    ///
    /// # Errors
    /// The library's, or UNSUPPORTED for a buffer that lies on a device.
    pub(crate) fn allocate(&self, name: &CStr, bytes: usize) -> Result<ResponseBuffer> {
        let of = self.functions().ok_or_else(|| Error::invalid("response allocator was nullptr"))?;
        let (mut base, mut userp, mut memory_type, mut memory_type_id) = (null_mut(), null_mut(), 0, 0);
        // SAFETY: the library's function, with our own variables and its pointers.
        let error = unsafe {
            ServerError::take((of.allocate)(
                self.allocator,
                name.as_ptr(),
                bytes,
                0,
                0,
                self.userp,
                &raw mut base,
                &raw mut userp,
                &raw mut memory_type,
                &raw mut memory_type_id,
            ))
        };
        if let Some(error) = error {
            return Err(error);
        }
        let attributes = BufferAttributes { bytes, memory_type, memory_type_id, handle: None };
        let mut buffer = ResponseBuffer { of: *self, base, userp, attributes };
        if let Some(describe) = of.describe {
            let attributes = &raw mut buffer.attributes;
            // SAFETY: as above; the attributes are ours.
            let error = unsafe {
                ServerError::take(describe(self.allocator, name.as_ptr(), attributes, self.userp, buffer.userp))
            };
            if let Some(error) = error {
                return Err(error);
            }
            buffer.attributes = BufferAttributes { bytes, memory_type, memory_type_id, ..buffer.attributes.clone() };
        }
        if memory_type == DEVICE {
            let text = format!("the buffer for output '{}' lies on a device", name.to_string_lossy());
            return Err(Error::unsupported(text));
        }
        if base.is_null() && bytes > 0 {
            return Err(Error::internal(format!(
                "the allocator gave no buffer for output '{}'",
                name.to_string_lossy()
            )));
        }
        Ok(buffer)
    }
}

/// A buffer of an output. Freed by the library's function when it is dropped.
pub(crate) struct ResponseBuffer {
    of: Allocation,
    base: *mut c_void,
    userp: *mut c_void,
    pub(crate) attributes: BufferAttributes,
}

impl ResponseBuffer {
    pub(crate) fn base(&self) -> *mut c_void {
        self.base
    }

    pub(crate) fn userp(&self) -> *mut c_void {
        self.userp
    }

    /// Copies the bytes of an output into it.
    ///
    /// # Safety
    /// `from` has as many bytes as were allocated.
    pub(crate) unsafe fn fill(&mut self, from: *const u8) {
        if self.attributes.bytes > 0 {
            // SAFETY: the library gave a buffer of this length; the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from, self.base.cast::<u8>(), self.attributes.bytes) };
        }
    }
}

impl Drop for ResponseBuffer {
    fn drop(&mut self) {
        // Triton does not free what is null.
        let Some(of) = self.of.functions().filter(|_| !self.base.is_null()) else { return };
        let BufferAttributes { bytes, memory_type, memory_type_id, .. } = self.attributes;
        // SAFETY: the library's function, with what it gave.
        let error = unsafe {
            ServerError::take((of.release)(
                self.of.allocator,
                self.base,
                self.userp,
                bytes,
                memory_type,
                memory_type_id,
            ))
        };
        if let Some(error) = error {
            let text = format!("failed to release a buffer of a response: {}", error.message());
            super::log::send(frames::generated::LogLevel::Error, file!(), line!(), &text);
        }
    }
}

plain! {
    [] Option<Allocate>;
    [] Option<Describe>;
    [] Option<Query>;
    [] Option<Release>;
    [] Option<Start>;
}

objects! {
    ResponseAllocator: "response allocator";
}

exports! {
    /// A new allocator.
    fn TRITONSERVER_ResponseAllocatorNew(
        allocator: Out<*mut ResponseAllocator>,
        alloc_fn: Option<Allocate>,
        release_fn: Option<Release>,
        start_fn: Option<Start>,
    ) {
        let missing = |what| Error::invalid(format!("{what} function of a response allocator was nullptr"));
        let made = ResponseAllocator {
            allocate: alloc_fn.ok_or_else(|| missing("allocation"))?,
            release: release_fn.ok_or_else(|| missing("release"))?,
            start: start_fn,
            describe: None,
            query: None,
        };
        allocator.give(made);
    }

    /// Sets the function that describes buffers.
    fn TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(
        allocator: &mut ResponseAllocator,
        buffer_attributes_fn: Option<Describe>,
    ) {
        allocator.describe = buffer_attributes_fn;
    }

    /// Sets the function that says where an output should lie.
    fn TRITONSERVER_ResponseAllocatorSetQueryFunction(allocator: &mut ResponseAllocator, query_fn: Option<Query>) {
        allocator.query = query_fn;
    }

    /// Deletes an allocator.
    fn TRITONSERVER_ResponseAllocatorDelete(allocator: Option<Box<ResponseAllocator>>) {
        drop(allocator);
    }
}
