//! What a scheduler tells its caller: what to do next, why a request was refused, and why one left.

use smallvec::SmallVec;

/// Requests to run together, in the order their rows stand. One needs no allocation.
pub type Batch<T> = SmallVec<[T; 1]>;

/// Why a request was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Its level holds `max_queue_size` requests (S-05).
    QueueFull,
}

/// Why a request left without having run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalReason {
    /// It waited longer than its timeout, and the policy is to reject (S-06).
    Expired,
    /// The client gave up (S-41).
    Cancelled,
}

/// What the caller should do next.
#[derive(Debug)]
pub enum Step<T> {
    /// Give these to an idle instance, then call `step` again with one less. Never empty.
    Run(Batch<T>),
    /// Call `step` at this time, unless something else happens first. Always later than the `now` of the call.
    SleepUntil(u64),
    /// Nothing to do before the next push or completion.
    Idle,
}

/// Sleeps to a deadline, if there is one.
pub(crate) fn sleep_until<T>(deadline: u64) -> Step<T> {
    if deadline == u64::MAX { Step::Idle } else { Step::SleepUntil(deadline) }
}
