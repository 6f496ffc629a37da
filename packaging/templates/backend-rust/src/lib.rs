//! Backend `{{name}}`: copies INPUT0 of each request to OUTPUT0.
//!
//! A panic in a function that the server calls ends the process that serves the models of this backend.

mod triton;

use std::ffi::{c_void, CString};
use std::ptr::{null, null_mut};
use triton::*;

/// The error of a call, if it made one. The caller owns it: it passes it on or deletes it.
fn check(error: Err) -> Result<(), Err> {
    match error.is_null() {
        true => Ok(()),
        false => Err(error),
    }
}

fn failure(code: u32, text: &str) -> Err {
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: the text ends with a zero, and the server copies it.
    unsafe { error_new(code, text.as_ptr()) }
}

/// Deletes an error that is not returned; does nothing with null.
fn ignore(error: Err) {
    // SAFETY: the error is null or owned by the caller, who gives it away here.
    unsafe { error_delete(error) }
}

/// The clock of statistics, in nanoseconds. Rust's own clock has another start.
fn now_ns() -> u64 {
    let mut now = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: a valid place for the time.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &mut now) };
    now.seconds as u64 * 1_000_000_000 + now.nanoseconds as u64
}

fn require_host_memory(memory_type: u32) -> Result<(), Err> {
    if memory_type != MEMORY_GPU {
        return Ok(());
    }
    Err(failure(ERROR_UNSUPPORTED, "{{name}} reads and writes host memory only"))
}

/// Writes the outputs of one request and returns its rows: the first dimension is the batch.
fn respond(request: *mut Request, response: *mut Response) -> Result<u64, Err> {
    let (mut input, mut output) = (null_mut(), null_mut());
    let (mut datatype, mut dims, mut buffers, mut bytes) = (0, 0, 0, 0);
    let mut shape = null();
    let mut to: *mut c_void = null_mut();
    let (mut memory_type, mut memory_id) = (MEMORY_CPU, 0);
    // SAFETY: request and response are the server's and live until they are released and sent; all results are valid
    // places, and what they point at belongs to the request.
    unsafe {
        check(request_input(request, c"INPUT0".as_ptr(), &mut input))?;
        check(input_properties(input, null_mut(), &mut datatype, &mut shape, &mut dims, &mut bytes, &mut buffers))?;
        check(response_output(response, &mut output, c"OUTPUT0".as_ptr(), datatype, shape, dims))?;
        check(output_buffer(output, &mut to, bytes, &mut memory_type, &mut memory_id))?;
    }
    require_host_memory(memory_type)?;
    let mut written = 0;
    // An input may come in several buffers.
    for index in 0..buffers {
        let (mut from, mut part) = (null(), 0);
        memory_type = MEMORY_CPU;
        // SAFETY: as above.
        check(unsafe { input_buffer(input, index, &mut from, &mut part, &mut memory_type, &mut memory_id) })?;
        require_host_memory(memory_type)?;
        if part > bytes - written {
            return Err(failure(ERROR_INTERNAL, "the buffers of an input are larger than the input"));
        }
        // SAFETY: the output has room for `bytes`, of which `written` are used, and does not overlap the input.
        // Your code goes here.
        unsafe { from.cast::<u8>().copy_to_nonoverlapping(to.cast::<u8>().add(written as usize), part as usize) };
        written += part;
    }
    // SAFETY: the shape has `dims` elements.
    Ok(if dims == 0 { 1 } else { unsafe { shape.read() as u64 } })
}

/// Rejects servers whose API is older than that of triton.rs.
#[no_mangle]
pub extern "C" fn TRITONBACKEND_Initialize(_backend: *mut Backend) -> Err {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are valid places for a result.
    let error = unsafe { api_version(&mut major, &mut minor) };
    if !error.is_null() || (major == API_MAJOR && minor >= API_MINOR) {
        return error;
    }
    failure(ERROR_UNSUPPORTED, "{{name}} needs a newer version of the backend API")
}

/// Runs one batch. Returning no error means that every request gets its response and its release from here.
///
/// # Safety
/// `requests` has `count` requests, as the server makes sure.
#[no_mangle]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceExecute(
    instance: *mut Instance, requests: *mut *mut Request, count: u32,
) -> Err {
    let start = now_ns();
    let mut rows = 0;
    // SAFETY: the caller's promise.
    for &request in unsafe { std::slice::from_raw_parts(requests, count as usize) } {
        let mut response = null_mut();
        // SAFETY: a valid request, and a valid place for the response.
        let made = check(unsafe { response_new(&mut response, request) });
        let error = match made.and_then(|()| respond(request, response)) {
            Ok(more) => {
                rows += more;
                null_mut()
            }
            Err(error) => error,
        };
        let success = error.is_null();
        // SAFETY: the response is the server's from here on, also if sending fails; the request after its release.
        unsafe {
            if !response.is_null() {
                ignore(response_send(response, RESPONSE_FINAL, error));
            }
            ignore(error);
            let end = now_ns();
            ignore(report_statistics(instance, request, success, start, start, end, end));
            ignore(request_release(request, RELEASE_ALL));
        }
    }
    let end = now_ns();
    // SAFETY: a valid instance.
    unsafe { report_batch_statistics(instance, rows, start, start, end, end) }
}
