//! Sequences that wait for a slot, oldest first.

use super::requests::Sequence;
use std::collections::BTreeMap;

pub(super) struct Backlog<T> {
    /// By serial.
    pub sequences: BTreeMap<u64, Sequence<T>>,
    /// Total number of their requests. [`remove`](Self::remove) updates it.
    pub requests: usize,
}

impl<T> Backlog<T> {
    pub fn new() -> Self {
        Self { sequences: BTreeMap::new(), requests: 0 }
    }

    pub fn remove(&mut self, serial: u64) -> Option<Sequence<T>> {
        let sequence = self.sequences.remove(&serial)?;
        self.requests -= sequence.queue.len();
        Some(sequence)
    }

    pub fn take(&mut self) -> BTreeMap<u64, Sequence<T>> {
        self.requests = 0;
        std::mem::take(&mut self.sequences)
    }
}
