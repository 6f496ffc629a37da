//! The backend `python`: from a version's directory to running processes.

use crate::code::{ModelCode, check_name, directory_of};
use crate::environment::{Allowed, Environments};
use crate::launch;
use crate::load::LoadContent;
use crate::options::Options;
use crate::probe::{Interpreter, Prober};
use crate::search::{self, Variables};
use backend::{Backend, Host, Model, OpenSpec, Opened};
use backend_process::{
    Command, Failure, Further, Instance, ParentProgram, PlacedInstance, Prefetch, RunnerKind, RunnerLimits, Spec,
    UnknownKeys, hosted, instances,
};
use options::PythonOptions;
use parking_lot::Mutex;
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use tensor::{Error, Name, Result};

/// The program of a runner, in the directory of our Python modules.
const RUNNER: &str = "nereid_runner/__main__.py";
/// The program of the guardian, which needs no packages: 4 MB of memory, and CPU time only when a runner ends.
const GUARDIAN: &str = "nereid_runner/guardian.py";
/// Processes per model: each takes some 30 MB before it loads anything.
const INSTANCES_MAX: usize = 256;
/// Archive with the environment of a backend written in Python.
const BACKEND_ENVIRONMENT: &str = "pb_exec_env_model.py.tar.gz";

/// The backend `python`.
pub struct PythonBackend(Arc<PythonBackendState>);

struct PythonBackendState {
    options: PythonOptions,
    prober: Prober,
    environments: Environments,
    host: OnceLock<Weak<dyn Host>>,
    unknown: UnknownKeys,
    /// One for all models, which share its socket.
    parent: Mutex<Option<ParentProgram>>,
}

impl PythonBackend {
    /// Searches for nothing yet: without any Python the server starts, and only Python models fail to load.
    pub fn new(options: PythonOptions) -> Self {
        let environments = Environments::new(options.unpack_prefix.clone());
        Self(Arc::new(PythonBackendState {
            options,
            prober: Prober::default(),
            environments,
            host: OnceLock::new(),
            unknown: UnknownKeys::default(),
            parent: Mutex::default(),
        }))
    }
}

impl Backend for PythonBackend {
    fn name(&self) -> &'static str {
        "python"
    }

    fn attach(&self, host: Weak<dyn Host>) {
        let _ = self.0.host.set(host);
    }

    fn open(&self, spec: &OpenSpec) -> Result<Box<dyn Opened>> {
        let opened = self.0.clone().open(spec)?;
        Ok(Box::new(opened))
    }
}

impl PythonBackendState {
    fn open(self: Arc<Self>, spec: &OpenSpec) -> Result<OpenedPython> {
        let config = ModelConfig::parse(&spec.config)?;
        // With namespaces, the model's name has two parts; its code sees its own.
        let model = spec.model.as_str().rsplit('/').next().unwrap_or_default().to_owned();
        check_name(&model)?;
        let parameters = config.parameters.iter().map(|(key, value)| (key.as_str(), value.string_value.as_str()));
        let (options, unknown) = Options::read(&spec.settings, parameters)?;
        self.unknown.warn(&unknown, "Python", &model);
        let runtime = &self.options.runtime;
        let code = match &spec.code_directory {
            Some(directory) => ModelCode::of_backend(directory, runtime),
            None => ModelCode::of_version(&spec.version_directory, &config.default_model_filename, runtime)?,
        };
        code.require()?;
        warn_of_stub(&spec.model_directory, &model);
        let (interpreter, variables) = self.interpreter(spec, &config, &options)?;
        log::debug!(
            "model '{model}' runs in {} (Python {}, numpy {})",
            interpreter.program.display(),
            interpreter.version,
            interpreter.numpy
        );
        let runs = self.runs(&config, &options, &model)?;
        let mut opened = OpenedPython {
            shared: self,
            model,
            version: spec.version,
            model_directory: spec.model_directory.clone(),
            version_directory: spec.version_directory.clone(),
            file_directory: directory_of(&spec.version_directory, &config.default_model_filename),
            code,
            options,
            interpreter,
            variables,
            config_json: spec.config_json.clone(),
            counts_failed: !spec.code_directory.as_deref().is_some_and(is_native_in_triton),
            completed: None,
            runs,
        };
        backend_process::guard_with(opened.guardian());
        // The configuration of a function was made from the function.
        if spec.completes && matches!(opened.runs, Runs::Model) {
            opened.completed = opened.complete()?;
        }
        Ok(opened)
    }

