//! Interface of a runner to the calls of its code.

use crate::asks::{Parent, Peer};
use crate::frames::TensorRef;
use crate::memory::{Room, SegmentError};
use crate::runner::Runner;
use crate::slots::Key;
use crate::transport::{Job, Way};
use backend::Host;
use std::sync::Arc;
use tensor::{Data, DataType, Error, Name};

impl Peer for Runner {
    fn host(&self) -> Option<Arc<dyn Host>> {
        self.asks.host()
    }

    fn model(&self) -> Name {
        self.asks.model()
    }

    fn parent(&self, named: Key) -> Parent {
        let mut state = self.state.lock();
        let key = if state.slots.has(named) {
            Some(named)
        } else {
            state.slots.only(|key| state.in_flight.prefetched_with(key).is_none())
        };
        // A prefetched batch may call before the result of the one before it was read.
        let running = state.in_flight.all().find(|batch| key.is_none_or(|key| batch.members.contains(&key)));
        let batch = running.map(|batch| batch.id);
        match key.and_then(|key| Some((key, state.slots.pending(key)?))) {
            Some((key, pending)) => {
                let request = &pending.entry.request;
                Parent { key: Some(key), depth: request.depth, batch, trace: request.trace.clone() }
            }
            // Bounds the length of a chain of calls.
            None => {
                let depth = state.slots.pendings().map(|pending| pending.entry.request.depth).max().unwrap_or(0);
                Parent { depth, batch, ..Parent::default() }
            }
        }
    }

    fn send(&self, way: Way, frames: &[u8]) {
        self.transport.send(way, frames);
    }

    fn put(
        &self,
        to: &mut Vec<u8>,
        room: &mut Room<'_>,
        head: (&str, DataType, &[i64]),
        data: &Data,
    ) -> Result<(), Error> {
        self.memory.put(to, room, head, data, true).map(drop)
    }

    fn takes_devices(&self) -> bool {
        self.memory.lends()
    }

    fn forget(&self, blocks: &[u64]) {
        self.memory.forget(blocks.iter().copied());
    }

    fn take(&self, tensor: &TensorRef<'_>) -> Result<Data, SegmentError> {
        self.memory.take(tensor)
    }

    fn done_with(&self, tensor: &TensorRef<'_>) {
        self.memory.done_with(tensor);
    }

    fn later(&self, job: Job) {
        self.executor.copy(job);
    }

    fn condemn(&self, why: &str) {
        Self::condemn(self, why);
    }
}
