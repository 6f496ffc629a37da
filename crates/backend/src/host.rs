//! What the code of a model may ask of the server that it runs in.

use crate::metrics::CustomMetrics;
use crate::respond::RequestId;
use protocol::{InferRequest, InferResponse};
use std::any::Any;
use std::sync::Arc;
use tensor::{Name, Result};
use trace::Trace;

/// The server, as models see it. Nothing here blocks; answers come from any thread.
pub trait Host: Send + Sync {
    /// Starts an inference that a model wants of another.
    ///
    /// # Errors
    /// It was refused; `answers` gets nothing then. Texts are those of the model's own front door, without a prefix.
    fn call(&self, call: ModelCall, answers: Arc<dyn CallAnswers>) -> Result<Box<dyn Call>>;

    /// Loads, unloads or asks. Answered once, from any thread, with JSON: `{}`, or as the operation says.
    fn control(&self, control: ModelControl, answer: ControlAnswer);

    /// Metrics that models make: each process through a [`Holder`](crate::metrics::Holder) of its own.
    fn metrics(&self) -> &Arc<CustomMetrics>;
}

/// Takes the answer to a [`ModelControl`].
pub type ControlAnswer = Box<dyn FnOnce(Result<String>) + Send>;

/// An inference of one model by another.
pub struct ModelCall {
    /// Whom.
    pub model: String,
    /// Version; -1 = as the version policy says.
    pub version: i64,
    /// What. Its tensors are the server's own bytes or counted views; its `depth` is that of the request it is made for, and one more.
    pub request: Box<InferRequest>,
    /// The caller takes any number of responses. Without it, a decoupled model is refused.
    pub decoupled: bool,
    /// The trace that this is to be a child of.
    pub parent_trace: Option<Trace>,
}

/// Takes the answers of a call: in order, one at a time; after the final one none.
pub trait CallAnswers: Send + Sync {
    /// A response or an error, or only the end. Must not block.
    fn answer(&self, response: Option<Result<Box<InferResponse>>>, is_final: bool);
}

/// A call in progress. Dropped, it goes on.
pub trait Call: Any + Send + Sync {
    /// Its answers are not wanted any more; a final one still comes.
    fn cancel(&self);
}

/// Calls that the code of one instance made and that are not over ([`RemoteModel::calls_made_before`](crate::RemoteModel::calls_made_before)).
pub struct OpenCalls {
    /// The instance that made them.
    pub instance: u32,
    /// The batch that keeps the instance busy now. Each batch of an instance has another number.
    pub batch: Option<u64>,
    /// Requests of that batch that are answered when the batch is over. Those of a decoupled model are not among them.
    pub members: Vec<RequestId>,
    /// The calls.
    pub calls: Vec<OpenCall>,
}

/// A call that is not over.
pub struct OpenCall {
    /// What [`Host::call`] returned for it.
    pub call: Arc<dyn Call>,
    /// The request that it is made for, where that is known.
    pub request: Option<RequestId>,
    /// Whether the batch that keeps the instance busy waits for it.
    pub is_for_batch: bool,
    /// When it was made ([`now_ns`](crate::now_ns)).
    pub since: u64,
}

/// What a model wants of the repository.
#[derive(Debug)]
pub struct ModelControl {
    /// What is asked.
    pub operation: ModelOperation,
    /// The model that asks. It may be loading itself: nothing waits for that load then.
    pub asker: Name,
}

/// An operation on the repository.
#[derive(Debug)]
pub enum ModelOperation {
    /// Load or reload; answered when that is done.
    Load {
        /// Model name.
        model: String,
        /// Configuration in place of the file's, JSON; "" = none.
        config: String,
        /// Files in place of the directory's, by `file:…`; others are left out, as in Triton.
        files: Vec<(String, Vec<u8>)>,
    },
    /// Unload; answered when it has begun.
    Unload {
        /// Model name.
        model: String,
        /// Also the models that an ensemble is made of.
        dependents: bool,
    },
    /// Whether it can be used; answered `true` or `false`. Models that are not there cannot.
    IsReady {
        /// Model name.
        model: String,
        /// Version as written; "" = as the policy says.
        version: String,
    },
}
