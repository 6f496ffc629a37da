//! Instances that are more than a number: ones that stay busy after `execute` has returned, and ones that can be gone for a while.

use crate::Marks;
use std::sync::Arc;
use tensor::{Error, Result};

/// What the engine does with an instance whose batch is over. Called once, from any thread.
pub trait Occupancy: Send {
    /// As [`Occupied::free`]; `None` when the backend lost it.
    fn free(self: Box<Self>, marks: Option<Marks>);
}

/// The instance that a batch runs on. A backend that takes it out of its [`Batch`](crate::Batch) keeps the instance busy after `execute` has returned, until it
/// frees it, from whichever thread. Dropped, it is free as well, and nothing is learned of what the batch cost.
///
/// Freeing may start the next batch on the calling thread: not under a lock that `execute` takes.
pub struct Occupied(Option<Box<dyn Occupancy>>);

impl Occupied {
    /// For the engine, and for tests of backends.
    pub fn new(to: Box<dyn Occupancy>) -> Self {
        Self(Some(to))
    }

    /// The batch is over, and the instance can take the next one. Its requests may end before or after.
    pub fn free(mut self, marks: Marks) {
        if let Some(to) = self.0.take() {
            to.free(Some(marks));
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

/// What a model tells the engine of its instances while it serves. All calls return soon, and come from any thread.
pub trait Instances: Send + Sync {
    /// The instance takes no batches from now on, be it busy or not: its process is gone, say. One that was on its way is still given to `execute`.
    /// Sequences that ran on it are over. When no instance is left, requests that wait and those that come are refused with `why`. As long as one is
    /// gone the version is not ready, for that reason.
    fn down(&self, instance: u32, why: Error);
    /// It takes batches again.
    fn up(&self, instance: u32);
}

/// Whether a model that serves can be used.
pub enum Readiness {
    /// Yes.
    Ready,
    /// No, and why: for the log and the index.
    NotReady(String),
    /// The model is to be asked: it answers once, from any thread, within seconds.
    Ask(Box<dyn FnOnce(ReadyAnswer) + Send>),
}

/// Takes the answer to [`Readiness::Ask`]: an error says why it is not ready.
pub type ReadyAnswer = Box<dyn FnOnce(Result<()>) + Send>;

/// Nobody listens: for models that are not served yet, and tests.
pub struct NoInstances;

impl Instances for NoInstances {
    fn down(&self, _: u32, _: Error) {}
    fn up(&self, _: u32) {}
}

/// Where a model's [`Instances`] are kept from when it begins to serve.
pub type InstancesOf = Arc<dyn Instances>;
