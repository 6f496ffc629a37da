//! `TRITONBACKEND_State`: a tensor that a sequence keeps for its next request. It goes to the server as an output under
//! the name of the state.

#![allow(unsafe_code)] // pointers of a C API

use super::attributes::BufferAttributes;
use super::memory::CPU;
use super::request::Request;
use super::values::dims;
use super::{Err, get, guard, object, object_mut, put, text};
use crate::answer::Output;
use crate::ticket::State;
use std::ffi::{c_char, c_void};
use tensor::Error;

/// A new value for a state; the same object for the same name. Owned by the request.
///
/// # Safety
/// `request` is live, `name` NUL-terminated, `shape` has `dims_count` elements, `state` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_StateNew(
    state: *mut *mut State,
    request: *const Request,
    name: *const c_char,
    datatype: u32,
    shape: *const i64,
    dims_count: u32,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let (request, name, shape) = unsafe { (object(request, "request")?, text(name), dims(shape, dims_count)) };
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
        // SAFETY: the caller's promise.
        unsafe { put(state, found) };
        Ok(())
    })
}

/// Makes the value the current one; a second call takes that back, as in Triton.
///
/// # Safety
/// `state` is of a request that the caller has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_StateUpdate(state: *mut State) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let state = unsafe { object_mut(state, "state")? };
        state.is_updated = !state.is_updated || state.current.is_some();
        Ok(())
    })
}

/// Allocates the buffer of a state, in memory of the host. The state owns it.
///
/// # Safety
/// `state` is of a request that the caller has, the others null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_StateBuffer(
    state: *mut State,
    buffer: *mut *mut c_void,
    buffer_byte_size: u64,
    memory_type: *mut u32,
    memory_type_id: *mut i64,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise. The new buffer has as many bytes as are copied.
        unsafe {
            let state = object_mut(state, "state")?;
            let pointer = state.output.allocate(buffer_byte_size)?;
            if let Some(current) = &state.current {
                let bytes = current.len().min(usize::try_from(buffer_byte_size).unwrap_or(usize::MAX));
                std::ptr::copy_nonoverlapping(current.as_ptr(), pointer, bytes);
            }
            put(buffer, pointer.cast());
            put(memory_type, CPU);
            put(memory_type_id, 0);
        }
        Ok(())
    })
}

/// Attributes of the buffer of a state, which owns them.
///
/// # Safety
/// `state` is of a request that the caller has, `buffer_attributes` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONBACKEND_StateBufferAttributes(
    state: *mut State,
    buffer_attributes: *mut *const BufferAttributes,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(buffer_attributes, || Ok(object_mut(state, "state")?.output.attributes())) }
}
