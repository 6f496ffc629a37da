//! `TRITONBACKEND_ResponseFactory`, `TRITONBACKEND_Response` and `TRITONBACKEND_Output`.

use super::at;
use super::attributes::BufferAttributes;
use super::error::ServerError;
use super::exports::{Count, Items, Lent, Out, exports, objects};
use super::memory::CPU;
use super::request::Request;
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
    fn new(ticket: &Arc<Ticket>) -> Self {
        Self { ticket: Arc::clone(ticket), parameters: Vec::new(), outputs: Vec::new(), is_spoilt: false }
    }

    /// Sets a parameter; one of the same name is replaced when the response is sent.
    fn parameter(&mut self, name: &str, value: Parameter) {
        self.parameters.push((Name::from(name), value));
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
    "response" fn TRITONBACKEND_ResponseFactoryNew(factory: Out<*mut ResponseFactory>, request: &Request) {
        let ticket = Arc::clone(&request.ticket);
        ticket.has_factory();
        factory.give(ResponseFactory(ticket));
    }

    "response" delete TRITONBACKEND_ResponseFactoryDelete(ResponseFactory);

    /// Ends a request without a further response, if the flags say so.
    "response" fn TRITONBACKEND_ResponseFactorySendFlags(factory: &ResponseFactory, send_flags: u32) {
        if send_flags & FINAL != 0 {
            factory.0.answer(Answer::end());
        }
    }

    "stream" get TRITONBACKEND_ResponseFactoryIsCancelled(factory: &ResponseFactory) -> bool = factory.0.is_cancelled();

    /// The library sends or deletes it.
    "response" fn TRITONBACKEND_ResponseNew(response: Out<*mut Response>, request: &Request) =>
        response.give(Response::new(&request.ticket));

    /// The library sends or deletes it.
    "response" fn TRITONBACKEND_ResponseNewFromFactory(response: Out<*mut Response>, factory: &ResponseFactory) =>
        response.give(Response::new(&factory.0));

    "response" delete TRITONBACKEND_ResponseDelete(Response);

    "response" fn TRITONBACKEND_ResponseSetStringParameter(response: &mut Response, name: String, value: String) =>
        response.parameter(&name, Parameter::String(Name::from(value.as_str())));
    "response" fn TRITONBACKEND_ResponseSetIntParameter(response: &mut Response, name: String, value: i64) =>
        response.parameter(&name, Parameter::Int(value));
    "response" fn TRITONBACKEND_ResponseSetBoolParameter(response: &mut Response, name: String, value: bool) =>
        response.parameter(&name, Parameter::Bool(value));
    "response" fn TRITONBACKEND_ResponseSetDoubleParameter(response: &mut Response, name: String, value: f64) =>
        response.parameter(&name, Parameter::Double(value));

    /// Adds an output, which the response owns.
    "response" fn TRITONBACKEND_ResponseOutput(
        response: &mut Response,
        output: Out<*mut Output>,
        name: String,
        datatype: u32,
        shape: Items<i64>,
        dims_count: Count<u32>,
    ) {
        let model = &response.ticket.instance.model;
        if !model.signature().outputs.iter().any(|known| known.to_bytes() == name.as_bytes()) {
            response.is_spoilt = true;
            let model = model.name();
            return Err(Error::invalid(format!("unexpected inference output '{name}' for model '{model}'")));
        }
        let shape = shape.of(dims_count).to_vec();
        let mut new = Box::new(Output::new(&response.ticket.instance, &name, datatype, shape));
        // A box does not move what it holds.
        output.put(&raw mut *new);
        response.outputs.push(new);
    }

    /// Allocates the buffer of an output, in memory of the host whatever was wished for. The output owns it.
    "response" fn TRITONBACKEND_OutputBuffer(
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
        buffer.put(output.allocate(buffer_byte_size, &[])?.cast());
        memory_type.put(CPU);
        memory_type_id.put(0);
    }

    "response" get TRITONBACKEND_OutputBufferAttributes(of: &Output) -> Lent<BufferAttributes> = of.attributes();

    /// Sends a response, or the error in its place, which stays the library's.
    "response" fn TRITONBACKEND_ResponseSend(response: Box<Response>, send_flags: u32, error: Option<&ServerError>) {
        let (ticket, answer) = response.answer(send_flags, error.map(ServerError::error));
        ticket.answer(answer);
    }

    "response" fn TRITONBACKEND_InferenceResponseOutput(
        response: &mut Response,
        index: u32,
        name: Out<Lent<c_char>>,
        datatype: Out<u32>,
        shape: Out<Lent<i64>>,
        dim_count: Out<u64>,
    ) {
        let output = at(&response.outputs, index, "response has", "outputs")?;
        name.put(output.c_name().as_ptr());
        output.put_type(&datatype, &shape, &dim_count);
    }

    "response" fn TRITONBACKEND_InferenceResponseOutputByName(
        response: &mut Response,
        name: String,
        datatype: Out<u32>,
        shape: Out<Lent<i64>>,
        dim_count: Out<u64>,
    ) {
        let output = response.outputs.iter().find(|output| output.name() == name);
        let output = output.ok_or_else(|| Error::not_found(format!("Output name {name}not found.")))?;
        output.put_type(&datatype, &shape, &dim_count);
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
