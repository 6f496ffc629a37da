//! `TRITONSERVER_InferenceRequest`: a request of a library to a model of the server.
//!
//! The library owns a request, except between a successful `TRITONSERVER_ServerInferAsync` and its release callback,
//! when it may only cancel it. Inputs are copied when the request is sent, so its release follows the last response.

#![allow(unsafe_code)] // callbacks of a library

mod fields;

use super::allocator::{Allocation, ResponseAllocator};
use super::attributes::BufferAttributes;
use super::c_text;
use super::exports::{Count, Held, Items, Out, exports, objects, plain};
use super::inference_response::InferenceResponse;
use super::parameter::Parameter;
use crate::calls::{CallResponse, Callbacks, OpenCall};
use crate::described::Described;
use crate::library::Address;
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
    release: Option<(ReleaseCallback, Address<c_void>)>,
    respond: Option<(Allocation, ResponseCallback, Address<c_void>)>,
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

    /// Adds a buffer to an input; with a policy only for instances that have it.
    fn append(
        &mut self,
        name: &str,
        base: *mut c_void,
        bytes: usize,
        memory_type: u32,
        policy: Option<String>,
    ) -> Result<()> {
        self.input(name)?.append(InputBuffer { base: Address(base.cast()), bytes, memory_type, policy });
        Ok(())
    }
}

/// The functions of a library that its request ends with.
struct RequestCallbacks {
    /// Used for its release only.
    request: Address<InferenceRequest>,
    release: (ReleaseCallback, Address<c_void>),
    respond: (Allocation, ResponseCallback, Address<c_void>),
    model: CString,
    version: i64,
    id: CString,
    /// Dropped after the last callback.
    _caller: Caller,
}

impl Callbacks for RequestCallbacks {
    fn hand(&mut self, response: Option<CallResponse>, is_final: bool) {
        let (allocation, respond, userp) = self.respond;
        let make = |from| InferenceResponse::new(&self.model, self.version, &self.id, allocation, from);
        let response = response.map_or(null_mut(), |from| Box::into_raw(Box::new(make(from))));
        // SAFETY: the library's function of the header's type, with its pointer; it owns the response from now on.
        unsafe { respond(response, if is_final { RESPONSE_FINAL } else { 0 }, userp.0) };
        if is_final {
            let (release, userp) = self.release;
            // SAFETY: the same; it gets the address that it passed, which this side does not use any more.
            unsafe { release(self.request.0, RELEASE_ALL, userp.0) };
        }
    }
}

