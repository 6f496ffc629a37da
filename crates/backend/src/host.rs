//! Operations of the server that the code of a model may use.

use crate::metrics::CustomMetrics;
use crate::respond::RequestId;
use protocol::{InferRequest, InferResponse};
use std::any::Any;
use std::sync::Arc;
use tensor::{Name, Result};
use trace::Trace;

/// The server, as models see it. No method blocks; responses arrive on any thread.
pub trait Host: Send + Sync {
    /// Starts an inference of another model.
    ///
    /// # Errors
    /// The request was rejected, with the text of an inference request without its prefix. The sink receives nothing.
    fn call(&self, call: ModelCall, answers: Arc<dyn CallAnswers>) -> Result<Box<dyn Call>>;

    /// Describes the version that a call would reach; -1 lets the version policy decide.
    ///
    /// # Errors
    /// NOT_FOUND for an unknown model, UNAVAILABLE for one that is not ready.
    fn describe(&self, model: &str, version: i64) -> Result<CallableModel>;

    /// Loads or unloads a model or queries its readiness. `answer` is called once, on any thread, with JSON or `{}`.
    fn control(&self, control: ModelControl, answer: ControlAnswer);

    /// Metrics that models create; each process uses a [`Holder`](crate::metrics::Holder) of its own.
    fn metrics(&self) -> &Arc<CustomMetrics>;
}

/// Receives the result of a [`ModelControl`].
pub type ControlAnswer = Box<dyn FnOnce(Result<String>) + Send>;

/// An inference of one model by another.
pub struct ModelCall {
    /// Name of the called model.
    pub model: String,
    /// Version; -1 lets the version policy decide.
    pub version: i64,
    /// The request, with tensors that are owned or counted views; its `depth` is one more than that of its cause.
    pub request: Box<InferRequest>,
    /// The caller accepts any number of responses. Without it, calls of decoupled models are rejected.
    pub decoupled: bool,
    /// Parent of the trace of this call.
    pub parent_trace: Option<Trace>,
    /// The request is only checked; `answers` gets the end alone.
    pub is_only_checked: bool,
}

/// A version that can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CallableModel {
    pub version: i64,
    pub is_decoupled: bool,
    /// Shapes have a batch dimension.
    pub batches: bool,
    /// 0: requests have no priorities.
    pub priority_levels: u32,
    /// Level of requests without a priority, or with one that is out of range.
    pub default_priority: u32,
}

/// Receives the responses of a call: in order, one at a time, none after the final one.
pub trait CallAnswers: Send + Sync {
    /// Receives a response, an error, or only the end. Must not block.
    fn answer(&self, response: Option<Result<Box<InferResponse>>>, is_final: bool);
}

/// A call in progress. Dropping it does not cancel the call.
pub trait Call: Any + Send + Sync {
    /// Cancels the call; a final response still arrives.
    fn cancel(&self);
}

/// Unfinished calls of the code of one instance
/// ([`RemoteModel::calls_made_before`](crate::RemoteModel::calls_made_before)).
#[allow(missing_docs)]
pub struct OpenCalls {
    pub instance: u32,
    /// Number of the batch that occupies the instance now, unique within the instance.
    pub batch: Option<u64>,
    /// Requests of that batch that are answered when the batch ends. Excludes requests of decoupled models.
    pub members: Vec<RequestId>,
    pub calls: Vec<OpenCall>,
}

/// An unfinished call.
pub struct OpenCall {
    /// The call that [`Host::call`] returned.
    pub call: Arc<dyn Call>,
    /// The request that the call is made for, if known.
    pub request: Option<RequestId>,
    /// Whether the batch that occupies the instance waits for this call.
    pub is_for_batch: bool,
    /// Start of the call ([`now_ns`](crate::now_ns)).
    pub since: u64,
}

/// An operation on the repository that a model requests.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct ModelControl {
    pub operation: ModelOperation,
    /// The requesting model. It may be loading itself; nothing waits for that load then. Empty for the program that
    /// embeds the server.
    pub asker: Name,
}

/// An operation on the repository.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum ModelOperation {
    /// Load or reload; answered when it is done.
    Load {
        model: String,
        /// Configuration that replaces the file's, in JSON; "" = none.
        config: String,
        /// Files that replace the directory's, by `file:…`; other keys are ignored, as in Triton.
        files: Vec<(String, Vec<u8>)>,
    },
    /// Unload; answered when it has begun.
    Unload {
        model: String,
        /// Unload the models of an ensemble as well.
        dependents: bool,
    },
    /// Query whether the model is ready; answered `true` or `false`. An unknown model is not ready.
    IsReady {
        model: String,
        /// Version as text; "" lets the version policy decide.
        version: String,
    },
    /// A report; answered with JSON, as the HTTP API has it, or with a JSON string for metrics.
    Read {
        report: ServerReport,
        model: String,
        /// Version as text; "" lets the version policy decide.
        version: String,
    },
    /// Query whether the server is ready; answered `true` or `false`.
    IsServerReady,
    /// Change the set of repositories, or poll them: only the program that embeds the server may.
    Repositories(RepositoriesChange),
}

/// A report about the server or a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ServerReport {
    Metadata,
    ModelMetadata,
    ModelStatistics,
    ModelConfig,
    /// All models of the repositories.
    Index,
    /// Models that are ready.
    ReadyIndex,
    /// Text of a scrape.
    Metrics,
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RepositoriesChange {
    /// Load what changed, in mode poll.
    Poll,
    /// Add a repository. `names` maps names of models to their directories.
    Register {
        path: String,
        names: Vec<(String, String)>,
    },
    Unregister {
        path: String,
    },
}
