//! A [`Place`] stands for one of the calls of a step that may be in flight at once (`max_inflight_requests`, S-32), and a [`Turn`] for the
//! position of a request among the requests of its sequence. Whatever panics, both pass to the next in line, whose call is then made.

use crate::flow::Waiting;
use crate::version::ModelVersion;
use crate::work::Work;
use graph::Turns;
use parking_lot::Mutex;
use protocol::CorrelationId;
use std::collections::VecDeque;
use std::sync::Arc;

/// The place of one call. When it is dropped, it passes to the next call in line, and a thread of the pool makes that call.
pub(crate) struct Place {
    /// The version of the ensemble.
    version: Arc<ModelVersion>,
    step: usize,
    was_left: bool,
}

impl Place {
    pub(crate) fn new(version: Arc<ModelVersion>, step: usize) -> Self {
        Self { version, step, was_left: false }
    }

    /// Passes the place to the next call in line, which the caller makes now.
    pub(crate) fn pass_on(mut self) -> Option<Waiting> {
        self.leave()
    }

    fn leave(&mut self) -> Option<Waiting> {
        if std::mem::replace(&mut self.was_left, true) {
            return None;
        }
        let mut next = self.version.graph()?.inflight.lock().leave(self.step)?;
        next.place = Some(Self::new(self.version.clone(), self.step));
        Some(next)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(next) = self.leave() {
            self.version.shared.pool.submit(Work::of(|| next.make(u64::MAX)));
        }
    }
}

/// The turn of one request of a sequence. When it is dropped, the next request has its turn, and threads of the pool make the calls of that
/// request which waited.
pub(crate) struct Turn {
    /// The version of the ensemble.
    version: Arc<ModelVersion>,
    id: CorrelationId,
    number: u64,
}

impl Turn {
    /// The turn of a request that begins now and calls the steps `in_turn` in order. `None` if the request belongs to no sequence, or
    /// there are no such steps.
    pub(crate) fn new(version: &Arc<ModelVersion>, id: &CorrelationId, in_turn: &[usize]) -> Option<Self> {
        if in_turn.is_empty() || !id.is_some() {
            return None;
        }
        let number = version.graph()?.turns.lock().join(id, in_turn);
        Some(Self { version: version.clone(), id: id.clone(), number })
    }

    fn turns(&self) -> Option<&Mutex<Turns<Waiting>>> {
        self.version.graph().map(|ensemble| &ensemble.turns)
    }

    /// Returns the call of a step if it may be made now; otherwise it waits here.
    pub(crate) fn enter(&self, step: usize, call: Waiting) -> Option<Waiting> {
        match self.turns() {
            Some(turns) => turns.lock().enter(&self.id, self.number, step, call),
            None => Some(call),
        }
    }

    /// To be called when the request has called a step for the last time. Returns the calls that may be made now.
    pub(crate) fn leave(&self, step: usize) -> Vec<Waiting> {
        self.turns().map(|turns| turns.lock().leave(&self.id, self.number, step)).unwrap_or_default()
    }

    /// Takes out the calls of the request that wait.
    pub(crate) fn withdraw(&self) -> Vec<Waiting> {
        self.turns().map(|turns| turns.lock().withdraw_of(&self.id, self.number)).unwrap_or_default()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = self.turns().map(|turns| turns.lock().end(&self.id, self.number));
        next.into_iter().flatten().filter_map(Waiting::placed).for_each(Waiting::submit);
    }
}

/// Calls that have their places and are to be made. When the list is dropped, threads of the pool make the calls that are left in it.
#[derive(Default)]
pub(crate) struct Calls(VecDeque<Waiting>);

impl Calls {
    pub(crate) fn add(&mut self, calls: impl IntoIterator<Item = Waiting>) {
        self.0.extend(calls);
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
