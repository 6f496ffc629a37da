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
    per_instance: u32,
    /// By instance: its first slot that was never given out. `None`: there is no such instance.
    fresh: Vec<Option<u32>>,
    /// How many instances there are.
    instances: usize,
    /// Slot and instance: those that came back, and the first fresh one of each instance.
    free: BinaryHeap<Reverse<(u32, u32)>>,
    /// Instances whose slots are not given out now.
    down: BTreeSet<u32>,
    /// Slots of theirs that would have been.
    aside: Vec<(u32, u32)>,
}

impl FreeSlots {
    pub fn new(instances: u32, per_instance: u32) -> Self {
        let mut all = Self {
            per_instance,
            fresh: Vec::new(),
            instances: 0,
            free: BinaryHeap::with_capacity(instances as usize),
            down: BTreeSet::new(),
            aside: Vec::new(),
        };
        (0..instances).for_each(|instance| all.add(instance));
        all
    }

    pub fn take(&mut self) -> Option<SlotId> {
        // Without this, all slots that came back would be looked at.
        if self.down.len() >= self.instances {
            return None;
        }
        loop {
            let Reverse((slot, instance)) = self.free.pop()?;
            if self.is_down(instance) {
                self.aside.push((slot, instance));
                continue;
            }
            if let Some(Some(fresh)) = self.fresh.get_mut(instance as usize)
                && *fresh == slot
            {
                *fresh += 1;
                if *fresh < self.per_instance {
                    self.free.push(Reverse((*fresh, instance)));
                }
            }
            return Some(SlotId { instance, slot });
        }
    }

    pub fn give(&mut self, SlotId { instance, slot }: SlotId) {
        if self.is_down(instance) {
            self.aside.push((slot, instance))
        } else {
            self.free.push(Reverse((slot, instance)))
        }
    }

    pub fn is_down(&self, instance: u32) -> bool {
        self.down.contains(&instance)
    }

    /// Gives out no slot of this instance from now on. Those that are in use come back with [`give`](Self::give) as ever.
    pub fn down(&mut self, instance: u32) {
        if self.has(instance) {
            self.down.insert(instance);
        }
    }

    /// Its slots are given out again.
    pub fn up(&mut self, instance: u32) {
        if self.down.remove(&instance) {
            let (back, aside) = std::mem::take(&mut self.aside).into_iter().partition(|&(_, of)| of == instance);
            self.aside = aside;
            let back: Vec<_> = back;
            self.free.extend(back.into_iter().map(Reverse));
        }
    }

    /// Gives out the slots of one instance more.
    pub fn add(&mut self, instance: u32) {
        if self.has(instance) {
            return;
        }
        let at = instance as usize;
        if at >= self.fresh.len() {
            self.fresh.resize(at + 1, None);
        }
        if let Some(fresh) = self.fresh.get_mut(at) {
            *fresh = Some(0);
            self.instances += 1;
        }
        if self.per_instance > 0 {
            self.free.push(Reverse((0, instance)));
        }
    }

    /// Forgets an instance of which no slot is in use.
    pub fn remove(&mut self, instance: u32) {
        if let Some(fresh @ Some(_)) = self.fresh.get_mut(instance as usize) {
            *fresh = None;
            self.instances -= 1;
            self.down.remove(&instance);
            self.free.retain(|Reverse((_, of))| *of != instance);
            self.aside.retain(|(_, of)| *of != instance);
        }
    }

    fn has(&self, instance: u32) -> bool {
        self.fresh.get(instance as usize).is_some_and(Option::is_some)
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
        assert_eq!(free.free.capacity(), 4096);
    }

    #[test]
    fn an_instance_more_has_free_slots_and_one_less_has_none() {
        let mut free = FreeSlots::new(1, 2);
        let take = |free: &mut FreeSlots| free.take().map(|s| (s.instance, s.slot));
        assert_eq!(take(&mut free), Some((0, 0)));
        free.add(2);
        free.add(2);
        assert_eq!([(); 4].map(|()| take(&mut free)), [Some((2, 0)), Some((0, 1)), Some((2, 1)), None]);
        free.down(0);
        free.give(SlotId { instance: 0, slot: 1 });
        free.give(SlotId { instance: 2, slot: 1 });
        assert_eq!([(); 2].map(|()| take(&mut free)), [Some((2, 1)), None]);
        free.give(SlotId { instance: 0, slot: 0 });
        free.remove(0);
        assert_eq!(take(&mut free), None);
        free.add(0);
        assert_eq!([(); 3].map(|()| take(&mut free)), [Some((0, 0)), Some((0, 1)), None]);
    }
}
