//! Description of a model that is served by runners.

use crate::failure::Failure;
use crate::transport::Start;
use protocol::pb::inference::ModelConfig;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Error, Name, Result};

/// Larger outputs of one frame are copied by a thread that may block: a copy of 1 MiB takes 80 to 240 µs.
pub(crate) const COPY_BYTES_MAX: u64 = 1 << 20;
/// Longer frames (texts or inline tensors) are also handled by that thread.
pub(crate) const FRAME_BYTES_AT_ONCE_MAX: usize = 1 << 20;

/// How errors name a runner that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerKind {
    /// A process of a Python model, which Triton calls a stub.
    StubProcess,
    /// A thread or a process: clients of the model know only its instance.
    Instance,
}

impl RunnerKind {
    /// Noun for texts: `process '…' ended`.
    pub(crate) fn noun(self) -> &'static str {
        if self == Self::StubProcess { "process" } else { "instance" }
    }

    /// Error of a request whose runner ended; Triton's for a Python model.
    pub(crate) fn not_healthy(self, name: &str) -> Error {
        let kind = if self == Self::StubProcess { "Stub process" } else { "Instance" };
        Error::internal(format!("{kind} '{name}' is not healthy.")).by_model().retry(true)
    }
}

/// One runner of a model.
#[derive(Clone)]
pub struct InstanceSpec {
    /// `NAME_0`. Appears in errors and before each line that the runner prints.
    pub name: Name,
    /// How errors name the runner.
    pub kind: RunnerKind,
    /// Starts the runner.
    pub start: Arc<dyn Start>,
    /// JSON object of the first frame, `LOAD`, without `mode`.
    pub load: String,
}

/// Limits of a runner.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Device inputs are lent to the runner; otherwise they are copied to the host (FORCE_CPU_ONLY_INPUT_TENSORS).
    pub device_inputs: bool,
    /// Minimum bytes of each segment after the first.
    pub growth_bytes: u64,
    /// Maximum bytes of all segments in one direction.
    pub arena_bytes_max: u64,
    /// Time from the start of the runner to its first response, excluding loading the model's code.
    pub start_timeout: Duration,
    /// Time that the runner has to end after `UNLOAD`.
    pub exit_grace: Duration,
    /// Time that one batch may take; `None` for no limit.
    pub execute_timeout: Option<Duration>,
    /// A runner that crashed is restarted.
    pub restart: bool,
    /// Time that requests wait for such a restart, while it is not delayed for long; zero: they fail.
    pub restart_wait: Duration,
}

/// Describes additional runners of a model that is already serving.
pub trait Further: Send + Sync {
    /// All instances of the model under a new configuration (also passed in Triton's JSON form) that differs from the
    /// first one only in its instance groups. In the order of [`backend::placements`].
    ///
    /// # Errors
    /// INVALID_ARG if there are too many runners.
    fn instances(&self, config: &ModelConfig, json: &str) -> Result<Vec<InstanceSpec>>;

    /// Error for clients if a runner could not be started.
    fn error(&self, failure: &Failure) -> Error;
}

/// Batches that are sent to a runner while it runs another one, so that neither waits for the other between two
/// batches. Only for models with one instance and without sequences; a dynamic batcher sends one only if it would not
/// grow any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefetch {
    /// No batch is prefetched.
    Never,
    /// Up to so many. They fail if the runner ends.
    Always(usize),
    /// Up to so many, each behind a batch whose tensors are in its frame
    /// ([`INLINE_BYTES_MAX`](crate::generated::INLINE_BYTES_MAX)), if those of the last result were, and if the model
    /// never called another one; behind a batch of a millisecond or more, one. They are queued again if the runner
    /// ends. The flag FOLLOWED asks the runner to put no result in memory that its model can write to, because the
    /// model may run again before the result is read.
    BehindSmall(usize),
}

impl Prefetch {
    /// Maximum number of prefetched batches.
    pub(crate) fn batches_max(self) -> usize {
        match self {
            Self::Never => 0,
            Self::Always(count) | Self::BehindSmall(count) => count,
        }
    }
}

/// A model served by runners.
#[derive(Clone)]
pub struct Spec {
    /// Instances in the order of their numbers.
    pub instances: Vec<InstanceSpec>,
    /// Describes instances that are added later; `None` if the instances never change.
    pub further: Option<Arc<dyn Further>>,
    /// The model sends any number of responses per request.
    pub decoupled: bool,
    /// The model may reschedule requests.
    pub iterative: bool,
    /// The model reports its own statistics: only its reports count.
    pub reports_statistics: bool,
    /// An execution counts even if the model failed in it, as those of Triton's Python backend. Its C++ backends count
    /// none that failed for all requests.
    pub counts_failed: bool,
    /// Clients get all outputs that the model sends, as from Triton's C and C++ backends, and not only requested ones.
    pub sends_all_outputs: bool,
    /// Batches that are sent while another runs.
    pub prefetch: Prefetch,
    /// Prefix of the model's parameters that set limits, such as `nereid.python.`.
    pub parameter_prefix: &'static str,
    /// Limits of each runner.
    pub limits: Limits,
}
