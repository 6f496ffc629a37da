//! Batches that were sent to a runner and have no result.
//!
//! A runner runs batches in the order in which they were sent. A batch that is sent while another one runs is
//! *prefetched*, so that the runner does not wait for the server in between; [`Prefetch`] says when that is done.
//!
//! ```mermaid
//! stateDiagram-v2
//!   [*] --> Running: sent to an idle runner
//!   [*] --> Prefetched: sent while another batch runs
//!   Prefetched --> Running: result of the batch before
//!   Running --> [*]: its result, or the runner ends
//!   Running --> Unread: its result is not read
//!   Prefetched --> [*]: the runner ends
//!   Unread --> [*]: the runner ends
//! ```
//!
//! | state | requests count as | a cancelled request | if the runner ends, requests |
//! |---|---|---|---|
//! | `Prefetched` | queued | ends at once ¹ | are queued again ¹, unless the first batch is `Unread` |
//! | `Running` | executing | is flagged for the model | fail |
//! | `Unread` | executing | is flagged for the model | fail |
//!
//! ¹ With `Prefetch::BehindSmall`; with `Prefetch::Always` as while running.
//!
//! `submit` sends batches, `result` ends them, `response` checks and copies responses. Each step takes the lock of the
//! runner's state once, whatever the number of requests: a batch is admitted, written and sent; a result is read, and
//! its requests are settled.

mod response;
mod result;
mod submit;

use crate::slots::Key;
use crate::spec::Prefetch;
use backend::{InstanceOffer, Occupied};
use smallvec::SmallVec;
use std::collections::VecDeque;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchState {
    /// The runner has it and runs another one.
    Prefetched,
    /// The runner runs it.
    Running,
    /// The result came from a runner that is being killed, or broke the protocol. The next batch may have begun.
    Unread,
}

/// When another batch may be sent behind a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Successor {
    AfterResult,
    /// Once the frame of this batch was sent, so that the other one does not overtake it.
    AfterFrame,
    Now,
}

pub(crate) struct BatchInFlight {
    pub(crate) id: u64,
    pub(crate) members: SmallVec<[Key; 4]>,
    pub(crate) occupied: Option<Occupied>,
    /// Time when its inputs were written, or when it began after it was prefetched.
    pub(crate) since: u64,
    state: BatchState,
    successor: Successor,
    /// The instance of a batch that was put back, until this one ends.
    requeued: Option<Occupied>,
}

/// All batches in flight of a runner. The first one is `Running` or `Unread`, the others are `Prefetched`.
pub(crate) struct InFlight {
    pub(crate) prefetch: Prefetch,
    batches: VecDeque<BatchInFlight>,
    /// Number of the last batch.
    pub(crate) last_id: u64,
    /// All tensors of the last result were in its frame.
    was_small: bool,
    /// The last batch ran for less than [`BRIEF_NS`].
    was_brief: bool,
}

/// Behind a longer batch only one is prefetched: the wakes that more would save are little beside it, and what lies at
/// one runner cannot run on an instance that is added.
const BRIEF_NS: u64 = 1_000_000;

impl InFlight {
    pub(crate) fn new(prefetch: Prefetch) -> Self {
        Self { prefetch, batches: VecDeque::new(), last_id: 0, was_small: false, was_brief: false }
    }

    /// Up to how many prefetched batches the instance is offered to another one.
    fn offered_max(&self) -> usize {
        let most = self.prefetch.batches_max();
        if self.requeues() && !self.was_brief { most.min(1) } else { most }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &BatchInFlight> {
        self.batches.iter()
    }

    pub(crate) fn running(&self) -> Option<&BatchInFlight> {
        self.batches.front()
    }

    pub(crate) fn prefetched(&self) -> impl Iterator<Item = &BatchInFlight> {
        self.batches.iter().filter(|batch| batch.state == BatchState::Prefetched)
    }

    /// The prefetched batch with this request.
    pub(crate) fn prefetched_with(&self, key: Key) -> Option<&BatchInFlight> {
        self.prefetched().find(|batch| batch.members.contains(&key))
    }

    /// Requests of prefetched batches are queued again if the runner ends.
    pub(crate) fn requeues(&self) -> bool {
        matches!(self.prefetch, Prefetch::BehindSmall(_))
    }

    /// Members of batches that the runner cannot have begun, if they are queued again.
    pub(crate) fn requeued(&self) -> impl Iterator<Item = Key> {
        let is_certain = self.requeues() && self.running().is_some_and(|first| first.state == BatchState::Running);
        self.prefetched().filter(move |_| is_certain).flat_map(|batch| &batch.members).copied()
    }

    /// True if another batch may be sent, for which the instance was offered.
    fn has_room(&self) -> bool {
        let may_follow = |last: &BatchInFlight| last.successor != Successor::AfterResult;
        self.batches.back().is_none_or(|last| may_follow(last) && self.batches.len() <= self.prefetch.batches_max())
    }

    fn add(&mut self, mut batch: BatchInFlight) {
        if !self.batches.is_empty() {
            batch.state = BatchState::Prefetched;
            batch.occupied.iter().for_each(Occupied::waits);
        }
        self.batches.push_back(batch);
    }

    /// The frame of a batch was sent. Its result may have arrived.
    fn frame_sent(&mut self, id: u64) {
        let batch = self.batches.iter_mut().find(|batch| batch.id == id);
        if let Some(batch) = batch.filter(|batch| batch.successor == Successor::AfterFrame) {
            batch.successor = Successor::Now;
        }
    }

    /// Offers the instance of the last batch to another one, if that may be sent now.
    fn offer(&mut self, has_one_instance: impl FnOnce() -> bool) -> Option<InstanceOffer> {
        if self.batches.len() > self.offered_max() {
            return None;
        }
        let last = self.batches.back_mut().filter(|last| last.successor == Successor::Now)?;
        // With several instances, one of the others would run it sooner.
        last.occupied.as_mut().filter(|_| has_one_instance())?.offer()
    }

    /// Takes the batch that runs; the next one begins.
    fn end(&mut self, at: u64) -> Option<BatchInFlight> {
        let batch = self.batches.pop_front()?;
        if let Some(next) = self.batches.front_mut() {
            (next.state, next.since) = (BatchState::Running, at);
            next.occupied.iter().for_each(|occupied| occupied.begins(at));
        }
        Some(batch)
    }

    /// A result was not read.
    pub(crate) fn unread(&mut self) {
        if let Some(first) = self.batches.front_mut() {
            first.state = BatchState::Unread;
        }
    }

    /// Returns a batch whose result broke the protocol: it ends with the runner.
    fn restore(&mut self, batch: BatchInFlight) {
        if let Some(next) = self.batches.front_mut() {
            next.state = BatchState::Prefetched;
        }
        self.batches.push_front(batch);
        self.unread();
    }

    pub(crate) fn take(&mut self) -> VecDeque<BatchInFlight> {
        std::mem::take(&mut self.batches)
    }
}
