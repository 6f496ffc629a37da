//! `TRITONBACKEND_Request`.
//!
//! A request belongs to the library from the moment that `TRITONBACKEND_ModelInstanceExecute` returns success until it
//! is released. What is needed to answer it, `Ticket`, lives on in its responses and factories.

#![allow(unsafe_code)] // pointers of a C API

use super::exports::{Cleared, Out, exports, objects};
use super::input::Input;
use super::memory::CPU;
use super::parameter::Parameter;
use super::trace::InferenceTrace;
use super::{c_text, object};
use crate::ticket::Ticket;
use frames::RequestRef;
use frames::generated::REQUEST_FLAG_TRACED;
use std::ffi::{CString, c_char, c_void};
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

    fn at<'a, T>(&self, list: &'a [T], index: u32, what: &str) -> Result<&'a T> {
        list.get(index as usize).ok_or_else(|| {
            let count = list.len();
            self.ticket.error(format_args!("out of bounds index {index}: request has {count} {what}"))
        })
    }
}

objects! {
    Request: "request";
}

exports! {
    /// The client's id; owned by the request.
    fn TRITONBACKEND_RequestId(request: &Request, id: Out<*const c_char>) {
        id.put(request.id.as_ptr());
    }

    /// Whether the client has cancelled the request.
    fn TRITONBACKEND_RequestIsCancelled(request: &Request, is_cancelled: Out<bool>) {
        is_cancelled.put(request.ticket.is_cancelled());
    }

    /// The correlation id, if it is a number.
    fn TRITONBACKEND_RequestCorrelationId(request: &Request, id: Out<u64>) {
        if request.correlation_text.is_some() {
            return Err(request.ticket.error("correlation ID in request is not an unsigned int"));
        }
        id.put(request.correlation);
    }

    /// The correlation id, if it is a text; owned by the request.
    fn TRITONBACKEND_RequestCorrelationIdString(request: &Request, id: Out<*const c_char>) {
        let text = request.correlation_text.as_ref();
        id.put(text.ok_or_else(|| request.ticket.error("correlation ID in request is not a string"))?.as_ptr());
    }

    /// The request's timeout; 0 for none.
    fn TRITONBACKEND_InferenceRequestTimeoutMicroseconds(request: &Request, timeout: Out<u64>) {
        timeout.put(request.timeout_us);
    }

    /// The sequence flags: 1 starts, 2 ends one.
    fn TRITONBACKEND_RequestFlags(request: &Request, flags: Out<u32>) {
        flags.put(request.flags);
    }

    /// Number of parameters.
    fn TRITONBACKEND_RequestParameterCount(request: &Request, count: Out<u32>) {
        count.put(request.parameters.len() as u32);
    }

    /// A parameter; owned by the request.
    fn TRITONBACKEND_RequestParameter(
        request: &Request,
        index: u32,
        key: Out<*const c_char>,
        kind: Out<u32>,
        vvalue: Out<*const c_void>,
    ) {
        let parameters = &request.parameters;
        let parameter = parameters.get(index as usize).ok_or_else(|| {
            let count = parameters.len();
            Error::invalid(format!("out of bounds index {index}: request has {count} parameters"))
        })?;
        key.put(parameter.name.as_ptr());
        kind.put(parameter.value.kind());
        vvalue.put(parameter.value.pointer());
    }

    /// Number of inputs.
    fn TRITONBACKEND_RequestInputCount(request: &Request, count: Out<u32>) {
        count.put(request.inputs.len() as u32);
    }

    /// Name of an input; owned by the request.
    fn TRITONBACKEND_RequestInputName(request: &Request, index: u32, input_name: Cleared<*const c_char>) {
        input_name.put(request.at(&request.inputs, index, "inputs")?.name().as_ptr());
    }

    /// An input by its name; owned by the request.
    fn TRITONBACKEND_RequestInput(request: &Request, name: String, input: Cleared<*const Input>) {
        input.put(&raw const *request.input(&name)?);
    }

    /// An input by its index; owned by the request.
    fn TRITONBACKEND_RequestInputByIndex(request: &Request, index: u32, input: Cleared<*const Input>) {
        input.put(&raw const *request.at(&request.inputs, index, "inputs")?);
    }

    /// Number of requested outputs.
    fn TRITONBACKEND_RequestOutputCount(request: &Request, count: Out<u32>) {
        count.put(request.outputs.len() as u32);
    }

    /// Name of a requested output; owned by the request.
    fn TRITONBACKEND_RequestOutputName(request: &Request, index: u32, output_name: Cleared<*const c_char>) {
        output_name.put(request.at(&request.outputs, index, "requested outputs")?.as_ptr());
    }

    /// Where the client wants an output: in memory of the host.
    fn TRITONBACKEND_RequestOutputBufferProperties(
        _request: *const Request,
        _name: *const c_char,
        _byte_size: *mut usize,
        memory_type: Out<u32>,
        memory_type_id: Out<i64>,
    ) {
        memory_type.put(CPU);
        memory_type_id.put(0);
    }

    /// Takes a request back. On an error it stays the library's.
    fn TRITONBACKEND_RequestRelease(request: *mut Request, release_flags: u32) {
        // SAFETY: null, or a request that the library was given.
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
    }

    /// The trace of a request, null if it is not traced.
    fn TRITONBACKEND_RequestTrace(request: &Request, trace: Out<*const InferenceTrace>) {
        trace.put(request.trace().map_or(null(), |trace| &raw const *trace));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::error::ServerError;
    use std::ptr::null;

    #[test]
    fn without_a_request_a_name_is_null_and_a_number_stays() {
        let (mut name, mut count) = (c"before".as_ptr(), 7);
        // SAFETY: our own variables; the errors are ours.
        let errors = unsafe {
            [
                ServerError::take(TRITONBACKEND_RequestInputName(null(), 0, &raw mut name)),
                ServerError::take(TRITONBACKEND_RequestInputCount(null(), &raw mut count)),
            ]
        };
        assert_eq!(errors, [(); 2].map(|()| Some(Error::invalid("request was nullptr"))));
        assert!(name.is_null());
        assert_eq!(count, 7);
    }
}
