//! Free slots. A new sequence gets the lowest number over all instances, so that instances fill evenly (S-18).
//!
//! A configuration may ask for 2·10⁹ slots. Memory follows the most that were in use at a time.

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

/// The free slots of all instances, in the order of use: slot 0 of every instance, then slot 1, …
pub(super) struct FreeSlots {
    per_instance: u32,
    /// First slot never used, by instance; `None` if there is no such instance.
    fresh: Vec<Option<u32>>,
    instances: usize,
    /// (slot, instance): returned slots, and the first unused one of each instance.
    free: BinaryHeap<Reverse<(u32, u32)>>,
    /// Instances whose slots are not used now.
    down: BTreeSet<u32>,
    /// Free slots of those instances.
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
        // Without this check, the loop would visit all returned slots.
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

    /// Stops using slots of this instance. Those in use still return with [`give`](Self::give).
    pub fn down(&mut self, instance: u32) {
        if self.has(instance) {
            self.down.insert(instance);
        }
    }

    /// Uses its slots again.
    pub fn up(&mut self, instance: u32) {
        if self.down.remove(&instance) {
            let (back, aside) = std::mem::take(&mut self.aside).into_iter().partition(|&(_, of)| of == instance);
            self.aside = aside;
            let back: Vec<_> = back;
            self.free.extend(back.into_iter().map(Reverse));
        }
    }

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

    /// Removes an instance of which no slot is in use.
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
    fn the_lowest_slot_over_all_instances_is_used_first() {
        let mut free = FreeSlots::new(2, 2);
        let take = |free: &mut FreeSlots| free.take().map(|s| (s.instance, s.slot));
        assert_eq!([(); 5].map(|()| take(&mut free)), [Some((0, 0)), Some((1, 0)), Some((0, 1)), Some((1, 1)), None]);
        free.give(SlotId { instance: 0, slot: 1 });
        free.give(SlotId { instance: 1, slot: 0 });
        assert_eq!([(); 3].map(|()| take(&mut free)), [Some((1, 0)), Some((0, 1)), None]);
    }

    #[test]
    fn slots_of_a_down_instance_are_used_after_it_is_up() {
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
        // With all instances down, a very large number of slots is not visited.
        let mut free = FreeSlots::new(2, u32::MAX);
        free.down(0);
        free.down(1);
        assert_eq!(free.take(), None);
    }

    #[test]
    fn unused_slots_take_no_memory() {
        let mut free = FreeSlots::new(4096, u32::MAX);
        assert_eq!(free.take(), Some(SlotId { instance: 0, slot: 0 }));
        assert_eq!(free.free.capacity(), 4096);
    }

    #[test]
    fn slots_follow_added_and_removed_instances() {
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
