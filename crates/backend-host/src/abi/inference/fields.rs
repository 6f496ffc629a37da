//! Fields of a request: id, flags, correlation id, priority, timeout and parameters.

use super::{CORRELATION_BYTES_MAX, Correlation, Described, InferenceRequest};
use crate::abi::c_text;
use crate::abi::exports::{Out, exports};
use crate::abi::parameter::{Parameter, ParameterValue};
use std::ffi::{CString, c_char};
use tensor::Error;

impl InferenceRequest {
    fn prioritize(&mut self, priority: u64) {
        let Described { priority_levels, default_priority, .. } = self.described;
        self.priority = if (1..=priority_levels).contains(&priority) { priority } else { default_priority };
    }
}

exports! {
    /// The id, which belongs to the request.
    fn TRITONSERVER_InferenceRequestId(request: &InferenceRequest, id: Out<*const c_char>) {
        id.put(request.id.as_ptr());
    }

    /// Sets the id.
    fn TRITONSERVER_InferenceRequestSetId(request: &mut InferenceRequest, id: CString) {
        request.id = id;
    }

    /// The flags of sequences.
    fn TRITONSERVER_InferenceRequestFlags(request: &InferenceRequest, flags: Out<u32>) {
        flags.put(request.flags);
    }

    /// Sets the flags of sequences.
    fn TRITONSERVER_InferenceRequestSetFlags(request: &mut InferenceRequest, flags: u32) {
        request.flags = flags;
    }

    /// The correlation id, if it is a number.
    fn TRITONSERVER_InferenceRequestCorrelationId(request: &InferenceRequest, correlation_id: Out<u64>) {
        let Correlation::Number(number) = request.correlation else {
            return Err(Error::invalid("given request's correlation id is not an unsigned int"));
        };
        correlation_id.put(number);
    }

    /// The correlation id, if it is a text, which belongs to the request.
    fn TRITONSERVER_InferenceRequestCorrelationIdString(
        request: &InferenceRequest,
        correlation_id: Out<*const c_char>,
    ) {
        let Correlation::Text(id) = &request.correlation else {
            return Err(Error::invalid("given request's correlation id is not a string"));
        };
        correlation_id.put(id.as_ptr());
    }

    /// Sets the correlation id to a number.
    fn TRITONSERVER_InferenceRequestSetCorrelationId(request: &mut InferenceRequest, correlation_id: u64) {
        request.correlation = Correlation::Number(correlation_id);
    }

    /// Sets the correlation id to a text.
    fn TRITONSERVER_InferenceRequestSetCorrelationIdString(request: &mut InferenceRequest, correlation_id: String) {
        if correlation_id.len() > CORRELATION_BYTES_MAX {
            return Err(Error::unsupported("string correlation ID cannot be longer than 128 characters"));
        }
        request.correlation = Correlation::Text(c_text(&correlation_id));
    }

    /// The priority, if it fits.
    fn TRITONSERVER_InferenceRequestPriority(request: &InferenceRequest, priority: Out<u32>) {
        let number = request.priority;
        priority.put(u32::try_from(number).map_err(|_| {
            Error::invalid(format!(
                "request priority overflows uint32_t, use TRITONSERVER_InferenceRequestPriorityUInt64, \
                 priority={number}"
            ))
        })?);
    }

    /// The priority.
    fn TRITONSERVER_InferenceRequestPriorityUInt64(request: &InferenceRequest, priority: Out<u64>) {
        priority.put(request.priority);
    }

    /// Sets the priority.
    fn TRITONSERVER_InferenceRequestSetPriority(request: &mut InferenceRequest, priority: u32) {
        request.prioritize(priority.into());
    }

    /// Sets the priority; one that the model does not have becomes its default.
    fn TRITONSERVER_InferenceRequestSetPriorityUInt64(request: &mut InferenceRequest, priority: u64) {
        request.prioritize(priority);
    }

    /// The timeout in microseconds.
    fn TRITONSERVER_InferenceRequestTimeoutMicroseconds(request: &InferenceRequest, timeout_us: Out<u64>) {
        timeout_us.put(request.timeout_us);
    }

    /// Sets the timeout in microseconds.
    fn TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(request: &mut InferenceRequest, timeout_us: u64) {
        request.timeout_us = timeout_us;
    }

    /// Adds a parameter that is a text.
    fn TRITONSERVER_InferenceRequestSetStringParameter(request: &mut InferenceRequest, name: String, value: CString) {
        request.parameters.push(Parameter::new(&name, ParameterValue::String(value)));
    }

    /// Adds a parameter that is an integer.
    fn TRITONSERVER_InferenceRequestSetIntParameter(request: &mut InferenceRequest, name: String, value: i64) {
        request.parameters.push(Parameter::new(&name, ParameterValue::Int(value)));
    }

    /// Adds a parameter that is a boolean.
    fn TRITONSERVER_InferenceRequestSetBoolParameter(request: &mut InferenceRequest, name: String, value: bool) {
        request.parameters.push(Parameter::new(&name, ParameterValue::Bool(value)));
    }

    /// Adds a parameter that is a double.
    fn TRITONSERVER_InferenceRequestSetDoubleParameter(request: &mut InferenceRequest, name: String, value: f64) {
        request.parameters.push(Parameter::new(&name, ParameterValue::Double(value)));
    }
}
