//! A request that was accepted and not answered yet. Whatever panics, it gets its answer.

use crate::answer::{Answer, Delivery, Sink};
use crate::batch_key::Key;
use crate::padding::Lengths;
use crate::sequence::Row;
use crate::streaming::Streaming;
use crate::ticket::TicketState;
use crate::version::ModelVersion;
use backend::BatchEntry;
use scheduler::Waiting;
use scheduler::sequence::Origin;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tensor::Error;

pub(crate) struct Pending {
    pub(crate) entry: BatchEntry,
    /// `None` once it has its last answer, or another owner owes it that, or none does.
    pub(crate) sink: Option<Arc<dyn Sink>>,
    /// A request of an iterative sequence that runs again: what answers it instead of the sink.
    pub(crate) streaming: Option<Arc<Streaming>>,
    /// Counted as waiting.
    pub(crate) waits: bool,
    pub(crate) ticket: Arc<TicketState>,
    pub(crate) key: Key,
    pub(crate) class: u64,
    /// Of dimensions that may be padded; the key is then without them.
    pub(crate) lengths: Lengths,
    /// A.
    pub(crate) accepted: u64,
    /// Place in the line of a model that preserves order.
    pub(crate) place: u64,
    /// Where it runs, once the schedule of a sequence model said so.
    pub(crate) row: Option<Row>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(streaming) = self.streaming.take() {
            return self.drop_step(streaming);
        }
        let Some(sink) = self.sink.take() else { return };
        self.ticket.settle();
        let (ticket, place, waits) = (self.ticket.clone(), self.place, self.waits);
        let origin = self.row.take().and_then(|row| row.origin);
        let spare = sink.clone();
        let answer = move || {
            let Some(version) = ticket.version() else { return sink.put(failed(Error::unavailable("Server exiting"))) };
            let_go(&version, waits, origin);
            let answer = failed(version.defect());
            version.deliver(place, Delivery { sink, answer });
        };
        // On a thread of its own: this one may hold the lock of the version, and is perhaps unwinding.
        if std::thread::Builder::new().name("nereid-defect".into()).spawn(answer).is_err() {
            log::error!("a request whose handling panicked could not be answered in its turn");
            let text = "a request was dropped without an answer; this is a defect of the server, please report it";
            let _ = catch_unwind(AssertUnwindSafe(|| spare.put(failed(Error::internal(text)))));
        }
    }
}

impl Pending {
    /// As `drop`, of a request that was executed before.
    fn drop_step(&mut self, streaming: Arc<Streaming>) {
        let (ticket, waits) = (self.ticket.clone(), self.waits);
        let origin = self.row.take().and_then(|row| row.origin);
        let end = move || {
            let Some(version) = ticket.version() else { return };
            let_go(&version, waits, origin);
            streaming.end(Some(Err(version.defect())));
        };
        if std::thread::Builder::new().name("nereid-defect".into()).spawn(end).is_err() {
            log::error!("a request whose handling panicked could not be answered");
        }
    }
}

/// Gives back what a request held whose handling panicked: its count among those that wait, and the slot of its sequence.
fn let_go(version: &ModelVersion, waits: bool, origin: Option<Origin>) {
    if waits {
        version.running.pending.fetch_sub(1, Ordering::Relaxed);
    }
    if let Some(origin) = origin {
        version.release_row(origin);
    }
}

fn failed(error: Error) -> Answer {
    Answer::only(Err(error))
}

/// As the schedule has it.
pub(crate) struct Queued(pub(crate) Box<Pending>);

/// Requests that run together.
pub(crate) type Requests = SmallVec<[Queued; 1]>;

impl Waiting for Queued {
    fn rows(&self) -> u32 {
        self.0.entry.checked.rows.max(1)
    }
    fn is_cancelled(&self) -> bool {
        self.0.ticket.is_cancelled()
    }
    fn fits_with(&self, first: &Self) -> bool {
        self.0.key == first.0.key
    }
    fn class(&self) -> u64 {
        self.0.class
    }
    fn lengths(&self) -> &[u32] {
        &self.0.lengths
    }
}
