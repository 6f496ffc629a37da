//! `TRITONBACKEND_MemoryManager`: memory of the host. There is none of devices.

#![allow(unsafe_code)] // malloc and free

use super::exports::{Lent, Out, exports};
use std::ffi::c_void;
use tensor::Error;

/// The one memory manager; libraries only hold its address.
pub(crate) struct MemoryManager(#[allow(dead_code)] u8);

/// The memory manager of the process: only its address matters.
pub(crate) static MANAGER: MemoryManager = MemoryManager(0);

/// `TRITONSERVER_MEMORY_CPU`
pub(crate) const CPU: u32 = 0;
const CPU_PINNED: u32 = 1;
/// `TRITONSERVER_MEMORY_GPU`, which this process cannot read or write.
pub(crate) const DEVICE: u32 = 2;

fn check(memory_type: u32) -> tensor::Result<()> {
    match memory_type {
        CPU => Ok(()),
        CPU_PINNED => Err(Error::unsupported("Pinned memory allocation not supported")),
        _ => Err(Error::unsupported("GPU memory allocation not supported")),
    }
}

exports! {
    /// Memory aligned to 64 bytes, which the library frees with the function below.
    "attr" fn TRITONBACKEND_MemoryManagerAllocate(
        _manager: Lent<MemoryManager>,
        buffer: Out<*mut c_void>,
        memory_type: u32,
        _memory_type_id: i64,
        byte_size: u64,
    ) {
        check(memory_type)?;
        let bytes = usize::try_from(byte_size).unwrap_or(usize::MAX).max(1);
        let mut allocated = std::ptr::null_mut();
        // SAFETY: our own place for the address; the alignment is a power of two and a multiple of a pointer's size.
        let status = unsafe { libc::posix_memalign(&raw mut allocated, 64, bytes) };
        if status != 0 {
            return Err(Error::unavailable("CPU memory allocation failed"));
        }
        buffer.put(allocated);
    }

    "attr" fn TRITONBACKEND_MemoryManagerFree(
        _manager: Lent<MemoryManager>,
        buffer: *mut c_void,
        memory_type: u32,
        _memory_type_id: i64,
    ) {
        check(memory_type)?;
        // SAFETY: null, or allocated by the function above; the library gives it up, as with `Box` in the table.
        unsafe { libc::free(buffer) };
    }
}
