//! Why a request is refused, or leaves without having run, in Triton's words.

use super::SequenceId;
use tensor::Error;

/// Why a request was not accepted (5.1). Checked in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Each request of a sequence is one row.
    BatchSize,
    /// The id is missing, 0 or "".
    NoId,
    /// The model stops, and takes no new sequences; those in progress go on.
    Stopping,
    /// It continues a sequence that is not known: never started, ended, idle for too long, expired or given up.
    NotStarted(SequenceId),
    /// There are as many sequences as there may be.
    TooMany {
        /// [`super::Config::sequences_max`].
        limit: u32,
    },
    /// Only steps of iterative sequences may be queued again.
    NotIterative,
    /// It would continue a sequence that was drained meanwhile.
    Drained,
    /// It would continue a sequence whose instance is gone.
    InstanceGone,
}

impl Refusal {
    /// What the client is told.
    pub fn error(&self, model: &str) -> Error {
        match self {
            Self::BatchSize => Error::invalid(format!(
                "inference request to model '{model}' must specify batch-size 1 due to requirements of sequence batcher"
            )),
            Self::NoId => Error::invalid(format!(
                "inference request to model '{model}' must specify a non-zero or non-empty correlation ID"
            )),
            Self::Stopping | Self::Drained => Error::unavailable(
                "Server is stopping, scheduler for model has stopped accepting new inference requests",
            ),
            Self::NotStarted(id) => Error::invalid(format!(
                "inference request for sequence {id} to model '{model}' must specify the START flag on the first request of the sequence"
            )),
            // Not in Triton, whose instances do not come back.
            Self::InstanceGone => Error::unavailable(format!(
                "the instance of model '{model}' that the sequence ran on is gone, and its state with it: begin the sequence again"
            )),
            // Not in Triton, which takes any number.
            Self::TooMany { limit } => Error::unavailable(format!(
                "model '{model}' has {limit} sequences in progress or waiting, and takes no more at a time: end some, or try again later"
            )),
            Self::NotIterative => Error::invalid(
                "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle such a flag.",
            ),
        }
    }
}

/// What to log when a request starts a sequence whose id is in use.
pub fn conflict_warning(id: &SequenceId, model: &str) -> String {
    format!(
        "sequence {id} for model '{model}' has a conflict. The previous sequence did not end before this sequence start. Previous sequence will be terminated early."
    )
}

/// Why a request left without having run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalReason {
    /// Its sequence waited for a slot longer than the `timeout` of one of its requests (S-19).
    Expired,
    /// The client gave up this request, or one before it in its sequence (S-41).
    Cancelled,
}

impl RemovalReason {
    /// What the client is told.
    pub fn error(self) -> Error {
        match self {
            Self::Expired => Error::unavailable("timeout of the corresponding sequence has been expired"),
            Self::Cancelled => Error::cancelled(""),
        }
    }
}
