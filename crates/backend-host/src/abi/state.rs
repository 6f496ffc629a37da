//! `TRITONBACKEND_State`: a tensor that a sequence keeps for its next request. It goes to the server as an output under
//! the name of the state.

use super::attributes::BufferAttributes;
use super::exports::{Count, Items, Lent, Out, exports, objects};
use super::memory::CPU;
use super::request::Request;
use crate::answer::Output;
use crate::ticket::State;
use std::ffi::c_void;
use tensor::Error;

objects! {
    State: "state";
}

exports! {
    /// A new value for a state; the same object for the same name. Owned by the request.
    "state" fn TRITONBACKEND_StateNew(
        state: Out<*mut State>,
        request: &Request,
        name: String,
        datatype: u32,
        shape: Items<i64>,
        dims_count: Count<u32>,
    ) {
        let model = &request.ticket.instance.model;
        let signature = model.signature();
        let known = &signature.states;
        if known.is_empty() {
            return Err(Error::invalid(format!(
                "unable to add state '{name}'. State configuration is missing for model '{}'.",
                model.name()
            )));
        }
        if !known.contains(&name) {
            return Err(Error::invalid(format!("state '{name}' is not a valid state name.")));
        }
        let same = signature.same_buffers.iter().find(|(_, output)| *output == name);
        // The buffer begins with the current value, and its contents count without an update.
        let current = same.and_then(|(input, _)| request.bytes_of(input));
        let found = request.ticket.state(&name, |ticket| State {
            output: Output::new(&ticket.instance, &name, datatype, shape.of(dims_count).to_vec()),
            is_updated: current.is_some(),
            current,
        });
        state.put(found);
    }

    /// Makes the value the current one; a second call takes that back, as in Triton.
    "state" fn TRITONBACKEND_StateUpdate(state: &mut State) =>
        state.is_updated = !state.is_updated || state.current.is_some();

    /// Allocates the buffer of a state, in memory of the host. The state owns it.
    "state" fn TRITONBACKEND_StateBuffer(
        state: &mut State,
        buffer: Out<*mut c_void>,
        buffer_byte_size: u64,
        memory_type: Out<u32>,
        memory_type_id: Out<i64>,
    ) {
        buffer.put(state.output.allocate(buffer_byte_size, state.current.as_deref().unwrap_or_default())?.cast());
        memory_type.put(CPU);
        memory_type_id.put(0);
    }

    "state" get TRITONBACKEND_StateBufferAttributes(of: &State) -> Lent<BufferAttributes> = of.output.attributes();
}
