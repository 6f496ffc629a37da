//! `TRITONBACKEND_Model`.

use super::backend::{Backend, FILESYSTEM};
use super::c_text;
use super::exports::{Cleared, Out, exports, objects, was_null};
use super::message::Message;
use crate::configuration;
use crate::load::{member, optional};
use crate::strategy::Strategy;
use parking_lot::{Mutex, RwLock};
use protocol::json::Value;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use tensor::{Error, Result};

/// The only version of configurations.
const CONFIG_VERSION: u32 = 1;

/// A model.
pub(crate) struct Model {
    pub(crate) backend: Arc<Backend>,
    name: CString,
    version: u64,
    directory: CString,
    auto_complete: bool,
    config: Mutex<String>,
    signature: RwLock<Arc<Signature>>,
    state: AtomicPtr<c_void>,
    strategy: OnceLock<Strategy>,
}

/// The part of a configuration that requests and responses need.
#[derive(Default)]
pub(crate) struct Signature {
    pub(crate) outputs: Vec<CString>,
    /// Names of the outputs of states.
    pub(crate) states: Vec<String>,
    /// Requests may be released to be run again.
    pub(crate) is_iterative: bool,
    /// Requests come one by one, and lie ready while another runs.
    pub(crate) is_unscheduled: bool,
    /// A request may have any number of responses.
    pub(crate) is_decoupled: bool,
    /// Inputs and outputs of states that are written where they are read.
    pub(crate) same_buffers: Vec<(String, String)>,
}

impl Signature {
    fn of(config: &str) -> Result<Self> {
        let config = Value::parse(config.as_bytes())?;
        let names = |list: Option<Value<'_>>, key: &str| -> Result<Vec<String>> {
            list.map_or(Ok(Vec::new()), |list| list.elements()?.map(|of| of.member(key)?.as_string()).collect())
        };
        let sequences = config.get("sequence_batching");
        let is_iterative = sequences.and_then(|s| s.get("iterative_sequence")).map_or(Ok(false), Value::as_bool)?;
        let policy = config.get("model_transaction_policy").and_then(|policy| policy.get("decoupled"));
        let is_decoupled = policy.map_or(Ok(false), Value::as_bool)?;
        let mut same_buffers = Vec::new();
        if let Some(states) = sequences.and_then(|s| s.get("state")) {
            for state in states.elements()? {
                if state.get("use_same_buffer_for_input_output").map_or(Ok(false), Value::as_bool)? {
                    same_buffers.push((member(state, "input_name")?, member(state, "output_name")?));
                }
            }
        }
        Ok(Self {
            outputs: names(config.get("output"), "name")?.iter().map(|name| c_text(name)).collect(),
            states: names(sequences.and_then(|s| s.get("state")), "output_name")?,
            is_iterative,
            is_decoupled,
            is_unscheduled: sequences.is_none() && config.get("dynamic_batching").is_none(),
            same_buffers,
        })
    }
}

