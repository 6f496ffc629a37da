//! Runs batches of sequences: rows in the order of their slots, with null rows between them.

use super::{Nulls, Row, Sequencing};
use crate::execution_cost::ExecutionCost;
use crate::mail::together;
use crate::pending::{Queued, Requests, RunningRequest};
use crate::statistics::Executed;
use crate::times::Execution;
use crate::version::ModelVersion;
use backend::{Answers, BatchEntry, Counted, Outcome, Responder, RunControl, Stopped, now_ns};
use scheduler::Waiting;
use scheduler::cores::Plan;
use scheduler::sequence::Origin;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tensor::{Error, Result};

/// Returns rows to the scheduler when their requests are over, even after a panic.
struct Releases<'v> {
    version: &'v ModelVersion,
    origins: Vec<Origin>,
}

impl Drop for Releases<'_> {
    fn drop(&mut self) {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let now = now_ns();
            let mut dispatch = self.version.serving.dispatch.lock();
            if let Some(sequences) = dispatch.schedule.sequences_mut() {
                self.origins.drain(..).for_each(|origin| sequences.released(now, origin));
            }
        }));
    }
}

/// A row with its entry.
struct Filled {
    row: Row,
    entry: BatchEntry,
    /// Indices of the requested outputs.
    wanted: Vec<u16>,
}

impl ModelVersion {
    /// Runs a batch and responds to its requests. Requests without a row (warmup) are sequences of their own.
    pub(crate) fn execute_sequences(
        &self,
        sequencing: &Sequencing,
        instance: u32,
        mut requests: Requests,
        control: &RunControl,
    ) -> ExecutionCost {
        let class = requests.first().map_or(0, Waiting::class);
        let kind = self.scheduling.kind_of(&requests);
        let start = now_ns();
        self.serving.pending.fetch_sub(requests.len() as u64, Ordering::Relaxed);
        let mut filled: Vec<Filled> = requests.iter_mut().map(|q| sequencing.filled(q)).collect();
        let origins = filled.iter_mut().filter_map(|f| f.row.origin.take()).collect();
        let releases = Releases { version: self, origins };

        let rows = rows_of(&filled);
        let (mut entries, places) = sequencing.laid_out(&mut filled, rows);
        let null_rows = (entries.len() - places.len()) as u64;
        let timings = self.run_entries(instance, &mut entries, control, start);
        let mut any = false;
        for (f, &place) in filled.iter_mut().zip(&places) {
            if let Some(entry) = entries.get_mut(place) {
                sequencing.conclude(entry, &f.row, &f.wanted);
                any |= matches!(entry.result, Some(Ok(_)));
                f.entry = std::mem::take(entry);
            }
        }
        // Slots are free before the clients get their responses, because they may continue at once.
        drop(releases);
        self.statistics.executed_by(
            instance,
            (null_rows, 0),
            &timings,
            filled.iter().zip(&requests).map(|(f, q)| Executed::of(&f.entry, q.0.accepted)),
        );
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        let mut filled = filled.into_iter();
        together(|| {
            for Queued(mut p) in requests {
                let Some(mut f) = filled.next() else { continue };
                self.respond(&mut f.entry, &p.ticket, &mut p.sink, p.place, &timings, rows);
            }
        });
        let duration = if any { timings.end.saturating_sub(start).max(1) } else { 0 };
        ExecutionCost { class, kind, rows, tokens: 0, plan: Plan::None, inline: None, end: timings.end, duration }
    }
}

impl ModelVersion {
    /// Returns a row to the scheduler, and starts requests that may run now, perhaps the next of its sequence.
    pub(crate) fn release_row(&self, origin: Origin) {
        let now = now_ns();
        let mut dispatch = self.serving.dispatch.lock();
        if let Some(sequences) = dispatch.schedule.sequences_mut() {
            sequences.released(now, origin);
        }
        self.pump(dispatch, now);
    }

