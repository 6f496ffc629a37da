//! Fields of a request: id, flags, correlation id, priority, timeout and parameters.

#![allow(unsafe_code)] // pointers of a C API

use super::{CORRELATION_BYTES_MAX, Correlation, Described, InferenceRequest, change, give, set};
use crate::abi::parameter::{Parameter, ParameterValue};
use crate::abi::{Err, c_text, text};
use std::ffi::c_char;
use tensor::Error;

/// The id, which belongs to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestId(
    request: *const InferenceRequest,
    id: *mut *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { give(request, id, |request| Ok(request.id.as_ptr())) }
}

/// Sets the id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetId(request: *mut InferenceRequest, id: *const c_char) -> Err {
    // SAFETY: the caller's promise.
    let id = c_text(&unsafe { text(id) });
    // SAFETY: the caller's promise.
    unsafe { set(request, |request| request.id = id) }
}

/// The flags of sequences.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestFlags(request: *const InferenceRequest, flags: *mut u32) -> Err {
    // SAFETY: the caller's promise.
    unsafe { give(request, flags, |request| Ok(request.flags)) }
}

/// Sets the flags of sequences.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetFlags(request: *mut InferenceRequest, flags: u32) -> Err {
    // SAFETY: the caller's promise.
    unsafe { set(request, |request| request.flags = flags) }
}

/// The correlation id, if it is a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestCorrelationId(
    request: *const InferenceRequest,
    correlation_id: *mut u64,
) -> Err {
    let number = |request: &InferenceRequest| match request.correlation {
        Correlation::Number(number) => Ok(number),
        Correlation::Text(_) => Err(Error::invalid("given request's correlation id is not an unsigned int")),
    };
    // SAFETY: the caller's promise.
    unsafe { give(request, correlation_id, number) }
}

/// The correlation id, if it is a text, which belongs to the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestCorrelationIdString(
    request: *const InferenceRequest,
    correlation_id: *mut *const c_char,
) -> Err {
    let id = |request: &InferenceRequest| match &request.correlation {
        Correlation::Text(id) => Ok(id.as_ptr()),
        Correlation::Number(_) => Err(Error::invalid("given request's correlation id is not a string")),
    };
    // SAFETY: the caller's promise.
    unsafe { give(request, correlation_id, id) }
}

/// Sets the correlation id to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetCorrelationId(
    request: *mut InferenceRequest,
    correlation_id: u64,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { set(request, |request| request.correlation = Correlation::Number(correlation_id)) }
}

/// Sets the correlation id to a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetCorrelationIdString(
    request: *mut InferenceRequest,
    correlation_id: *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    let id = unsafe { text(correlation_id) };
    let set = |request: &mut InferenceRequest| {
        if id.len() > CORRELATION_BYTES_MAX {
            return Err(Error::unsupported("string correlation ID cannot be longer than 128 characters"));
        }
        request.correlation = Correlation::Text(c_text(&id));
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { change(request, set) }
}

/// The priority, if it fits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestPriority(
    request: *const InferenceRequest,
    priority: *mut u32,
) -> Err {
    let fitting = |request: &InferenceRequest| {
        let priority = request.priority;
        u32::try_from(priority).map_err(|_| {
            Error::invalid(format!(
                "request priority overflows uint32_t, use TRITONSERVER_InferenceRequestPriorityUInt64, \
                 priority={priority}"
            ))
        })
    };
    // SAFETY: the caller's promise.
    unsafe { give(request, priority, fitting) }
}

/// The priority.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestPriorityUInt64(
    request: *const InferenceRequest,
    priority: *mut u64,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { give(request, priority, |request| Ok(request.priority)) }
}

/// Sets the priority.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetPriority(
    request: *mut InferenceRequest,
    priority: u32,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { TRITONSERVER_InferenceRequestSetPriorityUInt64(request, priority.into()) }
}

/// Sets the priority; one that the model does not have becomes its default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetPriorityUInt64(
    request: *mut InferenceRequest,
    priority: u64,
) -> Err {
    let set = |request: &mut InferenceRequest| {
        let Described { priority_levels, default_priority, .. } = request.described;
        request.priority = if (1..=priority_levels).contains(&priority) { priority } else { default_priority };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { change(request, set) }
}

/// The timeout in microseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestTimeoutMicroseconds(
    request: *const InferenceRequest,
    timeout_us: *mut u64,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { give(request, timeout_us, |request| Ok(request.timeout_us)) }
}

/// Sets the timeout in microseconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(
    request: *mut InferenceRequest,
    timeout_us: u64,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { set(request, |request| request.timeout_us = timeout_us) }
}

/// # Safety
/// As `change`; `name` is null or NUL-terminated.
unsafe fn parameter(request: *mut InferenceRequest, name: *const c_char, value: ParameterValue) -> Err {
    // SAFETY: the caller's promise.
    let parameter = Parameter::new(&unsafe { text(name) }, value);
    // SAFETY: the caller's promise.
    unsafe { set(request, |request| request.parameters.push(parameter)) }
}

/// Adds a parameter that is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetStringParameter(
    request: *mut InferenceRequest,
    name: *const c_char,
    value: *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { parameter(request, name, ParameterValue::String(c_text(&text(value)))) }
}

/// Adds a parameter that is an integer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetIntParameter(
    request: *mut InferenceRequest,
    name: *const c_char,
    value: i64,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { parameter(request, name, ParameterValue::Int(value)) }
}

/// Adds a parameter that is a boolean.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetBoolParameter(
    request: *mut InferenceRequest,
    name: *const c_char,
    value: bool,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { parameter(request, name, ParameterValue::Bool(value)) }
}

/// Adds a parameter that is a double.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetDoubleParameter(
    request: *mut InferenceRequest,
    name: *const c_char,
    value: f64,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { parameter(request, name, ParameterValue::Double(value)) }
}
