//! `TRITONBACKEND_Request`.
//!
//! A request belongs to the library from the moment that `TRITONBACKEND_ModelInstanceExecute` returns success until it
//! is released. What is needed to answer it, `Ticket`, lives on in its responses and factories.

use super::exports::{Cleared, Lent, Out, exports, objects};
use super::input::Input;
use super::memory::CPU;
use super::parameter::Parameter;
use super::trace::InferenceTrace;
use super::{at, c_text};
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

    fn input(&self, name: &str) -> Option<&Input> {
        self.inputs.iter().find(|input| input.name().to_bytes() == name.as_bytes())
    }

    /// A copy of the bytes of an input.
    pub(crate) fn bytes_of(&self, name: &str) -> Option<Vec<u8>> {
        self.input(name).map(Input::to_vec)
    }

    /// An item by its index; the error names the request.
    fn at<'a, T>(&self, list: &'a [T], index: u32, what: &str) -> Result<&'a T> {
        at(list, index, "request has", what).map_err(|error| self.ticket.error(error.message()))
    }

    /// Checks that a request can be released with these flags; true if it is to run again.
    fn is_rescheduled(&self, release_flags: u32) -> Result<bool> {
        if release_flags & RELEASE_RESCHEDULE == 0 {
            let is_released = release_flags & RELEASE_ALL != 0;
            let none = || Error::invalid(format!("{release_flags} must be release flags"));
            return is_released.then_some(false).ok_or_else(none);
        }
        if self.ticket.instance.model.signature().is_iterative {
            return Ok(true);
        }
        Err(Error::invalid(
            "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to \
             handle such a flag.",
        ))
    }
}

objects! {
    Request: "request";
}

exports! {
    "request" get TRITONBACKEND_RequestId(request: &Request) -> Lent<c_char> = request.id.as_ptr();
    "request" get TRITONBACKEND_RequestIsCancelled(request: &Request) -> bool = request.ticket.is_cancelled();

    "request" get TRITONBACKEND_RequestCorrelationId(request: &Request) -> u64 = match request.correlation_text {
        Some(_) => return Err(request.ticket.error("correlation ID in request is not an unsigned int")),
        None => request.correlation,
    };
    "request" get TRITONBACKEND_RequestCorrelationIdString(request: &Request) -> Lent<c_char> = {
        let text = request.correlation_text.as_ref();
        text.ok_or_else(|| request.ticket.error("correlation ID in request is not a string"))?.as_ptr()
    };

    /// 0 for none.
    "request" get TRITONBACKEND_InferenceRequestTimeoutMicroseconds(request: &Request) -> u64 = request.timeout_us;
    /// The sequence flags: 1 starts, 2 ends one.
    "request" get TRITONBACKEND_RequestFlags(request: &Request) -> u32 = request.flags;
    "request" get TRITONBACKEND_RequestParameterCount(request: &Request) -> u32 = request.parameters.len() as u32;

    "request" fn TRITONBACKEND_RequestParameter(
        request: &Request,
        index: u32,
        key: Out<Lent<c_char>>,
        kind: Out<u32>,
        vvalue: Out<Lent<c_void>>,
    ) => at(&request.parameters, index, "request has", "parameters")?.put(&key, &kind, &vvalue);

    "request" get TRITONBACKEND_RequestInputCount(request: &Request) -> u32 = request.inputs.len() as u32;

    "request" fn TRITONBACKEND_RequestInputName(request: &Request, index: u32, input_name: Cleared<Lent<c_char>>) =>
        input_name.put(request.at(&request.inputs, index, "inputs")?.name().as_ptr());

    "request" fn TRITONBACKEND_RequestInput(request: &Request, name: String, input: Cleared<Lent<Input>>) {
        let found = request.input(&name);
        let unknown = || request.ticket.error(format_args!("unknown request input name {name}"));
        input.put(found.ok_or_else(unknown)?);
    }

    "request" fn TRITONBACKEND_RequestInputByIndex(request: &Request, index: u32, input: Cleared<Lent<Input>>) =>
        input.put(request.at(&request.inputs, index, "inputs")?);

    "request" get TRITONBACKEND_RequestOutputCount(request: &Request) -> u32 = request.outputs.len() as u32;

    "request" fn TRITONBACKEND_RequestOutputName(request: &Request, index: u32, output_name: Cleared<Lent<c_char>>) =>
        output_name.put(request.at(&request.outputs, index, "requested outputs")?.as_ptr());

    /// Where the client wants an output: in memory of the host.
    "request" fn TRITONBACKEND_RequestOutputBufferProperties(
        _request: Lent<Request>,
        _name: Lent<c_char>,
        _byte_size: *mut usize,
        memory_type: Out<u32>,
        memory_type_id: Out<i64>,
    ) {
        memory_type.put(CPU);
        memory_type_id.put(0);
    }

    /// Takes a request back. On an error it stays the library's.
    "request" fn TRITONBACKEND_RequestRelease(request: Box<Request>, release_flags: u32) {
        let is_rescheduled = match request.is_rescheduled(release_flags) {
            Ok(is_rescheduled) => is_rescheduled,
            Err(error) => {
                Box::leak(request);
                return Err(error);
            }
        };
        let ticket = Arc::clone(&request.ticket);
        if is_rescheduled {
            ticket.reschedule();
        }
        drop(request);
        ticket.released();
    }

    /// Null if the request is not traced.
    "trace" get TRITONBACKEND_RequestTrace(request: &Request) -> Lent<InferenceTrace> =
        request.trace.as_deref().map_or(null(), |trace| &raw const *trace);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::exports::library::{failed, nothing, to};

    #[test]
    fn without_a_request_a_name_is_null_and_a_number_stays() {
        let (mut name, mut count) = (c"before".as_ptr(), 7);
        let errors = [
            failed(TRITONBACKEND_RequestInputName(nothing(), 0, to(&mut name))),
            failed(TRITONBACKEND_RequestInputCount(nothing(), to(&mut count))),
        ];
        assert_eq!(errors, [(); 2].map(|()| Some(Error::invalid("request was nullptr"))));
        assert!(name.is_null());
        assert_eq!(count, 7);
    }
}