impl Model {
    pub(crate) fn new(backend: Arc<Backend>, load: Value<'_>) -> Result<Self> {
        let config = member(load, "config")?;
        Ok(Self {
            backend,
            name: c_text(&member(load, "model")?),
            version: member(load, "version")?.parse().unwrap_or(0),
            directory: c_text(&member(load, "model_directory")?),
            auto_complete: load.get("auto_complete").map_or(Ok(false), Value::as_bool)?,
            signature: RwLock::new(Arc::new(Signature::of(&config)?)),
            config: Mutex::new(config),
            state: AtomicPtr::new(null_mut()),
            strategy: OnceLock::new(),
        })
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn name(&self) -> &str {
        self.name.to_str().unwrap_or_default()
    }

    pub(crate) fn config(&self) -> String {
        self.config.lock().clone()
    }

    pub(crate) fn signature(&self) -> Arc<Signature> {
        Arc::clone(&self.signature.read())
    }

    /// Opens the batching library that LOAD names, if it names one.
    pub(crate) fn open_strategy(&self, load: Value<'_>) -> Result<()> {
        let path = optional(load, "strategy")?;
        if path.is_empty() {
            return Ok(());
        }
        let config = self.config();
        let is_dynamic = Value::parse(config.as_bytes())?.get("dynamic_batching").is_some();
        let _ =
            self.strategy.set(Strategy::open(Path::new(&path), (&raw const *self).cast(), self.name(), is_dynamic)?);
        Ok(())
    }

    /// The batching library, which divides batches.
    pub(crate) fn strategy(&self) -> Option<&Strategy> {
        self.strategy.get().filter(|strategy| strategy.divides())
    }

    /// Takes the configuration that the server made of the model's own.
    pub(crate) fn configured(&self, config: String) {
        if let Ok(signature) = Signature::of(&config) {
            *self.signature.write() = Arc::new(signature);
            *self.config.lock() = config;
        }
    }

    fn set_config(&self, text: &str) -> Result<()> {
        let mut config = self.config.lock();
        let merged = configuration::merge(&config, text)?;
        let signature = Signature::of(&merged)?;
        *self.signature.write() = Arc::new(signature);
        *config = merged;
        Ok(())
    }
}

fn check_version(version: u32) -> Result<()> {
    if version == CONFIG_VERSION {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "model configuration version {version} not supported, supported versions are: {CONFIG_VERSION}"
    )))
}

objects! {
    Model: "model";
}

exports! {
    /// Name of a model; owned by it.
    fn TRITONBACKEND_ModelName(model: &Model, name: Out<*const c_char>) {
        name.put(model.name.as_ptr());
    }

    /// Version of a model.
    fn TRITONBACKEND_ModelVersion(model: &Model, version: Out<u64>) {
        version.put(model.version);
    }

    /// The directory of a model, which has those of its versions.
    fn TRITONBACKEND_ModelRepository(model: &Model, artifact_type: Cleared<u32>, location: Out<*const c_char>) {
        artifact_type.put(FILESYSTEM);
        location.put(model.directory.as_ptr());
    }

    /// The configuration as JSON with all defaults; the caller deletes the message.
    fn TRITONBACKEND_ModelConfig(model: Option<&Model>, config_version: u32, model_config: Out<*mut Message>) {
        check_version(config_version)?;
        model_config.give(Message::new(model.ok_or_else(|| was_null("model"))?.config()));
    }

    /// Whether the backend may complete the configuration.
    fn TRITONBACKEND_ModelAutoCompleteConfig(model: &Model, auto_complete_config: Out<bool>) {
        auto_complete_config.put(model.auto_complete);
    }

    /// Sets inputs, outputs, the scheduler, the maximum batch size and the transaction policy. Ignores other members.
    fn TRITONBACKEND_ModelSetConfig(model: Option<&Model>, config_version: u32, model_config: Option<&Message>) {
        check_version(config_version)?;
        let model = model.ok_or_else(|| was_null("model"))?;
        let message = model_config.ok_or_else(|| was_null("model config"))?;
        model.set_config(&String::from_utf8_lossy(message.text()))
    }

    /// The server, for calls to other models.
    fn TRITONBACKEND_ModelServer(model: &Model, server: Out<*const c_void>) {
        // The server has no object of its own: its functions ask the connection of the code that calls.
        server.put((&raw const *model).cast());
    }

    /// The backend of a model.
    fn TRITONBACKEND_ModelBackend(model: &Model, backend: Out<*const Backend>) {
        backend.put(Arc::as_ptr(&model.backend));
    }

    /// The pointer that the backend stored for the model.
    fn TRITONBACKEND_ModelState(model: &Model, state: Out<*mut c_void>) {
        state.put(model.state.load(SeqCst));
    }

    /// Stores a pointer for the model.
    fn TRITONBACKEND_ModelSetState(model: &Model, state: *mut c_void) {
        model.state.store(state, SeqCst);
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(CStr::to_str(&self.name).unwrap_or_default())
    }
}
