//! Requests that were sent to a runner, by the slot number that the runner uses for them.

use backend::{BatchEntry, Responder};

/// A request without a final response.
pub(crate) struct RunnerRequest {
    pub(crate) responder: Responder,
    /// The request. Its inputs are empty once they were sent, unless it may run again.
    pub(crate) entry: BatchEntry,
    /// Time when it was sent.
    pub(crate) since: u64,
}

/// Slot number and generation.
pub(crate) type Key = (u32, u32);

#[derive(Default)]
pub(crate) struct Slots {
    all: Vec<RunnerSlot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct RunnerSlot {
    generation: u32,
    is_taken: bool,
    pending: Option<RunnerRequest>,
}

impl Slots {
    /// Takes a slot for a request. `None` if `most` slots are taken.
    pub(crate) fn take(&mut self, most: u32) -> Option<Key> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.all.len()).ok().filter(|&n| n < most)?;
                self.all.push(RunnerSlot::default());
                slot
            }
        };
        let it = self.all.get_mut(slot as usize)?;
        it.generation = it.generation.wrapping_add(1);
        it.is_taken = true;
        Some((slot, it.generation))
    }

    fn get(&mut self, (slot, generation): Key) -> Option<&mut RunnerSlot> {
        self.all.get_mut(slot as usize).filter(|it| it.is_taken && it.generation == generation)
    }

    /// True if the request still has its slot.
    pub(crate) fn has(&mut self, key: Key) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn put(&mut self, key: Key, pending: RunnerRequest) {
        if let Some(it) = self.get(key) {
            it.pending = Some(pending);
        }
    }

    pub(crate) fn pending(&mut self, key: Key) -> Option<&mut RunnerRequest> {
        self.get(key)?.pending.as_mut()
    }

    /// Takes the request; its slot stays taken.
    pub(crate) fn lift(&mut self, key: Key) -> Option<RunnerRequest> {
        self.get(key)?.pending.take()
    }

    /// Frees the slot after the final response.
    pub(crate) fn free(&mut self, key: Key) {
        if let Some(it) = self.get(key) {
            it.is_taken = false;
            it.pending = None;
            self.free.push(key.0);
        }
    }

    /// Frees the slot of a request that was lifted and not put back.
    pub(crate) fn free_answered(&mut self, key: Key) {
        if self.get(key).is_some_and(|it| it.pending.is_none()) {
            self.free(key);
        }
    }

    /// The request, if there is only one that is not over and for which `counts` is true.
    pub(crate) fn only(&self, counts: impl Fn(Key) -> bool) -> Option<Key> {
        let taken = self.all.iter().enumerate().filter(|(_, it)| it.is_taken);
        let mut taken = taken.map(|(slot, it)| (slot as u32, it.generation)).filter(|&key| counts(key));
        let only = taken.next()?;
        taken.next().is_none().then_some(only)
    }

    /// Requests that are not over.
    pub(crate) fn pendings(&self) -> impl Iterator<Item = &RunnerRequest> {
        self.all.iter().filter_map(|it| it.pending.as_ref())
    }

    pub(crate) fn taken(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Takes all requests and frees all slots.
    pub(crate) fn clear(&mut self) -> Vec<RunnerRequest> {
        self.free.clear();
        std::mem::take(&mut self.all).into_iter().filter_map(|slot| slot.pending).collect()
    }
}