    fn runs(&self, config: &ModelConfig, options: &Options, model: &str) -> Result<Runs> {
        let Some(parameter) = config.parameters.get(FUNCTION) else { return Ok(Runs::Model) };
        match parameter.string_value.as_str() {
            "process" => Ok(Runs::Function),
            "inline" => {
                let control = options.inline_control.ok_or_else(|| {
                    Error::invalid(format!(
                        "model '{model}' is a function of the program that started its server with nereid.serve; no \
                         such program started this server"
                    ))
                })?;
                let mut parent = self.parent.lock();
                let program = match parent.take() {
                    Some(program) => program,
                    None => ParentProgram::new(control)?,
                };
                Ok(Runs::Inline(parent.insert(program).clone()))
            }
            other => Err(Error::invalid(format!("{FUNCTION} of model '{model}' is '{other}': process or inline"))),
        }
    }

    /// The interpreter of a model, and the environment variables of its processes.
    fn interpreter(
        &self,
        spec: &OpenSpec,
        config: &ModelConfig,
        options: &Options,
    ) -> Result<(Interpreter, Variables)> {
        let server: Variables = std::env::vars_os().collect();
        let timeout = options.limits.start_timeout;
        let allowed = Allowed {
            model_directory: &spec.model_directory,
            roots: self.options.environment_roots.as_ref().map(|roots| options.with_roots(roots).collect()),
        };
        let named = config.parameters.get("EXECUTION_ENV_PATH").map_or("", |p| p.string_value.as_str());
        let mut environment = self.environments.open(named, &allowed)?;
        if let (None, Some(directory)) = (&environment, &spec.code_directory) {
            let archive = directory.join(BACKEND_ENVIRONMENT);
            if archive.is_file() {
                // The backend and its archive have the same author.
                let everywhere = Allowed { model_directory: &spec.model_directory, roots: None };
                environment = self.environments.open(&archive.to_string_lossy(), &everywhere)?;
            }
        }
        let Some(environment) = environment else {
            return Ok((search::find(&self.prober, options.interpreter.as_deref(), &server, timeout)?, server));
        };
        let variables = environment.variables(&server);
        let interpreter = self.prober.probe(&environment.python(), &variables, timeout).map_err(|why| {
            Error::internal(format!("Python backend: no usable interpreter: {why} (chosen by EXECUTION_ENV_PATH)"))
        })?;
        Ok((interpreter, variables))
    }
}

/// Parameter of a model that the Python package writes for a function.
const FUNCTION: &str = "nereid.function";

/// The kind of a model's code, and the place where it runs.
enum Runs {
    /// A `model.py`, in processes of its own.
    Model,
    /// A function in processes of its own.
    Function,
    /// A function in the program that started the server.
    Inline(ParentProgram),
}

/// Whether Triton has a C++ backend where this directory has Python code.
fn is_native_in_triton(code: &Path) -> bool {
    ["openvino", "pytorch", "tensorflow"].iter().any(|name| code.ends_with(name))
}

/// In Triton an executable of this name replaces the runner. Ours works with any interpreter and ignores the file.
fn warn_of_stub(model_directory: &Path, model: &str) {
    if model_directory.join("triton_python_backend_stub").exists() {
        log::warn!(
            "model '{model}' brings a triton_python_backend_stub, which has no effect: any CPython \
             from 3.9 on runs models here"
        );
    }
}

/// A model whose code and interpreter were found.
struct OpenedPython {
    shared: Arc<PythonBackendState>,
    model: String,
    version: i64,
    model_directory: PathBuf,
    version_directory: PathBuf,
    file_directory: PathBuf,
    code: ModelCode,
    options: Options,
    interpreter: Interpreter,
    variables: Variables,
    config_json: String,
    counts_failed: bool,
    completed: Option<String>,
    runs: Runs,
}

impl OpenedPython {
    fn load_content<'a>(&'a self, signature: Option<&'a Signature>) -> LoadContent<'a> {
        LoadContent {
            model: &self.model,
            version: self.version,
            model_directory: &self.model_directory,
            version_directory: &self.version_directory,
            file_directory: &self.file_directory,
            code: &self.code,
            config: &self.config_json,
            inputs: signature.map_or(Vec::new(), |s| s.inputs.iter().map(|i| i.name.as_str()).collect()),
            outputs: signature.map_or(Vec::new(), |s| s.outputs.iter().map(|o| o.name.as_str()).collect()),
            decoupled: signature.is_some_and(|s| s.decoupled),
            iterative: false,
        }
    }

    fn command(&self) -> Command {
        let mut environment = self.variables.clone();
        environment.retain(|(name, _)| name != "PYTHONUNBUFFERED");
        environment.push(("PYTHONUNBUFFERED".into(), "1".into()));
        Command {
            program: self.interpreter.program.clone(),
            arguments: vec![self.shared.options.runtime.join(RUNNER).into_os_string()],
            environment,
        }
    }

