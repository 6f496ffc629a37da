//! `TRITONSERVER_InferenceRequest`: a request of a library to a model of the server.
//!
//! The library owns a request, except between a successful `TRITONSERVER_ServerInferAsync` and its release callback,
//! when it may only cancel it. Inputs are copied when the request is sent, so its release follows the last response.

#![allow(unsafe_code)] // pointers of a C API

mod fields;

use super::allocator::{Allocation, ResponseAllocator};
use super::attributes::BufferAttributes;
use super::inference_response::InferenceResponse;
use super::parameter::Parameter;
use super::{Err, c_text, delete, get, guard, object, put, text};
use crate::calls::{CallResponse, Callbacks, OpenCall};
use crate::described::Described;
use crate::link::{Caller, Link};
use crate::outgoing::{CallInput, CallTo, InputBuffer, SentCall};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tensor::{Error, Result};

/// Longest correlation id that is a text, in bytes.
const CORRELATION_BYTES_MAX: usize = 128;
/// `TRITONSERVER_REQUEST_RELEASE_ALL`
const RELEASE_ALL: u32 = 1;
/// `TRITONSERVER_RESPONSE_COMPLETE_FINAL`
const RESPONSE_FINAL: u32 = 1;

type ReleaseCallback = unsafe extern "C" fn(*mut InferenceRequest, u32, *mut c_void);
type ResponseCallback = unsafe extern "C" fn(*mut InferenceResponse, u32, *mut c_void);

/// The connection to a server that a program embeds. In the host of a backend, whose server has no object of its own:
/// that of the code which calls.
///
/// # Errors
/// There is no connection, or the server was deleted.
pub(crate) fn server(pointer: *const c_void) -> Result<Arc<Link>> {
    match crate::embed::server(pointer)? {
        Some(server) => server.link(),
        None => Link::current().ok_or_else(|| Error::unavailable("there is no connection to the server")),
    }
}

/// Correlation id of a request.
enum Correlation {
    Number(u64),
    Text(CString),
}

/// A request to a model. Its library changes it, and does not use it while it runs, except to cancel it.
pub(crate) struct InferenceRequest {
    model: String,
    /// Version that the library asked for, -1 for the version policy.
    version: i64,
    described: Described,
    id: CString,
    flags: u32,
    correlation: Correlation,
    priority: u64,
    timeout_us: u64,
    inputs: Vec<CallInput>,
    outputs: BTreeSet<String>,
    parameters: Vec<Parameter>,
    release: Option<(ReleaseCallback, *mut c_void)>,
    respond: Option<(Allocation, ResponseCallback, *mut c_void)>,
    /// The call that was sent last.
    sent: Mutex<Option<SentCall>>,
    is_cancelled: AtomicBool,
}

impl InferenceRequest {
    fn prefix(&self) -> String {
        let id = self.id.to_string_lossy();
        format!("[request id: {}] ", if id.is_empty() { "<id_unknown>" } else { &id })
    }

    fn input(&mut self, name: &str) -> Result<&mut CallInput> {
        let prefix = self.prefix();
        let found = self.inputs.iter_mut().find(|input| input.name == name);
        found.ok_or_else(|| Error::invalid(format!("{prefix}input '{name}' does not exist in request")))
    }

    fn add_input(&mut self, name: String, datatype: u32, shape: Vec<i64>) -> Result<()> {
        if self.inputs.iter().any(|input| input.name == name) {
            return Err(Error::invalid(format!("{}input '{name}' already exists in request", self.prefix())));
        }
        self.inputs.push(CallInput::new(name, datatype, shape));
        Ok(())
    }
}

/// The functions of a library that its request ends with.
struct RequestCallbacks {
    /// Used for its release only.
    request: *mut InferenceRequest,
    release: (ReleaseCallback, *mut c_void),
    respond: (Allocation, ResponseCallback, *mut c_void),
    model: CString,
    version: i64,
    id: CString,
    /// Dropped after the last callback.
    _caller: Caller,
}

// SAFETY: the C API lets a server call these functions on any thread, one after the other.
unsafe impl Send for RequestCallbacks {}

impl Callbacks for RequestCallbacks {
    fn hand(&mut self, response: Option<CallResponse>, is_final: bool) {
        let (allocation, respond, userp) = self.respond;
        let make = |from| InferenceResponse::new(&self.model, self.version, &self.id, allocation, from);
        let response = response.map_or(null_mut(), |from| Box::into_raw(Box::new(make(from))));
        // SAFETY: the library's function with its pointer; it owns the response from now on.
        unsafe { respond(response, if is_final { RESPONSE_FINAL } else { 0 }, userp) };
        if is_final {
            let (release, userp) = self.release;
            // SAFETY: the library's function with its pointer and its request, which this side does not use any more.
            unsafe { release(self.request, RELEASE_ALL, userp) };
        }
    }
}

