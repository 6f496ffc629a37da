//! `TRITONSERVER_InferenceResponse`: a response of another model, in buffers of the library that called it.

#![allow(unsafe_code)] // pointers of a C API

use super::allocator::{Allocation, ResponseBuffer};
use super::parameter::Parameter;
use super::{Err, delete, get, guard, object, put};
use crate::calls::{CallOutput, CallResponse};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};
use tensor::{Error, Result};

/// A response. The library deletes it.
pub(crate) struct InferenceResponse {
    model: CString,
    version: i64,
    id: CString,
    error: Option<Error>,
    parameters: Box<[Parameter]>,
    outputs: Vec<FilledOutput>,
}

struct FilledOutput {
    name: CString,
    datatype: u32,
    shape: Vec<i64>,
    /// `None` if the library gave no buffer.
    buffer: Option<ResponseBuffer>,
}

impl InferenceResponse {
    /// Puts a response into buffers of the library. Its error is that of the first buffer that it does not give.
    pub(crate) fn new(model: &CStr, version: i64, id: &CStr, into: Allocation, from: CallResponse) -> Self {
        let CallResponse { mut error, parameters, outputs } = from;
        if let Err(failed) = into.start() {
            let text = format!("response allocation start failed: {}", failed.message());
            super::log::send(frames::generated::LogLevel::Error, file!(), line!(), &text);
        }
        let fill = |output: CallOutput| {
            let bytes = output.bytes();
            let buffer = into.allocate(&output.name, bytes).map(|mut buffer| {
                // SAFETY: the buffer was allocated for as many bytes as the output has.
                unsafe { buffer.fill(output.pointer()) };
                buffer
            });
            let buffer = match buffer {
                Ok(buffer) => Some(buffer),
                Err(failed) => {
                    error.get_or_insert(failed);
                    None
                }
            };
            FilledOutput { name: output.name, datatype: output.datatype, shape: output.shape, buffer }
        };
        let outputs = outputs.into_iter().map(fill).collect();
        Self { model: model.into(), version, id: id.into(), error, parameters, outputs }
    }

    fn output(&self, index: u32) -> Result<&FilledOutput> {
        let none =
            || Error::invalid(format!("out of bounds index {index}: response has {} outputs", self.outputs.len()));
        self.outputs.get(index as usize).ok_or_else(none)
    }
}

/// Deletes a response and frees its buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseDelete(response: *mut InferenceResponse) -> Err {
    // SAFETY: made for the library's callback, and the caller's.
    unsafe { delete(response) }
}

/// The error of a response, or null. As in Triton each call makes a new one, which the caller deletes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseError(response: *const InferenceResponse) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe { object(response, "response") }?.error.clone().map_or(Ok(()), Err))
}

/// The name and the version of the model that responded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseModel(
    response: *const InferenceResponse,
    model_name: *mut *const c_char,
    model_version: *mut i64,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let response = object(response, "response")?;
            put(model_name, response.model.as_ptr());
            put(model_version, response.version);
        }
        Ok(())
    })
}

/// The id of the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseId(
    response: *const InferenceResponse,
    request_id: *mut *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(request_id, || Ok(object(response, "response")?.id.as_ptr())) }
}

/// The number of parameters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseParameterCount(
    response: *const InferenceResponse,
    count: *mut u32,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(count, || Ok(object(response, "response")?.parameters.len() as u32)) }
}

/// A parameter, which belongs to the response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseParameter(
    response: *const InferenceResponse,
    index: u32,
    name: *mut *const c_char,
    kind: *mut u32,
    vvalue: *mut *const c_void,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let parameters = unsafe { &object(response, "response")?.parameters };
        let count = parameters.len();
        let none = || Error::invalid(format!("out of bounds index {index}: response has {count} parameters"));
        let parameter = parameters.get(index as usize).ok_or_else(none)?;
        // SAFETY: the caller's promise.
        unsafe {
            put(name, parameter.name.as_ptr());
            put(kind, parameter.value.kind());
            put(vvalue, parameter.value.pointer());
        }
        Ok(())
    })
}

/// The number of outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseOutputCount(
    response: *const InferenceResponse,
    count: *mut u32,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(count, || Ok(object(response, "response")?.outputs.len() as u32)) }
}

/// An output, which belongs to the response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceResponseOutput(
    response: *const InferenceResponse,
    index: u32,
    name: *mut *const c_char,
    datatype: *mut u32,
    shape: *mut *const i64,
    dim_count: *mut u64,
    base: *mut *const c_void,
    byte_size: *mut usize,
    memory_type: *mut u32,
    memory_type_id: *mut i64,
    userp: *mut *mut c_void,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let output = unsafe { object(response, "response") }?.output(index)?;
        let buffer = output.buffer.as_ref();
        let attributes = buffer.map(|buffer| buffer.attributes.clone()).unwrap_or_default();
        // SAFETY: the caller's promise.
        unsafe {
            put(name, output.name.as_ptr());
            put(datatype, output.datatype);
            put(shape, output.shape.as_ptr());
            put(dim_count, output.shape.len() as u64);
            put(base, buffer.map_or(null(), |buffer| buffer.base().cast_const()));
            put(byte_size, attributes.bytes);
            put(memory_type, attributes.memory_type);
            put(memory_type_id, attributes.memory_type_id);
            put(userp, buffer.map_or(null_mut(), ResponseBuffer::userp));
        }
        Ok(())
    })
}
