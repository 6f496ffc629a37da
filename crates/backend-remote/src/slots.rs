//! The requests that a runner has, by the number it knows them by.

use backend::{BatchEntry, Responder};

/// A request that is not over.
pub(crate) struct Pending {
    pub(crate) responder: Responder,
    /// What was asked; its inputs are empty once they were handed over, unless it may run again.
    pub(crate) entry: BatchEntry,
}

/// Slot and generation.
pub(crate) type Key = (u32, u32);

#[derive(Default)]
pub(crate) struct Slots {
    all: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    is_taken: bool,
    pending: Option<Pending>,
}

impl Slots {
    /// A slot for a request; `None` when as many as there may be are taken.
    pub(crate) fn take(&mut self, most: u32) -> Option<Key> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.all.len()).ok().filter(|&n| n < most)?;
                self.all.push(Slot::default());
                slot
            }
        };
        let it = self.all.get_mut(slot as usize)?;
        it.generation = it.generation.wrapping_add(1);
        it.is_taken = true;
        Some((slot, it.generation))
    }

    fn get(&mut self, (slot, generation): Key) -> Option<&mut Slot> {
        self.all.get_mut(slot as usize).filter(|it| it.is_taken && it.generation == generation)
    }

    /// Whether that request has its slot.
    pub(crate) fn has(&mut self, key: Key) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn put(&mut self, key: Key, pending: Pending) {
        if let Some(it) = self.get(key) {
            it.pending = Some(pending);
        }
    }

    /// The request, which keeps its slot.
    pub(crate) fn pending(&mut self, key: Key) -> Option<&mut Pending> {
        self.get(key)?.pending.as_mut()
    }

    /// Takes the request out; its slot stays taken.
    pub(crate) fn lift(&mut self, key: Key) -> Option<Pending> {
        self.get(key)?.pending.take()
    }

    /// The request is over.
    pub(crate) fn free(&mut self, key: Key) {
        if let Some(it) = self.get(key) {
            it.is_taken = false;
            it.pending = None;
            self.free.push(key.0);
        }
    }

    /// The request, if there is only one that is not over.
    pub(crate) fn only(&self) -> Option<Key> {
        let mut taken = self.all.iter().enumerate().filter(|(_, it)| it.is_taken);
        let (slot, it) = taken.next()?;
        taken.next().is_none().then_some((slot as u32, it.generation))
    }

    /// Requests that are not over.
    pub(crate) fn pendings(&self) -> impl Iterator<Item = &Pending> {
        self.all.iter().filter_map(|it| it.pending.as_ref())
    }

    /// How many requests are not over.
    pub(crate) fn taken(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Takes all requests out.
    pub(crate) fn clear(&mut self) -> Vec<Pending> {
        self.free.clear();
        std::mem::take(&mut self.all).into_iter().filter_map(|slot| slot.pending).collect()
    }
}