/// Sends a request. On an error the library keeps it.
///
/// # Safety
/// `request` is null or live, and the library does not use it before its release, except to cancel it.
pub(crate) unsafe fn infer(link: &Arc<Link>, request: *mut InferenceRequest, is_traced: bool) -> Result<()> {
    // SAFETY: the caller's promise.
    let of = unsafe { object(request, "inference request") }?;
    let missing = |what| Error::invalid(format!("{}the request has no {what} callback", of.prefix()));
    let release = of.release.ok_or_else(|| missing("release"))?;
    let respond = of.respond.ok_or_else(|| missing("response"))?;
    let (correlation, correlation_text) = match &of.correlation {
        Correlation::Number(number) => (*number, ""),
        Correlation::Text(text) => (0, text.to_str().unwrap_or_default()),
    };
    let to = CallTo {
        model: &of.model,
        version: of.version,
        id: of.id.to_str().unwrap_or_default(),
        prefix: &of.prefix(),
        correlation,
        correlation_text,
        flags: of.flags,
        priority: of.priority,
        timeout_us: of.timeout_us,
        is_traced,
        inputs: &of.inputs,
        outputs: &of.outputs,
        parameters: &of.parameters,
    };
    to.check(link)?;
    let callbacks = RequestCallbacks {
        request,
        release,
        respond,
        model: c_text(&of.model),
        version: of.described.version,
        id: of.id.clone(),
        _caller: link.callers.enter(),
    };
    let call = OpenCall::new(link, Box::new(callbacks));
    of.is_cancelled.store(false, Relaxed);
    // Kept until it is noted: the release callback may delete the request as soon as the call is sent.
    let mut sent = of.sent.lock();
    let number = link.open_call(call.clone());
    *sent = Some(SentCall { link: Arc::downgrade(link), call: number });
    drop(sent);
    to.send(link, number).and_then(|()| call.wait())
}

/// A new request, for a version that serves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestNew(
    request: *mut *mut InferenceRequest,
    server: *mut c_void,
    model_name: *const c_char,
    model_version: i64,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let model = unsafe { text(model_name) };
        let described = match crate::embed::server(server)? {
            Some(embedded) => embedded.descriptions.recent(&embedded.link()?, &model, model_version)?,
            None => Described::ask(&self::server(server)?, &model, model_version)?,
        };
        let made = InferenceRequest {
            model,
            version: model_version,
            described,
            id: CString::default(),
            flags: 0,
            correlation: Correlation::Number(0),
            priority: described.default_priority,
            timeout_us: 0,
            inputs: Vec::new(),
            outputs: BTreeSet::new(),
            parameters: Vec::new(),
            release: None,
            respond: None,
            sent: Mutex::default(),
            is_cancelled: AtomicBool::new(false),
        };
        // SAFETY: the caller's promise.
        unsafe { put(request, Box::into_raw(Box::new(made))) };
        Ok(())
    })
}

/// Deletes a request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestDelete(request: *mut InferenceRequest) -> Err {
    // SAFETY: made by `TRITONSERVER_InferenceRequestNew`, and the caller's.
    unsafe { delete(request) }
}

/// Changes a request.
///
/// # Safety
/// `request` is null or live, and nothing else uses it meanwhile.
unsafe fn change(request: *mut InferenceRequest, change: impl FnOnce(&mut InferenceRequest) -> Result<()>) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let request = unsafe { request.as_mut() };
        change(request.ok_or_else(|| Error::invalid("inference request was nullptr"))?)
    })
}

/// Changes a request in a way that cannot fail.
///
/// # Safety
/// As `change`.
unsafe fn set(request: *mut InferenceRequest, set: impl FnOnce(&mut InferenceRequest)) -> Err {
    let all = |request: &mut InferenceRequest| {
        set(request);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { change(request, all) }
}

/// Gives what a request says.
///
/// # Safety
/// `request` is null or live; `to` is null or valid for a write.
unsafe fn give<T>(
    request: *const InferenceRequest,
    to: *mut T,
    value: impl FnOnce(&InferenceRequest) -> Result<T>,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { get(to, || value(object(request, "inference request")?)) }
}

/// Cancels a request that was sent; it still gets a final response.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestCancel(request: *const InferenceRequest) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let request = unsafe { object(request, "inference request") }?;
        let sent = request.sent.lock();
        let sent = sent.as_ref().ok_or_else(|| {
            Error::internal("It is not possible to cancel an inference request before calling TRITONSERVER_InferAsync.")
        })?;
        request.is_cancelled.store(true, Relaxed);
        sent.cancel();
        Ok(())
    })
}

/// Whether the library has cancelled a request that was sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestIsCancelled(
    request: *const InferenceRequest,
    is_cancelled: *mut bool,
) -> Err {
    let state = |request: &InferenceRequest| {
        if request.sent.lock().is_some() {
            return Ok(request.is_cancelled.load(Relaxed));
        }
        Err(Error::internal("It is not possible to query cancellation status before calling TRITONSERVER_InferAsync."))
    };
    // SAFETY: the caller's promise.
    unsafe { give(request, is_cancelled, state) }
}

