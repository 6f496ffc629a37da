//! `TRITONBACKEND_Input`.

use super::attributes::BufferAttributes;
use super::c_text;
use super::exports::{Lent, Out, exports, objects};
use super::instance::Instance;
use super::memory::CPU;
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
            Self::Block(view) => view.bytes().len() as u64,
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
            Contents::Device(_) => return Err(Error::unsupported("an input is on a device")),
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
            Bytes::Inline(bytes) => bytes.to_vec(),
            Bytes::Block(view) => view.bytes().to_vec(),
            Bytes::Withheld(_) => Vec::new(),
        }
    }
}

objects! {
    Input: "input";
}

/// Functions about an input; the same ones for a host policy, which changes nothing: there is one set of buffers.
macro_rules! buffers {
    ($properties:ident, $buffer:ident $(, $policy:ident)?) => {
        exports! {
            "request" fn $properties(
                input: &Input,
                $($policy: Lent<c_char>,)?
                name: Out<Lent<c_char>>,
                datatype: Out<u32>,
                shape: Out<Lent<i64>>,
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

            /// Beyond the last buffer: null and no error, as in Triton.
            "request" fn $buffer(
                input: &Input,
                $($policy: Lent<c_char>,)?
                index: u32,
                buffer: Out<Lent<c_void>>,
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
    };
}

buffers!(TRITONBACKEND_InputProperties, TRITONBACKEND_InputBuffer);
buffers!(TRITONBACKEND_InputPropertiesForHostPolicy, TRITONBACKEND_InputBufferForHostPolicy, _host_policy_name);

exports! {
    /// Beyond the last buffer: null and no error.
    "request" fn TRITONBACKEND_InputBufferAttributes(
        input: &Input,
        index: u32,
        buffer: Out<Lent<c_void>>,
        buffer_attributes: Out<Lent<BufferAttributes>>,
    ) {
        let found = input.data.buffer(index)?;
        buffer.put(found.map_or(null(), <*const u8>::cast));
        buffer_attributes.put(found.map_or(null(), |_| &raw const input.attributes));
    }
}
