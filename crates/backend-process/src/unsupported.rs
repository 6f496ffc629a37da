//! Systems other than Linux. Runners cannot be started: the protocol needs memfd, and descriptors sent with a frame.

use crate::{Command, Failure, Instance, OutputTarget, RunnerLimits, Spec};
use backend::{Host, Model};
use backend_remote::{Completed, Connection, Job, RunnerGuard, Segments, Start};
use protocol::Signature;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::{Error, Name, RegionRef};

fn unsupported() -> Failure {
    Error::environment("models in processes of their own are served on Linux only").into()
}

/// The time after which dropped output is noted, which is never needed.
pub const NOTE_DELAY: Duration = Duration::from_secs(1);

/// The output of a runner: there is none.
pub struct Printer;

impl Printer {
    /// Nothing is printed.
    pub fn new(_: &str, _: bool, _: u32) -> Self {
        Self
    }
    /// Drops the bytes.
    pub fn add(&mut self, _: &[u8]) -> bool {
        false
    }
    /// Does nothing.
    pub fn note(&mut self) -> bool {
        false
    }
    /// Does nothing.
    pub fn end(&mut self) {}
}

/// The memory of a runner, of which there is none.
pub struct Shared {
    /// Always `None`.
    pub segments: Option<Segments>,
    /// Always `None`.
    pub flags: Option<RegionRef>,
}

struct UnsupportedStart;

impl Start for UnsupportedStart {
    fn start(&self) -> io::Result<Connection> {
        Err(io::Error::other(unsupported().error.message().to_owned()))
    }
}

/// An instance that cannot be started.
pub fn hosted(instance: Instance, _: &RunnerLimits, _: OutputTarget) -> backend_remote::InstanceSpec {
    let Instance { name, kind, load, .. } = instance;
    backend_remote::InstanceSpec { name, kind, start: Arc::new(UnsupportedStart), load }
}

/// Always fails.
pub fn start(_: Spec, _: Arc<Signature>, _: Weak<dyn Host>) -> Result<Arc<dyn Model>, Failure> {
    Err(unsupported())
}

/// Always fails.
pub fn complete_config(_: &Instance, _: &RunnerLimits, _: OutputTarget) -> Result<Option<String>, Failure> {
    Err(unsupported())
}

/// Always fails.
pub fn ask(_: &backend_remote::InstanceSpec, _: &RunnerLimits) -> Result<Option<String>, Failure> {
    Err(unsupported())
}

/// Always fails.
pub fn ask_and_keep(
    _: &backend_remote::InstanceSpec,
    _: &RunnerLimits,
    _: Weak<dyn Host>,
    _: Name,
) -> Result<(Completed, RunnerGuard), Failure> {
    Err(unsupported())
}

/// A process for a library, which cannot be started.
#[derive(Clone)]
pub struct HostedLibrary;

impl HostedLibrary {
    /// Starts nothing.
    pub fn new(_: Name, _: Command, _: RunnerLimits, _: OutputTarget) -> Self {
        Self
    }
    /// An instance that cannot be started.
    pub fn instance(&self, name: Name, load: &str, _: &RunnerLimits) -> backend_remote::InstanceSpec {
        let kind = backend_remote::RunnerKind::Instance;
        backend_remote::InstanceSpec { name, kind, start: Arc::new(UnsupportedStart), load: load.to_owned() }
    }
    /// Does nothing.
    pub fn close(&self) {}
}

/// Returns the object: it is never sent.
pub fn load_of(load: &str, _: &RunnerLimits) -> String {
    load.to_owned()
}

/// Always fails.
pub fn shared(_: &RunnerLimits) -> io::Result<Shared> {
    Err(io::Error::other(unsupported().error.message().to_owned()))
}

/// Always fails.
pub fn segment(_: u64) -> io::Result<RegionRef> {
    Err(io::Error::other(unsupported().error.message().to_owned()))
}

/// Does nothing: there are no runners.
pub fn after(_: Duration, _: Job) {}

/// Does nothing: there are no runners.
pub fn guard_with(_: Command) {}

/// Returns true: there are no processes.
pub fn wait_for_ends(_: Duration) -> bool {
    true
}

/// The socket to a program that runs models, of which there is none.
#[derive(Clone)]
pub struct ParentProgram;

impl ParentProgram {
    /// Always fails.
    pub fn new(_: std::os::fd::RawFd) -> Result<Self> {
        Err(unsupported().error)
    }

    /// Unreachable: there is no value of this type.
    pub fn instance(&self, name: Name, load: &str, limits: &RunnerLimits) -> backend_remote::InstanceSpec {
        let kind = backend_remote::RunnerKind::Instance;
        hosted(Instance { name, kind, command: Command::default(), load: load.to_owned() }, limits, OutputTarget::Lines)
    }
}

/// Always fails.
pub fn serve_embedder(_: std::os::fd::RawFd, _: Weak<dyn Host>) -> Result<RunnerGuard> {
    Err(unsupported().error)
}
