//! `TRITONBACKEND_ResponseFactory`, `TRITONBACKEND_Response` and `TRITONBACKEND_Output`.

#![allow(unsafe_code)] // pointers of a C API

use super::attributes::BufferAttributes;
use super::error::ServerError;
use super::memory::CPU;
use super::request::Request;
use super::values::dims;
use super::{Err, delete, get, guard, object, object_mut, put, text};
use crate::answer::{Answer, Output};
use crate::ticket::Ticket;
use frames::write;
use protocol::Parameter;
use std::collections::HashSet;
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use tensor::{Error, Name, Result};

/// `TRITONSERVER_RESPONSE_COMPLETE_FINAL`
const FINAL: u32 = 1;

/// Makes responses, also after the request was released.
pub(crate) struct ResponseFactory(pub(crate) Arc<Ticket>);

/// A response that was not sent.
pub(crate) struct Response {
    ticket: Arc<Ticket>,
    parameters: Vec<(Name, Parameter)>,
    #[expect(clippy::vec_box, reason = "libraries hold the addresses of outputs")]
    outputs: Vec<Box<Output>>,
    /// An output was refused: the response cannot be sent whole.
    is_spoilt: bool,
}

impl Response {
    fn new(ticket: &Arc<Ticket>) -> *mut Self {
        let ticket = Arc::clone(ticket);
        Box::into_raw(Box::new(Self { ticket, parameters: Vec::new(), outputs: Vec::new(), is_spoilt: false }))
    }

    fn parameter(&mut self, name: String, value: Parameter) {
        self.parameters.push((Name::from(name.as_str()), value));
    }

    fn answer(self, flags: u32, error: Option<Error>) -> (Arc<Ticket>, Answer) {
        let is_final = flags & FINAL != 0;
        let Self { ticket, mut parameters, outputs, is_spoilt } = self;
        let checked = outputs.into_iter().map(|output| Ok((output.check()?, output))).collect::<Result<Vec<_>>>();
        let outputs = if is_spoilt { Err(Error::internal("response output count mismatch")) } else { checked };
        let answer = match error.map_or(outputs, Err) {
            Ok(outputs) => {
                let mut json = Vec::new();
                keep_last(&mut parameters);
                write::parameters(&mut json, &parameters);
                Answer::response(String::from_utf8(json).unwrap_or_default(), outputs)
            }
            Err(error) => Answer::error(&error),
        };
        (ticket, if is_final { answer.ended() } else { answer })
    }
}

/// Drops all but the last parameter of each name.
fn keep_last(parameters: &mut Vec<(Name, Parameter)>) {
    let mut known = HashSet::new();
    parameters.reverse();
    parameters.retain(|(name, _)| known.insert(name.clone()));
    parameters.reverse();
}

/// A factory for the responses of a request; the caller deletes it.
///
/// # Safety
/// `request` is live, `factory` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseFactoryNew(
    factory: *mut *mut ResponseFactory,
    request: *const Request,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let ticket = Arc::clone(&object(request, "request")?.ticket);
        ticket.has_factory();
        put(factory, Box::into_raw(Box::new(ResponseFactory(ticket))));
        Ok(())
    })
}

/// Deletes a factory.
///
/// # Safety
/// `factory` is null or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseFactoryDelete(factory: *mut ResponseFactory) -> Err {
    // SAFETY: made by `Box::into_raw`, and the caller gives it up.
    unsafe { delete(factory) }
}

/// Ends a request without a further response, if the flags say so.
///
/// # Safety
/// `factory` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseFactorySendFlags(
    factory: *const ResponseFactory,
    send_flags: u32,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let ticket = unsafe { &object(factory, "factory")?.0 };
        if send_flags & FINAL != 0 {
            ticket.answer(Answer::end());
        }
        Ok(())
    })
}

/// Whether the client has cancelled the request of a factory.
///
/// # Safety
/// `factory` is live, `is_cancelled` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseFactoryIsCancelled(
    factory: *const ResponseFactory,
    is_cancelled: *mut bool,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(is_cancelled, || Ok(object(factory, "factory")?.0.is_cancelled())) }
}

/// A response of a request; the caller sends or deletes it.
///
/// # Safety
/// `request` is live, `response` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseNew(response: *mut *mut Response, request: *const Request) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(response, || Ok(Response::new(&object(request, "request")?.ticket))) }
}

/// A response of a factory's request; the caller sends or deletes it.
///
/// # Safety
/// `factory` is live, `response` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseNewFromFactory(
    response: *mut *mut Response,
    factory: *const ResponseFactory,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(response, || Ok(Response::new(&object(factory, "factory")?.0))) }
}

/// Deletes a response that was not sent.
///
/// # Safety
/// `response` is null or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseDelete(response: *mut Response) -> Err {
    // SAFETY: made by `Box::into_raw`, and the caller gives it up.
    unsafe { delete(response) }
}

/// Sets a parameter of a response; one of the same name is replaced.
///
/// # Safety
/// `response` is the caller's, the texts NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseSetStringParameter(
    response: *mut Response,
    name: *const c_char,
    value: *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        let value = Parameter::String(Name::from(text(value).as_str()));
        object_mut(response, "response")?.parameter(text(name), value);
        Ok(())
    })
}

/// Sets a parameter of a response; one of the same name is replaced.
///
/// # Safety
/// `response` is the caller's, `name` NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseSetIntParameter(
    response: *mut Response,
    name: *const c_char,
    value: i64,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        object_mut(response, "response")?.parameter(text(name), Parameter::Int(value));
        Ok(())
    })
}

/// Sets a parameter of a response; one of the same name is replaced.
///
/// # Safety
/// `response` is the caller's, `name` NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseSetBoolParameter(
    response: *mut Response,
    name: *const c_char,
    value: bool,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        object_mut(response, "response")?.parameter(text(name), Parameter::Bool(value));
        Ok(())
    })
}

