//! CONTROL: rare operations as JSON. Loads and unloads of models (B-PY-21), and metrics (B-PY-20) except their updates.
//!
//! Error texts have no prefix: the runtime of the model adds its own.

use super::metrics;
use super::peer::Peer;
use crate::frames::{InstanceId, ProtocolError, write};
use crate::generated::Frame;
use crate::transport::Way;
use backend::{ModelControl, ModelOperation, RepositoriesChange, ServerReport};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::json::{Value, write_string};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tensor::{Error, Result};

/// Longer operations are parsed on another thread than the one that serves all runners.
const SMALL_BYTES: usize = 16 << 10;
/// Maximum number of loads and unloads that one process waits for.
pub(crate) const CONTROLS_MAX: usize = 64;
/// Maximum number of files of one load.
const FILES_MAX: usize = 1024;
/// Maximum bytes of the unfinished operations of one process.
const BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };

/// Unfinished operations of one process.
#[derive(Default)]
pub(crate) struct Controls {
    open: AtomicUsize,
    /// Bytes of operations above `SMALL_BYTES`.
    bytes: AtomicUsize,
    pub(crate) metrics: metrics::Metrics,
}

impl Controls {
    /// Starts an operation.
    ///
    /// # Errors
    /// If `json` is not an operation: the runner is killed.
    pub(crate) fn start(self: &Arc<Self>, peer: &Arc<dyn Peer>, way: Way, json: &str) -> Result<(), ProtocolError> {
        if json.len() <= SMALL_BYTES {
            return self.read(peer, way, json, None);
        }
        let bytes = ControlBytes::of(self, json.len());
        // An operation that will be rejected is not queued, so the queue is bounded, too.
        if self.bytes.load(Relaxed) > BYTES_MAX {
            return self.read(peer, way, json, Some(bytes));
        }
        let (this, to, json) = (self.clone(), peer.clone(), json.to_owned());
        peer.later(Box::new(move || {
            if let Err(breach) = this.read(&to, way, &json, Some(bytes)) {
                to.condemn(breach.0);
            }
        }));
        Ok(())
    }

    fn read(
        self: &Arc<Self>,
        peer: &Arc<dyn Peer>,
        way: Way,
        json: &str,
        bytes: Option<ControlBytes>,
    ) -> Result<(), ProtocolError> {
        let asked = Value::parse(json.as_bytes()).map_err(|_| ProtocolError("a question is not JSON"))?;
        let id = asked.member("id").and_then(Value::as_u64).map_err(|_| ProtocolError("a question has no id"))?;
        match self.operate(peer, way, id, asked, bytes) {
            Ok(Some(result)) => send_result(&**peer, way, id, Ok(result)),
            Ok(None) => {}
            Err(error) => send_result(&**peer, way, id, Err(error)),
        }
        Ok(())
    }

