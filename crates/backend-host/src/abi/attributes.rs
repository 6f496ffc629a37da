//! `TRITONSERVER_BufferAttributes`: where a buffer lies and how long it is.

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
    [u8; HANDLE_BYTES]: "handle";
}

exports! {
    "attr" fn TRITONSERVER_BufferAttributesNew(attributes: Out<*mut BufferAttributes>) =>
        attributes.give(BufferAttributes::default());

    "attr" delete TRITONSERVER_BufferAttributesDelete(BufferAttributes);

    "attr" fn TRITONSERVER_BufferAttributesSetMemoryTypeId(attributes: &mut BufferAttributes, value: i64) =>
        attributes.memory_type_id = value;
    "attr" get TRITONSERVER_BufferAttributesMemoryTypeId(of: &BufferAttributes) -> i64 = of.memory_type_id;

    "attr" fn TRITONSERVER_BufferAttributesSetMemoryType(attributes: &mut BufferAttributes, value: u32) =>
        attributes.memory_type = value;
    "attr" get TRITONSERVER_BufferAttributesMemoryType(of: &BufferAttributes) -> u32 = of.memory_type;

    "attr" fn TRITONSERVER_BufferAttributesSetByteSize(attributes: &mut BufferAttributes, value: usize) =>
        attributes.bytes = value;
    "attr" get TRITONSERVER_BufferAttributesByteSize(of: &BufferAttributes) -> usize = of.bytes;

    /// Keeps a copy of the handle.
    "attr" fn TRITONSERVER_BufferAttributesSetCudaIpcHandle(
        attributes: &mut BufferAttributes,
        handle: Option<&[u8; HANDLE_BYTES]>,
    ) => attributes.handle = handle.map(|handle| Box::new(*handle));
    "attr" get TRITONSERVER_BufferAttributesCudaIpcHandle(of: &mut BufferAttributes) -> *mut c_void =
        of.handle.as_mut().map_or(null_mut(), |handle| handle.as_mut_ptr().cast());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::exports::library::{at, nothing, pass, to};

    #[test]
    fn attributes_are_set_and_given_and_a_handle_is_copied() {
        let (mut made, mut memory, mut device, mut bytes) = (null_mut(), 77, 77, 77);
        let (mut handle, mut found) = ([7u8; HANDLE_BYTES], null_mut());
        assert!(TRITONSERVER_BufferAttributesNew(to(&mut made)).is_null());
        assert_eq!(*at(made), BufferAttributes::cpu(0));
        assert!(TRITONSERVER_BufferAttributesCudaIpcHandle(pass(made), to(&mut found)).is_null());
        assert!(found.is_null());
        TRITONSERVER_BufferAttributesSetMemoryType(pass(made), 2);
        TRITONSERVER_BufferAttributesSetMemoryTypeId(pass(made), 3);
        TRITONSERVER_BufferAttributesSetByteSize(pass(made), 99);
        TRITONSERVER_BufferAttributesSetCudaIpcHandle(pass(made), to(&mut handle));
        TRITONSERVER_BufferAttributesMemoryType(pass(made), to(&mut memory));
        TRITONSERVER_BufferAttributesMemoryTypeId(pass(made), to(&mut device));
        TRITONSERVER_BufferAttributesByteSize(pass(made), to(&mut bytes));
        TRITONSERVER_BufferAttributesCudaIpcHandle(pass(made), to(&mut found));
        assert_eq!((memory, device, bytes), (2, 3, 99));
        assert_ne!(found, handle.as_mut_ptr().cast());
        assert_eq!(*at(found.cast::<[u8; HANDLE_BYTES]>()), handle);
        assert!(TRITONSERVER_BufferAttributesDelete(pass(made)).is_null());
        assert!(!TRITONSERVER_BufferAttributesSetByteSize(nothing(), 1).is_null());
    }
}
