//! The backend `c`: from a library to running instances.

use crate::hosts::{Hosts, explained, is_shared};
use crate::load::{HostedInstance, LoadContent, instances};
use crate::settings::HostSettings;
use backend::{Backend, Host, Model, OpenSpec, Opened};
use backend_process::{
    Completed, Failure, Further, HostedLibrary, Prefetch, RunnerGuard, Spec, UnknownKeys, ask_and_keep,
};
use options::LibraryProcess;
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use tensor::{Error, Name, Result};

/// Instances per model: each has two threads and two segments.
const INSTANCES_MAX: usize = 256;

/// The backend `c`.
pub struct CBackend(Arc<CBackendState>);

struct CBackendState {
    options: LibraryProcess,
    hosts: Hosts,
    host: OnceLock<Weak<dyn Host>>,
    unknown: UnknownKeys,
    loads: AtomicU64,
}

impl CBackend {
    /// Starts nothing yet.
    pub fn new(options: LibraryProcess) -> Self {
        Self(Arc::new(CBackendState {
            options,
            hosts: Hosts::default(),
            host: OnceLock::new(),
            unknown: UnknownKeys::default(),
            loads: AtomicU64::new(0),
        }))
    }

    /// Asks the processes of all libraries to finalize and to end, for the end of the server.
    pub fn close(&self) {
        self.0.hosts.close();
    }
}

impl Backend for CBackend {
    fn name(&self) -> &'static str {
        "c"
    }

    fn attach(&self, host: Weak<dyn Host>) {
        let _ = self.0.host.set(host);
    }

    fn open(&self, spec: &OpenSpec) -> Result<Box<dyn Opened>> {
        let state = &self.0;
        let library = spec.library.as_ref().ok_or_else(|| Error::internal("the backend 'c' needs a library"))?;
        if let Some(missing) = &state.options.missing {
            return Err(Error::unsupported(format!(
                "the library '{}' of backend '{}' cannot run here: {missing}",
                library.path.display(),
                library.backend
            )));
        }
        let host = state.host.get().cloned();
        let host = host.ok_or_else(|| Error::internal("the backend 'c' needs a running server"))?;
        let config = ModelConfig::parse(&spec.config)?;
        let parameters = config.parameters.iter().map(|(key, value)| (key.as_str(), value.string_value.as_str()));
        let is_shared = is_shared(&state.options, library);
        let (settings, unknown) = HostSettings::read(&spec.settings, parameters, is_shared)?;
        self.0.unknown.warn(&unknown, "C", spec.model.as_str());
        let process = if is_shared {
            state.hosts.shared(&state.options, library, &HostSettings::of_shared_process(&spec.settings)?)?
        } else {
            state.hosts.own(&state.options, library, &settings)?
        };
        let load = state.loads.fetch_add(1, Relaxed).to_string();
        let content = LoadContent::new(spec, library, load);
        // Also if nothing may be completed: this connection makes the model.
        let own = process.instance(
            Name::from(content.model.as_str()),
            &content.to_complete(&spec.config_json),
            &settings.limits,
        );
        let (completed, runner) = ask_and_keep(&own, &settings.limits, Weak::clone(&host), spec.model.as_str().into())
            .map_err(|failure| explained(&state.options, failure.error))?;
        let completed = completed_config(&completed)?;
        Ok(Box::new(OpenedLibrary {
            host,
            process,
            content,
            settings,
            config_json: spec.config_json.clone(),
            completed,
            _runner: runner,
        }))
    }
}

/// The configuration that the library made, whose instance groups are those that it prefers. `None` if it made none.
fn completed_config(completed: &Completed) -> Result<Option<String>> {
    let Some(config) = &completed.config else { return Ok(None) };
    let read = |text| serde_json::from_str::<Value>(text).map_err(|error| Error::invalid(error.to_string()));
    let (mut config, mut groups) = (read(config)?, read(completed.groups.as_deref().unwrap_or("[]"))?);
    for group in groups.as_array_mut().into_iter().flatten() {
        group["kind"] = format!("KIND_{}", group["kind"].as_str().unwrap_or_default()).into();
    }
    config["instance_group"] = groups;
    Ok(Some(config.to_string()))
}

/// A model that its library has accepted.
struct OpenedLibrary {
    host: Weak<dyn Host>,
    process: HostedLibrary,
    content: LoadContent,
    settings: HostSettings,
    config_json: String,
    completed: Option<String>,
    /// The model's own connection.
    _runner: RunnerGuard,
}

impl Opened for OpenedLibrary {
    fn completed(&self) -> Option<String> {
        self.completed.clone()
    }

    fn configured(&mut self, json: &str) {
        json.clone_into(&mut self.config_json);
    }

    fn finish(self: Box<Self>, config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
        let iterative = config.is_iterative();
        let decoupled = signature.decoupled;
        let host = Weak::clone(&self.host);
        let factory = Arc::new(InstanceFactory { opened: *self, signature: Arc::clone(&signature), iterative });
        let opened = &factory.opened;
        let is_alone = !opened.content.library.calls_models && config.runs_one_by_one();
        let spec = Spec {
            instances: factory.instances(config, &opened.config_json)?,
            further: Some(factory.clone()),
            decoupled,
            iterative,
            reports_statistics: true,
            counts_failed: false,
            sends_all_outputs: true,
            prefetch: if is_alone { Prefetch::Always(PREFETCHED_MAX) } else { Prefetch::Never },
            parameter_prefix: crate::settings::PARAMETER_PREFIX,
            limits: opened.settings.limits.of_runner(),
        };
        backend_process::start(spec, signature, host).map_err(|failure| failure.error)
    }
}

/// Creates the instances of a model, also when a serving model gets others. It has the model's own connection, which is
/// closed after the runners were asked to end.
struct InstanceFactory {
    opened: OpenedLibrary,
    signature: Arc<Signature>,
    iterative: bool,
}

impl Further for InstanceFactory {
    fn instances(&self, config: &ModelConfig, json: &str) -> Result<Vec<backend_remote::InstanceSpec>> {
        let Self { opened, signature, iterative } = self;
        let placed = instances(config);
        if placed.len() > INSTANCES_MAX {
            return Err(Error::invalid(format!(
                "model '{}' has {} instances: at most {INSTANCES_MAX} are made of a model of a library",
                opened.content.model,
                placed.len()
            )));
        }
        let instance = |placed: &HostedInstance| {
            let load = opened.content.to_run(json, signature, *iterative, placed);
            opened.process.instance(Name::from(placed.name.as_str()), &load, &opened.settings.limits)
        };
        Ok(placed.iter().map(instance).collect())
    }

    fn error(&self, failure: &Failure) -> Error {
        failure.error.clone()
    }
}

/// Maximum number of batches that are prefetched to an instance.
const PREFETCHED_MAX: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_a_completed_configuration_are_the_preferred_ones() {
        let completed = |groups: Option<&str>| {
            let config = r#"{"name":"m","instance_group":[{"name":"x"}],"max_batch_size":4}"#;
            let completed = Completed { config: Some(config.to_owned()), groups: groups.map(str::to_owned) };
            completed_config(&completed).unwrap().unwrap()
        };
        assert_eq!(completed(None), r#"{"instance_group":[],"max_batch_size":4,"name":"m"}"#);
        assert_eq!(
            completed(Some(r#"[{"kind":"CPU","count":2,"gpus":[]}]"#)),
            r#"{"instance_group":[{"count":2,"gpus":[],"kind":"KIND_CPU"}],"max_batch_size":4,"name":"m"}"#
        );
    }
}
