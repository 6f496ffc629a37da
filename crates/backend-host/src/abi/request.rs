//! `TRITONBACKEND_Request`.
//!
//! A request belongs to the library from the moment that `TRITONBACKEND_ModelInstanceExecute` returns success until it
//! is released. What is needed to answer it, `Ticket`, lives on in its responses and factories.

#![allow(unsafe_code)] // pointers of a C API

use super::input::Input;
use super::memory::CPU;
use super::parameter::Parameter;
use super::trace::InferenceTrace;
use super::{Err, c_text, get, guard, object, put, text};
use crate::ticket::Ticket;
use frames::RequestRef;
use frames::generated::REQUEST_FLAG_TRACED;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null;
use std::sync::Arc;
use tensor::{Error, Result};

/// `TRITONSERVER_REQUEST_RELEASE_ALL` and `…_RESCHEDULE`.
const RELEASE_ALL: u32 = 1;
const RELEASE_RESCHEDULE: u32 = 2;

/// A request, as a library holds it.
pub(crate) struct Request {
    pub(crate) ticket: Arc<Ticket>,
    id: CString,
    correlation: u64,
    /// Null if it is a number.
    correlation_text: Option<CString>,
    timeout_us: u64,
    flags: u32,
    parameters: Box<[Parameter]>,
    inputs: Vec<Input>,
    outputs: Vec<CString>,
    trace: Option<Box<InferenceTrace>>,
}

impl Request {
    /// # Errors
    /// If the server sent what it must not.
    pub(crate) fn new(ticket: &Arc<Ticket>, from: &RequestRef<'_>) -> Result<Self> {
        let (head, instance) = (&from.head, &ticket.instance);
        let outputs = match &from.outputs {
            Some(names) => names.iter().map(|name| c_text(name)).collect(),
            None => instance.model.signature().outputs.clone(),
        };
        Ok(Self {
            ticket: Arc::clone(ticket),
            id: c_text(from.id),
            correlation: head.correlation,
            correlation_text: (head.correlation_bytes > 0).then(|| c_text(from.correlation)),
            timeout_us: head.timeout_us,
            flags: head.flags & !u32::from(REQUEST_FLAG_TRACED),
            parameters: Parameter::list(from.parameters)?,
            inputs: from.inputs.iter().map(|tensor| Input::new(instance, tensor)).collect::<Result<_>>()?,
            outputs,
            trace: (head.flags & u32::from(REQUEST_FLAG_TRACED) != 0).then(|| {
                let model = &instance.model;
                InferenceTrace::new(model.name(), model.version().cast_signed(), from.id, from.trace)
            }),
        })
    }

    /// The trace, if the request is traced.
    pub(crate) fn trace(&self) -> Option<&InferenceTrace> {
        self.trace.as_deref()
    }

    fn input(&self, name: &str) -> Result<&Input> {
        let found = self.inputs.iter().find(|input| input.name().to_bytes() == name.as_bytes());
        found.ok_or_else(|| self.ticket.error(format_args!("unknown request input name {name}")))
    }

    /// A copy of the bytes of an input.
    pub(crate) fn bytes_of(&self, name: &str) -> Option<Vec<u8>> {
        self.inputs.iter().find(|input| input.name().to_bytes() == name.as_bytes()).map(Input::to_vec)
    }

    fn output(&self, name: &CStr) -> bool {
        self.outputs.iter().any(|output| **output == *name)
    }

    fn at<'a, T>(&self, list: &'a [T], index: u32, what: &str) -> Result<&'a T> {
        list.get(index as usize).ok_or_else(|| {
            let count = list.len();
            self.ticket.error(format_args!("out of bounds index {index}: request has {count} {what}"))
        })
    }
}

/// The client's id; owned by the request.
///
/// # Safety
/// `request` is live, `id` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestId(request: *const Request, id: *mut *const c_char) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(id, || Ok(object(request, "request")?.id.as_ptr())) }
}

/// Whether the client has cancelled the request.
///
/// # Safety
/// `request` is live, `is_cancelled` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestIsCancelled(request: *const Request, is_cancelled: *mut bool) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(is_cancelled, || Ok(object(request, "request")?.ticket.is_cancelled())) }
}

/// The correlation id, if it is a number.
///
/// # Safety
/// `request` is live, `id` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestCorrelationId(request: *const Request, id: *mut u64) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let request = object(request, "request")?;
        if request.correlation_text.is_some() {
            return Err(request.ticket.error("correlation ID in request is not an unsigned int"));
        }
        put(id, request.correlation);
        Ok(())
    })
}

/// The correlation id, if it is a text; owned by the request.
///
/// # Safety
/// `request` is live, `id` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestCorrelationIdString(
    request: *const Request,
    id: *mut *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let request = object(request, "request")?;
        let text = request.correlation_text.as_ref();
        put(id, text.ok_or_else(|| request.ticket.error("correlation ID in request is not a string"))?.as_ptr());
        Ok(())
    })
}

