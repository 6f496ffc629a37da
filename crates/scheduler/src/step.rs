//! Results of scheduler calls: what to do next, why a request was rejected, and why one left.

use smallvec::SmallVec;

/// Requests to run together, in the order of their rows. A single one needs no allocation.
pub type Batch<T> = SmallVec<[T; 1]>;

/// Why a request was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushError {
    /// The priority level holds `max_queue_size` requests (S-05).
    QueueFull,
}

/// Why a request left without running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalReason {
    /// The request waited longer than its timeout, and the policy is to reject (S-06).
    Expired,
    /// The client cancelled it (S-41).
    Cancelled,
}

/// The caller's next action.
#[derive(Debug)]
pub enum NextBatch<T> {
    /// Run this batch on an idle instance, then call `step` again with one idle instance less. Never empty.
    Run(Batch<T>),
    /// Call `step` at this time, unless something else happens first. Always later than the `now` of the call.
    SleepUntil(u64),
    /// Nothing to do before the next push or completion.
    Idle,
}

/// Returns `SleepUntil` unless the deadline is `u64::MAX`.
pub(crate) fn sleep_until<T>(deadline: u64) -> NextBatch<T> {
    if deadline == u64::MAX { NextBatch::Idle } else { NextBatch::SleepUntil(deadline) }
}
