//! Completes a configuration with the code of a model, in a runner of its own.

use crate::failure::{Failure, ReadyFrame};
use crate::model::{RunnerModel, cannot_start, launch, not_started};
use crate::runner::{Owner, Runner, RunnerContext, Started};
use crate::spec::{InstanceSpec, Limits};
use crate::transport::Executor;
use backend::Host;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::Name;

/// Completes a configuration with the model's code in a separate runner. `None` if the code does not change it.
///
/// # Errors
/// The error of the code, or the end of the runner.
pub fn ask(instance: &InstanceSpec, limits: &Limits, executor: &Arc<dyn Executor>) -> Result<Option<String>, Failure> {
    complete(instance, limits, executor, None).map(|(ready, _runner)| ready.config)
}

/// The configuration that a runner made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed {
    /// JSON of the configuration; `None` if the code does not change it.
    pub config: Option<String>,
    /// JSON array of the instance groups that the code prefers; `None` if the runner does not report them.
    pub groups: Option<String>,
}

/// A runner that completed a configuration and stays, because it owns the model for other runners. It ends when this is
/// dropped. If it dies before, nothing happens: the runners that serve the model notice their own end.
pub struct RunnerGuard {
    runner: Arc<Runner>,
    grace: Duration,
}

impl Drop for RunnerGuard {
    fn drop(&mut self) {
        self.runner.end(self.grace);
    }
}

/// Completes a configuration as [`ask`] does, and keeps the runner. Its code may send requests to `host`, for the model
/// `model`.
///
/// # Errors
/// The error of the code, or the end of the runner.
pub fn ask_and_keep(
    instance: &InstanceSpec,
    limits: &Limits,
    executor: &Arc<dyn Executor>,
    host: Weak<dyn Host>,
    model: Name,
) -> Result<(Completed, RunnerGuard), Failure> {
    let (ReadyFrame { config, groups, .. }, runner) = complete(instance, limits, executor, Some((host, model)))?;
    Ok((Completed { config, groups }, runner))
}

/// Starts a runner in mode `complete`, and waits for its answer. The runner ends when the second value is dropped.
fn complete(
    instance: &InstanceSpec,
    limits: &Limits,
    executor: &Arc<dyn Executor>,
    asks: Option<(Weak<dyn Host>, Name)>,
) -> Result<(ReadyFrame, RunnerGuard), Failure> {
    let (kind, instance, limits, executor_of) = (instance.kind, instance.clone(), limits.clone(), Arc::clone(executor));
    let grace = limits.exit_grace;
    let (send, answer) = channel();
    let (send_runner, started_runner) = channel();
    executor.start(Box::new(move || {
        let started: Started = Box::new(move |result| drop(send.send(result)));
        let context =
            RunnerContext { owner: Weak::<RunnerModel>::new() as Weak<dyn Owner>, asks, executor: executor_of };
        drop(send_runner.send(launch(&instance, 0, &limits, context, "complete", started)));
    }));
    let runner = started_runner.recv();
    let runner = runner.map_err(|_| not_started(kind))?.map_err(|e| cannot_start(kind, &e))?;
    let guard = RunnerGuard { runner, grace };
    let ready = answer.recv().map_err(|_| not_started(kind))??;
    Ok((ready, guard))
}
