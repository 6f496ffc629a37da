//! The oldest strategy: a dynamic batcher per instance, in which each slot has at most one request (5.5).

use super::inside::Inside;
use super::scheduler::{Choice, SequenceLocation, SequenceScheduler};
use super::slots::SlotId;
use super::{Row, Run};
use crate::batcher::Batcher;
use crate::{NextBatch, Waiting};

impl<T: Waiting> SequenceScheduler<T> {
    pub(super) fn step_oldest(&mut self, now: u64, instance: u32) -> Choice<T> {
        loop {
            let Self { instances, profile, .. } = self;
            let Some(batcher) = instances.get_mut(instance as usize).and_then(|i| i.batcher.as_mut()) else {
                return Choice::Nothing;
            };
            let mut dropped = Vec::new();
            let step = batcher.step(now, 1, profile, &mut dropped);
            if matches!(step, NextBatch::Run { .. }) {
                // The instance is busy from now on: the batcher learns from that when clients send again.
                batcher.step(now, 0, profile, &mut dropped);
            }
            let changed = !dropped.is_empty();
            dropped.into_iter().for_each(|(_, Inside(request))| self.lost(now, request));
            match step {
                NextBatch::Run { batch, why } => {
                    self.len -= batch.len();
                    let row =
                        |Inside(request): Inside<T>| Row { slot: request.origin.slot.slot, request: Some(request) };
                    return Choice::Run(Run { instance, why, rows: batch.into_iter().map(row).collect() });
                }
                // Slots of cancelled requests may have fed others into the batcher.
                _ if changed => {}
                NextBatch::SleepUntil(at) => return Choice::WaitUntil(at),
                NextBatch::Idle => return Choice::Nothing,
            }
        }
    }

    /// Moves the first request of a slot into the batcher, unless one of the slot is inside already.
    pub(super) fn feed(&mut self, now: u64, at: SlotId) {
        if self.batcher(at.instance).is_none() || self.slot(at).is_none_or(|slot| slot.inside) {
            return;
        }
        if self.sequence(SequenceLocation::Slot(at)).is_some_and(|s| s.is_broken()) {
            self.purge(SequenceLocation::Slot(at));
        }
        let Some(request) = self.hand_out(at) else { return };
        if let Some(slot) = self.slot(at) {
            slot.inside = true;
        }
        let Some(batcher) = self.batcher(at.instance) else { return };
        if let Err((_, Inside(request))) = batcher.push(now, 0, 0, Inside(request)) {
            // The batcher has no queue limit.
            debug_assert!(false, "a batcher of sequences is full");
            self.lost(now, request);
        }
    }

    pub(super) fn remove_cancelled_inside(&mut self, now: u64, instance: u32) {
        let mut dropped = Vec::new();
        if let Some(batcher) = self.batcher(instance) {
            batcher.remove_cancelled(&mut dropped);
        }
        dropped.into_iter().for_each(|(_, Inside(request))| self.lost(now, request));
    }

    fn batcher(&mut self, instance: u32) -> Option<&mut Batcher<Inside<T>>> {
        self.instances.get_mut(instance as usize)?.batcher.as_mut()
    }
}