/// The request's timeout; 0 for none.
///
/// # Safety
/// `request` is live, `timeout` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    request: *const Request,
    timeout: *mut u64,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(timeout, || Ok(object(request, "request")?.timeout_us)) }
}

/// The sequence flags: 1 starts, 2 ends one.
///
/// # Safety
/// `request` is live, `flags` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestFlags(request: *const Request, flags: *mut u32) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(flags, || Ok(object(request, "request")?.flags)) }
}

/// Number of parameters.
///
/// # Safety
/// `request` is live, `count` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestParameterCount(request: *const Request, count: *mut u32) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(count, || Ok(object(request, "request")?.parameters.len() as u32)) }
}

/// A parameter; owned by the request.
///
/// # Safety
/// `request` is live, the others valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestParameter(
    request: *const Request,
    index: u32,
    key: *mut *const c_char,
    kind: *mut u32,
    vvalue: *mut *const c_void,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let parameters = unsafe { &object(request, "request")?.parameters };
        let parameter = parameters.get(index as usize).ok_or_else(|| {
            let count = parameters.len();
            Error::invalid(format!("out of bounds index {index}: request has {count} parameters"))
        })?;
        // SAFETY: the caller's promise.
        unsafe {
            put(key, parameter.name.as_ptr());
            put(kind, parameter.value.kind());
            put(vvalue, parameter.value.pointer());
        }
        Ok(())
    })
}

/// Number of inputs.
///
/// # Safety
/// `request` is live, `count` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestInputCount(request: *const Request, count: *mut u32) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(count, || Ok(object(request, "request")?.inputs.len() as u32)) }
}

/// Name of an input; owned by the request.
///
/// # Safety
/// `request` is live, `input_name` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestInputName(
    request: *const Request,
    index: u32,
    input_name: *mut *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(input_name, null());
        let request = object(request, "request")?;
        put(input_name, request.at(&request.inputs, index, "inputs")?.name().as_ptr());
        Ok(())
    })
}

/// An input by its name; owned by the request.
///
/// # Safety
/// `request` is live, `name` NUL-terminated, `input` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestInput(
    request: *const Request,
    name: *const c_char,
    input: *mut *const Input,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(input, null());
        put(input, &raw const *object(request, "request")?.input(&text(name))?);
        Ok(())
    })
}

/// An input by its index; owned by the request.
///
/// # Safety
/// `request` is live, `input` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestInputByIndex(
    request: *const Request,
    index: u32,
    input: *mut *const Input,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(input, null());
        let request = object(request, "request")?;
        put(input, &raw const *request.at(&request.inputs, index, "inputs")?);
        Ok(())
    })
}

/// Number of requested outputs.
///
/// # Safety
/// `request` is live, `count` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestOutputCount(request: *const Request, count: *mut u32) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(count, || Ok(object(request, "request")?.outputs.len() as u32)) }
}

/// Name of a requested output; owned by the request.
///
/// # Safety
/// `request` is live, `output_name` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestOutputName(
    request: *const Request,
    index: u32,
    output_name: *mut *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        put(output_name, null());
        let request = object(request, "request")?;
        put(output_name, request.at(&request.outputs, index, "requested outputs")?.as_ptr());
        Ok(())
    })
}

/// Where the client wants an output: in memory of the host.
///
/// # Safety
/// `request` is live, `name` NUL-terminated, the others null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestOutputBufferProperties(
    request: *const Request,
    name: *const c_char,
    _byte_size: *mut usize,
    memory_type: *mut u32,
    memory_type_id: *mut i64,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let _ = (!name.is_null()).then(|| object(request, "request").map(|r| r.output(CStr::from_ptr(name))));
        put(memory_type, CPU);
        put(memory_type_id, 0);
        Ok(())
    })
}

/// Takes a request back. On an error it stays the library's.
///
/// # Safety
/// `request` is the library's, which does not use it after success.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestRelease(request: *mut Request, release_flags: u32) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let ticket = unsafe { &object(request, "request")?.ticket };
        if release_flags & RELEASE_RESCHEDULE != 0 {
            if !ticket.instance.model.signature().is_iterative {
                return Err(Error::invalid(
                    "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not \
                     configured to handle such a flag.",
                ));
            }
            ticket.reschedule();
        } else if release_flags & RELEASE_ALL == 0 {
            return Err(Error::invalid(format!("{release_flags} is no set of release flags")));
        }
        let ticket = Arc::clone(ticket);
        // SAFETY: made by `Box::into_raw`, and the caller gives it up.
        drop(unsafe { Box::from_raw(request) });
        ticket.released();
        Ok(())
    })
}

/// The trace of a request, null if it is not traced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_RequestTrace(request: *const Request, trace: *mut *const InferenceTrace) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let found = object(request, "request")?.trace();
            put(trace, found.map_or(null(), |trace| &raw const *trace));
        }
        Ok(())
    })
}
