//! Runs a batch of sequences: its rows in the order of their slots, null ones between them.

use super::{Nulls, Row, Sequencing};
use crate::answer::{Answer, Delivery};
use crate::execution::Ran;
use crate::mail::together;
use crate::pending::{Queued, Requests};
use crate::statistics::Executed;
use crate::traced;
use crate::version::ModelVersion;
use backend::{BatchEntry, RunControl, now_ns};
use scheduler::Waiting;
use scheduler::sequence::Origin;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

/// Gives rows back to the schedule when their requests are over, whatever panics.
struct Releases<'v> {
    version: &'v ModelVersion,
    origins: Vec<Origin>,
}

impl Drop for Releases<'_> {
    fn drop(&mut self) {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let now = now_ns();
            let mut run = self.version.run.lock();
            self.origins.drain(..).for_each(|origin| run.schedule.released(now, origin));
        }));
    }
}

/// A row with what it runs on.
struct Filled {
    row: Row,
    entry: BatchEntry,
    /// Indices of the outputs its client asked for.
    wanted: Vec<u16>,
}

impl ModelVersion {
    /// Runs a batch and answers its requests. Requests without a row, those of a warm-up, are sequences of their own.
    pub(crate) fn execute_sequences(
        &self,
        sequencing: &Sequencing,
        instance: u32,
        mut requests: Requests,
        control: &RunControl,
    ) -> Ran {
        let class = requests.first().map_or(0, Waiting::class);
        let kind = self.kind_of(&requests);
        let start = now_ns();
        self.pending.fetch_sub(requests.len() as u64, Ordering::Relaxed);
        let mut filled: Vec<Filled> = requests.iter_mut().map(|q| sequencing.filled(q)).collect();
        let origins = filled.iter_mut().filter_map(|f| f.row.origin.take()).collect();
        let releases = Releases { version: self, origins };

        // Where each request's row stands.
        let (mut entries, mut places) = (Vec::with_capacity(filled.len()), Vec::with_capacity(filled.len()));
        let rows = filled.iter().map(|f| f.row.rows).max().unwrap_or(0).max(filled.len());
        let nulls = filled.first().filter(|f| f.row.rows > filled.len()).map(|f| sequencing.nulls(&f.entry));
        let fill_to = |entries: &mut Vec<BatchEntry>, end: usize| {
            while let Some(nulls) = nulls.as_ref().filter(|_| entries.len() < end) {
                entries.push(sequencing.null_row(nulls));
            }
        };
        for f in &mut filled {
            if sequencing.rows_are_slots {
                fill_to(&mut entries, f.row.slot.map_or(0, |slot| slot.slot as usize));
            }
            if let Err(e) = sequencing.prepare(&mut f.entry, &f.row) {
                f.entry.result = Some(Err(e));
            }
            places.push(entries.len());
            entries.push(std::mem::take(&mut f.entry));
        }
        fill_to(&mut entries, rows);
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
        // The slots are free before the clients hear of it: they may go on at once.
        drop(releases);
        self.statistics.executed_beside(
            null_rows,
            &timings,
            filled.iter().zip(&requests).map(|(f, q)| Executed::of(&f.entry, q.0.accepted)),
        );
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        let mut filled = filled.into_iter();
        together(|| {
            for Queued(mut p) in requests {
                let Some(mut f) = filled.next() else { continue };
                let result = self.answer(&mut f.entry);
                p.ticket.tell_spent(timings.phases());
                let result = p.ticket.settle().map_or(result, Err);
                if let Some(trace) = f.entry.request.trace.take() {
                    traced::ran_and_answered(&trace, &timings, &result);
                }
                if let Some(sink) = p.sink.take() {
                    self.deliver(p.place, Delivery { sink, answer: Answer::only(result) });
                }
            }
        });
        let duration = if any { timings.end.saturating_sub(start).max(1) } else { 0 };
        Ran { class, kind, rows, padded_bytes: 0, inline: None, end: timings.end, duration }
    }
}

impl Sequencing {
    /// A row without a request.
    fn null_row(&self, nulls: &Nulls) -> BatchEntry {
        let mut entry = nulls.entry();
        let row = Row { slot: None, rows: 0, id: None, start: false, end: false, origin: None };
        if let Err(e) = self.prepare(&mut entry, &row) {
            entry.result = Some(Err(e));
        }
        entry
    }

    fn filled(&self, queued: &mut Queued) -> Filled {
        let pending = &mut queued.0;
        pending.waits = false;
        let id = || super::head(&pending.entry.request).id;
        let row = pending.row.take().unwrap_or_else(|| Row {
            slot: None,
            rows: 1,
            id: Some(id()),
            start: true,
            end: true,
            origin: None,
        });
        let entry = std::mem::take(&mut pending.entry);
        let wanted = entry.checked.outputs.iter().map(|(index, _)| *index).collect();
        Filled { row, entry, wanted }
    }
}
