//! `TRITONBACKEND_Model`.

use super::backend::{Backend, FILESYSTEM};
use super::exports::{Cleared, Lent, Out, exports, objects, was_null};
use super::message::Message;
use super::{c_text, check_config_version};
use crate::configuration;
use crate::json;
use crate::load::LoadContent;
use crate::strategy::Strategy;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use tensor::Result;

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
        let config: Value = json::read(config)?;
        let texts = |list: &Value, key: &str| -> Vec<String> {
            let items = list.as_array().into_iter().flatten();
            items.filter_map(|item| item[key].as_str()).map(str::to_owned).collect()
        };
        let is = |value: &Value| value.as_bool().unwrap_or(false);
        let sequences = &config["sequence_batching"];
        let states = &sequences["state"];
        let same = states.as_array().into_iter().flatten();
        let same = same.filter(|state| is(&state["use_same_buffer_for_input_output"]));
        let pair =
            |state: &Value| Some((state["input_name"].as_str()?.to_owned(), state["output_name"].as_str()?.to_owned()));
        Ok(Self {
            outputs: texts(&config["output"], "name").iter().map(|name| c_text(name)).collect(),
            states: texts(states, "output_name"),
            is_iterative: is(&sequences["iterative_sequence"]),
            is_decoupled: is(&config["model_transaction_policy"]["decoupled"]),
            is_unscheduled: sequences.is_null() && config["dynamic_batching"].is_null(),
            same_buffers: same.filter_map(pair).collect(),
        })
    }
}

impl Model {
    pub(crate) fn new(backend: Arc<Backend>, load: &LoadContent) -> Result<Self> {
        Ok(Self {
            backend,
            name: c_text(&load.model),
            version: load.version.parse().unwrap_or(0),
            directory: c_text(&load.model_directory),
            auto_complete: load.auto_complete,
            signature: RwLock::new(Arc::new(Signature::of(&load.config)?)),
            config: Mutex::new(load.config.clone()),
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
    pub(crate) fn open_strategy(&self, path: &str) -> Result<()> {
        if path.is_empty() {
            return Ok(());
        }
        let is_dynamic = !json::read::<Value>(&self.config())?["dynamic_batching"].is_null();
        let _ = self.strategy.set(Strategy::open(Path::new(path), self.into(), self.name(), is_dynamic)?);
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

objects! {
    Model: "model";
}

exports! {
    "model" get TRITONBACKEND_ModelName(model: &Model) -> Lent<c_char> = model.name.as_ptr();
    "model" get TRITONBACKEND_ModelVersion(model: &Model) -> u64 = model.version;
    "model" get TRITONBACKEND_ModelAutoCompleteConfig(model: &Model) -> bool = model.auto_complete;
    // The server has no object of its own: its functions ask the connection of the code that calls.
    "model" get TRITONBACKEND_ModelServer(model: &Model) -> Lent<c_void> = (&raw const *model).cast();
    "model" get TRITONBACKEND_ModelBackend(model: &Model) -> Lent<Backend> = Arc::as_ptr(&model.backend);

    /// The directory of a model, which has those of its versions.
    "model" fn TRITONBACKEND_ModelRepository(model: &Model, artifact_type: Cleared<u32>, location: Out<Lent<c_char>>) {
        artifact_type.put(FILESYSTEM);
        location.put(model.directory.as_ptr());
    }

    /// The configuration as JSON with all defaults.
    "model" fn TRITONBACKEND_ModelConfig(
        model: Option<&Model>,
        config_version: u32,
        model_config: Out<*mut Message>,
    ) {
        check_config_version(config_version)?;
        model_config.give(Message::new(model.ok_or_else(|| was_null("model"))?.config()));
    }

    /// Sets inputs, outputs, the scheduler, the maximum batch size and the transaction policy. Ignores other members.
    "model" fn TRITONBACKEND_ModelSetConfig(
        model: Option<&Model>,
        config_version: u32,
        model_config: Option<&Message>,
    ) {
        check_config_version(config_version)?;
        let model = model.ok_or_else(|| was_null("model"))?;
        let message = model_config.ok_or_else(|| was_null("model config"))?;
        model.set_config(&String::from_utf8_lossy(message.text()))?;
    }

    "model" get TRITONBACKEND_ModelState(model: &Model) -> *mut c_void = model.state.load(SeqCst);
    "model" fn TRITONBACKEND_ModelSetState(model: &Model, state: *mut c_void) => model.state.store(state, SeqCst);
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(CStr::to_str(&self.name).unwrap_or_default())
    }
}
