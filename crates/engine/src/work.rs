//! Work of pool threads.

use crate::pending::Requests;
use crate::pool::Task;
use crate::version::ModelVersion;
use std::sync::Arc;

/// Work for a pool thread.
pub(crate) enum Work {
    /// A batch to run. Not boxed, because models that run on the pool need one per batch.
    Batch(Job),
    Other(Box<dyn FnOnce() + Send>),
}

/// A batch and its instance.
pub(crate) struct Job {
    pub(crate) version: Arc<ModelVersion>,
    pub(crate) instance: u32,
    pub(crate) requests: Requests,
}

impl Work {
    pub(crate) fn of(work: impl FnOnce() + Send + 'static) -> Self {
        Self::Other(Box::new(work))
    }
}

impl Task for Work {
    fn run(self) {
        match self {
            Self::Batch(job) => job.run(),
            Self::Other(work) => work(),
        }
    }
}
