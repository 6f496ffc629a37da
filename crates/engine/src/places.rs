//! Places of calls among those of their step that are in flight (`max_inflight_requests`, S-32). Whatever panics, a place is given to
//! the next call in line, and that is made.

use crate::flow::Waiting;
use crate::pool::Work;
use crate::version::ModelVersion;
use std::collections::VecDeque;
use std::sync::Arc;

/// The place of one call. Dropped, it goes to the next in line, which a thread of the pool calls.
pub(crate) struct Place {
    /// The ensemble.
    version: Arc<ModelVersion>,
    step: usize,
    was_left: bool,
}

impl Place {
    pub(crate) fn new(version: Arc<ModelVersion>, step: usize) -> Self {
        Self { version, step, was_left: false }
    }

    /// Gives it to the next in line, to be called now.
    pub(crate) fn pass_on(mut self) -> Option<Waiting> {
        self.leave()
    }

    fn leave(&mut self) -> Option<Waiting> {
        if std::mem::replace(&mut self.was_left, true) {
            return None;
        }
        let mut next = self.version.ensemble.as_ref()?.inflight.lock().leave(self.step)?;
        next.place = Some(Self::new(self.version.clone(), self.step));
        Some(next)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(next) = self.leave() {
            self.version.shared.pool.submit(Work::Call(next));
        }
    }
}

/// Calls that have got their places. Those that are left when it is dropped a thread of the pool makes.
#[derive(Default)]
pub(crate) struct Calls(VecDeque<Waiting>);

impl Calls {
    pub(crate) fn add(&mut self, call: Option<Waiting>) {
        self.0.extend(call);
    }

    pub(crate) fn next(&mut self) -> Option<Waiting> {
        self.0.pop_front()
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        for call in self.0.drain(..) {
            call.submit();
        }
    }
}
