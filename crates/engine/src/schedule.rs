//! The schedule of a version: which waiting requests run next. The only place that knows what kind it is.

use crate::pending::Queued;
use scheduler::{Config, RemovalReason, Scheduler, Step};

/// Kinds of schedules. All of them are pure; see the `scheduler` crate.
pub(crate) enum Schedule {
    /// The default scheduler and the dynamic batcher.
    Batcher(Scheduler<Queued>),
}

/// The queue is full; the request comes back.
pub(crate) struct QueueFull(pub(crate) Queued);

/// Requests that leave without having run.
pub(crate) type Removed = Vec<(RemovalReason, Queued)>;

impl Schedule {
    pub(crate) fn new(config: Config) -> Self {
        Self::Batcher(Scheduler::new(config))
    }

    pub(crate) fn is_empty(&self) -> bool {
        let Self::Batcher(s) = self;
        s.is_empty()
    }

    /// Accepts a request.
    pub(crate) fn push(&mut self, now: u64, request: Queued) -> Result<(), QueueFull> {
        let Self::Batcher(s) = self;
        let (priority, timeout_us) = (request.0.entry.request.priority, request.0.entry.request.timeout_us);
        let pushed = s.push(now, priority, timeout_us, request);
        pushed.map_err(|(scheduler::Refusal::QueueFull, request)| QueueFull(request))
    }

    /// What to do now, with so many idle instances; see [`Scheduler::step`].
    pub(crate) fn step(&mut self, now: u64, idle: u32, removed: &mut Removed) -> Step<Queued> {
        let Self::Batcher(s) = self;
        s.step(now, idle, removed)
    }

    /// Learns from a finished execution.
    pub(crate) fn observe(&mut self, class: u64, rows: u32, duration_ns: u64) {
        let Self::Batcher(s) = self;
        s.observe(class, rows, duration_ns);
    }

    /// Takes out every request that was given up.
    pub(crate) fn remove_cancelled(&mut self, removed: &mut Removed) {
        let Self::Batcher(s) = self;
        s.remove_cancelled(removed);
    }
}
