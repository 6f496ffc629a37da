//! Batches that were sent to a runner and have no result.

use crate::lifecycle::Lifecycle;
use crate::runner::{Runner, RunnerState};
use crate::slots::Key;
use crate::spec::RunnerKind;
use backend::{Executing, Occupied};
use smallvec::SmallVec;

/// A batch that was sent.
pub(crate) struct BatchInFlight {
    pub(crate) id: u64,
    pub(crate) members: SmallVec<[Key; 4]>,
    pub(crate) occupied: Option<Occupied>,
    /// Time when its inputs were written, or when it began after it lay ready.
    pub(crate) since: u64,
    /// Keeps the instance of a batch that was put back, until this one ends.
    pub(crate) holds: Option<Occupied>,
    /// Another one may be sent while it runs.
    pub(crate) is_followed: bool,
    /// The frame of the batch was sent. Another one is sent only then, so that it does not overtake it.
    pub(crate) is_sent: bool,
}

impl RunnerState {
    /// The batch with this number, if it has no result.
    pub(crate) fn in_flight(&mut self, id: u64) -> Option<&mut BatchInFlight> {
        self.batch.iter_mut().chain(&mut self.ready).find(|batch| batch.id == id)
    }

    /// True if the request belongs to a batch that lies ready.
    pub(crate) fn lies_ready(&self, key: Key) -> bool {
        self.ready.iter().any(|batch| batch.members.contains(&key))
    }
}

impl Runner {
    /// Unfinished executions, and requests that are answered after their execution.
    pub(crate) fn executing(&self) -> Option<Executing> {
        let state = self.state.lock();
        let sent = state.slots.pendings().map(|pending| pending.since);
        let oldest = sent.chain(state.batch.as_ref().map(|batch| batch.since)).min();
        let oldest = oldest.filter(|_| matches!(state.lifecycle, Lifecycle::Ready { .. }))?;
        let requests = state.slots.pendings().count();
        Some(Executing { instance: self.instance, requests, quiet_since: oldest.max(state.answered) })
    }

    /// See [`Transport::write_stack`](crate::transport::Transport::write_stack).
    pub(crate) fn write_stack(&self) -> bool {
        self.transport.write_stack(self.kind == RunnerKind::StubProcess)
    }
}
