//! `TRITONBACKEND_ResponseFactory`, `TRITONBACKEND_Response` and `TRITONBACKEND_Output`.

#![allow(unsafe_code)] // pointers of a C API

use super::attributes::BufferAttributes;
use super::error::ServerError;
use super::exports::{Out, exports, objects};
use super::memory::CPU;
use super::request::Request;
use super::values::dims;
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

objects! {
    Response: "response";
    ResponseFactory: "factory";
    Output: "output";
}

exports! {
    /// A factory for the responses of a request; the caller deletes it.
    fn TRITONBACKEND_ResponseFactoryNew(factory: Out<*mut ResponseFactory>, request: &Request) {
        let ticket = Arc::clone(&request.ticket);
        ticket.has_factory();
        factory.give(ResponseFactory(ticket));
    }

    /// Deletes a factory.
    fn TRITONBACKEND_ResponseFactoryDelete(factory: Option<Box<ResponseFactory>>) {
        drop(factory);
    }

    /// Ends a request without a further response, if the flags say so.
    fn TRITONBACKEND_ResponseFactorySendFlags(factory: &ResponseFactory, send_flags: u32) {
        let ticket = &factory.0;
        if send_flags & FINAL != 0 {
            ticket.answer(Answer::end());
        }
    }

    /// Whether the client has cancelled the request of a factory.
    fn TRITONBACKEND_ResponseFactoryIsCancelled(factory: &ResponseFactory, is_cancelled: Out<bool>) {
        is_cancelled.put(factory.0.is_cancelled());
    }

    /// A response of a request; the caller sends or deletes it.
    fn TRITONBACKEND_ResponseNew(response: Out<*mut Response>, request: &Request) {
        response.put(Response::new(&request.ticket));
    }

    /// A response of a factory's request; the caller sends or deletes it.
    fn TRITONBACKEND_ResponseNewFromFactory(response: Out<*mut Response>, factory: &ResponseFactory) {
        response.put(Response::new(&factory.0));
    }

    /// Deletes a response that was not sent.
    fn TRITONBACKEND_ResponseDelete(response: Option<Box<Response>>) {
        drop(response);
    }

    /// Sets a parameter of a response; one of the same name is replaced.
    fn TRITONBACKEND_ResponseSetStringParameter(response: &mut Response, name: String, value: String) {
        let value = Parameter::String(Name::from(value.as_str()));
        response.parameter(name, value);
    }

    /// Sets a parameter of a response; one of the same name is replaced.
    fn TRITONBACKEND_ResponseSetIntParameter(response: &mut Response, name: String, value: i64) {
        response.parameter(name, Parameter::Int(value));
    }

    /// Sets a parameter of a response; one of the same name is replaced.
    fn TRITONBACKEND_ResponseSetBoolParameter(response: &mut Response, name: String, value: bool) {
        response.parameter(name, Parameter::Bool(value));
    }

    /// Sets a parameter of a response; one of the same name is replaced.
    fn TRITONBACKEND_ResponseSetDoubleParameter(response: &mut Response, name: String, value: f64) {
        response.parameter(name, Parameter::Double(value));
    }

    /// Adds an output, which the response owns.
    fn TRITONBACKEND_ResponseOutput(
        response: &mut Response,
        output: Out<*mut Output>,
        name: String,
        datatype: u32,
        shape: *const i64,
        dims_count: u32,
    ) {
        let model = &response.ticket.instance.model;
        if !model.signature().outputs.iter().any(|known| known.to_bytes() == name.as_bytes()) {
            response.is_spoilt = true;
            let model = model.name();
            return Err(Error::invalid(format!("unexpected inference output '{name}' for model '{model}'")));
        }
        // SAFETY: null, or so many dims.
        let dims = unsafe { dims(shape, dims_count) };
        let mut new = Box::new(Output::new(&response.ticket.instance, &name, datatype, dims));
        // A box does not move what it holds.
        output.put(&raw mut *new);
        response.outputs.push(new);
    }

    /// Allocates the buffer of an output, in memory of the host whatever was wished for. The output owns it.
    fn TRITONBACKEND_OutputBuffer(
        output: &mut Output,
        buffer: Out<*mut c_void>,
        buffer_byte_size: u64,
        memory_type: Out<u32>,
        memory_type_id: Out<i64>,
    ) {
        buffer.put(null_mut());
        if output.has_buffer() {
            let text = format!("allocated buffer for output '{}' already exists", output.name());
            return Err(Error::already_exists(text));
        }
        let pointer = output.allocate(buffer_byte_size)?;
        buffer.put(pointer.cast());
        memory_type.put(CPU);
        memory_type_id.put(0);
    }

    /// Attributes of the buffer of an output, which owns them.
    fn TRITONBACKEND_OutputBufferAttributes(output: &Output, buffer_attributes: Out<*const BufferAttributes>) {
        buffer_attributes.put(output.attributes());
    }

    /// Sends a response, or the error in its place, which stays the caller's. The response is gone afterwards.
    fn TRITONBACKEND_ResponseSend(response: Box<Response>, send_flags: u32, error: Option<&ServerError>) {
        let (ticket, answer) = response.answer(send_flags, error.map(ServerError::error));
        ticket.answer(answer);
    }

    /// An output of a response by its index. Name and shape are owned by it.
    fn TRITONBACKEND_InferenceResponseOutput(
        response: &mut Response,
        index: u32,
        name: Out<*const c_char>,
        datatype: Out<u32>,
        shape: Out<*const i64>,
        dim_count: Out<u64>,
    ) {
        let outputs = &response.outputs;
        let output = outputs.get(index as usize).ok_or_else(|| {
            Error::invalid(format!("out of bounds index {index}: response has {} outputs", outputs.len()))
        })?;
        name.put(output.c_name().as_ptr());
        datatype.put(output.datatype());
        shape.put(output.shape().as_ptr());
        dim_count.put(output.shape().len() as u64);
    }

    /// An output of a response by its name. The shape is owned by it.
    fn TRITONBACKEND_InferenceResponseOutputByName(
        response: &mut Response,
        name: String,
        datatype: Out<u32>,
        shape: Out<*const i64>,
        dim_count: Out<u64>,
    ) {
        let output = response.outputs.iter().find(|output| output.name() == name);
        let output = output.ok_or_else(|| Error::not_found(format!("Output name {name}not found.")))?;
        datatype.put(output.datatype());
        shape.put(output.shape().as_ptr());
        dim_count.put(output.shape().len() as u64);
    }
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
