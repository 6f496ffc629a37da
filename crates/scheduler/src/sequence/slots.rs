//! Which slot a new sequence gets: the lowest number over all instances, so that instances fill evenly (S-18).
//!
//! A configuration may ask for two thousand million slots. What is kept here follows the most that were in use at a time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A slot of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId {
    /// Index of the instance.
    pub instance: u32,
    /// Index in the instance.
    pub slot: u32,
}

/// The free slots of all instances, in the order in which they are given out: slot 0 of every instance, then slot 1, …
pub(super) struct FreeSlots {
    instances: u64,
    total: u64,
    /// Slots before this one were given out at least once.
    fresh: u64,
    /// Those of them that came back.
    freed: BinaryHeap<Reverse<u64>>,
}

impl FreeSlots {
    pub fn new(instances: u32, per_instance: u32) -> Self {
        let instances = u64::from(instances);
        Self { instances, total: instances * u64::from(per_instance), fresh: 0, freed: BinaryHeap::new() }
    }

    pub fn take(&mut self) -> Option<SlotId> {
        let place = match self.freed.pop() {
            // Always before the fresh ones.
            Some(Reverse(place)) => place,
            None if self.fresh < self.total => {
                self.fresh += 1;
                self.fresh - 1
            }
            None => return None,
        };
        // Both fit: `total` is a product of two 32-bit numbers.
        Some(SlotId { instance: (place % self.instances) as u32, slot: (place / self.instances) as u32 })
    }

    pub fn give(&mut self, slot: SlotId) {
        self.freed.push(Reverse(u64::from(slot.slot) * self.instances + u64::from(slot.instance)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_number_over_all_instances_is_next() {
        let mut free = FreeSlots::new(2, 2);
        let take = |free: &mut FreeSlots| free.take().map(|s| (s.instance, s.slot));
        assert_eq!([(); 5].map(|()| take(&mut free)), [Some((0, 0)), Some((1, 0)), Some((0, 1)), Some((1, 1)), None]);
        free.give(SlotId { instance: 0, slot: 1 });
        free.give(SlotId { instance: 1, slot: 0 });
        assert_eq!([(); 3].map(|()| take(&mut free)), [Some((1, 0)), Some((0, 1)), None]);
    }

    #[test]
    fn slots_nobody_used_take_no_memory() {
        let mut free = FreeSlots::new(4096, u32::MAX);
        assert_eq!(free.take(), Some(SlotId { instance: 0, slot: 0 }));
        assert_eq!(free.freed.capacity(), 0);
    }
}
