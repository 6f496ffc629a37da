//! Functions about the server and its models.

#![allow(unsafe_code)] // pointers of a C API

use super::inference::{Described, InferenceRequest, infer, server};
use super::parameter::{Parameter, ParameterValue};
use super::trace::InferenceTrace;
use super::{Err, guard, object, put, text};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::json::{Value, write_string};
use std::ffi::{c_char, c_void};
use std::ptr::null_mut;
use tensor::{Error, Result};

/// Flags of how a model batches and how many responses a request gets.
const BATCH_UNKNOWN: u32 = 1;
const BATCH_FIRST_DIM: u32 = 2;
const ONE_TO_ONE: u32 = 1;
const DECOUPLED: u32 = 2;

/// Whether the server lives, which it does while this process is connected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerIsLive(_server: *mut c_void, live: *mut bool) -> Err {
    guard(|| {
        server()?;
        // SAFETY: the caller's promise.
        unsafe { put(live, true) };
        Ok(())
    })
}

/// Whether a version is ready.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelIsReady(
    _server: *mut c_void,
    model_name: *const c_char,
    model_version: i64,
    ready: *mut bool,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { put(ready, false) };
        // SAFETY: the caller's promise.
        let model = unsafe { text(model_name) };
        let link = server()?;
        Described::ask(&link, &model, model_version)?;
        let version = if model_version == -1 { String::new() } else { model_version.to_string() };
        let answer = link.ask("is_ready", |json| {
            json.extend_from_slice(br#","model":"#);
            write_string(json, model.as_bytes());
            json.extend_from_slice(format!(r#","version":"{version}""#).as_bytes());
        })?;
        // SAFETY: the caller's promise.
        unsafe { put(ready, Value::parse(answer.as_bytes())?.member("ready")?.as_bool()?) };
        Ok(())
    })
}

/// How a version batches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelBatchProperties(
    _server: *mut c_void,
    model_name: *const c_char,
    model_version: i64,
    flags: *mut u32,
    voidp: *mut *mut c_void,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let of = unsafe { described(model_name, model_version, voidp) }?;
        // SAFETY: the caller's promise.
        unsafe { put(flags, if of.batches { BATCH_FIRST_DIM } else { BATCH_UNKNOWN }) };
        Ok(())
    })
}

/// How many responses a request of a version gets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelTransactionProperties(
    _server: *mut c_void,
    model_name: *const c_char,
    model_version: i64,
    txn_flags: *mut u32,
    voidp: *mut *mut c_void,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { put(txn_flags, 0) };
        // SAFETY: the caller's promise.
        let of = unsafe { described(model_name, model_version, voidp) }?;
        // SAFETY: the caller's promise.
        unsafe { put(txn_flags, if of.is_decoupled { DECOUPLED } else { ONE_TO_ONE }) };
        Ok(())
    })
}

/// # Safety
/// `model_name` is null or NUL-terminated, `voidp` is null or valid for a write.
unsafe fn described(model_name: *const c_char, version: i64, voidp: *mut *mut c_void) -> Result<Described> {
    // SAFETY: the caller's promise.
    unsafe { put(voidp, null_mut()) };
    // SAFETY: the caller's promise.
    Described::ask(&server()?, &unsafe { text(model_name) }, version)
}

/// Loads a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerLoadModel(server: *mut c_void, model_name: *const c_char) -> Err {
    // SAFETY: the caller's promise.
    unsafe { TRITONSERVER_ServerLoadModelWithParameters(server, model_name, std::ptr::null(), 0) }
}

/// Loads a model with another configuration or other files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerLoadModelWithParameters(
    _server: *mut c_void,
    model_name: *const c_char,
    parameters: *const *const Parameter,
    parameter_count: u64,
) -> Err {
    guard(|| {
        if parameters.is_null() && parameter_count != 0 {
            let text = "load parameters are not provided while parameter count is non-zero";
            return Err(Error::invalid(text));
        }
        // SAFETY: the caller's promise.
        let model = unsafe { text(model_name) };
        let mut config = String::new();
        let mut files: Vec<(String, String)> = Vec::new();
        for at in 0..parameter_count as usize {
            // SAFETY: the caller promises so many parameters, which live.
            let Parameter { name, value } = unsafe { object(*parameters.add(at), "load parameter") }?;
            let name = name.to_string_lossy().into_owned();
            match value {
                ParameterValue::String(text) if name == "config" => config = text.to_string_lossy().into_owned(),
                ParameterValue::Bytes(base, bytes) if name.starts_with("file:") => {
                    // SAFETY: the maker of the parameter keeps so many bytes there.
                    let contents = unsafe { std::slice::from_raw_parts(base.cast::<u8>(), *bytes as usize) };
                    files.push((name, STANDARD.encode(contents)));
                }
                _ if name == "config" => {
                    let text = "Config override parameter 'config' must have STRING type.";
                    return Err(Error::invalid(text));
                }
                _ if name.starts_with("file:") => {
                    return Err(Error::invalid(format!("File override parameter '{name}' must have BYTES type.")));
                }
                _ => return Err(Error::invalid(format!("Unrecognized load parameter '{name}'."))),
            }
        }
        let load = |json: &mut Vec<u8>| {
            for (name, value) in [("model", &model), ("config", &config)] {
                json.extend_from_slice(format!(r#","{name}":"#).as_bytes());
                write_string(json, value.as_bytes());
            }
            json.extend_from_slice(br#","files":{"#);
            for (at, (name, contents)) in files.iter().enumerate() {
                json.extend_from_slice(if at == 0 { b"" } else { b"," });
                write_string(json, name.as_bytes());
                json.extend_from_slice(format!(r#":"{contents}""#).as_bytes());
            }
            json.push(b'}');
        };
        server()?.ask("load", load).map(drop)
    })
}

/// Unloads a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerUnloadModel(_server: *mut c_void, model_name: *const c_char) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unload(&unsafe { text(model_name) }, false))
}

/// Unloads a model, and those that it is made of if it is an ensemble.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerUnloadModelAndDependents(
    _server: *mut c_void,
    model_name: *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unload(&unsafe { text(model_name) }, true))
}

fn unload(model: &str, dependents: bool) -> Result<()> {
    let members = |json: &mut Vec<u8>| {
        json.extend_from_slice(br#","model":"#);
        write_string(json, model.as_bytes());
        json.extend_from_slice(format!(r#","dependents":{dependents}"#).as_bytes());
    };
    server()?.ask("unload", members).map(drop)
}

/// Sends a request to a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerInferAsync(
    _server: *mut c_void,
    inference_request: *mut InferenceRequest,
    trace: *mut InferenceTrace,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { infer(inference_request, !trace.is_null()) }?;
        if !trace.is_null() {
            // SAFETY: a trace for a call, which belongs to the server once it is sent.
            drop(unsafe { Box::from_raw(trace) });
        }
        Ok(())
    })
}
