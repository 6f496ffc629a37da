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
use crate::calls::{CallResponse, Callbacks, OpenCall};
use crate::described::Described;
use crate::library::Address;
use crate::link::{Caller, Link};
use crate::outgoing::{CallInput, CallRequest, InputBuffer, SentCall};
use parking_lot::Mutex;
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tensor::{Error, Result};

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

/// A request to a model. Its library changes it, and does not use it while it runs, except to cancel it.
pub(crate) struct InferenceRequest {
    call: CallRequest,
    described: Described,
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
    fn input(&mut self, name: &str) -> Result<&mut CallInput> {
        let absent = self.call.error(format_args!("input '{name}' does not exist in request"));
        self.call.inputs.iter_mut().find(|input| input.name == name).ok_or(absent)
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
    let missing = |what| of.call.error(format_args!("the request has no {what} callback"));
    let release = of.release.ok_or_else(|| missing("release"))?;
    let respond = of.respond.ok_or_else(|| missing("response"))?;
    of.call.check(link, is_traced)?;
    let callbacks = RequestCallbacks {
        request: Address(of.address()),
        release,
        respond,
        model: c_text(&of.call.model),
        version: of.described.version,
        id: of.call.id.clone(),
        _caller: link.callers.enter(),
    };
    let call = OpenCall::new(link, Box::new(callbacks));
    of.is_cancelled.store(false, Relaxed);
    // Kept until it is noted: the release callback may delete the request as soon as the call is sent.
    let mut sent = of.sent.lock();
    let number = link.open_call(call.clone());
    *sent = Some(SentCall { link: Arc::downgrade(link), call: number });
    drop(sent);
    of.call.send(link, number, is_traced).and_then(|()| call.wait())
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
        let (model, version, priority) = (model_name, model_version, described.default_priority);
        request.give(InferenceRequest {
            call: CallRequest { model, version, priority, ..CallRequest::default() },
            described,
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
        if request.call.inputs.iter().any(|input| input.name == name) {
            return Err(request.call.error(format_args!("input '{name}' already exists in request")));
        }
        request.call.inputs.push(CallInput::new(name, datatype, shape.of(dim_count).to_vec()));
    }

    "bls" fn TRITONSERVER_InferenceRequestRemoveInput(request: &mut InferenceRequest, name: String) {
        request.input(&name)?;
        request.call.inputs.retain(|input| input.name != name);
    }

    "rust" fn TRITONSERVER_InferenceRequestRemoveAllInputs(request: &mut InferenceRequest) =>
        request.call.inputs.clear();

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
        if request.call.outputs.contains(&name) {
            return Err(request.call.error(format_args!("output '{name}' already exists in request")));
        }
        request.call.outputs.insert(name);
    }

    "bls" fn TRITONSERVER_InferenceRequestRemoveRequestedOutput(request: &mut InferenceRequest, name: String) {
        request.call.outputs.remove(&name);
    }
    "rust" fn TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(request: &mut InferenceRequest) =>
        request.call.outputs.clear();

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
