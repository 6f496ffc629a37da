//! The two things that are asked of the host of processes.

use crate::probe::Interpreter;
use backend::{Host, Model};
use backend_process::{Instance, Limits, Output, Spec};
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
    drop((spec, signature, host, interpreter));
    Err(Error::unsupported("this build has no host of runner processes"))
}

/// What the code makes of the configuration; `None` when it has nothing to say.
pub(crate) fn ask(
    instance: &Instance,
    limits: &Limits,
    output: Output,
    interpreter: &Interpreter,
) -> Result<Option<String>> {
    let _ = (instance, limits, output, interpreter);
    Ok(None)
}
