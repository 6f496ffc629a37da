//! Systems on which no runner can be started, since the protocol needs what Linux has: memfd, and descriptors sent over a socket in one piece with a frame.

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
/// That this needs Linux.
pub fn start(_: Spec, _: Arc<Signature>, _: Weak<dyn Host>) -> Result<Arc<dyn Model>, Failure> {
    Err(none_here())
}

/// Always fails.
///
/// # Errors
/// That this needs Linux.
pub fn ask(_: &Instance, _: &Limits, _: Output) -> Result<Option<String>, Failure> {
    Err(none_here())
}

/// There is nothing to guard.
pub fn guard_with(_: Command) {}

/// There is no process to wait for.
pub fn wait_for_ends(_: Duration) -> bool {
    true
}
