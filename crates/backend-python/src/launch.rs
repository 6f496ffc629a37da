//! The two things that are asked of the host of processes, with what helps said behind its errors.

use crate::failure::explain;
use crate::probe::Interpreter;
use backend::{Host, Model};
use backend_process::{Failure, Instance, Limits, Output, Spec};
use protocol::Signature;
use std::sync::{Arc, Weak};
use tensor::{Error, Result};

/// Starts the processes of a model and has them load its code. Blocks until all are ready or one failed.
pub(crate) fn start(
    spec: Spec,
    signature: Arc<Signature>,
    host: Weak<dyn Host>,
    interpreter: &Interpreter,
) -> Result<Arc<dyn Model>> {
    backend_process::start(spec, signature, host).map_err(|failure| explained(&failure, interpreter))
}

/// What the code makes of the configuration; `None` when it has nothing to say.
pub(crate) fn ask(
    instance: &Instance,
    limits: &Limits,
    output: Output,
    interpreter: &Interpreter,
) -> Result<Option<String>> {
    backend_process::complete_config(instance, limits, output).map_err(|failure| explained(&failure, interpreter))
}

/// The error with what helps.
pub(crate) fn explained(failure: &Failure, interpreter: &Interpreter) -> Error {
    let Failure { error, source, missing } = failure;
    Error::new(error.code(), explain(error.message(), source.as_ref(), missing.as_deref(), interpreter))
}