    /// Runs in the interpreter of the first model, with only the variables that an interpreter needs to start.
    fn guardian(&self) -> Command {
        let needed = |name: &OsString| name == "LD_LIBRARY_PATH" || name == "PATH";
        let script = self.shared.options.runtime.join(GUARDIAN).into_os_string();
        Command {
            program: self.interpreter.executable.clone(),
            arguments: vec!["-I".into(), "-S".into(), script],
            environment: self.variables.iter().filter(|(name, _)| needed(name)).cloned().collect(),
        }
    }

    /// Has the code complete the configuration, in a process of its own (B-PY-22).
    fn complete(&self) -> Result<Option<String>> {
        let instance = Instance {
            name: Name::from(""),
            kind: RunnerKind::StubProcess,
            command: self.command(),
            load: self.load_content(None).to_complete(),
        };
        launch::complete(&instance, &self.options.limits, self.options.output, &self.interpreter)
    }
}

impl Opened for OpenedPython {
    fn completed(&self) -> Option<String> {
        self.completed.clone()
    }

    fn configured(&mut self, json: &str) {
        json.clone_into(&mut self.config_json);
    }

    fn finish(self: Box<Self>, config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
        let device_inputs = takes_device_inputs(config)?;
        let iterative = config.is_iterative();
        let is_alone = !signature.decoupled && config.has_one_queue();
        let host = self.shared.host.get().cloned();
        let host = host.ok_or_else(|| Error::internal("the Python backend needs a running server"))?;
        let limits = RunnerLimits { device_inputs, ..self.options.limits.clone() };
        let instances = Arc::new(InstanceFactory { opened: *self, signature: signature.clone(), iterative, limits });
        let opened = &instances.opened;
        let spec = Spec {
            instances: instances.instances(config, &opened.config_json)?,
            further: Some(instances.clone()),
            decoupled: signature.decoupled,
            iterative,
            reports_statistics: false,
            counts_failed: opened.counts_failed,
            sends_all_outputs: false,
            prefetch: match config.scheduling_choice {
                _ if !is_alone => Prefetch::Never,
                // The batcher decides about one behind another.
                Some(_) => Prefetch::BehindSmall(1),
                None => Prefetch::BehindSmall(PREFETCHED_MAX),
            },
            parameter_prefix: crate::options::PARAMETER_PREFIX,
            limits: instances.limits.of_runner(),
        };
        launch::start(spec, signature, host, &opened.interpreter)
    }
}

/// Maximum number of requests that are prefetched to an instance, one by one.
const PREFETCHED_MAX: usize = 7;

/// Creates the instances of a model, also when a serving model gets others.
struct InstanceFactory {
    opened: OpenedPython,
    signature: Arc<Signature>,
    iterative: bool,
    limits: RunnerLimits,
}

impl Further for InstanceFactory {
    fn instances(&self, config: &ModelConfig, json: &str) -> Result<Vec<backend_remote::InstanceSpec>> {
        let Self { opened, signature, iterative, limits } = self;
        let load_content = LoadContent { iterative: *iterative, config: json, ..opened.load_content(Some(signature)) };
        let placed = instances(config);
        if placed.len() > INSTANCES_MAX {
            return Err(Error::invalid(format!(
                "model '{}' has {} instances, each of which is a process: at most {INSTANCES_MAX} are \
                 started for a Python model",
                opened.model,
                placed.len()
            )));
        }
        let command = opened.command();
        let instance = |placed: &PlacedInstance| {
            let (name, load) = (Name::from(placed.name.as_str()), load_content.to_run(placed));
            if let Runs::Inline(parent) = &opened.runs {
                return parent.instance(name, &load, limits);
            }
            let instance = Instance { name, kind: RunnerKind::StubProcess, command: command.clone(), load };
            hosted(instance, limits, opened.options.output)
        };
        Ok(placed.iter().map(instance).collect())
    }

    fn error(&self, failure: &Failure) -> Error {
        launch::explained(failure, &self.opened.interpreter)
    }
}

/// True if inputs on a device are passed there: `FORCE_CPU_ONLY_INPUT_TENSORS` is `no` (B-PY-30).
fn takes_device_inputs(config: &ModelConfig) -> Result<bool> {
    match config.parameters.get("FORCE_CPU_ONLY_INPUT_TENSORS").map_or("yes", |p| p.string_value.as_str()) {
        "yes" => Ok(false),
        "no" => Ok(true),
        other => Err(Error::unsupported(format!("Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: {other}'"))),
    }
}
