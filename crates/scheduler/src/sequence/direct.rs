//! The direct strategy: row i of every batch of an instance is its slot i (5.4).

use super::delay::Delay;
use super::scheduler::{Choice, SequenceLocation, SequenceScheduler};
use super::slots::SlotId;
use super::{Row, Run};
use crate::Waiting;

impl<T: Waiting> SequenceScheduler<T> {
    pub(super) fn step_direct(&mut self, now: u64, instance: u32, delay: Delay) -> Choice<T> {
        let Some(slots) = self.instances.get(instance as usize).filter(|i| i.queued > 0).map(|i| i.slots.len() as u32)
        else {
            return Choice::Nothing;
        };
        let (mut ready, mut oldest, mut end) = (0, u64::MAX, 0);
        for slot in 0..slots {
            let at = SlotId { instance, slot };
            if self.sequence(SequenceLocation::Slot(at)).is_some_and(|s| s.is_broken()) {
                self.purge(SequenceLocation::Slot(at));
                self.move_on(now, at);
            }
            if let Some(arrived) = self.ready_since(at) {
                // Slots that will not fit with the first one count too (measured in Triton).
                ready += 1;
                oldest = oldest.min(arrived);
                end = slot + 1;
            }
        }
        if ready == 0 {
            return Choice::Nothing;
        }
        let why = match delay.decide(now, oldest, ready) {
            Ok(why) => why,
            Err(until) => return Choice::WaitUntil(until),
        };
        let watched = self.left.forgotten.as_ref().map_or(0, Vec::len);
        let mut rows: Vec<Row<T>> = Vec::with_capacity(end as usize);
        let mut first = None;
        for slot in 0..end {
            let at = SlotId { instance, slot };
            let opened = first.and_then(|row: usize| rows.get(row)).and_then(|row| row.request.as_ref());
            let joins = self.ready_since(at).is_some()
                && self
                    .sequence(SequenceLocation::Slot(at))
                    .and_then(|s| s.queue.front())
                    .is_some_and(|head| opened.is_none_or(|first| head.item.fits_with(&first.item)));
            let request = if joins { self.hand_out(at) } else { None };
            if request.is_some() {
                first = first.or(Some(rows.len()));
                self.len -= 1;
                self.move_on(now, at);
            }
            rows.push(Row { slot, request });
        }
        // A sequence may be forgotten while its last request waits behind one that runs; that one keeps its state.
        if let Some(all) = &mut self.left.forgotten {
            self.left.leaving.extend(all.drain(watched..));
        }
        Choice::Run(Run { instance, why, rows })
    }

    /// Arrival of the request that the slot could run now.
    fn ready_since(&mut self, at: SlotId) -> Option<u64> {
        // In an iterative sequence the request that runs may return, and comes first.
        let sequence = self.sequence(SequenceLocation::Slot(at)).filter(|s| s.out == 0)?;
        sequence.queue.front().map(|q| q.arrived)
    }
}
