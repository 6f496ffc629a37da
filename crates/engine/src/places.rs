//! Places of calls among those of their step that are in flight (`max_inflight_requests`, S-32), and turns of requests among those of
//! their sequence. Whatever panics, a place and a turn are given to the next in line, whose call is made.

use crate::flow::Waiting;
use crate::pool::Work;
use crate::version::ModelVersion;
use graph::Turns;
use parking_lot::Mutex;
use protocol::CorrelationId;
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

/// The turn of one request among those of its sequence. Dropped, the next has its own, and threads of the pool make its calls.
pub(crate) struct Turn {
    /// The ensemble.
    version: Arc<ModelVersion>,
    id: CorrelationId,
    number: u64,
}

impl Turn {
    /// Of a request that begins now, and calls these steps in its turn. `None` when it has no sequence, or there is no such step.
    pub(crate) fn new(version: &Arc<ModelVersion>, id: &CorrelationId, in_turn: &[usize]) -> Option<Self> {
        if in_turn.is_empty() || !id.is_some() {
            return None;
        }
        let number = version.ensemble.as_ref()?.turns.lock().join(id, in_turn);
        Some(Self { version: version.clone(), id: id.clone(), number })
    }

    fn turns(&self) -> Option<&Mutex<Turns<Waiting>>> {
        self.version.ensemble.as_ref().map(|ensemble| &ensemble.turns)
    }

    /// A call of a step. It is given back if it may be made now; else it waits.
    pub(crate) fn enter(&self, step: usize, call: Waiting) -> Option<Waiting> {
        match self.turns() {
            Some(turns) => turns.lock().enter(&self.id, self.number, step, call),
            None => Some(call),
        }
    }

    /// The request called a step for the last time. The calls that may be made now.
    pub(crate) fn leave(&self, step: usize) -> Vec<Waiting> {
        self.turns().map(|turns| turns.lock().leave(&self.id, self.number, step)).unwrap_or_default()
    }

    /// Takes the calls of the request that wait out.
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

/// Calls that have got their places. Those that are left when it is dropped a thread of the pool makes.
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
