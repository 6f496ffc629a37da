//! The backend `javascript`: from a version's directory to running instances.

use crate::settings::JavaScriptSettings;
use crate::worker::{Starter, Threads, WorkerSpec};
use backend::{Backend, Host, Model, OpenSpec, Opened};
use backend_process::{
    Command, Failure, Further, Instance, JsonObject, OutputTarget, PlacedInstance, Prefetch, RunnerKind, RunnerLimits,
    SharedMemory, Spec, UnknownKeys, ask, hosted, instances, is_inside, load_of,
};
use memory::beneath::has_canonical;
use options::JavaScriptOptions;
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use tensor::{Error, Name, Result};

/// Instances per model: an idle one takes some 10 MB.
const INSTANCES_MAX: usize = 256;

/// The backend `javascript`.
pub struct JavaScriptBackend(Arc<JavaScriptBackendState>);

struct JavaScriptBackendState {
    options: JavaScriptOptions,
    threads: Arc<dyn Threads>,
    host: OnceLock<Weak<dyn Host>>,
    unknown: UnknownKeys,
}

impl JavaScriptBackend {
    /// `threads` makes its worker threads.
    pub fn new(options: JavaScriptOptions, threads: Arc<dyn Threads>) -> Self {
        Self(Arc::new(JavaScriptBackendState {
            options,
            threads,
            host: OnceLock::new(),
            unknown: UnknownKeys::default(),
        }))
    }
}

impl Backend for JavaScriptBackend {
    fn name(&self) -> &'static str {
        "javascript"
    }

    fn attach(&self, host: Weak<dyn Host>) {
        let _ = self.0.host.set(host);
    }

    fn open(&self, spec: &OpenSpec) -> Result<Box<dyn Opened>> {
        let config = ModelConfig::parse(&spec.config)?;
        let parameters = config.parameters.iter().map(|(key, value)| (key.as_str(), value.string_value.as_str()));
        let (options, unknown) = JavaScriptSettings::read(&spec.settings, parameters)?;
        self.0.unknown.warn(&unknown, "JavaScript", spec.model.as_str());
        let mut opened = OpenedJavaScript {
            state: Arc::clone(&self.0),
            key: spec.model.as_str().into(),
            model: spec.model.as_str().rsplit('/').next().unwrap_or_default().to_owned(),
            version: spec.version,
            model_directory: spec.model_directory.clone(),
            version_directory: spec.version_directory.clone(),
            file: file_of(&spec.version_directory, &config.default_model_filename)?,
            options,
            config_json: spec.config_json.clone(),
            completed: None,
        };
        if spec.completes {
            // It is no instance, and has no instance name: errors and log lines have that of the model.
            let nowhere = PlacedInstance { name: String::new(), kind: "CPU", device: 0 };
            let load = opened.load(None, &nowhere, &opened.config_json, false);
            let instance = opened.instance(&opened.model, &load, &opened.options.limits);
            opened.completed = ask(&instance, &opened.options.limits).map_err(|failure| explained(&failure))?;
        }
        Ok(Box::new(opened))
    }
}

/// The model's file, `file` as configured.
fn file_of(version: &Path, file: &str) -> Result<PathBuf> {
    if !is_inside(file) {
        return Err(Error::invalid(format!("model file name '{file}' must stay inside the version directory")));
    }
    let path = version.join(file);
    if path.is_file() {
        return Ok(path);
    }
    Err(Error::internal(format!("JavaScript model file not found in '{}'", path.display())))
}

/// The error of a runner for clients, with the line that it points at.
fn explained(failure: &Failure) -> Error {
    let Failure { error, source, missing } = failure;
    let mut text = error.message().to_owned();
    if let Some(source) = source {
        text.push_str(&format!(" ({}:{}: {})", source.file, source.line, source.text.trim()));
    }
    if let Some(package) = missing {
        text.push_str(&format!("; get it with: npm install {package}"));
    }
    error.with_text(text)
}

/// A model whose file was found.
struct OpenedJavaScript {
    state: Arc<JavaScriptBackendState>,
    /// With its namespace, if there are namespaces.
    key: Name,
    /// Without it, as the model's code sees it.
    model: String,
    version: i64,
    model_directory: PathBuf,
    version_directory: PathBuf,
    file: PathBuf,
    options: JavaScriptSettings,
    config_json: String,
    completed: Option<String>,
}

