//! `TRITONSERVER_ResponseAllocator`: a library's own functions that make and free the buffers of responses.

#![allow(unsafe_code)] // buffers of a library

use super::attributes::BufferAttributes;
use super::exports::{Out, exports, objects, plain};
use super::memory::DEVICE;
use crate::library::{Address, Start, functions};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use tensor::{Error, Result};

functions! {
    /// The functions of a library. It keeps the allocator until the last response is deleted.
    struct ResponseAllocator {
        Allocate allocate(
            allocator: *const ResponseAllocator,
            name: Start<'_, c_char>,
            bytes: usize,
            wanted_type: u32,
            wanted_type_id: i64,
            userp: *mut c_void,
            buffer: &mut *mut c_void,
            buffer_userp: &mut *mut c_void,
            memory_type: &mut u32,
            memory_type_id: &mut i64,
        );
        Release release(
            allocator: *const ResponseAllocator,
            buffer: *mut c_void,
            buffer_userp: *mut c_void,
            bytes: usize,
            memory_type: u32,
            memory_type_id: i64,
        );
        Begin start(allocator: *const ResponseAllocator, userp: *mut c_void);
        Describe describe(
            allocator: *const ResponseAllocator,
            name: Start<'_, c_char>,
            attributes: &mut BufferAttributes,
            userp: *mut c_void,
            buffer_userp: *mut c_void,
        );
    }
}

/// Where an output should lie is asked in the process of the called model, which is another one: never called.
type Query = unsafe extern "C" fn(
    *const ResponseAllocator,
    *mut c_void,
    *const c_char,
    *mut usize,
    *mut u32,
    *mut i64,
) -> super::Err;

/// An allocator and what its library passes to it.
#[derive(Clone, Copy)]
pub(crate) struct Allocation {
    allocator: Address<ResponseAllocator>,
    userp: Address<c_void>,
}

impl Allocation {
    pub(crate) fn new(allocator: *const ResponseAllocator, userp: *mut c_void) -> Self {
        Self { allocator: Address(allocator.cast_mut()), userp: Address(userp) }
    }

    /// The allocator's functions; `None` if there is no allocator.
    fn functions(&self) -> Option<ResponseAllocator> {
        // SAFETY: null, or an object that the library keeps while responses need it.
        unsafe { self.allocator.0.as_ref() }.copied()
    }

    /// Says that a response begins.
    pub(crate) fn start(&self) -> Result<()> {
        self.functions().map_or(Ok(()), |of| of.start(self.allocator.0, self.userp.0))
    }

    /// A buffer for an output.
    ///
    /// # Errors
    /// UNSUPPORTED for a buffer on a device, and the error that the library returned.
    pub(crate) fn allocate(&self, name: &CStr, bytes: usize) -> Result<ResponseBuffer> {
        let of = self.functions().ok_or_else(|| Error::invalid("response allocator was nullptr"))?;
        let (mut base, mut buffer_userp, mut kind, mut id) = (null_mut(), null_mut(), 0, 0);
        let Self { allocator: Address(allocator), userp: Address(userp) } = *self;
        of.allocate(allocator, name.into(), bytes, 0, 0, userp, &mut base, &mut buffer_userp, &mut kind, &mut id)?;
        let attributes = BufferAttributes { bytes, memory_type: kind, memory_type_id: id, handle: None };
        let mut buffer = ResponseBuffer { of: *self, base, userp: buffer_userp, attributes };
        of.describe(allocator, name.into(), &mut buffer.attributes, userp, buffer_userp)?;
        let handle = buffer.attributes.handle.take();
        buffer.attributes = BufferAttributes { bytes, memory_type: kind, memory_type_id: id, handle };
        let name = name.to_string_lossy();
        if kind == DEVICE {
            return Err(Error::unsupported(format!("the buffer for output '{name}' is on a device")));
        }
        if base.is_null() && bytes > 0 {
            return Err(Error::internal(format!("the allocator returned no buffer for output '{name}'")));
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

    /// Copies the bytes of an output into it, as many as it has room for.
    pub(crate) fn fill(&mut self, from: &[u8]) {
        let bytes = from.len().min(self.attributes.bytes);
        if bytes > 0 {
            // SAFETY: `allocate` has checked that the library gave a buffer of `attributes.bytes` bytes.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.base.cast::<u8>(), bytes) };
        }
    }
}

impl Drop for ResponseBuffer {
    fn drop(&mut self) {
        // Triton does not free what is null.
        let Some(of) = self.of.functions().filter(|_| !self.base.is_null()) else { return };
        let BufferAttributes { bytes, memory_type, memory_type_id, .. } = self.attributes;
        let allocator = self.of.allocator.0;
        if let Err(error) = of.release(allocator, self.base, self.userp, bytes, memory_type, memory_type_id) {
            super::log::error(&format!("failed to release a buffer of a response: {}", error.message()));
        }
    }
}

plain! {
    [] Option<Allocate>;
    [] Option<Describe>;
    [] Option<Query>;
    [] Option<Release>;
    [] Option<Begin>;
}

objects! {
    ResponseAllocator: "response allocator";
}

exports! {
    "bls" fn TRITONSERVER_ResponseAllocatorNew(
        allocator: Out<*mut ResponseAllocator>,
        alloc_fn: Option<Allocate>,
        release_fn: Option<Release>,
        start_fn: Option<Begin>,
    ) {
        for (what, is_missing) in [("allocation", alloc_fn.is_none()), ("release", release_fn.is_none())] {
            if is_missing {
                return Err(Error::invalid(format!("{what} function of a response allocator was nullptr")));
            }
        }
        allocator.give(ResponseAllocator { allocate: alloc_fn, release: release_fn, start: start_fn, describe: None });
    }

    "rust" fn TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(
        allocator: &mut ResponseAllocator,
        buffer_attributes_fn: Option<Describe>,
    ) => allocator.describe = buffer_attributes_fn;

    /// Accepts the function that says where an output should lie.
    "bls" fn TRITONSERVER_ResponseAllocatorSetQueryFunction(
        _allocator: &mut ResponseAllocator,
        _query_fn: Option<Query>,
    ) {}

    "bls" delete TRITONSERVER_ResponseAllocatorDelete(ResponseAllocator);
}