/// Sets a parameter of a response; one of the same name is replaced.
///
/// # Safety
/// `response` is the caller's, `name` NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseSetDoubleParameter(
    response: *mut Response,
    name: *const c_char,
    value: f64,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe {
        object_mut(response, "response")?.parameter(text(name), Parameter::Double(value));
        Ok(())
    })
}

/// Adds an output, which the response owns.
///
/// # Safety
/// `response` is the caller's, `name` NUL-terminated, `shape` has `dims_count` elements, `output` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseOutput(
    response: *mut Response,
    output: *mut *mut Output,
    name: *const c_char,
    datatype: u32,
    shape: *const i64,
    dims_count: u32,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let (response, name) = unsafe { (object_mut(response, "response")?, text(name)) };
        let model = &response.ticket.instance.model;
        if !model.signature().outputs.iter().any(|known| known.to_bytes() == name.as_bytes()) {
            response.is_spoilt = true;
            let model = model.name();
            return Err(Error::invalid(format!("unexpected inference output '{name}' for model '{model}'")));
        }
        // SAFETY: the caller's promise.
        let dims = unsafe { dims(shape, dims_count) };
        let mut new = Box::new(Output::new(&response.ticket.instance, &name, datatype, dims));
        // SAFETY: the caller's promise. A box does not move what it holds.
        unsafe { put(output, &raw mut *new) };
        response.outputs.push(new);
        Ok(())
    })
}

/// Allocates the buffer of an output, in memory of the host whatever was wished for. The output owns it.
///
/// # Safety
/// `output` is of a response that the caller has, the others null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_OutputBuffer(
    output: *mut Output,
    buffer: *mut *mut c_void,
    buffer_byte_size: u64,
    memory_type: *mut u32,
    memory_type_id: *mut i64,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let output = unsafe { output.as_mut() }.ok_or_else(|| Error::invalid("output was nullptr"))?;
        // SAFETY: the caller's promise.
        unsafe { put(buffer, null_mut()) };
        if output.has_buffer() {
            let text = format!("allocated buffer for output '{}' already exists", output.name());
            return Err(Error::already_exists(text));
        }
        let pointer = output.allocate(buffer_byte_size)?;
        // SAFETY: the caller's promise.
        unsafe {
            put(buffer, pointer.cast());
            put(memory_type, CPU);
            put(memory_type_id, 0);
        }
        Ok(())
    })
}

/// Attributes of the buffer of an output, which owns them.
///
/// # Safety
/// `output` is of a response that the caller has, `buffer_attributes` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_OutputBufferAttributes(
    output: *const Output,
    buffer_attributes: *mut *const BufferAttributes,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(buffer_attributes, || Ok(object(output, "output")?.attributes())) }
}

/// Sends a response, or the error in its place, which stays the caller's. The response is gone afterwards.
///
/// # Safety
/// `response` is the caller's, who does not use it again; `error` is null or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_ResponseSend(
    response: *mut Response,
    send_flags: u32,
    error: *const ServerError,
) -> Err {
    guard(|| {
        if response.is_null() {
            return Err(Error::invalid("response was nullptr"));
        }
        // SAFETY: made by `Box::into_raw`, and the caller gives it up.
        let response = unsafe { Box::from_raw(response) };
        // SAFETY: the caller's promise.
        let error = unsafe { error.as_ref() }.map(ServerError::error);
        let (ticket, answer) = response.answer(send_flags, error);
        ticket.answer(answer);
        Ok(())
    })
}

/// An output of a response by its index. Name and shape are owned by it.
///
/// # Safety
/// `response` is the caller's, the others null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InferenceResponseOutput(
    response: *mut Response,
    index: u32,
    name: *mut *const c_char,
    datatype: *mut u32,
    shape: *mut *const i64,
    dim_count: *mut u64,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let outputs = unsafe { &object_mut(response, "response")?.outputs };
        let output = outputs.get(index as usize).ok_or_else(|| {
            Error::invalid(format!("out of bounds index {index}: response has {} outputs", outputs.len()))
        })?;
        // SAFETY: the caller's promise.
        unsafe {
            put(name, output.c_name().as_ptr());
            put(datatype, output.datatype());
            put(shape, output.shape().as_ptr());
            put(dim_count, output.shape().len() as u64);
        }
        Ok(())
    })
}

/// An output of a response by its name. The shape is owned by it.
///
/// # Safety
/// `response` is the caller's, `name` NUL-terminated, the others null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_InferenceResponseOutputByName(
    response: *mut Response,
    name: *const c_char,
    datatype: *mut u32,
    shape: *mut *const i64,
    dim_count: *mut u64,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let (response, name) = unsafe { (object_mut(response, "response")?, text(name)) };
        let output = response.outputs.iter().find(|output| output.name() == name);
        let output = output.ok_or_else(|| Error::not_found(format!("Output name {name}not found.")))?;
        // SAFETY: the caller's promise.
        unsafe {
            put(datatype, output.datatype());
            put(shape, output.shape().as_ptr());
            put(dim_count, output.shape().len() as u64);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_parameter_of_a_name_counts_and_many_take_no_time() {
        let mut parameters: Vec<_> = (0..200_000)
            .map(|number| (Name::from((number % 100_000).to_string().as_str()), Parameter::Int(number)))
            .collect();
        keep_last(&mut parameters);
        assert_eq!(parameters.len(), 100_000);
        assert_eq!(parameters.first(), Some(&(Name::from("0"), Parameter::Int(100_000))));
        assert_eq!(parameters.last(), Some(&(Name::from("99999"), Parameter::Int(199_999))));
    }
}
