//! `TRITONSERVER_BufferAttributes`: where a buffer lies and how long it is.

#![allow(unsafe_code)] // pointers of a C API

use super::exports::{Out, exports, objects};
use std::ffi::c_void;
use std::ptr::null_mut;

/// Bytes of a handle of CUDA IPC.
const HANDLE_BYTES: usize = 64;

/// Attributes of a buffer. New ones say 0 bytes on the CPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct BufferAttributes {
    pub(crate) bytes: usize,
    /// `TRITONSERVER_MemoryType`.
    pub(crate) memory_type: u32,
    pub(crate) memory_type_id: i64,
    /// Copy of a handle of CUDA IPC.
    pub(crate) handle: Option<Box<[u8; HANDLE_BYTES]>>,
}

impl BufferAttributes {
    /// Attributes of a buffer on the CPU.
    pub(crate) fn cpu(bytes: usize) -> Self {
        Self { bytes, ..Self::default() }
    }
}

objects! {
    BufferAttributes: "buffer attributes";
}

exports! {
    /// New attributes.
    fn TRITONSERVER_BufferAttributesNew(attributes: Out<*mut BufferAttributes>) {
        attributes.give(BufferAttributes::default());
    }

    /// Deletes attributes.
    fn TRITONSERVER_BufferAttributesDelete(attributes: Option<Box<BufferAttributes>>) {
        drop(attributes);
    }

    /// Sets the device.
    fn TRITONSERVER_BufferAttributesSetMemoryTypeId(attributes: &mut BufferAttributes, value: i64) {
        attributes.memory_type_id = value;
    }

    /// Gives the device.
    fn TRITONSERVER_BufferAttributesMemoryTypeId(attributes: &BufferAttributes, value: Out<i64>) {
        value.put(attributes.memory_type_id);
    }

    /// Sets the type of memory.
    fn TRITONSERVER_BufferAttributesSetMemoryType(attributes: &mut BufferAttributes, value: u32) {
        attributes.memory_type = value;
    }

    /// Gives the type of memory.
    fn TRITONSERVER_BufferAttributesMemoryType(attributes: &BufferAttributes, value: Out<u32>) {
        value.put(attributes.memory_type);
    }

    /// Sets the length in bytes.
    fn TRITONSERVER_BufferAttributesSetByteSize(attributes: &mut BufferAttributes, value: usize) {
        attributes.bytes = value;
    }

    /// Gives the length in bytes.
    fn TRITONSERVER_BufferAttributesByteSize(attributes: &BufferAttributes, value: Out<usize>) {
        value.put(attributes.bytes);
    }

    /// Sets a copy of a handle of CUDA IPC.
    fn TRITONSERVER_BufferAttributesSetCudaIpcHandle(attributes: &mut BufferAttributes, handle: *mut c_void) {
        // SAFETY: the caller promises a handle, which has this length.
        attributes.handle = unsafe { handle.cast::<[u8; HANDLE_BYTES]>().as_ref() }.map(|handle| Box::new(*handle));
    }

    /// Gives the handle of CUDA IPC, which the attributes own; null if there is none.
    fn TRITONSERVER_BufferAttributesCudaIpcHandle(attributes: &mut BufferAttributes, handle: Out<*mut c_void>) {
        let found = attributes.handle.as_mut().map_or(null_mut(), |handle| handle.as_mut_ptr());
        handle.put(found.cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_set_and_given_and_a_handle_is_copied() {
        let (mut made, mut memory, mut device, mut bytes) = (null_mut(), 77, 77, 77);
        let (mut handle, mut found) = ([7u8; HANDLE_BYTES], null_mut());
        // SAFETY: our own variables, and attributes that live.
        unsafe {
            assert!(TRITONSERVER_BufferAttributesNew(&raw mut made).is_null());
            assert_eq!(*made, BufferAttributes::cpu(0));
            assert!(TRITONSERVER_BufferAttributesCudaIpcHandle(made, &raw mut found).is_null());
            assert!(found.is_null());
            TRITONSERVER_BufferAttributesSetMemoryType(made, 2);
            TRITONSERVER_BufferAttributesSetMemoryTypeId(made, 3);
            TRITONSERVER_BufferAttributesSetByteSize(made, 99);
            TRITONSERVER_BufferAttributesSetCudaIpcHandle(made, handle.as_mut_ptr().cast());
            TRITONSERVER_BufferAttributesMemoryType(made, &raw mut memory);
            TRITONSERVER_BufferAttributesMemoryTypeId(made, &raw mut device);
            TRITONSERVER_BufferAttributesByteSize(made, &raw mut bytes);
            TRITONSERVER_BufferAttributesCudaIpcHandle(made, &raw mut found);
            assert_eq!((memory, device, bytes), (2, 3, 99));
            assert_ne!(found, handle.as_mut_ptr().cast());
            assert_eq!(*found.cast::<[u8; HANDLE_BYTES]>(), handle);
            assert!(TRITONSERVER_BufferAttributesDelete(made).is_null());
            assert!(!TRITONSERVER_BufferAttributesSetByteSize(null_mut(), 1).is_null());
        }
    }
}