    /// The members of the result, each after a comma. `None` if the result follows later.
    fn operate(
        self: &Arc<Self>,
        peer: &Arc<dyn Peer>,
        way: Way,
        id: u64,
        asked: Value<'_>,
        bytes: Option<ControlBytes>,
    ) -> Result<Option<String>> {
        if self.bytes.load(Relaxed) > BYTES_MAX {
            return Err(Error::unavailable(format!("the questions of this instance hold more than {BYTES_MAX} bytes")));
        }
        let operation = asked.member("operation")?.as_string()?;
        if let Some(result) = self.metrics.operate(&**peer, &operation, asked)? {
            return Ok(Some(result));
        }
        let model = || asked.member("model")?.as_string();
        if operation == "describe" {
            let version = asked.get("version").map_or(Ok(-1), Value::as_i64)?;
            let host = peer.host().ok_or_else(|| Error::unavailable("there is no server for this call"))?;
            let found = host.describe(&model()?, version)?;
            return Ok(Some(format!(
                r#","version":{},"decoupled":{},"batches":{},"priority_levels":{},"default_priority":{}"#,
                found.version, found.is_decoupled, found.batches, found.priority_levels, found.default_priority
            )));
        }
        let operation = model_operation(&operation, asked)?;
        // The member of the result that has what the server answers; loads and unloads have none.
        let answers = match operation {
            ModelOperation::IsReady { .. } | ModelOperation::IsServerReady => Some("ready"),
            ModelOperation::Read { .. } => Some("report"),
            ModelOperation::Load { .. } | ModelOperation::Unload { .. } | ModelOperation::Repositories(_) => None,
        };
        let host = peer.host().ok_or_else(|| Error::unavailable("there is no server for this call"))?;
        if self.open.fetch_add(1, Relaxed) >= CONTROLS_MAX {
            self.open.fetch_sub(1, Relaxed);
            return Err(Error::unavailable(format!(
                "this instance waits for {CONTROLS_MAX} loads and unloads already"
            )));
        }
        let (this, to) = (self.clone(), peer.clone());
        let answer = move |result: Result<String>| {
            drop(bytes);
            this.open.fetch_sub(1, Relaxed);
            let result = result.map(|json| answers.map_or_else(String::new, |name| format!(r#","{name}":{json}"#)));
            send_result(&*to, way, id, result);
        };
        host.control(ModelControl { operation, asker: peer.model() }, Box::new(answer));
        Ok(None)
    }
}

/// Reads the members of an operation that the server executes.
fn model_operation(name: &str, asked: Value<'_>) -> Result<ModelOperation> {
    let text = |name: &str| asked.member(name)?.as_string();
    let optional = |name: &str| asked.get(name).map_or(Ok(String::new()), Value::as_string);
    Ok(match name {
        "load" => ModelOperation::Load {
            model: text("model")?,
            config: optional("config")?,
            files: asked.get("files").map_or(Ok(Vec::new()), files)?,
        },
        "unload" => ModelOperation::Unload {
            model: text("model")?,
            dependents: asked.get("dependents").map_or(Ok(false), Value::as_bool)?,
        },
        "is_ready" => ModelOperation::IsReady { model: text("model")?, version: optional("version")? },
        "is_server_ready" => ModelOperation::IsServerReady,
        "read" => ModelOperation::Read {
            report: match &*text("report")? {
                "metadata" => ServerReport::Metadata,
                "model_metadata" => ServerReport::ModelMetadata,
                "model_statistics" => ServerReport::ModelStatistics,
                "model_config" => ServerReport::ModelConfig,
                "index" => ServerReport::Index,
                "ready_index" => ServerReport::ReadyIndex,
                "metrics" => ServerReport::Metrics,
                other => return Err(Error::unsupported(format!("there is no report '{other}'"))),
            },
            model: optional("model")?,
            version: optional("version")?,
        },
        "poll" => ModelOperation::Repositories(RepositoriesChange::Poll),
        "register" => {
            let names = asked.get("names").map_or(Ok(Vec::new()), |names| {
                let pair = |(name, directory): (protocol::json::Text<'_>, Value<'_>)| {
                    Ok((String::from_utf8_lossy(&name.decode()).into_owned(), directory.as_string()?))
                };
                names.members()?.map(pair).collect::<Result<_>>()
            })?;
            ModelOperation::Repositories(RepositoriesChange::Register { path: text("path")?, names })
        }
        "unregister" => ModelOperation::Repositories(RepositoriesChange::Unregister { path: text("path")? }),
        other => return Err(Error::unsupported(format!("there is no operation '{other}'"))),
    })
}

/// Counts the bytes of an operation until it is answered.
struct ControlBytes(Arc<Controls>, usize);

impl ControlBytes {
    fn of(controls: &Arc<Controls>, bytes: usize) -> Self {
        controls.bytes.fetch_add(bytes, Relaxed);
        Self(controls.clone(), bytes)
    }
}

impl Drop for ControlBytes {
    fn drop(&mut self) {
        self.0.bytes.fetch_sub(self.1, Relaxed);
    }
}

/// Sends the result of an operation. Operation 0 gets none.
fn send_result(peer: &dyn Peer, way: Way, id: u64, result: Result<String>) {
    if id == 0 {
        return;
    }
    let members = result.unwrap_or_else(|error| {
        let mut text = Vec::new();
        write_string(&mut text, error.message().as_bytes());
        format!(r#","error":{{"code":"{}","message":{}}}"#, error.code().constant(), String::from_utf8_lossy(&text))
    });
    let mut out = Vec::new();
    let json = format!(r#"{{"id":{id}{members}}}"#);
    if write::json(&mut out, InstanceId::ONLY, Frame::ControlResult, &json).is_err() {
        let text = format!("the result has {} bytes, which exceed the limit of a frame", json.len());
        return send_result(peer, way, id, Err(Error::unavailable(text)));
    }
    peer.send(way, &out);
}

fn files(value: Value<'_>) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for (name, contents) in value.members()? {
        if files.len() >= FILES_MAX {
            return Err(Error::invalid(format!("at most {FILES_MAX} files are taken")));
        }
        let name = String::from_utf8_lossy(&name.decode()).into_owned();
        let contents = STANDARD
            .decode(contents.as_string()?)
            .map_err(|_| Error::invalid(format!("load parameter '{name}' is not valid base64")))?;
        files.push((name, contents));
    }
    Ok(files)
}
