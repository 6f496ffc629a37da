//! `TRITONBACKEND_State`: a tensor that a sequence keeps for its next request. It goes to the server as an output under
//! the name of the state.

#![allow(unsafe_code)] // pointers of a C API

use super::attributes::BufferAttributes;
use super::exports::{Out, exports, objects};
use super::memory::CPU;
use super::request::Request;
use super::values::dims;
use crate::answer::Output;
use crate::ticket::State;
use std::ffi::c_void;
use tensor::Error;

objects! {
    State: "state";
}

exports! {
    /// A new value for a state; the same object for the same name. Owned by the request.
    fn TRITONBACKEND_StateNew(
        state: Out<*mut State>,
        request: &Request,
        name: String,
        datatype: u32,
        shape: *const i64,
        dims_count: u32,
    ) {
        // SAFETY: null, or so many dims.
        let shape = unsafe { dims(shape, dims_count) };
        let model = &request.ticket.instance.model;
        let known = &model.signature().states;
        if known.is_empty() {
            return Err(Error::invalid(format!(
                "unable to add state '{name}'. State configuration is missing for model '{}'.",
                model.name()
            )));
        }
        if !known.contains(&name) {
            return Err(Error::invalid(format!("state '{name}' is not a valid state name.")));
        }
        let signature = model.signature();
        let same = signature.same_buffers.iter().find(|(_, output)| *output == name);
        // The buffer begins with the current value, and its contents count without an update.
        let current = same.and_then(|(input, _)| request.bytes_of(input));
        let found = request.ticket.state(&name, |ticket| State {
            output: Output::new(&ticket.instance, &name, datatype, shape),
            is_updated: current.is_some(),
            current,
        });
        state.put(found);
    }

    /// Makes the value the current one; a second call takes that back, as in Triton.
    fn TRITONBACKEND_StateUpdate(state: &mut State) {
        state.is_updated = !state.is_updated || state.current.is_some();
    }

    /// Allocates the buffer of a state, in memory of the host. The state owns it.
    fn TRITONBACKEND_StateBuffer(
        state: &mut State,
        buffer: Out<*mut c_void>,
        buffer_byte_size: u64,
        memory_type: Out<u32>,
        memory_type_id: Out<i64>,
    ) {
        let pointer = state.output.allocate(buffer_byte_size)?;
        if let Some(current) = &state.current {
            let bytes = current.len().min(usize::try_from(buffer_byte_size).unwrap_or(usize::MAX));
            // SAFETY: the new buffer has as many bytes as are copied.
            unsafe { std::ptr::copy_nonoverlapping(current.as_ptr(), pointer, bytes) };
        }
        buffer.put(pointer.cast());
        memory_type.put(CPU);
        memory_type_id.put(0);
    }

    /// Attributes of the buffer of a state, which owns them.
    fn TRITONBACKEND_StateBufferAttributes(state: &mut State, buffer_attributes: Out<*const BufferAttributes>) {
        buffer_attributes.put(state.output.attributes());
    }
}
