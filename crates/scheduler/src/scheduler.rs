//! The scheduler of one model: its batcher and the measured cost of its executions.

use crate::batcher::Batcher;
use crate::profile::{FinishedRun, Profile, RunClass};
use crate::step::{Batch, Cause, NextBatch, PushError, RemovalReason};
use crate::{Config, Waiting};

/// Waiting requests of one model, the rules by which they leave, and the model's cost.
pub struct Scheduler<T: Waiting> {
    batcher: Batcher<T>,
    profile: Profile,
}

impl<T: Waiting> Scheduler<T> {
    /// Creates a scheduler with an empty queue and profile.
    pub fn new(config: Config) -> Self {
        Self { batcher: Batcher::new(config), profile: Profile::default() }
    }

    /// Accepts a request. `priority` and `timeout_us` are the request's parameters, 0 if absent; both are ignored where
    /// the configuration gives them no meaning.
    ///
    /// # Errors
    /// The queue of its level is full; the request is returned.
    pub fn push(&mut self, now: u64, priority: u64, timeout_us: u64, request: T) -> Result<(), (PushError, T)> {
        self.batcher.push(now, priority, timeout_us, request)
    }

    /// Queues a request again, before the others, that was taken and did not begin: for models without policies.
    pub fn put_back(&mut self, request: T) {
        self.batcher.put_back(request);
    }

    /// Records that the caller steps for the waiting requests after something else: the end of a turn.
    pub fn waits_for(&mut self, cause: Cause) {
        self.batcher.waits_for(cause);
    }

    /// Highest priority level with requests before a new one of this priority, or 0, and the rows of those requests.
    pub fn ahead(&self, priority: u64) -> (u32, u64) {
        self.batcher.ahead(priority)
    }

    /// Returns what to do now. Call again until it returns no `Run`. Appends requests that will not run to `dropped`.
    pub fn step(&mut self, now: u64, idle_instances: u32, dropped: &mut Vec<(RemovalReason, T)>) -> NextBatch<T> {
        self.batcher.step(now, idle_instances, &self.profile, dropped)
    }

    /// The batch to send to an instance that still runs one of `running` requests, to be prefetched there; `None` if it
    /// would grow in the queue. Appends requests that will not run to `dropped`.
    pub fn step_ahead(&mut self, now: u64, running: usize, dropped: &mut Vec<(RemovalReason, T)>) -> Option<Batch<T>> {
        self.batcher.step_ahead(now, running, &self.profile, dropped)
    }

    /// The measured cost of executions.
    #[inline]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The measured cost of executions, to update.
    #[inline]
    pub fn profile_mut(&mut self) -> &mut Profile {
        &mut self.profile
    }

    /// Learns from a finished execution without padded inputs; other executions go to `profile_mut`.
    pub fn observe(&mut self, class: u64, rows: u32, duration_ns: u64) {
        let kind = RunClass::new(class, rows, 0);
        self.profile.observe(&FinishedRun { class, kind, rows, padded_bytes: 0, duration_ns });
    }

    /// Drops every cancelled request, wherever it waits (S-41). Visits every request.
    pub fn remove_cancelled(&mut self, dropped: &mut Vec<(RemovalReason, T)>) {
        self.batcher.remove_cancelled(dropped);
    }

    /// The batch that forms now, and the requests behind it, in scan order.
    pub fn forming(&self) -> impl Iterator<Item = &T> {
        self.batcher.forming()
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.batcher.len()
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.batcher.is_empty()
    }

    /// True if `step` has nothing to do and nothing to learn, because no request waits and there is no queue delay.
    #[inline]
    pub fn is_still(&self) -> bool {
        self.batcher.is_still()
    }

    /// Returns every waiting request, cancelled ones included, because the model stops.
    pub fn drain_all(&mut self, out: &mut Vec<T>) {
        self.batcher.drain_all(out);
    }
}
