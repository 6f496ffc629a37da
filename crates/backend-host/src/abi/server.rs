//! Functions about a server and its models.

#![allow(unsafe_code)] // pointers of a C API

use super::exports::{Cleared, Out, exports, objects, was_null};
use super::inference::server as link_to;
use super::inference::{InferenceRequest, infer};
use super::message::Message;
use super::parameter::{Parameter, ParameterValue};
use super::trace::InferenceTrace;
use super::{c_text, object};
use crate::described::Described;
use crate::embed::{self, EmbeddedServer, ServerOptions};
use crate::json::{add_text, add_texts};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::json::Value;
use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;
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

/// Asks the server for a change of its models.
fn change(server: *const c_void, operation: &str, members: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
    let changed = link_to(server)?.ask(operation, members).map(drop);
    if let Ok(Some(embedded)) = embed::server(server) {
        embedded.descriptions.clear();
    }
    changed
}

fn load(server: *const c_void, model: &str, config: &str, files: &[(String, String)]) -> Result<()> {
    change(server, "load", |json| {
        add_text(json, "model", model);
        add_text(json, "config", config);
        add_texts(json, "files", files.iter().map(|(name, contents)| (name, contents)));
    })
}

fn unload(server: *const c_void, model: &str, dependents: bool) -> Result<()> {
    change(server, "unload", |json| {
        add_text(json, "model", model);
        json.extend_from_slice(format!(r#","dependents":{dependents}"#).as_bytes());
    })
}

/// A report of the server as a message.
fn report(server: *const c_void, report: &str, model: &str, version: i64) -> Result<Message> {
    read(server, report, model, version, |report| Message::new(report.text()))
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
            add_text(json, name, value);
        }
    })?;
    Ok(take(Value::parse(answer.as_bytes())?.member("report")?))
}

/// The server that a program embeds.
fn embedded(server: *const c_void) -> Result<Arc<EmbeddedServer>> {
    embed::server(server)?.ok_or_else(|| Error::unsupported("the code of a model cannot end its server"))
}

/// Metrics of the server at one moment.
pub(crate) struct Metrics(CString);

objects! {
    Metrics: "metrics";
}

