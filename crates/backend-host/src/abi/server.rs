//! Functions about a server and its models.

#![allow(unsafe_code)] // pointers of a C API

use super::inference::server as link_to;
use super::inference::{InferenceRequest, infer};
use super::message::Message;
use super::parameter::{Parameter, ParameterValue};
use super::trace::InferenceTrace;
use super::{Err, c_text, delete, guard, object, put, text};
use crate::described::Described;
use crate::embed::{self, EmbeddedServer, ServerOptions};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::json::{Value, write_string};
use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use tensor::{Error, Result};

/// Flags of how a model batches and how many responses a request gets.
const BATCH_UNKNOWN: u32 = 1;
const BATCH_FIRST_DIM: u32 = 2;
const ONE_TO_ONE: u32 = 1;
const DECOUPLED: u32 = 2;

/// The only version of the JSON of a configuration.
const CONFIG_VERSION: u32 = 1;
/// `TRITONSERVER_INDEX_FLAG_READY`
const INDEX_READY: u32 = 1;

/// Whether the server lives, which it does while this process is connected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerIsLive(server: *mut c_void, live: *mut bool) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { put(live, false) };
        link_to(server)?;
        // SAFETY: the caller's promise.
        unsafe { put(live, true) };
        Ok(())
    })
}

/// Whether a version is ready.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelIsReady(
    server: *mut c_void,
    model_name: *const c_char,
    model_version: i64,
    ready: *mut bool,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { put(ready, false) };
        // SAFETY: the caller's promise.
        let model = unsafe { text(model_name) };
        let link = link_to(server)?;
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
    server: *mut c_void,
    model_name: *const c_char,
    model_version: i64,
    flags: *mut u32,
    voidp: *mut *mut c_void,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let of = unsafe { described(server, model_name, model_version, voidp) }?;
        // SAFETY: the caller's promise.
        unsafe { put(flags, if of.batches { BATCH_FIRST_DIM } else { BATCH_UNKNOWN }) };
        Ok(())
    })
}

/// How many responses a request of a version gets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelTransactionProperties(
    server: *mut c_void,
    model_name: *const c_char,
    model_version: i64,
    txn_flags: *mut u32,
    voidp: *mut *mut c_void,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { put(txn_flags, 0) };
        // SAFETY: the caller's promise.
        let of = unsafe { described(server, model_name, model_version, voidp) }?;
        // SAFETY: the caller's promise.
        unsafe { put(txn_flags, if of.is_decoupled { DECOUPLED } else { ONE_TO_ONE }) };
        Ok(())
    })
}

/// # Safety
/// `model_name` is null or NUL-terminated, `voidp` is null or valid for a write.
unsafe fn described(
    server: *mut c_void,
    model_name: *const c_char,
    version: i64,
    voidp: *mut *mut c_void,
) -> Result<Described> {
    // SAFETY: the caller's promise.
    unsafe { put(voidp, null_mut()) };
    // SAFETY: the caller's promise.
    Described::ask(&link_to(server)?, &unsafe { text(model_name) }, version)
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
    server: *mut c_void,
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
        change(server, "load", load)
    })
}

/// Unloads a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerUnloadModel(server: *mut c_void, model_name: *const c_char) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unload(server, &unsafe { text(model_name) }, false))
}

/// Unloads a model, and those that it is made of if it is an ensemble.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerUnloadModelAndDependents(
    server: *mut c_void,
    model_name: *const c_char,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unload(server, &unsafe { text(model_name) }, true))
}

/// Asks the server for a change of its models.
fn change(server: *const c_void, operation: &str, members: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
    let changed = link_to(server)?.ask(operation, members).map(drop);
    if let Ok(Some(embedded)) = embed::server(server) {
        embedded.descriptions.clear();
    }
    changed
}

fn unload(server: *mut c_void, model: &str, dependents: bool) -> Result<()> {
    let members = |json: &mut Vec<u8>| {
        json.extend_from_slice(br#","model":"#);
        write_string(json, model.as_bytes());
        json.extend_from_slice(format!(r#","dependents":{dependents}"#).as_bytes());
    };
    change(server, "unload", members)
}

/// Sends a request to a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerInferAsync(
    server: *mut c_void,
    inference_request: *mut InferenceRequest,
    trace: *mut InferenceTrace,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { infer(&link_to(server)?, inference_request, !trace.is_null()) }?;
        if !trace.is_null() {
            // SAFETY: a trace for a call, which belongs to the server once it is sent.
            drop(unsafe { Box::from_raw(trace) });
        }
        Ok(())
    })
}

