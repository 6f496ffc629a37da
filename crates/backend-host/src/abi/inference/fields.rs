//! Fields of a request: id, flags, correlation id, priority, timeout and parameters.

use super::InferenceRequest;
use crate::abi::exports::{Lent, exports};
use crate::abi::parameter::{Parameter, ParameterValue};
use std::ffi::{CString, c_char};
use tensor::Error;

/// Longest correlation id that is a text, in bytes.
const CORRELATION_BYTES_MAX: usize = 128;

impl InferenceRequest {
    fn prioritize(&mut self, priority: u64) {
        let is_known = (1..=self.described.priority_levels).contains(&priority);
        self.call.priority = if is_known { priority } else { self.described.default_priority };
    }

    fn parameter(&mut self, name: CString, value: ParameterValue) {
        self.call.parameters.push(Parameter { name, value });
    }
}

exports! {
    "rust" get TRITONSERVER_InferenceRequestId(request: &InferenceRequest) -> Lent<c_char> = request.call.id.as_ptr();
    "bls" fn TRITONSERVER_InferenceRequestSetId(request: &mut InferenceRequest, id: CString) => request.call.id = id;

    // Flags of sequences.
    "rust" get TRITONSERVER_InferenceRequestFlags(request: &InferenceRequest) -> u32 = request.call.flags;
    "bls" fn TRITONSERVER_InferenceRequestSetFlags(request: &mut InferenceRequest, flags: u32) =>
        request.call.flags = flags;

    "bls" get TRITONSERVER_InferenceRequestCorrelationId(of: &InferenceRequest) -> u64 =
        match of.call.correlation_text {
            None => of.call.correlation,
            Some(_) => return Err(Error::invalid("given request's correlation id is not an unsigned int")),
        };
    "bls" get TRITONSERVER_InferenceRequestCorrelationIdString(of: &InferenceRequest) -> Lent<c_char> = {
        let text = of.call.correlation_text.as_ref();
        text.ok_or_else(|| Error::invalid("given request's correlation id is not a string"))?.as_ptr()
    };
    "bls" fn TRITONSERVER_InferenceRequestSetCorrelationId(request: &mut InferenceRequest, correlation_id: u64) =>
        (request.call.correlation, request.call.correlation_text) = (correlation_id, None);
    "bls" fn TRITONSERVER_InferenceRequestSetCorrelationIdString(request: &mut InferenceRequest, id: CString) {
        if id.count_bytes() > CORRELATION_BYTES_MAX {
            return Err(Error::unsupported("string correlation ID cannot be longer than 128 characters"));
        }
        (request.call.correlation, request.call.correlation_text) = (0, Some(id));
    }

    "bls" get TRITONSERVER_InferenceRequestPriority(request: &InferenceRequest) -> u32 =
        u32::try_from(request.call.priority).map_err(|_| {
            Error::invalid(format!(
                "request priority overflows uint32_t, use TRITONSERVER_InferenceRequestPriorityUInt64, priority={}",
                request.call.priority
            ))
        })?;
    "bls" get TRITONSERVER_InferenceRequestPriorityUInt64(request: &InferenceRequest) -> u64 = request.call.priority;
    "bls" fn TRITONSERVER_InferenceRequestSetPriority(request: &mut InferenceRequest, priority: u32) =>
        request.prioritize(priority.into());
    /// A priority that the model does not have becomes its default.
    "bls" fn TRITONSERVER_InferenceRequestSetPriorityUInt64(request: &mut InferenceRequest, priority: u64) =>
        request.prioritize(priority);

    "bls" get TRITONSERVER_InferenceRequestTimeoutMicroseconds(request: &InferenceRequest) -> u64 =
        request.call.timeout_us;
    "bls" fn TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(request: &mut InferenceRequest, timeout_us: u64) =>
        request.call.timeout_us = timeout_us;

    "bls" fn TRITONSERVER_InferenceRequestSetStringParameter(
        request: &mut InferenceRequest,
        name: CString,
        value: CString,
    ) => request.parameter(name, ParameterValue::String(value));
    "bls" fn TRITONSERVER_InferenceRequestSetIntParameter(request: &mut InferenceRequest, name: CString, value: i64) =>
        request.parameter(name, ParameterValue::Int(value));
    "bls" fn TRITONSERVER_InferenceRequestSetBoolParameter(of: &mut InferenceRequest, name: CString, value: bool) =>
        of.parameter(name, ParameterValue::Bool(value));
    "bls" fn TRITONSERVER_InferenceRequestSetDoubleParameter(of: &mut InferenceRequest, name: CString, value: f64) =>
        of.parameter(name, ParameterValue::Double(value));
}
