//! The scheduler of one model: its batcher, and what executions were seen to cost.

use crate::batcher::Batcher;
use crate::profile::{Execution, Profile, RunClass};
use crate::step::{Refusal, RemovalReason, Step};
use crate::{Config, Waiting};

/// Waiting requests of one model, the rules by which they leave, and the model's cost.
pub struct Scheduler<T: Waiting> {
    batcher: Batcher<T>,
    profile: Profile,
}

impl<T: Waiting> Scheduler<T> {
    /// A scheduler with nothing queued and nothing learned.
    pub fn new(config: Config) -> Self {
        Self { batcher: Batcher::new(config), profile: Profile::default() }
    }

    /// Accepts a request. `priority` and `timeout_us` are the request's parameters, 0 when it has none; both are ignored
    /// where the configuration gives them no meaning.
    ///
    /// # Errors
    /// The queue of its level is full; the request comes back.
    pub fn push(&mut self, now: u64, priority: u64, timeout_us: u64, request: T) -> Result<(), (Refusal, T)> {
        self.batcher.push(now, priority, timeout_us, request)
    }

    /// What to do now, given how many instances are idle. Call again until it returns no `Run`. Requests that will not run
    /// are appended to `dropped`.
    pub fn step(&mut self, now: u64, idle_instances: u32, dropped: &mut Vec<(RemovalReason, T)>) -> Step<T> {
        self.batcher.step(now, idle_instances, &self.profile, dropped)
    }

    /// What executions cost.
    #[inline]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The same, to learn.
    #[inline]
    pub fn profile_mut(&mut self) -> &mut Profile {
        &mut self.profile
    }

    /// Learns from a finished execution of fixed-size inputs, none of them padded; others are told to `profile_mut`.
    pub fn observe(&mut self, class: u64, rows: u32, duration_ns: u64) {
        let kind = RunClass::new(class, rows, 0);
        self.profile.observe(&Execution { class, kind, rows, padded_bytes: 0, duration_ns });
    }

    /// Drops every cancelled request, wherever it waits (S-41). Costs a look at each.
    pub fn remove_cancelled(&mut self, dropped: &mut Vec<(RemovalReason, T)>) {
        self.batcher.remove_cancelled(dropped);
    }

    /// Requests waiting.
    pub fn len(&self) -> usize {
        self.batcher.len()
    }

    /// Nobody waits.
    pub fn is_empty(&self) -> bool {
        self.batcher.is_empty()
    }

    /// Whether `step` has nothing to do and nothing to learn from being asked: nothing waits, and no wait is planned by when
    /// instances are idle.
    #[inline]
    pub fn is_still(&self) -> bool {
        self.batcher.is_still()
    }

    /// Hands back every waiting request, cancelled ones included: the model stops.
    pub fn drain_all(&mut self, out: &mut Vec<T>) {
        self.batcher.drain_all(out);
    }
}
