//! Instances of remote models, which may stay busy after `execute` has returned and may be unavailable for a while.

use crate::{Marks, Reported, ReportedTimes};
use std::sync::Arc;
use tensor::{Error, Result};

/// The engine's callback at the end of a batch. Called once, on any thread.
pub trait Occupancy: Send {
    /// See [`Occupied::free`]; `None` when the backend dropped it.
    fn free(self: Box<Self>, marks: Option<Marks>);
    /// See [`Occupied::offer`].
    fn offer(&mut self) -> Option<InstanceOffer>;
    /// See [`Occupied::waits`].
    fn waits(&self);
    /// See [`Occupied::leaves`].
    fn leaves(&self);
    /// See [`Occupied::begins`].
    fn begins(&self, at: u64);
}

/// Makes an instance idle when it is dropped, which may start the next batch on the calling thread: as for
/// [`Occupied`], the caller must not hold a lock that `execute` takes.
#[must_use]
pub struct InstanceOffer(#[allow(dead_code, reason = "dropping it is its use")] pub Box<dyn Send>);

/// The instance that a batch runs on. A backend that takes it out of its [`Batch`](crate::Batch) keeps it busy after
/// `execute` has returned, until it frees it, on any thread. Dropping frees it without recording the batch's cost.
///
/// Freeing may start the next batch on the calling thread, so the caller must not hold a lock that `execute` takes.
pub struct Occupied(Option<Box<dyn Occupancy>>);

impl Occupied {
    /// Used by the engine, and by tests of backends.
    pub fn new(to: Box<dyn Occupancy>) -> Self {
        Self(Some(to))
    }

    /// Ends the batch; the instance can take the next one. The requests of the batch may end before or after.
    pub fn free(mut self, marks: Marks) {
        if let Some(to) = self.0.take() {
            to.free(Some(marks));
        }
    }

    /// The instance can take the next batch before this one has ended: it is prefetched meanwhile. `None`
    /// if that was said before.
    pub fn offer(&mut self) -> Option<InstanceOffer> {
        self.0.as_mut().and_then(|to| to.offer())
    }

    /// The batch is prefetched, behind another one. Its requests count as queued until it begins or ends.
    pub fn waits(&self) {
        if let Some(to) = &self.0 {
            to.waits();
        }
    }

    /// A request of the batch has ended while it is prefetched: it no longer counts as queued.
    pub fn leaves(&self) {
        if let Some(to) = &self.0 {
            to.leaves();
        }
    }

    /// The batch, which was prefetched, begins: until then its requests were queued.
    pub fn begins(&self, at: u64) {
        if let Some(to) = &self.0 {
            to.begins(at);
        }
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        if let Some(to) = self.0.take() {
            to.free(None);
        }
    }
}

/// Receives failures and recoveries of a serving model's instances. All methods return soon, on any thread.
pub trait InstanceEvents: Send + Sync {
    /// The instance, busy or idle, takes no batches from now on, for example because its process ended. `execute` may
    /// still be called for a batch that is being started. Sequences on it end. While an instance is down, the version
    /// is not ready, with the reason `why`; when all are, waiting and new requests are rejected with it.
    fn down(&self, instance: u32, why: Error);
    /// Like `down`, for an instance that is expected back at once: while there is one, requests wait. A call of `up` or
    /// `down` for the instance follows.
    fn pause(&self, instance: u32, why: Error) {
        self.down(instance, why);
    }
    /// The instance takes batches again.
    fn up(&self, instance: u32);
    /// The model reports statistics of its own work that belong to no unfinished request.
    fn reported(&self, instance: u32, report: Reported, times: ReportedTimes) {
        let _ = (instance, report, times);
    }
}

/// Whether a model can serve requests.
pub enum Readiness {
    /// The instance can serve a request now.
    Ready,
    /// The instance cannot serve; the log and the repository index show the reason.
    NotReady(String),
    /// The model has to be queried; it calls the argument once, on any thread, within seconds.
    Ask(Box<dyn FnOnce(ReadyAnswer) + Send>),
}

/// Receives the answer to [`Readiness::Ask`]; an error is the reason why the model is not ready.
pub type ReadyAnswer = Box<dyn FnOnce(Result<()>) + Send>;

/// Ignores all events: for models that do not serve yet, and for tests.
pub struct NoInstanceEvents;

impl InstanceEvents for NoInstanceEvents {
    fn down(&self, _: u32, _: Error) {}
    fn up(&self, _: u32) {}
}

/// The listener that a model gets when it begins to serve.
pub type InstanceEventsRef = Arc<dyn InstanceEvents>;