/// Whether the server is ready.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerIsReady(server: *mut c_void, ready: *mut bool) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { put(ready, false) };
        let answer = link_to(server)?.ask("is_server_ready", |_| {})?;
        // SAFETY: the caller's promise.
        unsafe { put(ready, Value::parse(answer.as_bytes())?.member("ready")?.as_bool()?) };
        Ok(())
    })
}

/// Gives a report of the server as a message.
///
/// # Safety
/// `message` is null or valid for a write; `model` is null or NUL-terminated.
unsafe fn report(
    server: *mut c_void,
    report: &str,
    model: *const c_char,
    version: i64,
    message: *mut *mut Message,
) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { put(message, null_mut()) };
    // SAFETY: the caller's promise.
    let model = unsafe { text(model) };
    let text = read(server, report, &model, version, |report| report.text().to_vec())?;
    // SAFETY: the caller's promise.
    unsafe { put(message, Message::new(text).raw()) };
    Ok(())
}

/// Asks the server for a report; `take` gets the JSON of the answer.
fn read<T>(
    server: *const c_void,
    report: &str,
    model: &str,
    version: i64,
    take: impl FnOnce(Value<'_>) -> T,
) -> Result<T> {
    let version = if version == -1 { String::new() } else { version.to_string() };
    let answer = link_to(server)?.ask("read", |json| {
        for (name, value) in [("report", report), ("model", model), ("version", &version)] {
            json.extend_from_slice(format!(r#","{name}":"#).as_bytes());
            write_string(json, value.as_bytes());
        }
    })?;
    Ok(take(Value::parse(answer.as_bytes())?.member("report")?))
}

/// The metadata of the server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerMetadata(server: *mut c_void, server_metadata: *mut *mut Message) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe { report(server, "metadata", null_mut(), -1, server_metadata) })
}

/// The metadata of a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelMetadata(
    server: *mut c_void,
    model_name: *const c_char,
    model_version: i64,
    model_metadata: *mut *mut Message,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe { report(server, "model_metadata", model_name, model_version, model_metadata) })
}

/// The statistics of a model, or of all if its name is empty.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelStatistics(
    server: *mut c_void,
    model_name: *const c_char,
    model_version: i64,
    model_stats: *mut *mut Message,
) -> Err {
    // SAFETY: the caller's promise.
    guard(|| unsafe { report(server, "model_statistics", model_name, model_version, model_stats) })
}

/// The configuration of a model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelConfig(
    server: *mut c_void,
    model_name: *const c_char,
    model_version: i64,
    config_version: u32,
    model_config: *mut *mut Message,
) -> Err {
    guard(|| {
        if config_version != CONFIG_VERSION {
            let text = "not supported, supported versions are";
            let text = format!("model configuration version {config_version} {text}: {CONFIG_VERSION}");
            return Err(Error::invalid(text));
        }
        // SAFETY: the caller's promise.
        unsafe { report(server, "model_config", model_name, model_version, model_config) }
    })
}

/// The models of the repositories.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerModelIndex(
    server: *mut c_void,
    flags: u32,
    model_index: *mut *mut Message,
) -> Err {
    let name = if flags & INDEX_READY == 0 { "index" } else { "ready_index" };
    // SAFETY: the caller's promise.
    guard(|| unsafe { report(server, name, null_mut(), -1, model_index) })
}

/// Loads what changed in the repositories, in mode poll.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerPollModelRepository(server: *mut c_void) -> Err {
    guard(|| change(server, "poll", |_| {}))
}

