//! Lets a backend answer a request any number of times, from any thread, also after `execute` has returned.

use crate::{BatchEntry, Outcome};
use std::sync::Arc;
use tensor::{Error, Result};

/// The request is cancelled: the response was dropped, and the backend should stop working on further ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// How a request is counted in the statistics of its model once it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Counted {
    /// Counts a failure if the last response is an error, otherwise a success.
    #[default]
    ByLastAnswer,
    /// Counts a failure, and that its batch was executed.
    Failure,
    /// Counts a success, whatever the response.
    Success,
    /// Counts each response instead of the request.
    Responses,
    /// Counts nothing.
    Nothing,
}

/// Nanoseconds of [`now_ns`](crate::now_ns) that a model reports of its own work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ReportedTimes {
    pub start: u64,
    pub compute_start: u64,
    pub compute_end: u64,
    pub end: u64,
}

/// End of a response that a model reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ReportedEnd {
    Success,
    Failed,
    Empty,
    Cancelled,
}

/// Statistics that a model reports of its own work; such a model is counted by its reports alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// A request ended.
    Request {
        /// True if the request succeeded.
        is_success: bool,
    },
    /// An execution of so many rows.
    Batch {
        /// Rows, as the model counts them.
        rows: u64,
    },
    /// A response of a request ended; its outputs began at `compute_end`, if that is not 0.
    Response {
        /// Index among the responses of its request.
        index: usize,
        /// How it ended.
        end: ReportedEnd,
    },
}

/// Identifies a request among all unfinished ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub usize);

/// Receives the responses of one request; implemented by the engine. Methods may be called on several threads; the
/// order of the calls is the order of the responses. After `finish` all methods do nothing.
pub trait Answers: Send + Sync {
    /// See [`Responder::send`].
    ///
    /// # Errors
    /// The request is cancelled and the response was dropped. The request still has to be finished.
    fn send(&self, outcome: Outcome) -> Result<(), Stopped>;
    /// See [`Responder::fail`].
    fn fail(&self, error: Error);
    /// See [`Responder::skip`].
    fn skip(&self);
    /// See [`Responder::output_begins`].
    fn output_begins(&self);
    /// See [`Responder::count_as`].
    fn count_as(&self, counted: Counted);
    /// See [`Responder::report`].
    fn report(&self, is_success: bool, times: ReportedTimes) {
        let _ = (is_success, times);
    }
    /// See [`Responder::finish`].
    fn finish(&self, last: Option<Result<Outcome>>);
    /// See [`Responder::again`].
    fn again(&self, entry: BatchEntry, outcome: Option<Outcome>);
    /// See [`Responder::put_back`].
    fn put_back(&self, entry: BatchEntry);
    /// The responder was dropped. An unfinished request ends with an error.
    fn abandon(&self);
    /// See [`Responder::is_cancelled`].
    fn is_cancelled(&self) -> bool;
    /// See [`Responder::on_cancel`].
    fn on_cancel(&self, hook: Box<dyn FnOnce() + Send>);
    /// See [`Responder::request`].
    fn request(&self) -> Option<RequestId> {
        None
    }
}

/// Answers one request of a decoupled model with any number of responses and one end.
///
/// A backend that takes it out of its [`BatchEntry`] has to end the request. It may move it to other
/// threads; the instance is free as soon as `execute` returns. Dropping it unfinished ends the request with an error.
pub struct Responder {
    /// `None` once the request was returned to run again.
    to: Option<Arc<dyn Answers>>,
}

impl Responder {
    /// Used by the engine, and by tests of backends.
    pub fn new(to: Arc<dyn Answers>) -> Self {
        Self { to: Some(to) }
    }

    /// Sends a response that is not the last one. Never blocks.
    ///
    /// # Errors
    /// The request is cancelled and the response was dropped. The request still has to be finished.
    pub fn send(&self, outcome: Outcome) -> Result<(), Stopped> {
        self.to.as_ref().map_or(Err(Stopped), |to| to.send(outcome))
    }

    /// Sends an error instead of a response; the request continues.
    pub fn fail(&self, error: Error) {
        if let Some(to) = &self.to {
            to.fail(error);
        }
    }

    /// Counts a response that is not sent.
    pub fn skip(&self) {
        if let Some(to) = &self.to {
            to.skip();
        }
    }

    /// Marks the end of the inference and the start of the outputs of the next response, for the statistics.
    pub fn output_begins(&self) {
        if let Some(to) = &self.to {
            to.output_begins();
        }
    }

    /// Overrides how the request is counted, as Triton's backends can.
    pub fn count_as(&self, counted: Counted) {
        if let Some(to) = &self.to {
            to.count_as(counted);
        }
    }

    /// Counts the request with times that its model reports. It is to be counted as [`Counted::Nothing`] otherwise.
    pub fn report(&self, is_success: bool, times: ReportedTimes) {
        if let Some(to) = &self.to {
            to.report(is_success, times);
        }
    }

    /// Ends the request, optionally with a last response or error.
    pub fn finish(self, last: Option<Result<Outcome>>) {
        if let Some(to) = &self.to {
            to.finish(last);
        }
    }

    /// Whether the request is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.to.as_ref().is_none_or(|to| to.is_cancelled())
    }

    /// The request; `None` for a row without one.
    pub fn request(&self) -> Option<RequestId> {
        self.to.as_ref().and_then(|to| to.request())
    }

    /// Ends a step of an iterative sequence (S-25): sends the response, if any, and runs the request again with another
    /// responder. `entry` is the one that this responder was taken from; its inputs may have other contents, not other
    /// shapes. For a model without iterative sequences, the request ends with an error and the response is dropped.
    pub fn again(mut self, entry: BatchEntry, outcome: Option<Outcome>) {
        if let Some(to) = self.to.take() {
            to.again(entry, outcome);
        }
    }

    /// The request did not begin, perhaps because its instance ended: it is queued again, before the others, with
    /// another responder. `entry` is the one that this responder was taken from, with its inputs. Only for models with
    /// one queue and no policies for it. The requests of a batch are put back in reverse order.
    pub fn put_back(mut self, entry: BatchEntry) {
        if let Some(to) = self.to.take() {
            to.put_back(entry);
        }
    }
}

impl Responder {
    /// Registers a hook for the cancellation of the request. It runs at once if that has happened, never after the end.
    ///
    /// The hook runs on the thread that cancels, which may serve other requests, so it must not block. It must not own
    /// the responder, which would keep it alive as long as the request.
    pub fn on_cancel(&self, hook: impl FnOnce() + Send + 'static) {
        if let Some(to) = &self.to {
            to.on_cancel(Box::new(hook));
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(to) = &self.to {
            to.abandon();
        }
    }
}
