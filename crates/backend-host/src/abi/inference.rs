//! `TRITONSERVER_InferenceRequest`: a request of a library to a model of the server.
//!
//! The library owns a request, except between a successful `TRITONSERVER_ServerInferAsync` and its release callback,
//! when it may only cancel it. Inputs are copied when the request is sent, so its release follows the last response.

#![allow(unsafe_code)] // pointers of a C API

use super::exports::{Out, exports, objects, plain};
mod fields;

use super::allocator::{Allocation, ResponseAllocator};
use super::attributes::BufferAttributes;
use super::inference_response::InferenceResponse;
use super::parameter::Parameter;
use super::{c_text, object};
use crate::calls::{CallResponse, Callbacks, OpenCall};
use crate::described::Described;
use crate::link::{Caller, Link};
use crate::outgoing::{CallInput, CallTo, InputBuffer, SentCall};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::{CString, c_void};
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

plain! {
    [] Option<ReleaseCallback>;
    [] Option<ResponseCallback>;
}

objects! {
    InferenceRequest: "inference request";
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

exports! {
    /// A new request, for a version that serves.
    fn TRITONSERVER_InferenceRequestNew(
        request: Out<*mut InferenceRequest>,
        server: *mut c_void,
        model_name: String,
        model_version: i64,
    ) {
        let model = model_name;
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
        request.give(made);
    }

    /// Deletes a request.
    fn TRITONSERVER_InferenceRequestDelete(request: Option<Box<InferenceRequest>>) {
        drop(request);
    }

    /// Cancels a request that was sent; it still gets a final response.
    fn TRITONSERVER_InferenceRequestCancel(request: &InferenceRequest) {
        let sent = request.sent.lock();
        let sent = sent.as_ref().ok_or_else(|| {
            Error::internal("It is not possible to cancel an inference request before calling TRITONSERVER_InferAsync.")
        })?;
        request.is_cancelled.store(true, Relaxed);
        sent.cancel();
    }

    /// Whether the library has cancelled a request that was sent.
    fn TRITONSERVER_InferenceRequestIsCancelled(request: &InferenceRequest, is_cancelled: Out<bool>) {
        if request.sent.lock().is_none() {
            let text = "It is not possible to query cancellation status before calling TRITONSERVER_InferAsync.";
            return Err(Error::internal(text));
        }
        is_cancelled.put(request.is_cancelled.load(Relaxed));
    }

    /// Adds an input without data.
    fn TRITONSERVER_InferenceRequestAddInput(
        request: &mut InferenceRequest,
        name: String,
        datatype: u32,
        shape: *const i64,
        dim_count: u64,
    ) {
        let count = if shape.is_null() { 0 } else { dim_count as usize };
        // SAFETY: so many dims; a null pointer has none.
        let shape = (0..count).map(|at| unsafe { *shape.add(at) }).collect();
        request.add_input(name, datatype, shape)
    }

    /// Removes an input.
    fn TRITONSERVER_InferenceRequestRemoveInput(request: &mut InferenceRequest, name: String) {
        request.input(&name)?;
        request.inputs.retain(|input| input.name != name);
    }

    /// Removes all inputs.
    fn TRITONSERVER_InferenceRequestRemoveAllInputs(request: &mut InferenceRequest) {
        request.inputs.clear();
    }

    /// Adds a buffer to an input, which the caller keeps until the request is released.
    fn TRITONSERVER_InferenceRequestAppendInputData(
        request: &mut InferenceRequest,
        name: String,
        base: *const c_void,
        byte_size: usize,
        memory_type: u32,
        _memory_type_id: i64,
    ) {
        let buffer = InputBuffer { base: base.cast(), bytes: byte_size, memory_type, policy: None };
        request.input(&name)?.append(buffer);
    }

    /// Adds a buffer for instances with a host policy.
    fn TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
        request: &mut InferenceRequest,
        name: String,
        base: *const c_void,
        byte_size: usize,
        memory_type: u32,
        _memory_type_id: i64,
        host_policy_name: String,
    ) {
        let policy = Some(host_policy_name);
        let buffer = InputBuffer { base: base.cast(), bytes: byte_size, memory_type, policy };
        request.input(&name)?.append(buffer);
    }

    /// Adds a buffer that attributes describe.
    fn TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
        request: &mut InferenceRequest,
        name: String,
        base: *const c_void,
        attributes: Option<&BufferAttributes>,
    ) {
        let of = attributes.cloned().unwrap_or_default();
        let buffer = InputBuffer { base: base.cast(), bytes: of.bytes, memory_type: of.memory_type, policy: None };
        request.input(&name)?.append(buffer);
    }

    /// Removes the buffers of an input.
    fn TRITONSERVER_InferenceRequestRemoveAllInputData(request: &mut InferenceRequest, name: String) {
        request.input(&name)?.clear();
    }

    /// Asks for an output; without any, all are asked for.
    fn TRITONSERVER_InferenceRequestAddRequestedOutput(request: &mut InferenceRequest, name: String) {
        if request.outputs.contains(&name) {
            return Err(Error::invalid(format!("{}output '{name}' already exists in request", request.prefix())));
        }
        request.outputs.insert(name);
    }

    /// Asks for an output no longer, if it was asked for.
    fn TRITONSERVER_InferenceRequestRemoveRequestedOutput(request: &mut InferenceRequest, name: String) {
        request.outputs.remove(&name);
    }

    /// Asks for all outputs.
    fn TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(request: &mut InferenceRequest) {
        request.outputs.clear();
    }

    /// Sets the function that gets the request back.
    fn TRITONSERVER_InferenceRequestSetReleaseCallback(
        request: &mut InferenceRequest,
        release_fn: Option<ReleaseCallback>,
        userp: *mut c_void,
    ) {
        request.release = release_fn.map(|release| (release, userp));
    }

    /// Sets the function that gets the responses, and the allocator of their buffers.
    fn TRITONSERVER_InferenceRequestSetResponseCallback(
        request: &mut InferenceRequest,
        allocator: *const ResponseAllocator,
        allocator_userp: *mut c_void,
        response_fn: Option<ResponseCallback>,
        userp: *mut c_void,
    ) {
        let allocation = Allocation::new(allocator, allocator_userp);
        request.respond = response_fn.map(|respond| (allocation, respond, userp));
    }
}

#[cfg(test)]
mod tests;