/// Sends a request. On an error the library keeps it.
pub(crate) fn infer(link: &Arc<Link>, of: &Held<InferenceRequest>, is_traced: bool) -> Result<()> {
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
        request: Address(of.address()),
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
    /// For a version that serves.
    "bls" fn TRITONSERVER_InferenceRequestNew(
        request: Out<*mut InferenceRequest>,
        server: *mut c_void,
        model_name: String,
        model_version: i64,
    ) {
        let described = match crate::embed::server(server)? {
            Some(embedded) => embedded.descriptions.recent(&embedded.link()?, &model_name, model_version)?,
            None => Described::ask(&self::server(server)?, &model_name, model_version)?,
        };
        request.give(InferenceRequest {
            model: model_name,
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
        });
    }

    "bls" delete TRITONSERVER_InferenceRequestDelete(InferenceRequest);

    /// Cancels a request that was sent; it still gets a final response.
    "bls" fn TRITONSERVER_InferenceRequestCancel(request: &InferenceRequest) {
        let sent = request.sent.lock();
        let sent = sent.as_ref().ok_or_else(|| {
            Error::internal("It is not possible to cancel an inference request before calling TRITONSERVER_InferAsync.")
        })?;
        request.is_cancelled.store(true, Relaxed);
        sent.cancel();
    }

    "bls" fn TRITONSERVER_InferenceRequestIsCancelled(request: &InferenceRequest, is_cancelled: Out<bool>) {
        if request.sent.lock().is_none() {
            let text = "It is not possible to query cancellation status before calling TRITONSERVER_InferAsync.";
            return Err(Error::internal(text));
        }
        is_cancelled.put(request.is_cancelled.load(Relaxed));
    }

    /// Adds an input without data.
    "bls" fn TRITONSERVER_InferenceRequestAddInput(
        request: &mut InferenceRequest,
        name: String,
        datatype: u32,
        shape: Items<i64>,
        dim_count: Count<u64>,
    ) {
        if request.inputs.iter().any(|input| input.name == name) {
            return Err(Error::invalid(format!("{}input '{name}' already exists in request", request.prefix())));
        }
        request.inputs.push(CallInput::new(name, datatype, shape.of(dim_count).to_vec()));
    }

    "bls" fn TRITONSERVER_InferenceRequestRemoveInput(request: &mut InferenceRequest, name: String) {
        request.input(&name)?;
        request.inputs.retain(|input| input.name != name);
    }

    "rust" fn TRITONSERVER_InferenceRequestRemoveAllInputs(request: &mut InferenceRequest) => request.inputs.clear();

    /// Adds a buffer to an input, which the library keeps until the request is released.
    "bls" fn TRITONSERVER_InferenceRequestAppendInputData(
        request: &mut InferenceRequest,
        name: String,
        base: *mut c_void,
        byte_size: usize,
        memory_type: u32,
        _memory_type_id: i64,
    ) => request.append(&name, base, byte_size, memory_type, None)?;

    /// The same, for instances with a host policy.
    "rust" fn TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
        request: &mut InferenceRequest,
        name: String,
        base: *mut c_void,
        byte_size: usize,
        memory_type: u32,
        _memory_type_id: i64,
        host_policy_name: String,
    ) => request.append(&name, base, byte_size, memory_type, Some(host_policy_name))?;

    /// The same; without attributes the buffer is empty.
    "rust" fn TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
        request: &mut InferenceRequest,
        name: String,
        base: *mut c_void,
        attributes: Option<&BufferAttributes>,
    ) {
        let of = attributes.cloned().unwrap_or_default();
        request.append(&name, base, of.bytes, of.memory_type, None)?;
    }

    "rust" fn TRITONSERVER_InferenceRequestRemoveAllInputData(request: &mut InferenceRequest, name: String) =>
        request.input(&name)?.clear();

    /// Asks for an output; without any, all are asked for.
    "bls" fn TRITONSERVER_InferenceRequestAddRequestedOutput(request: &mut InferenceRequest, name: String) {
        if request.outputs.contains(&name) {
            return Err(Error::invalid(format!("{}output '{name}' already exists in request", request.prefix())));
        }
        request.outputs.insert(name);
    }

    "bls" fn TRITONSERVER_InferenceRequestRemoveRequestedOutput(request: &mut InferenceRequest, name: String) {
        request.outputs.remove(&name);
    }
    "rust" fn TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(request: &mut InferenceRequest) =>
        request.outputs.clear();

    /// Sets the function that gets the request back.
    "bls" fn TRITONSERVER_InferenceRequestSetReleaseCallback(
        request: &mut InferenceRequest,
        release_fn: Option<ReleaseCallback>,
        userp: *mut c_void,
    ) => request.release = release_fn.map(|release| (release, Address(userp)));

    /// Sets the function that gets the responses, and the allocator of their buffers.
    "bls" fn TRITONSERVER_InferenceRequestSetResponseCallback(
        request: &mut InferenceRequest,
        allocator: *const ResponseAllocator,
        allocator_userp: *mut c_void,
        response_fn: Option<ResponseCallback>,
        userp: *mut c_void,
    ) {
        let allocation = Allocation::new(allocator, allocator_userp);
        request.respond = response_fn.map(|respond| (allocation, respond, Address(userp)));
    }
}

#[cfg(test)]
mod tests;
