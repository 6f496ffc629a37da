//! What the code of a model asks of the server through its runner: inferences by other models, control, metrics, lines for the log.
//!
//! One [`Asks`] per process. Frames arrive one at a time, on the thread that serves all runners or on the one for large copies; nothing here
//! blocks it. Answers come from any thread, and go to the socket that the question came on.

mod calls;
mod control;
mod log;
mod metrics;
mod peer;
#[cfg(test)]
mod tests;

pub(crate) use peer::{Parent, Peer};

use crate::frames::{FromRunner, Lie};
use crate::slots::Key;
use crate::transport::Way;
use backend::Host;
pub(crate) use calls::CALLS_MAX;
use calls::{Calls, Made};
use control::Controls;
use std::sync::{Arc, Weak};
use tensor::Name;

/// What one process has asked and not been answered yet.
#[derive(Default)]
pub(crate) struct Asks {
    /// The server, and the model that asks; it may also ask while it ends.
    of: Option<(Weak<dyn Host>, Name)>,
    calls: Arc<Calls>,
    controls: Arc<Controls>,
}

impl Asks {
    /// Of a process that runs `model`. The default is for one that has nobody to ask.
    pub(crate) fn new(host: Weak<dyn Host>, model: Name) -> Self {
        Self { of: Some((host, model)), ..Self::default() }
    }

    /// The server, as long as there is one.
    pub(crate) fn host(&self) -> Option<Arc<dyn Host>> {
        self.of.as_ref()?.0.upgrade()
    }

    /// Inferences in progress.
    pub(crate) fn calls_open(&self) -> usize {
        self.calls.open()
    }

    /// As `Calls::made_before`.
    pub(crate) fn calls_made_before(&self, at: u64) -> Vec<Made> {
        self.calls.made_before(at)
    }

    /// The model that asks.
    pub(crate) fn model(&self) -> Name {
        self.of.as_ref().map(|of| of.1.clone()).unwrap_or_default()
    }

    /// Takes a frame that is not about the runner's batches.
    ///
    /// # Errors
    /// It breaks a rule; the runner is killed.
    pub(crate) fn frame(&self, peer: &Arc<dyn Peer>, way: Way, frame: FromRunner<'_>) -> Result<(), Lie> {
        match frame {
            FromRunner::Call(call) => self.calls.start(peer, way, &call)?,
            FromRunner::CallCancel(call) => self.calls.cancel(call),
            FromRunner::CallClose(call) => self.calls.close(call),
            FromRunner::Control(json) => self.controls.ask(peer, way, json)?,
            FromRunner::MetricUpdate(change) => self.controls.metrics.update(change),
            FromRunner::Log(line) => log::write(line),
            _ => return Err(Lie("a frame that is not expected here")),
        }
        Ok(())
    }

    /// A request of the runner is cancelled, and with it what was called for it.
    pub(crate) fn request_cancelled(&self, key: Key) {
        self.calls.parent_cancelled(key);
    }

    /// The process is gone: its calls are not wanted any more, and its metrics are given back.
    pub(crate) fn closed(&self) {
        self.calls.closed();
        self.controls.metrics.closed();
    }
}