exports! {
    /// Whether the server lives, which it does while this process is connected.
    fn TRITONSERVER_ServerIsLive(server: *mut c_void, live: Cleared<bool>) {
        link_to(server)?;
        live.put(true);
    }

    /// Whether a version is ready.
    fn TRITONSERVER_ServerModelIsReady(
        server: *mut c_void,
        model_name: String,
        model_version: i64,
        ready: Cleared<bool>,
    ) {
        let link = link_to(server)?;
        Described::ask(&link, &model_name, model_version)?;
        let version = if model_version == -1 { String::new() } else { model_version.to_string() };
        let answer = link.ask("is_ready", |json| {
            add_text(json, "model", &model_name);
            add_text(json, "version", &version);
        })?;
        ready.put(Value::parse(answer.as_bytes())?.member("ready")?.as_bool()?);
    }

    /// How a version batches.
    fn TRITONSERVER_ServerModelBatchProperties(
        server: *mut c_void,
        model_name: String,
        model_version: i64,
        flags: Out<u32>,
        _voidp: Cleared<*mut c_void>,
    ) {
        let of = Described::ask(&link_to(server)?, &model_name, model_version)?;
        flags.put(if of.batches { BATCH_FIRST_DIM } else { BATCH_UNKNOWN });
    }

    /// How many responses a request of a version gets.
    fn TRITONSERVER_ServerModelTransactionProperties(
        server: *mut c_void,
        model_name: String,
        model_version: i64,
        txn_flags: Cleared<u32>,
        _voidp: Cleared<*mut c_void>,
    ) {
        let of = Described::ask(&link_to(server)?, &model_name, model_version)?;
        txn_flags.put(if of.is_decoupled { DECOUPLED } else { ONE_TO_ONE });
    }

    /// Loads a model.
    fn TRITONSERVER_ServerLoadModel(server: *mut c_void, model_name: String) {
        load(server, &model_name, "", &[])
    }

    /// Loads a model with another configuration or other files.
    fn TRITONSERVER_ServerLoadModelWithParameters(
        server: *mut c_void,
        model_name: String,
        parameters: *const *const Parameter,
        parameter_count: u64,
    ) {
        if parameters.is_null() && parameter_count != 0 {
            let text = "load parameters are not provided while parameter count is non-zero";
            return Err(Error::invalid(text));
        }
        let mut config = String::new();
        let mut files: Vec<(String, String)> = Vec::new();
        for at in 0..parameter_count as usize {
            // SAFETY: so many parameters, which live.
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
        load(server, &model_name, &config, &files)
    }

    /// Unloads a model.
    fn TRITONSERVER_ServerUnloadModel(server: *mut c_void, model_name: String) {
        unload(server, &model_name, false)
    }

    /// Unloads a model, and those that it is made of if it is an ensemble.
    fn TRITONSERVER_ServerUnloadModelAndDependents(server: *mut c_void, model_name: String) {
        unload(server, &model_name, true)
    }

    /// Sends a request to a model.
    fn TRITONSERVER_ServerInferAsync(
        server: *mut c_void,
        inference_request: *mut InferenceRequest,
        trace: *mut InferenceTrace,
    ) {
        // SAFETY: null, or a request that the library does not use before its release.
        unsafe { infer(&link_to(server)?, inference_request, !trace.is_null()) }?;
        if !trace.is_null() {
            // SAFETY: a trace for a call, which belongs to the server once it is sent.
            drop(unsafe { Box::from_raw(trace) });
        }
    }

    /// Whether the server is ready.
    fn TRITONSERVER_ServerIsReady(server: *mut c_void, ready: Cleared<bool>) {
        let answer = link_to(server)?.ask("is_server_ready", |_| {})?;
        ready.put(Value::parse(answer.as_bytes())?.member("ready")?.as_bool()?);
    }

    /// The metadata of the server.
    fn TRITONSERVER_ServerMetadata(server: *mut c_void, server_metadata: Cleared<*mut Message>) {
        server_metadata.give(report(server, "metadata", "", -1)?);
    }

    /// The metadata of a model.
    fn TRITONSERVER_ServerModelMetadata(
        server: *mut c_void,
        model_name: String,
        model_version: i64,
        model_metadata: Cleared<*mut Message>,
    ) {
        model_metadata.give(report(server, "model_metadata", &model_name, model_version)?);
    }

    /// The statistics of a model, or of all if its name is empty.
    fn TRITONSERVER_ServerModelStatistics(
        server: *mut c_void,
        model_name: String,
        model_version: i64,
        model_stats: Cleared<*mut Message>,
    ) {
        model_stats.give(report(server, "model_statistics", &model_name, model_version)?);
    }

    /// The configuration of a model.
    fn TRITONSERVER_ServerModelConfig(
        server: *mut c_void,
        model_name: String,
        model_version: i64,
        config_version: u32,
        model_config: Out<*mut Message>,
    ) {
        if config_version != CONFIG_VERSION {
            let text = "not supported, supported versions are";
            let text = format!("model configuration version {config_version} {text}: {CONFIG_VERSION}");
            return Err(Error::invalid(text));
        }
        model_config.put(null_mut());
        model_config.give(report(server, "model_config", &model_name, model_version)?);
    }

    /// The models of the repositories.
    fn TRITONSERVER_ServerModelIndex(server: *mut c_void, flags: u32, model_index: Cleared<*mut Message>) {
        let name = if flags & INDEX_READY == 0 { "index" } else { "ready_index" };
        model_index.give(report(server, name, "", -1)?);
    }

    /// Loads what changed in the repositories, in mode poll.
    fn TRITONSERVER_ServerPollModelRepository(server: *mut c_void) {
        change(server, "poll", |_| {})
    }

    /// Adds a repository. A name mapping is a parameter: the name of a model, and its directory.
    fn TRITONSERVER_ServerRegisterModelRepository(
        server: *mut c_void,
        repository_path: String,
        name_mapping: *const *const Parameter,
        mapping_count: u32,
    ) {
        let mut names = Vec::new();
        for at in 0..mapping_count as usize {
            if name_mapping.is_null() {
                return Err(Error::invalid("name mappings are not provided while mapping count is non-zero"));
            }
            // SAFETY: so many parameters, which live.
            let Parameter { name, value } = unsafe { object(*name_mapping.add(at), "name mapping") }?;
            let ParameterValue::String(directory) = value else {
                let text = "Name mapping '{}' must be an string parameter";
                return Err(Error::invalid(text.replace("{}", &name.to_string_lossy())));
            };
            names.push((name.to_string_lossy().into_owned(), directory.to_string_lossy().into_owned()));
        }
        let add = |json: &mut Vec<u8>| {
            add_text(json, "path", &repository_path);
            add_texts(json, "names", names.iter().map(|(name, directory)| (name, directory)));
        };
        link_to(server)?.ask("register", add).map(drop)
    }

    /// Removes a repository.
    fn TRITONSERVER_ServerUnregisterModelRepository(server: *mut c_void, repository_path: String) {
        link_to(server)?.ask("unregister", |json| add_text(json, "path", &repository_path)).map(drop)
    }

    /// The metrics of the server now.
    fn TRITONSERVER_ServerMetrics(server: *mut c_void, metrics: Cleared<*mut Metrics>) {
        let text = read(server, "metrics", "", -1, |report| report.as_string())??;
        metrics.give(Metrics(c_text(&text)));
    }

    /// Deletes metrics.
    fn TRITONSERVER_MetricsDelete(metrics: Option<Box<Metrics>>) {
        drop(metrics);
    }

    /// The text of metrics, which belongs to them. Format 0 is that of Prometheus.
    fn TRITONSERVER_MetricsFormatted(
        metrics: Option<&Metrics>,
        format: u32,
        base: Out<*const c_char>,
        byte_size: Out<usize>,
    ) {
        if format != 0 {
            return Err(Error::invalid(format!("unknown metrics format '{format}'")));
        }
        let Metrics(text) = metrics.ok_or_else(|| was_null("metrics"))?;
        base.put(text.as_ptr());
        byte_size.put(text.count_bytes());
    }

    /// Starts a server, and waits until its models are loaded.
    fn TRITONSERVER_ServerNew(server: Cleared<*const EmbeddedServer>, options: &ServerOptions) {
        let started = EmbeddedServer::start(options)?;
        // The server stays until it is deleted.
        server.put(Arc::as_ptr(&started));
    }

    /// Stops a server, and deletes it.
    fn TRITONSERVER_ServerDelete(server: *const c_void) {
        if server.is_null() {
            return Ok(());
        }
        let server = embedded(server)?;
        if let Err(error) = server.stop() {
            eprintln!("failed to stop server: {}", error.message());
        }
        embed::forget(&server);
    }

    /// Stops a server: it answers the requests that it has, at most for the exit timeout.
    fn TRITONSERVER_ServerStop(server: *const c_void) {
        embedded(server)?.stop()
    }

    /// Sets how long a stop waits for requests in progress, in seconds.
    fn TRITONSERVER_ServerSetExitTimeout(server: *const c_void, timeout: u32) {
        embedded(server)?.set_exit_timeout(timeout);
    }
}
