//! How a backend answers a request any number of times, from any thread, also after `execute` has returned.

use crate::{BatchEntry, Outcome};
use std::sync::Arc;
use tensor::{Error, Result};

/// The request is cancelled: what was to be sent is dropped, and so should be the work on whatever would come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// What a request counts as in the statistics of its model, once it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Counted {
    /// Failed if its last answer is an error.
    #[default]
    ByLastAnswer,
    /// A success, whatever it was answered.
    Success,
    /// Nothing; its responses are counted, one by one.
    Responses,
    /// Nothing.
    Nothing,
}

/// Tells a request from all others that are not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(pub usize);

/// What takes the answers of one request: the engine. Calls may come from several threads; the order in which they arrive here
/// is the order of the answers. After `finish` all of them do nothing.
pub trait Answers: Send + Sync {
    /// As [`Responder::send`].
    ///
    /// # Errors
    /// As there.
    fn send(&self, outcome: Outcome) -> Result<(), Stopped>;
    /// As [`Responder::fail`].
    fn fail(&self, error: Error);
    /// As [`Responder::skip`].
    fn skip(&self);
    /// As [`Responder::output_begins`].
    fn output_begins(&self);
    /// As [`Responder::count_as`].
    fn count_as(&self, counted: Counted);
    /// As [`Responder::finish`].
    fn finish(&self, last: Option<Result<Outcome>>);
    /// As [`Responder::again`].
    fn again(&self, entry: BatchEntry, outcome: Option<Outcome>);
    /// The responder is gone. A request that was not finished ends with an error now.
    fn abandon(&self);
    /// As [`Responder::is_cancelled`].
    fn is_cancelled(&self) -> bool;
    /// As [`Responder::on_cancel`].
    fn on_cancel(&self, hook: Box<dyn FnOnce() + Send>);
    /// As [`Responder::request`].
    fn request(&self) -> Option<RequestId> {
        None
    }
}

/// Answers one request of a decoupled model: any number of responses, then one end.
///
/// A backend that takes it out of its [`BatchEntry`](crate::BatchEntry) owes the request an end. It may keep it and move it to
/// other threads; the instance is free as soon as `execute` returns. Dropped unfinished, it ends the request with an error.
pub struct Responder {
    /// `None` once the request was given back to run again.
    to: Option<Arc<dyn Answers>>,
}

impl Responder {
    /// For the engine, and for tests of backends.
    pub fn new(to: Arc<dyn Answers>) -> Self {
        Self { to: Some(to) }
    }

    /// Sends a response; others follow. Never blocks.
    ///
    /// # Errors
    /// The request is cancelled, and the response was dropped. It still has to be finished.
    pub fn send(&self, outcome: Outcome) -> Result<(), Stopped> {
        self.to.as_ref().map_or(Err(Stopped), |to| to.send(outcome))
    }

    /// Sends an error in the place of a response; the request goes on.
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

    /// The next response has been computed, and its outputs are made now: divides its time in the statistics.
    pub fn output_begins(&self) {
        if let Some(to) = &self.to {
            to.output_begins();
        }
    }

    /// Says what the request is to count as, if not as what it was answered: in Triton backends count themselves.
    pub fn count_as(&self, counted: Counted) {
        if let Some(to) = &self.to {
            to.count_as(counted);
        }
    }

    /// Ends the request, with a last response or error, or without.
    pub fn finish(self, last: Option<Result<Outcome>>) {
        if let Some(to) = &self.to {
            to.finish(last);
        }
    }

    /// Whether further answers are not wanted any more.
    pub fn is_cancelled(&self) -> bool {
        self.to.as_ref().is_none_or(|to| to.is_cancelled())
    }

    /// The request that it answers; `None` for a row without one.
    pub fn request(&self) -> Option<RequestId> {
        self.to.as_ref().and_then(|to| to.request())
    }

    /// Ends a step of an iterative sequence (S-25): sends a response, if there is one, and has the request run again, with another
    /// responder. `entry` is the one that this responder was taken from; its inputs may have other contents, not other shapes. A model that is not
    /// configured for that has its request ended with an error instead, and the response is dropped.
    pub fn again(mut self, entry: BatchEntry, outcome: Option<Outcome>) {
        if let Some(to) = self.to.take() {
            to.again(entry, outcome);
        }
    }
}

impl Responder {
    /// Has `hook` called when further answers are not wanted any more: at once if that is so already, never once the request is over.
    ///
    /// It is called from the thread that cancels, perhaps one that serves other requests, and must not block. It must not own the
    /// responder, which would keep it until the request is forgotten.
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
