//! `TRITONBACKEND_Input`.

#![allow(unsafe_code)] // pointers of a C API

use super::attributes::BufferAttributes;
use super::exports::{Out, exports, objects};
use super::instance::Instance;
use super::memory::CPU;
use super::{Err, c_text};
use crate::bytes::AlignedBytes;
use crate::segments::View;
use frames::{Contents, TensorRef};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null;
use tensor::{Error, Result};

/// An input of a request.
pub(crate) struct Input {
    name: CString,
    datatype: u32,
    shape: Vec<i64>,
    data: Bytes,
    attributes: BufferAttributes,
}

/// The bytes of an input.
enum Bytes {
    Inline(AlignedBytes),
    Block(View),
    /// So many, which the server did not send: a batching library sees the size of a large input.
    Withheld(u64),
}

impl Bytes {
    /// The buffer of an index; `None` beyond the last.
    fn buffer(&self, index: u32) -> Result<Option<*const u8>> {
        match self {
            _ if index > 0 || self.len() == 0 => Ok(None),
            Self::Inline(bytes) => Ok(Some(bytes.pointer())),
            Self::Block(view) => Ok(Some(view.pointer())),
            Self::Withheld(bytes) => Err(Error::unsupported(format!(
                "a batching library sees the contents of inputs of numbers up to 4096 bytes, and this one has {bytes}"
            ))),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Block(view) => view.bytes(),
            Self::Withheld(bytes) => *bytes,
        }
    }
}

impl Input {
    /// # Errors
    /// If the server sent what it must not.
    pub(crate) fn new(instance: &Instance, tensor: &TensorRef<'_>) -> Result<Self> {
        let mut shape = tensor.shape.to_vec();
        let data = match tensor.contents {
            Contents::Inline([]) if instance.model.backend.library.execute.is_none() => {
                // Stands for the contents.
                shape.pop();
                let elements = tensor::element_count(&shape).unwrap_or(0).unsigned_abs();
                Bytes::Withheld(elements.saturating_mul(tensor.datatype.byte_size().unwrap_or(0) as u64))
            }
            Contents::Inline(bytes) => Bytes::Inline(AlignedBytes::of(bytes)),
            Contents::Block(block) => Bytes::Block(instance.link.segments.read(&block)?),
            Contents::Device(_) => return Err(Error::unsupported("an input lies on a device")),
        };
        Ok(Self {
            name: c_text(tensor.name),
            datatype: tensor.datatype as u32,
            shape,
            attributes: BufferAttributes::cpu(data.len() as usize),
            data,
        })
    }

    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    /// A copy of the bytes.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        match &self.data {
            Bytes::Inline(bytes) => {
                let mut copy = Vec::with_capacity(bytes.len());
                bytes.write(&mut copy);
                copy
            }
            Bytes::Block(view) => view.to_vec(),
            Bytes::Withheld(_) => Vec::new(),
        }
    }
}

objects! {
    Input: "input";
}

exports! {
    /// The properties of an input, which owns the texts and the shape.
    fn TRITONBACKEND_InputProperties(
        input: &Input,
        name: Out<*const c_char>,
        datatype: Out<u32>,
        shape: Out<*const i64>,
        dims_count: Out<u32>,
        byte_size: Out<u64>,
        buffer_count: Out<u32>,
    ) {
        name.put(input.name.as_ptr());
        datatype.put(input.datatype);
        shape.put(input.shape.as_ptr());
        dims_count.put(input.shape.len() as u32);
        byte_size.put(input.data.len());
        buffer_count.put(u32::from(input.data.len() > 0));
    }
}

/// The same as `TRITONBACKEND_InputProperties`: there is one set of buffers.
///
/// # Safety
/// The same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputPropertiesForHostPolicy(
    input: *const Input,
    _host_policy_name: *const c_char,
    name: *mut *const c_char,
    datatype: *mut u32,
    shape: *mut *const i64,
    dims_count: *mut u32,
    byte_size: *mut u64,
    buffer_count: *mut u32,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { TRITONBACKEND_InputProperties(input, name, datatype, shape, dims_count, byte_size, buffer_count) }
}

exports! {
    /// A buffer of an input. Beyond the last: null and no error, as in Triton.
    fn TRITONBACKEND_InputBuffer(
        input: &Input,
        index: u32,
        buffer: Out<*const c_void>,
        buffer_byte_size: Out<u64>,
        memory_type: Out<u32>,
        memory_type_id: Out<i64>,
    ) {
        let found = input.data.buffer(index)?;
        buffer.put(found.map_or(null(), <*const u8>::cast));
        buffer_byte_size.put(found.map_or(0, |_| input.data.len()));
        memory_type.put(CPU);
        memory_type_id.put(0);
    }
}

/// The same as `TRITONBACKEND_InputBuffer`: there is one set of buffers.
///
/// # Safety
/// The same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InputBufferForHostPolicy(
    input: *const Input,
    _host_policy_name: *const c_char,
    index: u32,
    buffer: *mut *const c_void,
    buffer_byte_size: *mut u64,
    memory_type: *mut u32,
    memory_type_id: *mut i64,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { TRITONBACKEND_InputBuffer(input, index, buffer, buffer_byte_size, memory_type, memory_type_id) }
}

exports! {
    /// A buffer of an input and its attributes, which the input owns. Beyond the last: null and no error.
    fn TRITONBACKEND_InputBufferAttributes(
        input: &Input,
        index: u32,
        buffer: Out<*const c_void>,
        buffer_attributes: Out<*const BufferAttributes>,
    ) {
        let found = input.data.buffer(index)?;
        buffer.put(found.map_or(null(), <*const u8>::cast));
        buffer_attributes.put(found.map_or(null(), |_| &raw const input.attributes));
    }
}
