//! What is to be known of a model that is served by runners.

use crate::failure::Failure;
use crate::transport::Start;
use protocol::pb::inference::ModelConfig;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Error, Name, Result};

/// One runner of a model.
#[derive(Clone)]
pub struct Instance {
    /// `NAME_0`: it stands in errors and in front of what the runner prints.
    pub name: Name,
    /// Starts it.
    pub start: Arc<dyn Start>,
    /// What it is told first: the JSON object of `LOAD`, without `mode`.
    pub load: String,
}

/// Numbers that bound a runner.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Inputs that lie on a device are handed over there; else they are copied to the host (FORCE_CPU_ONLY_INPUT_TENSORS).
    pub device_inputs: bool,
    /// Least bytes of each segment beyond the first.
    pub growth_bytes: u64,
    /// Most bytes of all its segments in one direction.
    pub arena_bytes_max: u64,
    /// From the start of the runner until it hears its host, loading of the model's code not included.
    pub start_timeout: Duration,
    /// How long it may take to end after `UNLOAD`.
    pub exit_grace: Duration,
    /// How long one batch may take; none: for ever.
    pub execute_timeout: Option<Duration>,
    /// A runner that died is started again.
    pub restart: bool,
}

/// Makes further runners of a model that serves.
pub trait Further: Send + Sync {
    /// All instances of the model with this configuration (also in Triton's JSON form), which differs from the one
    /// it was started with in its instance groups only. In the order of [`backend::placements`].
    ///
    /// # Errors
    /// INVALID_ARG for more runners than there may be.
    fn instances(&self, config: &ModelConfig, json: &str) -> Result<Vec<Instance>>;

    /// What clients are told of a runner that could not be started.
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
    /// What bounds its runners.
    pub limits: Limits,
}
