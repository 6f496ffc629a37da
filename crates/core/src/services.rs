//! The server as seen by the code of its models: inference with other models, model control, metrics.

use crate::control::Controller;
use backend::metrics::CustomMetrics;
use backend::{
    Backend, Call, CallAnswers, CallableModel, ControlAnswer, Host, ModelCall, ModelControl, ModelOperation,
    RepositoriesChange, ServerReport,
};
use engine::{Engine, ServerState};
use frontend::{Argument, ControlOperation};
use protocol::json::write_string;
use std::sync::{Arc, Weak};
use tensor::{Error, Result};

pub struct Services {
    engine: Arc<Engine>,
    control: Arc<dyn Controller>,
    metrics: Arc<CustomMetrics>,
}

impl Services {
    /// Registers it with the backends, which hold it weakly, because its engine owns them.
    pub fn new(
        engine: Arc<Engine>,
        control: Arc<dyn Controller>,
        has_metrics: bool,
        backends: &[Arc<dyn Backend>],
    ) -> Arc<Self> {
        let services = Arc::new(Self { engine, control, metrics: CustomMetrics::new(has_metrics) });
        let host: Weak<dyn Host> = Arc::downgrade(&(services.clone() as Arc<dyn Host>));
        for backend in backends {
            backend.attach(host.clone());
        }
        services
    }

    /// Starts a change of the repository, which TypeScript executes.
    fn change(&self, operation: ControlOperation, argument: Argument, answer: ControlAnswer) {
        // Triton rejects these, too. The first loads are one step: one that starts another would wait for its own end.
        if matches!(self.engine.server_state(), ServerState::Initializing | ServerState::Loading) {
            return answer(Err(Error::unavailable("Server not ready")));
        }
        self.control.start(operation, argument, answer);
    }

    fn change_repositories(&self, change: RepositoriesChange, answer: ControlAnswer) {
        let (operation, json) = match change {
            RepositoriesChange::Poll => (ControlOperation::RepositoryPoll, "{}".to_owned()),
            RepositoriesChange::Register { path, names } => {
                let pairs: Vec<_> =
                    names.iter().map(|(name, directory)| format!("{}:{}", quoted(name), quoted(directory))).collect();
                let json = format!(r#"{{"path":{},"names":{{{}}}}}"#, quoted(&path), pairs.join(","));
                (ControlOperation::RepositoryRegister, json)
            }
            RepositoriesChange::Unregister { path } => {
                (ControlOperation::RepositoryUnregister, format!(r#"{{"path":{}}}"#, quoted(&path)))
            }
        };
        self.change(operation, json.into(), answer);
    }

    fn read(&self, report: ServerReport, model: &str, version: &str, answer: ControlAnswer) {
        let text = |json: bytes::Bytes| String::from_utf8_lossy(&json).into_owned();
        let engine = &self.engine;
        let index = |ready: bool| Argument::from(format!(r#"{{"ready":{ready}}}"#));
        let json = match report {
            ServerReport::Index => return self.change(ControlOperation::RepositoryIndex, index(false), answer),
            ServerReport::ReadyIndex => return self.change(ControlOperation::RepositoryIndex, index(true), answer),
            ServerReport::Metrics => {
                return self.control.start(ControlOperation::Metrics, "{}".to_owned().into(), answer);
            }
            ServerReport::Metadata => {
                let of = engine.server_metadata();
                Ok(text(protocol::http::server_metadata_json(&of.name, &of.version, &of.extensions)))
            }
            ServerReport::ModelMetadata => {
                frontend::Metadata::find(engine, model, version).map(|metadata| text(metadata.json()))
            }
            ServerReport::ModelConfig => engine.model(model, version).map(|model| text(model.identity.config_json())),
            ServerReport::ModelStatistics => engine.statistics(model, version).map(|all| engine::statistics_json(&all)),
        };
        answer(json);
    }
}

impl Host for Services {
    fn call(&self, call: ModelCall, answers: Arc<dyn CallAnswers>) -> Result<Box<dyn Call>> {
        self.engine.call_from_model(call, answers)
    }

    fn describe(&self, model: &str, version: i64) -> Result<CallableModel> {
        self.engine.describe_for_call(model, version)
    }

    fn control(&self, control: ModelControl, answer: ControlAnswer) {
        let within = format!(r#","within":{}"#, quoted(&control.asker));
        match control.operation {
            ModelOperation::Load { model, config, files } => {
                let parameters =
                    if config.is_empty() { String::new() } else { format!(r#""config":{}"#, quoted(&config)) };
                let json = format!(r#"{{"model":{},"parameters":{{{parameters}}}{within}}}"#, quoted(&model));
                let files = files.into_iter().filter(|(name, _)| name.starts_with("file:")).collect();
                self.change(ControlOperation::RepositoryLoad, Argument { json, files }, answer);
            }
            ModelOperation::Unload { model, dependents } => {
                let json = format!(r#"{{"model":{},"unload_dependents":{dependents}{within}}}"#, quoted(&model));
                self.change(ControlOperation::RepositoryUnload, json.into(), answer);
            }
            ModelOperation::IsReady { model, version } => match self.engine.model_ready_for_models(&model, &version) {
                Ok(ready) => ready.notify(|is_ready| answer(Ok(is_ready.to_string()))),
                Err(error) => answer(Err(error)),
            },
            ModelOperation::IsServerReady => {
                self.engine.readiness().notify(|is_ready| answer(Ok(is_ready.to_string())));
            }
            ModelOperation::Read { report, model, version } => self.read(report, &model, &version, answer),
            // The code of a model may run with fewer rights than the server, which would read any directory for it.
            ModelOperation::Repositories(_) if !control.asker.is_empty() => {
                answer(Err(Error::unsupported("a model cannot change the set of repositories")));
            }
            ModelOperation::Repositories(change) => self.change_repositories(change, answer),
        }
    }

    fn metrics(&self) -> &Arc<CustomMetrics> {
        &self.metrics
    }
}

/// Quotes `text` as a JSON string.
fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    write_string(&mut out, text.as_bytes());
    // Escaping keeps UTF-8 valid.
    String::from_utf8_lossy(&out).into_owned()
}
