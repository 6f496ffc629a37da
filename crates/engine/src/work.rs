//! What threads of the pool do.

use crate::pending::Requests;
use crate::pool::Task;
use crate::version::ModelVersion;
use std::sync::Arc;

/// Work for a thread of the pool.
pub(crate) enum Work {
    /// Runs a batch. Not boxed: models that run on the pool need one for each batch.
    Batch(Job),
    Other(Box<dyn FnOnce() + Send>),
}

/// A batch with the permit to run it.
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
