//! Permits of calls in flight (`max_inflight_requests`, S-32), and turns of requests within their sequence. Even after
//! a panic both pass to the next in the queue, whose call is then made.

use crate::flow::StepCall;
use crate::version::{ModelVersion, Work};
use graph::Turns;
use parking_lot::Mutex;
use protocol::CorrelationId;
use std::collections::VecDeque;
use std::sync::Arc;

/// Permit of one call. When it is dropped, it passes to the next queued call, which a pool thread makes.
pub(crate) struct CallPermit {
    /// The version of the ensemble.
    version: Arc<ModelVersion>,
    step: usize,
    was_left: bool,
}

impl CallPermit {
    pub(crate) fn new(version: Arc<ModelVersion>, step: usize) -> Self {
        Self { version, step, was_left: false }
    }

    /// Passes the permit to the next queued call, which the caller makes now.
    pub(crate) fn pass_on(mut self) -> Option<StepCall> {
        self.leave()
    }

    fn leave(&mut self) -> Option<StepCall> {
        if std::mem::replace(&mut self.was_left, true) {
            return None;
        }
        let mut next = self.version.graph()?.inflight.lock().leave(self.step)?;
        next.place = Some(Self::new(self.version.clone(), self.step));
        Some(next)
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        if let Some(next) = self.leave() {
            self.version.shared.pool.submit(Work::of(|| next.make(u64::MAX)));
        }
    }
}

/// Turn of one request of a sequence. When dropped, pool threads make the calls of the next request that waited.
pub(crate) struct SequenceTurn {
    /// The version of the ensemble.
    version: Arc<ModelVersion>,
    id: CorrelationId,
    number: u64,
}

impl SequenceTurn {
    /// The turn of a new request that calls the steps `in_turn` in order. `None` without a sequence or such steps.
    pub(crate) fn new(version: &Arc<ModelVersion>, id: &CorrelationId, in_turn: &[usize]) -> Option<Self> {
        if in_turn.is_empty() || !id.is_some() {
            return None;
        }
        let number = version.graph()?.turns.lock().join(id, in_turn);
        Some(Self { version: version.clone(), id: id.clone(), number })
    }

    fn turns(&self) -> Option<&Mutex<Turns<StepCall>>> {
        self.version.graph().map(|ensemble| &ensemble.turns)
    }

    /// Returns the call of a step if it may be made now; otherwise queues it.
    pub(crate) fn enter(&self, step: usize, call: StepCall) -> Option<StepCall> {
        match self.turns() {
            Some(turns) => turns.lock().enter(&self.id, self.number, step, call),
            None => Some(call),
        }
    }

    /// Called after the request's last call of a step. Returns the calls that may be made now.
    pub(crate) fn leave(&self, step: usize) -> Vec<StepCall> {
        self.turns().map(|turns| turns.lock().leave(&self.id, self.number, step)).unwrap_or_default()
    }

    /// Removes the waiting calls of the request.
    pub(crate) fn withdraw(&self) -> Vec<StepCall> {
        self.turns().map(|turns| turns.lock().withdraw_of(&self.id, self.number)).unwrap_or_default()
    }
}

impl Drop for SequenceTurn {
    fn drop(&mut self) {
        let next = self.turns().map(|turns| turns.lock().end(&self.id, self.number));
        next.into_iter().flatten().filter_map(StepCall::placed).for_each(StepCall::submit);
    }
}

/// Calls to be made, with their permits. When the list is dropped, pool threads make the remaining ones.
#[derive(Default)]
pub(crate) struct DueCalls(VecDeque<StepCall>);

impl DueCalls {
    pub(crate) fn add(&mut self, calls: impl IntoIterator<Item = StepCall>) {
        self.0.extend(calls);
    }

    pub(crate) fn next(&mut self) -> Option<StepCall> {
        self.0.pop_front()
    }
}

impl Drop for DueCalls {
    fn drop(&mut self) {
        for call in self.0.drain(..) {
            call.submit();
        }
    }
}
