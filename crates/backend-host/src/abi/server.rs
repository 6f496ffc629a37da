//! Functions about a server and its models.

use super::exports::{Cleared, Count, Held, Items, Lent, Out, Passed, exports, objects, was_null};
use super::inference::server as link_to;
use super::inference::{InferenceRequest, infer};
use super::message::Message;
use super::parameter::{Parameter, ParameterValue};
use super::trace::InferenceTrace;
use super::{c_text, check_config_version};
use crate::described::Described;
use crate::embed::{self, EmbeddedServer, ServerOptions};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::ffi::{CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use tensor::{Error, Result};

/// Flags of how a model batches and how many responses a request gets.
const BATCH_UNKNOWN: u32 = 1;
const BATCH_FIRST_DIM: u32 = 2;
const ONE_TO_ONE: u32 = 1;
const DECOUPLED: u32 = 2;

/// `TRITONSERVER_INDEX_FLAG_READY`
const INDEX_READY: u32 = 1;

/// Asks the server for a change of its models.
fn change(server: *const c_void, operation: &str, members: Value) -> Result<()> {
    let changed = link_to(server)?.ask::<IgnoredAny>(operation, members).map(drop);
    if let Ok(Some(embedded)) = embed::server(server) {
        embedded.descriptions.clear();
    }
    changed
}

fn unload(server: *const c_void, model: &str, dependents: bool) -> Result<()> {
    change(server, "unload", json!({ "model": model, "dependents": dependents }))
}

/// A version as the server reads it: "" for the version policy.
fn version_text(version: i64) -> String {
    if version == -1 { String::new() } else { version.to_string() }
}

#[derive(Deserialize)]
struct ReportText<T> {
    report: T,
}

/// Asks the server for a report.
fn read<T: DeserializeOwned>(server: *const c_void, report: &str, model: &str, version: i64) -> Result<T> {
    let asked = json!({ "report": report, "model": model, "version": version_text(version) });
    link_to(server)?.ask("read", asked).map(|ReportText { report }| report)
}

/// A report of the server as a message.
fn report(server: *const c_void, report: &str, model: &str, version: i64) -> Result<Message> {
    read::<Box<RawValue>>(server, report, model, version).map(|report| Message::new(report.get()))
}

#[derive(Deserialize)]
struct IsReady {
    ready: bool,
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
    /// A server lives while this process is connected.
    "model" fn TRITONSERVER_ServerIsLive(server: *mut c_void, live: Cleared<bool>) {
        link_to(server)?;
        live.put(true);
    }

    "model" fn TRITONSERVER_ServerModelIsReady(
        server: *mut c_void,
        model_name: String,
        model_version: i64,
        ready: Cleared<bool>,
    ) {
        let link = link_to(server)?;
        Described::ask(&link, &model_name, model_version)?;
        let asked = json!({ "model": model_name, "version": version_text(model_version) });
        ready.put(link.ask::<IsReady>("is_ready", asked)?.ready);
    }

    "model" fn TRITONSERVER_ServerModelBatchProperties(
        server: *mut c_void,
        model_name: String,
        model_version: i64,
        flags: Out<u32>,
        _voidp: Cleared<*mut c_void>,
    ) {
        let of = Described::ask(&link_to(server)?, &model_name, model_version)?;
        flags.put(if of.batches { BATCH_FIRST_DIM } else { BATCH_UNKNOWN });
    }

    "model" fn TRITONSERVER_ServerModelTransactionProperties(
        server: *mut c_void,
        model_name: String,
        model_version: i64,
        txn_flags: Cleared<u32>,
        _voidp: Cleared<*mut c_void>,
    ) {
        let of = Described::ask(&link_to(server)?, &model_name, model_version)?;
        txn_flags.put(if of.is_decoupled { DECOUPLED } else { ONE_TO_ONE });
    }

    "model" fn TRITONSERVER_ServerLoadModel(server: *mut c_void, model_name: String) =>
        change(server, "load", json!({ "model": model_name, "config": "", "files": {} }))?;

    /// Loads a model with another configuration or other files.
    "control" fn TRITONSERVER_ServerLoadModelWithParameters(
        server: *mut c_void,
        model_name: String,
        parameters: Items<Passed<Parameter>>,
        parameter_count: Count<u64>,
    ) {
        if parameters.is_null() && !parameter_count.is_zero() {
            let text = "load parameters are not provided while parameter count is non-zero";
            return Err(Error::invalid(text));
        }
        let mut config = String::new();
        let mut files = Map::new();
        for parameter in parameters.objects(parameter_count, "load parameter") {
            let parameter = parameter?;
            let name = parameter.name.to_string_lossy().into_owned();
            match (&parameter.value, parameter.bytes()) {
                (ParameterValue::String(text), _) if name == "config" => config = text.to_string_lossy().into_owned(),
                (_, Some(contents)) if name.starts_with("file:") => {
                    files.insert(name, STANDARD.encode(contents).into());
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
        change(server, "load", json!({ "model": model_name, "config": config, "files": files }))?;
    }

    "model" fn TRITONSERVER_ServerUnloadModel(server: *mut c_void, model_name: String) =>
        unload(server, &model_name, false)?;

    /// Unloads a model, and those that it is made of if it is an ensemble.
    "control" fn TRITONSERVER_ServerUnloadModelAndDependents(server: *mut c_void, model_name: String) =>
        unload(server, &model_name, true)?;

    /// Sends a request to a model. The trace for the call belongs to the server once it is sent, else to the library.
    "bls" fn TRITONSERVER_ServerInferAsync(
        server: *mut c_void,
        inference_request: Held<InferenceRequest>,
        trace: Option<Box<InferenceTrace>>,
    ) {
        let sent = link_to(server).and_then(|link| infer(&link, &inference_request, trace.is_some()));
        if let Err(error) = sent {
            let _ = trace.map(Box::leak);
            return Err(error);
        }
    }

    "control" fn TRITONSERVER_ServerIsReady(server: *mut c_void, ready: Cleared<bool>) =>
        ready.put(link_to(server)?.ask::<IsReady>("is_server_ready", json!({}))?.ready);

    "control" fn TRITONSERVER_ServerMetadata(server: *mut c_void, metadata: Cleared<*mut Message>) =>
        metadata.give(report(server, "metadata", "", -1)?);

    "model" fn TRITONSERVER_ServerModelMetadata(
        server: *mut c_void,
        model_name: String,
        model_version: i64,
        model_metadata: Cleared<*mut Message>,
    ) => model_metadata.give(report(server, "model_metadata", &model_name, model_version)?);

    /// The statistics of a model, or of all if its name is empty.
    "model" fn TRITONSERVER_ServerModelStatistics(
        server: *mut c_void,
        model_name: String,
        model_version: i64,
        model_stats: Cleared<*mut Message>,
    ) => model_stats.give(report(server, "model_statistics", &model_name, model_version)?);

    "model" fn TRITONSERVER_ServerModelConfig(
        server: *mut c_void,
        model_name: String,
        model_version: i64,
        config_version: u32,
        model_config: Out<*mut Message>,
    ) {
        check_config_version(config_version)?;
        model_config.put(null_mut());
        model_config.give(report(server, "model_config", &model_name, model_version)?);
    }

    /// The models of the repositories.
    "model" fn TRITONSERVER_ServerModelIndex(server: *mut c_void, flags: u32, model_index: Cleared<*mut Message>) {
        let name = if flags & INDEX_READY == 0 { "index" } else { "ready_index" };
        model_index.give(report(server, name, "", -1)?);
    }

    /// Loads what changed in the repositories, in mode poll.
    "embedding/control" fn TRITONSERVER_ServerPollModelRepository(server: *mut c_void) =>
        change(server, "poll", json!({}))?;

    /// Adds a repository. A name mapping is a parameter: the name of a model, and its directory.
    "control" fn TRITONSERVER_ServerRegisterModelRepository(
        server: *mut c_void,
        repository_path: String,
        name_mapping: Items<Passed<Parameter>>,
        mapping_count: Count<u32>,
    ) {
        if name_mapping.is_null() && !mapping_count.is_zero() {
            return Err(Error::invalid("name mappings are not provided while mapping count is non-zero"));
        }
        let mut names = Map::new();
        for mapping in name_mapping.objects(mapping_count, "name mapping") {
            let Parameter { name, value } = mapping?;
            let name = name.to_string_lossy().into_owned();
            let ParameterValue::String(directory) = value else {
                return Err(Error::invalid(format!("Name mapping '{name}' must be an string parameter")));
            };
            names.insert(name, directory.to_string_lossy().into());
        }
        let asked = json!({ "path": repository_path, "names": names });
        link_to(server)?.ask::<IgnoredAny>("register", asked)?;
    }

    "embedding/control" fn TRITONSERVER_ServerUnregisterModelRepository(server: *mut c_void, path: String) =>
        link_to(server)?.ask::<IgnoredAny>("unregister", json!({ "path": path }))?;

    /// The metrics of the server now.
    "embedding/reports" fn TRITONSERVER_ServerMetrics(server: *mut c_void, metrics: Cleared<*mut Metrics>) {
        metrics.give(Metrics(c_text(&read::<String>(server, "metrics", "", -1)?)));
    }

    "embedding/reports" delete TRITONSERVER_MetricsDelete(Metrics);

    /// The text of metrics, which belongs to them. Format 0 is that of Prometheus.
    "embedding/reports" fn TRITONSERVER_MetricsFormatted(
        metrics: Option<&Metrics>,
        format: u32,
        base: Out<Lent<c_char>>,
        byte_size: Out<usize>,
    ) {
        if format != 0 {
            return Err(Error::invalid(format!("unknown metrics format '{format}'")));
        }
        let Metrics(text) = metrics.ok_or_else(|| was_null("metrics"))?;
        base.put(text.as_ptr());
        byte_size.put(text.count_bytes());
    }

    /// Starts a server, and waits until its models are loaded. The server stays until it is deleted.
    "control" fn TRITONSERVER_ServerNew(server: Cleared<Lent<EmbeddedServer>>, options: &ServerOptions) =>
        server.put(Arc::as_ptr(&EmbeddedServer::start(options)?));

    "embedding/ends" fn TRITONSERVER_ServerDelete(server: Lent<c_void>) {
        if server.is_null() {
            return Ok(());
        }
        let server = embedded(server)?;
        if let Err(error) = server.stop() {
            eprintln!("failed to stop server: {}", error.message());
        }
        embed::forget(&server);
    }

    /// The server answers the requests that it has, at most for the exit timeout.
    "control" fn TRITONSERVER_ServerStop(server: Lent<c_void>) => embedded(server)?.stop()?;

    /// Sets how long a stop waits for requests in progress, in seconds.
    "embedding/ends" fn TRITONSERVER_ServerSetExitTimeout(server: Lent<c_void>, timeout: u32) =>
        embedded(server)?.set_exit_timeout(timeout);
}
