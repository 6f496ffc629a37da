//! The scheduler of one model: its batcher and the measured cost of its executions.

use crate::batcher::Batcher;
use crate::cores::Plan;
use crate::profile::{FinishedRun, Profile, RunClass};
use crate::step::{Batch, NextBatch, RemovalReason};
use crate::{Config, Waiting};
use std::ops::{Deref, DerefMut};

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

    /// Learns from a finished execution of requests that are no texts; other executions go to `profile_mut`.
    pub fn observe(&mut self, class: u64, rows: u32, duration_ns: u64) {
        let kind = RunClass::new(class, rows, 0);
        self.profile.observe(&FinishedRun { class, kind, rows, tokens: 0, duration_ns, plan: Plan::None });
    }
}

/// The queue: all that needs no costs.
impl<T: Waiting> Deref for Scheduler<T> {
    type Target = Batcher<T>;

    #[inline]
    fn deref(&self) -> &Batcher<T> {
        &self.batcher
    }
}

impl<T: Waiting> DerefMut for Scheduler<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Batcher<T> {
        &mut self.batcher
    }
}
