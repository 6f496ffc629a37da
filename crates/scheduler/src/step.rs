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

/// Why a batch starts now: the last condition that its requests waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Cause {
    /// An instance was idle, and there was no reason to wait: no queue delay, or another idle instance.
    #[default]
    IdleInstance,
    /// All instances were busy, and one became free.
    InstanceFreed,
    /// The batch has the maximum number of rows, or as many as measurements support.
    Full,
    /// The batch has a preferred size, or one request has more rows than the largest.
    PreferredSize,
    /// The next request cannot join: it has another shape or too many rows.
    NextDiffers,
    /// The oldest request waited for the queue delay.
    DelayElapsed,
    /// No more requests are expected within the queue delay.
    NoneExpected,
    /// All requests came that were worth waiting for.
    ExpectedArrived,
    /// Waiting for more requests would cost more time than it saves.
    WaitNotWorth,
    /// A request would expire if the batch waited.
    ExpiryNear,
    /// The batching library decided which requests join.
    LibraryDecided,
    /// The configured number of requests was queued before the first batch (`TRITONSERVER_DELAY_SCHEDULER`).
    Gathered,
    /// The batch was sent ahead to a busy instance of a runner, because it could not grow any more.
    Prefetched,
    /// Enough slots of the instance have requests (`minimum_slot_utilization`).
    SlotsFilled,
    /// The turn of the reactor ended in which cheap requests were collected.
    TurnEnded,
}

impl Cause {
    /// Name in logs and traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::IdleInstance => "idle_instance",
            Self::InstanceFreed => "instance_freed",
            Self::Full => "full",
            Self::PreferredSize => "preferred_size",
            Self::NextDiffers => "next_differs",
            Self::DelayElapsed => "delay_elapsed",
            Self::NoneExpected => "none_expected",
            Self::ExpectedArrived => "expected_arrived",
            Self::WaitNotWorth => "wait_not_worth",
            Self::ExpiryNear => "expiry_near",
            Self::LibraryDecided => "library_decided",
            Self::Gathered => "gathered",
            Self::Prefetched => "prefetched",
            Self::SlotsFilled => "slots_filled",
            Self::TurnEnded => "turn_ended",
        }
    }
}

/// The caller's next action.
#[derive(Debug)]
pub enum NextBatch<T> {
    /// Run this batch on an idle instance, then call `step` again with one idle instance less. Never empty.
    #[allow(missing_docs)]
    Run { batch: Batch<T>, why: Cause },
    /// Call `step` at this time, unless something else happens first. Always later than the `now` of the call.
    SleepUntil(u64),
    /// Nothing to do before the next push or completion.
    Idle,
}

/// Returns `SleepUntil` unless the deadline is `u64::MAX`.
pub(crate) fn sleep_until<T>(deadline: u64) -> NextBatch<T> {
    if deadline == u64::MAX { NextBatch::Idle } else { NextBatch::SleepUntil(deadline) }
}
