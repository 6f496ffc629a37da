//! Accepted requests that have not been answered. Each gets its response, even after a panic.

use crate::answer::{Delivery, EngineResponse, Sink};
use crate::batch_key::{Key, Lengths};
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
    /// `None` once it has its last response, or if another owner sends that, or none does.
    pub(crate) sink: Option<Arc<dyn Sink>>,
    /// Set in a request of an iterative sequence that runs again: receives its responses instead of the sink.
    pub(crate) streaming: Option<Arc<Streaming>>,
    /// True while it counts as waiting.
    pub(crate) waits: bool,
    pub(crate) ticket: Arc<TicketState>,
    pub(crate) key: Key,
    pub(crate) class: u64,
    /// Lengths of dimensions that may be padded, which the key then leaves out.
    pub(crate) lengths: Lengths,
    /// When it was accepted (point A of docs/spec/observability.md), in ns.
    pub(crate) accepted: u64,
    /// Position in the response order, if the model keeps it.
    pub(crate) place: u64,
    /// Slot and row chosen by the sequence scheduler.
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
        // On a thread of its own, because this one may hold the lock of the version, and may be unwinding.
        if std::thread::Builder::new().name("nereid-defect".into()).spawn(answer).is_err() {
            log::error!("a request whose handling panicked could not be answered in its turn");
            let text = "a request was dropped without an answer; this is a defect of the server, please report it";
            let _ = catch_unwind(AssertUnwindSafe(|| spare.put(failed(Error::internal(text)))));
        }
    }
}

impl Pending {
    /// Like `drop`, for a request that was executed before.
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

/// Releases the count of waiting requests and the sequence slot of a request whose handling panicked.
fn let_go(version: &ModelVersion, waits: bool, origin: Option<Origin>) {
    if waits {
        version.running.pending.fetch_sub(1, Ordering::Relaxed);
    }
    if let Some(origin) = origin {
        version.release_row(origin);
    }
}

fn failed(error: Error) -> EngineResponse {
    EngineResponse::only(Err(error))
}

/// A request in the form that the scheduler owns.
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
