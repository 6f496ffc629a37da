//! What is to be known of a model's processes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tensor::Name;

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
    /// What it is told first: the JSON object of `LOAD`, without `mode`, `segments` and `devices`, which are added.
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

impl Limits {
    /// Those that hold for a runner whatever it runs in.
    pub fn of_runner(&self) -> backend_remote::Limits {
        backend_remote::Limits {
            device_inputs: self.device_inputs,
            growth_bytes: self.growth_bytes,
            arena_bytes_max: self.arena_bytes_max,
            start_timeout: self.start_timeout,
            exit_grace: self.exit_grace,
            execute_timeout: self.execute_timeout,
            restart: self.restart,
        }
    }
}
