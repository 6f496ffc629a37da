//! `TRITONSERVER_InferenceResponse`: a response of another model, in buffers of the library that called it.

use super::allocator::{Allocation, ResponseBuffer};
use super::at;
use super::exports::{Lent, Out, exports, objects};
use super::parameter::Parameter;
use crate::calls::{CallOutput, CallResponse};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};
use tensor::Error;

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
            super::log::error(&format!("response allocation start failed: {}", failed.message()));
        }
        let fill = |output: CallOutput| {
            let bytes = output.bytes();
            let buffer = match into.allocate(&output.name, bytes.len()) {
                Ok(mut buffer) => {
                    buffer.fill(bytes);
                    Some(buffer)
                }
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
}

objects! {
    InferenceResponse: "response";
}

exports! {
    /// Frees the buffers, too.
    "bls" delete TRITONSERVER_InferenceResponseDelete(InferenceResponse);

    /// The error of a response, or null. As in Triton each call makes a new one, which the library deletes.
    "bls" fn TRITONSERVER_InferenceResponseError(response: &InferenceResponse) =>
        response.error.clone().map_or(Ok(()), Err)?;

    /// The model that responded.
    "bls" fn TRITONSERVER_InferenceResponseModel(
        response: &InferenceResponse,
        model_name: Out<Lent<c_char>>,
        model_version: Out<i64>,
    ) {
        model_name.put(response.model.as_ptr());
        model_version.put(response.version);
    }

    "bls" get TRITONSERVER_InferenceResponseId(response: &InferenceResponse) -> Lent<c_char> = response.id.as_ptr();
    "bls" get TRITONSERVER_InferenceResponseParameterCount(response: &InferenceResponse) -> u32 =
        response.parameters.len() as u32;

    "bls" fn TRITONSERVER_InferenceResponseParameter(
        response: &InferenceResponse,
        index: u32,
        name: Out<Lent<c_char>>,
        kind: Out<u32>,
        vvalue: Out<Lent<c_void>>,
    ) => at(&response.parameters, index, "response has", "parameters")?.put(&name, &kind, &vvalue);

    "bls" get TRITONSERVER_InferenceResponseOutputCount(response: &InferenceResponse) -> u32 =
        response.outputs.len() as u32;

    "bls" fn TRITONSERVER_InferenceResponseOutput(
        response: &InferenceResponse,
        index: u32,
        name: Out<Lent<c_char>>,
        datatype: Out<u32>,
        shape: Out<Lent<i64>>,
        dim_count: Out<u64>,
        base: Out<Lent<c_void>>,
        byte_size: Out<usize>,
        memory_type: Out<u32>,
        memory_type_id: Out<i64>,
        userp: Out<*mut c_void>,
    ) {
        let output = at(&response.outputs, index, "response has", "outputs")?;
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
