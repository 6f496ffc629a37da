//! Why a request is rejected, or leaves without running, in Triton's words.

use super::SequenceId;
use tensor::{Error, Fault};

/// Why a request was not accepted (5.1). Checked in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SequenceError {
    /// Each request of a sequence is one row.
    BatchSize,
    /// The id is missing, 0 or "".
    NoId,
    /// The model stops and accepts no new sequences; those in progress go on.
    Stopping,
    /// The request continues an unknown sequence: never started, ended, idle for too long, expired or cancelled.
    NotStarted(SequenceId),
    /// The model has the maximum number of sequences.
    TooMany {
        /// [`super::Config::sequences_max`].
        limit: u32,
    },
    /// Only steps of iterative sequences may be queued again.
    NotIterative,
    /// The request would continue a sequence that was drained.
    Drained,
    /// The request would continue a sequence whose instance ended.
    InstanceGone,
}

impl SequenceError {
    /// The error that the client receives.
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
                "inference request for sequence {id} to model '{model}' must specify the START flag on the first \
                 request of the sequence"
            )),
            // Not in Triton, whose instances do not return.
            Self::InstanceGone => Error::unavailable(format!(
                "the instance of model '{model}' that ran the sequence was removed, and its state with it: begin the \
                 sequence again"
            ))
            .retry(false),
            // Not in Triton, which has no limit.
            Self::TooMany { limit } => Error::unavailable(format!(
                "model '{model}' has {limit} sequences in progress or waiting, which is the limit: end some, or try \
                 again later"
            )),
            Self::NotIterative => Error::invalid(
                "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not \
                 configured to handle such a flag.",
            ),
        }
    }
}

/// Log text for a request that starts a sequence whose id is in use.
pub fn conflict_warning(id: &SequenceId, model: &str) -> String {
    format!(
        "sequence {id} for model '{model}' has a conflict. The previous sequence did not end before this sequence \
         start. Previous sequence will be terminated early."
    )
}

/// Why a request left without running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalReason {
    /// The sequence waited for a slot for longer than the `timeout` of one of its requests (S-19).
    Expired,
    /// This request, or an earlier one of its sequence, was cancelled (S-41).
    Cancelled,
}

impl RemovalReason {
    /// The error that the client receives.
    pub fn error(self) -> Error {
        match self {
            Self::Expired => {
                let text = "timeout of the corresponding sequence has been expired";
                Error::unavailable(text).by(Fault::Client).retry(false)
            }
            Self::Cancelled => Error::cancelled(""),
        }
    }
}
