//! Starts processes; adds hints to their errors.

use crate::failure::explain;
use crate::probe::Interpreter;
use backend::{Host, Model};
use backend_process::{Failure, Instance, OutputTarget, RunnerLimits, Spec};
use protocol::Signature;
use std::sync::{Arc, Weak};
use tensor::{Error, Result};

/// Starts the processes of a model, which load its code. Blocks until all are ready or one has failed.
pub(crate) fn start(
    spec: Spec,
    signature: Arc<Signature>,
    host: Weak<dyn Host>,
    interpreter: &Interpreter,
) -> Result<Arc<dyn Model>> {
    backend_process::start(spec, signature, host).map_err(|failure| explained(&failure, interpreter))
}

/// Has the code complete the configuration; `None` if it does not change it.
pub(crate) fn complete(
    instance: &Instance,
    limits: &RunnerLimits,
    output: OutputTarget,
    interpreter: &Interpreter,
) -> Result<Option<String>> {
    backend_process::complete_config(instance, limits, output).map_err(|failure| explained(&failure, interpreter))
}

/// Adds hints about the interpreter and its modules to the error of a failed start.
pub(crate) fn explained(failure: &Failure, interpreter: &Interpreter) -> Error {
    let Failure { error, source, missing } = failure;
    error.with_text(explain(error.message(), source.as_ref(), missing.as_deref(), interpreter))
}
