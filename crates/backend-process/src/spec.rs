//! What makes a model that is served by runners.

use crate::failure::Failure;
use protocol::pb::inference::ModelConfig;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Error, Name, Result};

/// A program and how it is started: without a shell, with these arguments and this environment and nothing inherited but the
/// descriptors of the protocol.
#[derive(Debug, Clone, Default)]
pub struct Command {
    /// Absolute path.
    pub program: PathBuf,
    /// Without the program's name.
    pub arguments: Vec<OsString>,
    /// All of it.
    pub environment: Vec<(OsString, OsString)>,
}

/// One process of a model.
#[derive(Debug, Clone)]
pub struct Instance {
    /// `NAME_0`: it stands in errors and in front of what the process prints.
    pub name: Name,
    /// What to start.
    pub command: Command,
    /// What it is told first: the JSON object of `LOAD`, without `mode`, `segments` and `devices`, which this crate adds.
    pub load: String,
}

/// What becomes of a process's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// Line by line into the log, behind the instance's name, so many bytes a second at most.
    #[default]
    Lines,
    /// To the server's own output, as it is.
    Raw,
}

/// Numbers that bound a runner.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Tensors may lie in shared memory. Without it all of them go through the sockets (B-PYR-01), and a model does not see that a request is cancelled.
    pub shared_memory: bool,
    /// Inputs that lie on a device are handed over there; else they are copied to the host (FORCE_CPU_ONLY_INPUT_TENSORS).
    pub device_inputs: bool,
    /// Bytes of the first segments, one for requests and one for responses.
    pub segment_bytes: u64,
    /// Least bytes of each further one.
    pub growth_bytes: u64,
    /// Most bytes of all its segments in one direction.
    pub arena_bytes_max: u64,
    /// From the start of the process until it hears its host, loading of the model's code not included.
    pub start_timeout: Duration,
    /// How long it may take to end after `UNLOAD`.
    pub exit_grace: Duration,
    /// How long one batch may take; none: for ever.
    pub execute_timeout: Option<Duration>,
    /// Most address space of the process (B-SEC-09); none: the machine's.
    pub memory_bytes_max: Option<u64>,
    /// A process that died is started again.
    pub restart: bool,
    /// What the process starts may gain privileges: by `sudo`, or another set-user-id program.
    pub new_privileges: bool,
    /// Bytes of its output that go into the log each second.
    pub output_bytes_per_second: u32,
}

/// Makes further processes of a model that serves.
pub trait Further: Send + Sync {
    /// All instances of the model with this configuration (also in Triton's JSON form), which differs from the one
    /// it was started with in its instance groups only. In the order of [`backend::placements`].
    ///
    /// # Errors
    /// INVALID_ARG for more processes than there may be.
    fn instances(&self, config: &ModelConfig, json: &str) -> Result<Vec<Instance>>;

    /// What clients are told of a process that could not be started.
    fn error(&self, failure: &Failure) -> Error;
}

/// A model served by runners.
#[derive(Clone)]
pub struct Spec {
    /// One per instance, in the order of their numbers.
    pub instances: Vec<Instance>,
    /// Makes those that are added while it serves; none: its instances never change.
    pub further: Option<Arc<dyn Further>>,
    /// The model answers a request any number of times.
    pub decoupled: bool,
    /// Its requests may be rescheduled.
    pub iterative: bool,
    /// What bounds its processes.
    pub limits: Limits,
    /// What becomes of their output.
    pub output: Output,
}
