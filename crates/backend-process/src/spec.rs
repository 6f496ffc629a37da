//! Description of a model's processes.

use backend_remote::RunnerKind;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tensor::Name;

/// A program and its start: no shell, and no inherited environment or descriptors except those of the protocol.
#[derive(Debug, Clone, Default)]
pub struct Command {
    /// Absolute path.
    pub program: PathBuf,
    /// Arguments without the program's name.
    pub arguments: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// One process of a model.
#[derive(Debug, Clone)]
pub struct Instance {
    /// `NAME_0`, as in errors and before its lines in the log.
    pub name: Name,
    /// How errors name the process.
    pub kind: RunnerKind,
    /// Command to start it.
    pub command: Command,
    /// The JSON object of `LOAD`, without `mode`, `segments` and `devices`, which are added.
    pub load: String,
}

/// Destination of a process's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputTarget {
    /// Into the log line by line, after the instance's name, within a rate.
    #[default]
    Lines,
    /// To the server's own output, unchanged.
    Raw,
}

/// Memory that a runner shares with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedMemory {
    /// Tensors, and the flags of cancelled requests.
    Tensors,
    /// The flags only. Tensors pass through the sockets.
    Flags,
    /// Nothing: models do not see cancels (B-PYR-01).
    None,
}

/// Limits of a runner.
#[derive(Debug, Clone)]
pub struct RunnerLimits {
    /// Memory that the runner shares with the server.
    pub shared_memory: SharedMemory,
    /// Passes inputs on a device as they are; otherwise copies them to the host (FORCE_CPU_ONLY_INPUT_TENSORS).
    pub device_inputs: bool,
    /// Bytes of the first segments, one for requests and one for responses.
    pub segment_bytes: u64,
    /// Least bytes of each further segment.
    pub growth_bytes: u64,
    /// Most bytes of all its segments in one direction.
    pub arena_bytes_max: u64,
    /// Time from the start of the process to its first frame, without loading the model's code.
    pub start_timeout: Duration,
    /// Time to end after `UNLOAD`.
    pub exit_grace: Duration,
    /// Time limit of one batch; `None` = no limit.
    pub execute_timeout: Option<Duration>,
    /// Limit of the process's address space (B-SEC-09); `None` = the machine's.
    pub memory_bytes_max: Option<u64>,
    /// Restarts a process that died.
    pub restart: bool,
    /// Time that requests wait for such a restart; zero: they fail.
    pub restart_wait: Duration,
    /// Programs that the process starts may gain privileges: by `sudo`, or another set-user-id program.
    pub new_privileges: bool,
    /// Bytes of its output that are logged per second.
    pub output_bytes_per_second: u32,
}

impl RunnerLimits {
    /// The limits that apply to a runner of any transport.
    pub fn of_runner(&self) -> backend_remote::Limits {
        backend_remote::Limits {
            device_inputs: self.device_inputs,
            growth_bytes: self.growth_bytes,
            arena_bytes_max: self.arena_bytes_max,
            start_timeout: self.start_timeout,
            exit_grace: self.exit_grace,
            execute_timeout: self.execute_timeout,
            restart: self.restart,
            restart_wait: self.restart_wait,
        }
    }
}