/// Adds a repository. A name mapping is a parameter: the name of a model, and its directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerRegisterModelRepository(
    server: *mut c_void,
    repository_path: *const c_char,
    name_mapping: *const *const Parameter,
    mapping_count: u32,
) -> Err {
    guard(|| {
        let mut names = Vec::new();
        for at in 0..mapping_count as usize {
            if name_mapping.is_null() {
                return Err(Error::invalid("name mappings are not provided while mapping count is non-zero"));
            }
            // SAFETY: the caller promises so many parameters, which live.
            let Parameter { name, value } = unsafe { object(*name_mapping.add(at), "name mapping") }?;
            let ParameterValue::String(directory) = value else {
                let text = "Name mapping '{}' must be an string parameter";
                return Err(Error::invalid(text.replace("{}", &name.to_string_lossy())));
            };
            names.push((name.to_string_lossy().into_owned(), directory.to_string_lossy().into_owned()));
        }
        // SAFETY: the caller's promise.
        let path = unsafe { text(repository_path) };
        let members = |json: &mut Vec<u8>| {
            write_path(json, &path);
            json.extend_from_slice(br#","names":{"#);
            for (at, (name, directory)) in names.iter().enumerate() {
                json.extend_from_slice(if at == 0 { b"" } else { b"," });
                write_string(json, name.as_bytes());
                json.push(b':');
                write_string(json, directory.as_bytes());
            }
            json.push(b'}');
        };
        link_to(server)?.ask("register", members).map(drop)
    })
}

/// Removes a repository.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerUnregisterModelRepository(
    server: *mut c_void,
    repository_path: *const c_char,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { text(repository_path) };
        link_to(server)?.ask("unregister", |json| write_path(json, &path)).map(drop)
    })
}

fn write_path(json: &mut Vec<u8>, path: &str) {
    json.extend_from_slice(br#","path":"#);
    write_string(json, path.as_bytes());
}

/// Metrics of the server at one moment.
pub(crate) struct Metrics(CString);

/// The metrics of the server now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerMetrics(server: *mut c_void, metrics: *mut *mut Metrics) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { put(metrics, null_mut()) };
        let text = read(server, "metrics", "", -1, |report| report.as_string())??;
        // SAFETY: the caller's promise.
        unsafe { put(metrics, Box::into_raw(Box::new(Metrics(c_text(&text))))) };
        Ok(())
    })
}

/// Deletes metrics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricsDelete(metrics: *mut Metrics) -> Err {
    // SAFETY: made by the function above, and the caller's.
    unsafe { delete(metrics) }
}

/// The text of metrics, which belongs to them. Format 0 is that of Prometheus.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_MetricsFormatted(
    metrics: *const Metrics,
    format: u32,
    base: *mut *const c_char,
    byte_size: *mut usize,
) -> Err {
    guard(|| {
        if format != 0 {
            return Err(Error::invalid(format!("unknown metrics format '{format}'")));
        }
        // SAFETY: the caller's promise.
        let Metrics(text) = unsafe { object(metrics, "metrics") }?;
        // SAFETY: the caller's promise.
        unsafe { put(base, text.as_ptr()) };
        // SAFETY: the caller's promise.
        unsafe { put(byte_size, text.count_bytes()) };
        Ok(())
    })
}

/// Starts a server, and waits until its models are loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerNew(
    server: *mut *const EmbeddedServer,
    options: *const ServerOptions,
) -> Err {
    guard(|| {
        // SAFETY: the caller's promise.
        unsafe { put(server, null()) };
        // SAFETY: the caller's promise.
        let started = EmbeddedServer::start(unsafe { object(options, "server options") }?)?;
        // SAFETY: the caller's promise; the server stays until it is deleted.
        unsafe { put(server, Arc::as_ptr(&started)) };
        Ok(())
    })
}

/// The server that a program embeds.
fn embedded(server: *const c_void) -> Result<Arc<EmbeddedServer>> {
    embed::server(server)?.ok_or_else(|| Error::unsupported("the code of a model cannot end its server"))
}

/// Stops a server, and deletes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerDelete(server: *const c_void) -> Err {
    guard(|| {
        if server.is_null() {
            return Ok(());
        }
        let server = embedded(server)?;
        if let Err(error) = server.stop() {
            eprintln!("failed to stop server: {}", error.message());
        }
        embed::forget(&server);
        Ok(())
    })
}

/// Stops a server: it answers the requests that it has, at most for the exit timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerStop(server: *const c_void) -> Err {
    guard(|| embedded(server)?.stop())
}

/// Sets how long a stop waits for requests in progress, in seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONSERVER_ServerSetExitTimeout(server: *const c_void, timeout: u32) -> Err {
    guard(|| {
        embedded(server)?.set_exit_timeout(timeout);
        Ok(())
    })
}
