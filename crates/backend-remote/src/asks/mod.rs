//! Requests of a model's code to the server: inference by other models, control, metrics, log lines.
//!
//! One [`Asks`] per process. Frames arrive one at a time, on the thread that serves all runners or on the one for large
//! copies; nothing here blocks it. Responses come from any thread and go to the socket that the request came on.

mod calls;
mod control;
mod log;
mod metrics;
mod peer;
#[cfg(test)]
mod tests;

pub(crate) use peer::{Parent, Peer};

use crate::frames::{FromRunner, LogRef, ProtocolError};
use crate::slots::Key;
use crate::transport::Way;
use backend::Host;
pub(crate) use calls::CALLS_MAX;
use calls::{CallInProgress, Calls};
use control::Controls;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use tensor::Name;

/// Unanswered requests of one process.
#[derive(Default)]
pub(crate) struct Asks {
    /// The server and the model. Kept to the end: the model may send requests while it ends.
    of: Option<(Weak<dyn Host>, Name)>,
    calls: Arc<Calls>,
    controls: Arc<Controls>,
    has_called: AtomicBool,
}

impl Asks {
    /// Requests of a process that runs `model`. The default is for a process without a server.
    pub(crate) fn new(host: Weak<dyn Host>, model: Name) -> Self {
        Self { of: Some((host, model)), ..Self::default() }
    }

    /// The server, if it still exists.
    pub(crate) fn host(&self) -> Option<Arc<dyn Host>> {
        self.of.as_ref()?.0.upgrade()
    }

    /// True once the model called another one.
    pub(crate) fn has_called(&self) -> bool {
        self.has_called.load(Relaxed)
    }

    pub(crate) fn calls_open(&self) -> usize {
        self.calls.open()
    }

    /// See `Calls::made_before`.
    pub(crate) fn calls_made_before(&self, at: u64) -> Vec<CallInProgress> {
        self.calls.made_before(at)
    }

    pub(crate) fn model(&self) -> Name {
        self.of.as_ref().map(|of| of.1.clone()).unwrap_or_default()
    }

    /// Handles a frame that does not belong to a batch.
    ///
    /// # Errors
    /// If the frame breaks the protocol: the runner is killed.
    pub(crate) fn frame(&self, peer: &Arc<dyn Peer>, way: Way, frame: FromRunner<'_>) -> Result<(), ProtocolError> {
        match frame {
            FromRunner::Call(call) => {
                self.has_called.store(true, Relaxed);
                self.calls.start(peer, way, &call)?;
            }
            FromRunner::CallCancel(call) => self.calls.cancel(call),
            FromRunner::CallClose(call) => self.calls.close(call),
            FromRunner::Control(json) => self.controls.start(peer, way, json)?,
            FromRunner::MetricUpdate(change) => self.controls.metrics.update(change),
            FromRunner::Log(line) => self.log(line),
            _ => return Err(ProtocolError("an unexpected frame")),
        }
        Ok(())
    }

    /// Writes a line of the model's log.
    pub(crate) fn log(&self, line: LogRef<'_>) {
        log::write(line);
    }

    /// Cancels the calls made for a request.
    pub(crate) fn request_cancelled(&self, key: Key) {
        self.calls.parent_cancelled(key);
    }

    /// Cancels all calls and deletes all metrics because the process has ended.
    pub(crate) fn closed(&self) {
        self.calls.closed();
        self.controls.metrics.closed();
    }
}