impl OpenedJavaScript {
    /// The LOAD object of an instance.
    fn load(&self, signature: Option<&Signature>, placed: &PlacedInstance, config: &str, iterative: bool) -> String {
        let mut json = JsonObject::default();
        json.text("instance", &placed.name);
        json.text("model", &self.model);
        json.text("version", &self.version.to_string());
        json.text("model_directory", &self.model_directory.to_string_lossy());
        json.text("version_directory", &self.version_directory.to_string_lossy());
        json.text("file", &self.file.to_string_lossy());
        let mut arguments = JsonObject::default();
        arguments.text("model_instance_kind", placed.kind);
        arguments.text("model_instance_device_id", &placed.device.to_string());
        json.raw("arguments", &arguments.end());
        let (inputs, outputs) = signature.map_or((&[][..], &[][..]), |s| (&s.inputs[..], &s.outputs[..]));
        json.texts("inputs", inputs.iter().map(|input| input.name.as_str()));
        json.texts("outputs", outputs.iter().map(|output| output.name.as_str()));
        json.raw("decoupled", if signature.is_some_and(|s| s.decoupled) { "true" } else { "false" });
        json.raw("iterative", if iterative { "true" } else { "false" });
        json.text("config", config);
        json.end()
    }

    /// A runner with this LOAD object.
    fn instance(&self, name: &str, load: &str, limits: &RunnerLimits) -> backend_remote::InstanceSpec {
        let name = Name::from(name);
        if self.options.isolated {
            let kind = RunnerKind::Instance;
            let instance =
                Instance { name, kind, command: self.command(limits.memory_bytes_max), load: load.to_owned() };
            // Node reserves far more addresses than memory, so the limit is that of its heap.
            let limits = RunnerLimits { shared_memory: SharedMemory::Flags, memory_bytes_max: None, ..limits.clone() };
            return hosted(instance, &limits, OutputTarget::Lines);
        }
        let spec = WorkerSpec {
            id: 0,
            model: self.key.clone(),
            name: name.as_str().to_owned(),
            heap_bytes_max: limits.memory_bytes_max,
            preserves_links: !has_canonical(&self.file),
        };
        let start = Starter { threads: Arc::clone(&self.state.threads), spec, limits: limits.clone() };
        backend_remote::InstanceSpec {
            name,
            kind: RunnerKind::Instance,
            start: Arc::new(start),
            load: load_of(load, limits),
        }
    }

    fn command(&self, heap_bytes_max: Option<u64>) -> Command {
        let JavaScriptOptions { node, flags, script, environment } = &self.state.options;
        let mut arguments: Vec<OsString> = flags.iter().map(OsString::from).collect();
        if !has_canonical(&self.file) {
            arguments.push("--preserve-symlinks".into());
        }
        if let Some(bytes) = heap_bytes_max {
            arguments.push(format!("--max-old-space-size={}", (bytes >> 20).max(1)).into());
        }
        arguments.push(script.clone().into_os_string());
        let environment = environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Command { program: node.clone(), arguments, environment }
    }
}

impl Opened for OpenedJavaScript {
    fn completed(&self) -> Option<String> {
        self.completed.clone()
    }

    fn configured(&mut self, json: &str) {
        json.clone_into(&mut self.config_json);
    }

    fn finish(self: Box<Self>, config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
        let host = self.state.host.get().cloned();
        let host = host.ok_or_else(|| Error::internal("the JavaScript backend needs a running server"))?;
        let iterative = config.is_iterative();
        let decoupled = signature.decoupled;
        let factory = Arc::new(InstanceFactory { opened: *self, signature: Arc::clone(&signature), iterative });
        let opened = &factory.opened;
        let spec = Spec {
            instances: factory.instances(config, &opened.config_json)?,
            further: Some(factory.clone()),
            decoupled,
            iterative,
            reports_statistics: false,
            counts_failed: true,
            sends_all_outputs: false,
            prefetch: Prefetch::Never,
            parameter_prefix: crate::settings::PARAMETER_PREFIX,
            limits: opened.options.limits.of_runner(),
        };
        backend_process::start(spec, signature, host).map_err(|failure| explained(&failure))
    }
}

/// Creates the instances of a model, also when a serving model gets others.
struct InstanceFactory {
    opened: OpenedJavaScript,
    signature: Arc<Signature>,
    iterative: bool,
}

impl Further for InstanceFactory {
    fn instances(&self, config: &ModelConfig, json: &str) -> Result<Vec<backend_remote::InstanceSpec>> {
        let Self { opened, signature, iterative } = self;
        let placed = instances(config);
        if placed.len() > INSTANCES_MAX {
            return Err(Error::invalid(format!(
                "model '{}' has {} instances, each of which is a thread of Node: at most {INSTANCES_MAX} are started \
                 for a JavaScript model",
                opened.model,
                placed.len()
            )));
        }
        let instance = |placed: &PlacedInstance| {
            let load = opened.load(Some(signature), placed, json, *iterative);
            opened.instance(&placed.name, &load, &opened.options.limits)
        };
        Ok(placed.iter().map(instance).collect())
    }

    fn error(&self, failure: &Failure) -> Error {
        explained(failure)
    }
}
