//! CONTROL: what is rare, as JSON. Loads and unloads of models (B-PY-21), and metrics (B-PY-20) but for their updates.
//!
//! Reasons are bare: whoever shows them to a model puts its own words in front.

use super::metrics;
use super::peer::Peer;
use crate::frames::{InstanceId, Lie, write};
use crate::generated::Frame;
use crate::transport::Way;
use backend::{ModelControl, ModelOperation};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::json::{Value, write_string};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tensor::{Code, Error, Result};

/// Questions above this are read by another thread than the one that serves all runners.
const SMALL_BYTES: usize = 16 << 10;
/// Loads and unloads that one process may wait for.
pub(crate) const CONTROLS_MAX: usize = 64;
/// Files of one load.
const FILES_MAX: usize = 1024;
/// Bytes of the questions that are read or not answered yet, of one process.
const BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };

/// What one process asked and was not told yet.
#[derive(Default)]
pub(crate) struct Controls {
    open: AtomicUsize,
    /// Of those above `SMALL_BYTES`.
    bytes: AtomicUsize,
    pub(crate) metrics: metrics::Metrics,
}

impl Controls {
    /// Takes a question.
    ///
    /// # Errors
    /// It is no question; the runner is killed.
    pub(crate) fn ask(self: &Arc<Self>, peer: &Arc<dyn Peer>, way: Way, json: &str) -> Result<(), Lie> {
        if json.len() <= SMALL_BYTES {
            return self.read(peer, way, json, None);
        }
        let held = Held::of(self, json.len());
        // One that will be refused does not wait for that: those that wait are bounded, too.
        if self.bytes.load(Relaxed) > BYTES_MAX {
            return self.read(peer, way, json, Some(held));
        }
        let (this, to, json) = (self.clone(), peer.clone(), json.to_owned());
        peer.later(Box::new(move || {
            if let Err(lie) = this.read(&to, way, &json, Some(held)) {
                to.condemn(lie.0);
            }
        }));
        Ok(())
    }

    fn read(self: &Arc<Self>, peer: &Arc<dyn Peer>, way: Way, json: &str, held: Option<Held>) -> Result<(), Lie> {
        let asked = Value::parse(json.as_bytes()).map_err(|_| Lie("a question is no JSON"))?;
        let id = asked.member("id").and_then(Value::as_u64).map_err(|_| Lie("a question has no number"))?;
        match self.operate(peer, way, id, asked, held) {
            Ok(Some(result)) => tell(&**peer, way, id, Ok(result)),
            Ok(None) => {}
            Err(error) => tell(&**peer, way, id, Err(error)),
        }
        Ok(())
    }

    /// The members of the result, each with a comma in front; `None` when it comes later.
    fn operate(
        self: &Arc<Self>,
        peer: &Arc<dyn Peer>,
        way: Way,
        id: u64,
        asked: Value<'_>,
        held: Option<Held>,
    ) -> Result<Option<String>> {
        if self.bytes.load(Relaxed) > BYTES_MAX {
            return Err(Error::unavailable(format!("the questions of this instance hold more than {BYTES_MAX} bytes")));
        }
        let operation = asked.member("operation")?.as_string()?;
        if let Some(result) = self.metrics.operate(&**peer, &operation, asked)? {
            return Ok(Some(result));
        }
        let model = || asked.member("model")?.as_string();
        let operation = match &*operation {
            "load" => ModelOperation::Load {
                model: model()?,
                config: asked.get("config").map_or(Ok(String::new()), Value::as_string)?,
                files: asked.get("files").map_or(Ok(Vec::new()), files)?,
            },
            "unload" => ModelOperation::Unload {
                model: model()?,
                dependents: asked.get("dependents").map_or(Ok(false), Value::as_bool)?,
            },
            "is_ready" => ModelOperation::IsReady {
                model: model()?,
                version: asked.get("version").map_or(Ok(String::new()), Value::as_string)?,
            },
            other => return Err(Error::unsupported(format!("there is no operation '{other}'"))),
        };
        let is_question = matches!(operation, ModelOperation::IsReady { .. });
        let host = peer.host().ok_or_else(|| Error::unavailable("there is no server to ask"))?;
        if self.open.fetch_add(1, Relaxed) >= CONTROLS_MAX {
            self.open.fetch_sub(1, Relaxed);
            return Err(Error::unavailable(format!(
                "this instance waits for {CONTROLS_MAX} loads and unloads already"
            )));
        }
        let (this, to) = (self.clone(), peer.clone());
        let answer = move |result: Result<String>| {
            drop(held);
            this.open.fetch_sub(1, Relaxed);
            let result = result.map(|json| if is_question { format!(r#","ready":{json}"#) } else { String::new() });
            tell(&*to, way, id, result);
        };
        host.control(ModelControl { operation, asker: peer.model() }, Box::new(answer));
        Ok(None)
    }
}

/// The bytes of a question, until it is answered.
struct Held(Arc<Controls>, usize);

impl Held {
    fn of(controls: &Arc<Controls>, bytes: usize) -> Self {
        controls.bytes.fetch_add(bytes, Relaxed);
        Self(controls.clone(), bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.bytes.fetch_sub(self.1, Relaxed);
    }
}

/// Answers a question; nobody waits for the answer to number 0.
fn tell(peer: &dyn Peer, way: Way, id: u64, result: Result<String>) {
    if id == 0 {
        return;
    }
    let members = result.unwrap_or_else(|error| {
        let mut text = Vec::new();
        write_string(&mut text, error.message().as_bytes());
        format!(r#","error":{{"code":"{}","message":{}}}"#, code_name(error.code()), String::from_utf8_lossy(&text))
    });
    let mut out = Vec::new();
    // Bounded far below a frame: errors are, and results are numbers.
    let _ = write::json(&mut out, InstanceId::ONLY, Frame::ControlResult, &format!(r#"{{"id":{id}{members}}}"#));
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

/// As `Code` of the protocol names it.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Unknown => "UNKNOWN",
        Code::Internal => "INTERNAL",
        Code::NotFound => "NOT_FOUND",
        Code::InvalidArg => "INVALID_ARG",
        Code::Unavailable => "UNAVAILABLE",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::Unsupported => "UNSUPPORTED",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::Cancelled => "CANCELLED",
    }
}
