//! Which slot a new sequence gets: the lowest number over all instances, so that instances fill evenly (S-18).
//!
//! A configuration may ask for two thousand million slots. What is kept here follows the most that were in use at a time.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

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
    /// Instances whose slots are not given out now.
    down: BTreeSet<u32>,
    /// Slots of theirs that would have been.
    aside: Vec<u64>,
}

impl FreeSlots {
    pub fn new(instances: u32, per_instance: u32) -> Self {
        let instances = u64::from(instances);
        Self {
            instances,
            total: instances * u64::from(per_instance),
            fresh: 0,
            freed: BinaryHeap::new(),
            down: BTreeSet::new(),
            aside: Vec::new(),
        }
    }

    pub fn take(&mut self) -> Option<SlotId> {
        // Without this, all slots there may be would be looked at.
        if self.down.len() as u64 >= self.instances {
            return None;
        }
        loop {
            let place = match self.freed.pop() {
                // Always before the fresh ones.
                Some(Reverse(place)) => place,
                None if self.fresh < self.total => {
                    self.fresh += 1;
                    self.fresh - 1
                }
                None => return None,
            };
            let slot = self.slot(place);
            if !self.is_down(slot.instance) {
                return Some(slot);
            }
            self.aside.push(place);
        }
    }

    pub fn give(&mut self, slot: SlotId) {
        let place = u64::from(slot.slot) * self.instances + u64::from(slot.instance);
        if self.is_down(slot.instance) { self.aside.push(place) } else { self.freed.push(Reverse(place)) }
    }

    pub fn is_down(&self, instance: u32) -> bool {
        self.down.contains(&instance)
    }

    /// Gives out no slot of this instance from now on. Those that are in use come back with [`give`](Self::give) as ever.
    pub fn down(&mut self, instance: u32) {
        if u64::from(instance) < self.instances {
            self.down.insert(instance);
        }
    }

    /// Its slots are given out again.
    pub fn up(&mut self, instance: u32) {
        if self.down.remove(&instance) {
            let (back, aside) =
                std::mem::take(&mut self.aside).into_iter().partition(|&p| self.slot(p).instance == instance);
            self.aside = aside;
            let back: Vec<u64> = back;
            self.freed.extend(back.into_iter().map(Reverse));
        }
    }

    /// Both numbers fit: `total` is a product of two 32-bit numbers.
    fn slot(&self, place: u64) -> SlotId {
        SlotId { instance: (place % self.instances) as u32, slot: (place / self.instances) as u32 }
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
    fn slots_of_an_instance_that_is_down_are_given_out_when_it_is_up_again() {
        let mut free = FreeSlots::new(3, 2);
        let take = |free: &mut FreeSlots| free.take().map(|s| (s.instance, s.slot));
        assert_eq!(take(&mut free), Some((0, 0)));
        free.down(1);
        free.down(7);
        assert_eq!([(); 4].map(|()| take(&mut free)), [Some((2, 0)), Some((0, 1)), Some((2, 1)), None]);
        free.give(SlotId { instance: 0, slot: 0 });
        free.down(0);
        assert_eq!(take(&mut free), None);
        free.down(2);
        assert_eq!(take(&mut free), None);
        free.up(1);
        assert_eq!([(); 3].map(|()| take(&mut free)), [Some((1, 0)), Some((1, 1)), None]);
        free.up(0);
        free.up(0);
        assert_eq!([(); 2].map(|()| take(&mut free)), [Some((0, 0)), None]);
        // All down of very many: none is looked at.
        let mut free = FreeSlots::new(2, u32::MAX);
        free.down(0);
        free.down(1);
        assert_eq!(free.take(), None);
    }

    #[test]
    fn slots_nobody_used_take_no_memory() {
        let mut free = FreeSlots::new(4096, u32::MAX);
        assert_eq!(free.take(), Some(SlotId { instance: 0, slot: 0 }));
        assert_eq!(free.freed.capacity(), 0);
    }
}