/// Adds an input without data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestAddInput(
    request: *mut InferenceRequest,
    name: *const c_char,
    datatype: u32,
    shape: *const i64,
    dim_count: u64,
) -> Err {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name) };
    let count = if shape.is_null() { 0 } else { dim_count as usize };
    // SAFETY: the caller promises so many dims; a null pointer has none.
    let shape = (0..count).map(|at| unsafe { *shape.add(at) }).collect();
    // SAFETY: the caller's promise.
    unsafe { change(request, |request| request.add_input(name, datatype, shape)) }
}

/// Removes an input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestRemoveInput(
    request: *mut InferenceRequest,
    name: *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name) };
    let remove = |request: &mut InferenceRequest| {
        request.input(&name)?;
        request.inputs.retain(|input| input.name != name);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { change(request, remove) }
}

/// Removes all inputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestRemoveAllInputs(request: *mut InferenceRequest) -> Err {
    // SAFETY: the caller's promise.
    unsafe { set(request, |request| request.inputs.clear()) }
}

/// # Safety
/// As `change`; `name` is null or NUL-terminated.
unsafe fn append(request: *mut InferenceRequest, name: *const c_char, buffer: InputBuffer) -> Err {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name) };
    // SAFETY: the caller's promise.
    unsafe { change(request, |request| request.input(&name).map(|input| input.append(buffer))) }
}

/// Adds a buffer to an input, which the caller keeps until the request is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestAppendInputData(
    request: *mut InferenceRequest,
    name: *const c_char,
    base: *const c_void,
    byte_size: usize,
    memory_type: u32,
    _memory_type_id: i64,
) -> Err {
    // SAFETY: the caller's promise.
    unsafe { append(request, name, InputBuffer { base: base.cast(), bytes: byte_size, memory_type, policy: None }) }
}

/// Adds a buffer for instances with a host policy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
    request: *mut InferenceRequest,
    name: *const c_char,
    base: *const c_void,
    byte_size: usize,
    memory_type: u32,
    _memory_type_id: i64,
    host_policy_name: *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    let policy = Some(unsafe { text(host_policy_name) });
    // SAFETY: the caller's promise.
    unsafe { append(request, name, InputBuffer { base: base.cast(), bytes: byte_size, memory_type, policy }) }
}

/// Adds a buffer that attributes describe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
    request: *mut InferenceRequest,
    name: *const c_char,
    base: *const c_void,
    attributes: *const BufferAttributes,
) -> Err {
    // SAFETY: the caller's promise.
    let of = unsafe { attributes.as_ref() }.cloned().unwrap_or_default();
    let buffer = InputBuffer { base: base.cast(), bytes: of.bytes, memory_type: of.memory_type, policy: None };
    // SAFETY: the caller's promise.
    unsafe { append(request, name, buffer) }
}

/// Removes the buffers of an input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestRemoveAllInputData(
    request: *mut InferenceRequest,
    name: *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name) };
    // SAFETY: the caller's promise.
    unsafe { change(request, |request| request.input(&name).map(|input| input.clear())) }
}

/// Asks for an output; without any, all are asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestAddRequestedOutput(
    request: *mut InferenceRequest,
    name: *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name) };
    let add = |request: &mut InferenceRequest| {
        if request.outputs.contains(&name) {
            return Err(Error::invalid(format!("{}output '{name}' already exists in request", request.prefix())));
        }
        request.outputs.insert(name);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { change(request, add) }
}

/// Asks for an output no longer, if it was asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestRemoveRequestedOutput(
    request: *mut InferenceRequest,
    name: *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name) };
    // SAFETY: the caller's promise.
    unsafe { set(request, |request| drop(request.outputs.take(&name))) }
}

/// Asks for all outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(request: *mut InferenceRequest) -> Err {
    // SAFETY: the caller's promise.
    unsafe { set(request, |request| request.outputs.clear()) }
}

/// Sets the function that gets the request back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetReleaseCallback(
    request: *mut InferenceRequest,
    release_fn: Option<ReleaseCallback>,
    userp: *mut c_void,
) -> Err {
    let callback = release_fn.map(|release| (release, userp));
    // SAFETY: the caller's promise.
    unsafe { set(request, |request| request.release = callback) }
}

/// Sets the function that gets the responses, and the allocator of their buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_InferenceRequestSetResponseCallback(
    request: *mut InferenceRequest,
    allocator: *const ResponseAllocator,
    allocator_userp: *mut c_void,
    response_fn: Option<ResponseCallback>,
    userp: *mut c_void,
) -> Err {
    let callback = response_fn.map(|respond| (Allocation::new(allocator, allocator_userp), respond, userp));
    // SAFETY: the caller's promise.
    unsafe { set(request, |request| request.respond = callback) }
}

#[cfg(test)]
mod tests;