    /// The rows of a batch whose requests end later, with their responders.
    pub(crate) fn rows_with_responders(
        self: &Arc<Self>,
        sequencing: &Sequencing,
        requests: &mut Requests,
        execution: &Arc<Execution>,
        held_instance: Option<&Arc<dyn Send + Sync>>,
    ) -> Vec<BatchEntry> {
        let mut filled: Vec<Filled> = requests.iter_mut().map(|q| sequencing.filled(q)).collect();
        let rows = rows_of(&filled);
        let (mut entries, places) = sequencing.laid_out(&mut filled, rows);
        for ((f, place), q) in filled.into_iter().zip(places).zip(requests) {
            let Some(entry) = entries.get_mut(place) else { continue };
            let running = RunningRequest { row: f.row, wanted: f.wanted, held_instance: held_instance.cloned() };
            let responder = self.responder(&mut q.0, entry, execution, Some(running));
            match entry.result.take() {
                None => entry.responder = responder,
                // Its row could not be made, so the batch has a row without a request in its place.
                Some(failed) => {
                    if let Some(responder) = responder {
                        responder.finish(Some(failed));
                    }
                }
            }
        }
        for entry in entries.iter_mut().filter(|e| e.responder.is_none()) {
            entry.responder = Some(Responder::new(Arc::new(NullRowAnswers)));
        }
        entries
    }
}

/// Drops the responses of a row without a request.
struct NullRowAnswers;

impl Answers for NullRowAnswers {
    fn send(&self, _: Outcome) -> Result<(), Stopped> {
        Err(Stopped)
    }
    fn fail(&self, _: Error) {}
    fn skip(&self) {}
    fn output_begins(&self) {}
    fn count_as(&self, _: Counted) {}
    fn finish(&self, _: Option<Result<Outcome>>) {}
    fn again(&self, _: BatchEntry, _: Option<Outcome>) {}
    fn put_back(&self, _: BatchEntry) {}
    fn abandon(&self) {}
    fn on_cancel(&self, _: Box<dyn FnOnce() + Send>) {}
    fn is_cancelled(&self) -> bool {
        true
    }
}

/// Number of rows of a batch of these requests, including null rows.
fn rows_of(filled: &[Filled]) -> usize {
    filled.iter().map(|f| f.row.rows).max().unwrap_or(0).max(filled.len())
}

impl Sequencing {
    /// The entries of a batch, and the positions of its requests. One whose row could not be made has its result.
    fn laid_out(&self, filled: &mut [Filled], rows: usize) -> (Vec<BatchEntry>, Vec<usize>) {
        let (mut entries, mut places) = (Vec::with_capacity(rows), Vec::with_capacity(filled.len()));
        let nulls = filled.first().filter(|f| f.row.rows > filled.len()).map(|f| self.nulls(&f.entry));
        let fill_to = |entries: &mut Vec<BatchEntry>, end: usize| {
            while let Some(nulls) = nulls.as_ref().filter(|_| entries.len() < end) {
                entries.push(self.null_row(nulls));
            }
        };
        for f in filled {
            if self.rows_are_slots {
                fill_to(&mut entries, f.row.slot.map_or(0, |slot| slot.slot as usize));
            }
            if let Err(e) = self.prepare(&mut f.entry, &f.row) {
                f.entry.result = Some(Err(e));
            }
            places.push(entries.len());
            entries.push(std::mem::take(&mut f.entry));
        }
        fill_to(&mut entries, rows);
        (entries, places)
    }

    fn null_row(&self, nulls: &Nulls) -> BatchEntry {
        let mut entry = nulls.entry();
        if let Err(e) = self.prepare(&mut entry, &Row::default()) {
            entry.result = Some(Err(e));
        }
        entry
    }

    fn filled(&self, queued: &mut Queued) -> Filled {
        let pending = &mut queued.0;
        pending.waits = false;
        let id = || super::head(&pending.entry.request).id;
        let row = pending.row.take();
        let row = row.unwrap_or_else(|| Row { rows: 1, id: Some(id()), start: true, end: true, ..Row::default() });
        let entry = std::mem::take(&mut pending.entry);
        let wanted = entry.checked.outputs.iter().map(|(index, _)| *index).collect();
        Filled { row, entry, wanted }
    }
}
