//! `TRITONSERVER_InferenceResponse`: a response of another model, in buffers of the library that called it.

#![allow(unsafe_code)] // pointers of a C API

use super::allocator::{Allocation, ResponseBuffer};
use super::exports::{Out, exports, objects};
use super::parameter::Parameter;
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

objects! {
    InferenceResponse: "response";
}

exports! {
    /// Deletes a response and frees its buffers.
    fn TRITONSERVER_InferenceResponseDelete(response: Option<Box<InferenceResponse>>) {
        drop(response);
    }

    /// The error of a response, or null. As in Triton each call makes a new one, which the caller deletes.
    fn TRITONSERVER_InferenceResponseError(response: &InferenceResponse) {
        response.error.clone().map_or(Ok(()), Err)
    }

    /// The name and the version of the model that responded.
    fn TRITONSERVER_InferenceResponseModel(
        response: &InferenceResponse,
        model_name: Out<*const c_char>,
        model_version: Out<i64>,
    ) {
        model_name.put(response.model.as_ptr());
        model_version.put(response.version);
    }

    /// The id of the request.
    fn TRITONSERVER_InferenceResponseId(response: &InferenceResponse, request_id: Out<*const c_char>) {
        request_id.put(response.id.as_ptr());
    }

    /// The number of parameters.
    fn TRITONSERVER_InferenceResponseParameterCount(response: &InferenceResponse, count: Out<u32>) {
        count.put(response.parameters.len() as u32);
    }

    /// A parameter, which belongs to the response.
    fn TRITONSERVER_InferenceResponseParameter(
        response: &InferenceResponse,
        index: u32,
        name: Out<*const c_char>,
        kind: Out<u32>,
        vvalue: Out<*const c_void>,
    ) {
        let parameters = &response.parameters;
        let count = parameters.len();
        let none = || Error::invalid(format!("out of bounds index {index}: response has {count} parameters"));
        let parameter = parameters.get(index as usize).ok_or_else(none)?;
        name.put(parameter.name.as_ptr());
        kind.put(parameter.value.kind());
        vvalue.put(parameter.value.pointer());
    }

    /// The number of outputs.
    fn TRITONSERVER_InferenceResponseOutputCount(response: &InferenceResponse, count: Out<u32>) {
        count.put(response.outputs.len() as u32);
    }

    /// An output, which belongs to the response.
    fn TRITONSERVER_InferenceResponseOutput(
        response: &InferenceResponse,
        index: u32,
        name: Out<*const c_char>,
        datatype: Out<u32>,
        shape: Out<*const i64>,
        dim_count: Out<u64>,
        base: Out<*const c_void>,
        byte_size: Out<usize>,
        memory_type: Out<u32>,
        memory_type_id: Out<i64>,
        userp: Out<*mut c_void>,
    ) {
        let output = response.output(index)?;
        let buffer = output.buffer.as_ref();
        let attributes = buffer.map(|buffer| buffer.attributes.clone()).unwrap_or_default();
        name.put(output.name.as_ptr());
        datatype.put(output.datatype);
        shape.put(output.shape.as_ptr());
        dim_count.put(output.shape.len() as u64);
        base.put(buffer.map_or(null(), |buffer| buffer.base().cast_const()));
        byte_size.put(attributes.bytes);
        memory_type.put(attributes.memory_type);
        memory_type_id.put(attributes.memory_type_id);
        userp.put(buffer.map_or(null_mut(), ResponseBuffer::userp));
    }
}
