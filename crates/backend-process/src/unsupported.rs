//! Systems other than Linux. Runners cannot be started: the protocol needs memfd, and descriptors sent with a frame.

use crate::{Command, Failure, Instance, Limits, Output, Spec};
use backend::{Host, Model};
use backend_remote::{Connection, Start};
use protocol::Signature;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::Error;

fn none_here() -> Failure {
    Error::unavailable("models in processes of their own are served on Linux only").into()
}

struct Nothing;

impl Start for Nothing {
    fn start(&self) -> io::Result<Connection> {
        Err(io::Error::other(none_here().error.message().to_owned()))
    }
}

/// An instance that cannot be started.
pub fn hosted(instance: Instance, _: &Limits, _: Output) -> backend_remote::Instance {
    backend_remote::Instance { name: instance.name, start: Arc::new(Nothing), load: instance.load }
}

/// Always fails.
///
/// # Errors
/// UNAVAILABLE: this needs Linux.
pub fn start(_: Spec, _: Arc<Signature>, _: Weak<dyn Host>) -> Result<Arc<dyn Model>, Failure> {
    Err(none_here())
}

/// Always fails.
///
/// # Errors
/// UNAVAILABLE: this needs Linux.
pub fn complete_config(_: &Instance, _: &Limits, _: Output) -> Result<Option<String>, Failure> {
    Err(none_here())
}

/// Does nothing: there are no runners.
pub fn guard_with(_: Command) {}

/// Returns true: there are no processes.
pub fn wait_for_ends(_: Duration) -> bool {
    true
}
