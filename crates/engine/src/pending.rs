//! Accepted requests that have not been answered. Each gets its response, even after a panic.

use crate::answer::{EngineResponse, Sink};
use crate::batch_key::Key;
use crate::call::TextPart;
use crate::sequence::Row;
use crate::ticket::TicketState;
use crate::times::Execution;
use backend::{Answers, BatchEntry};
use scheduler::Waiting;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tensor::Error;

pub(crate) struct Pending {
    pub(crate) entry: BatchEntry,
    /// `None` once it has its last response, or if another owner sends that, or none does.
    pub(crate) sink: Option<Arc<dyn Sink>>,
    /// Set in a request that is executed again: receives its responses instead of the sink.
    pub(crate) streaming: Option<Arc<dyn RunsAgain>>,
    /// True while it counts as waiting.
    pub(crate) waits: bool,
    pub(crate) ticket: Arc<TicketState>,
    pub(crate) key: Key,
    pub(crate) class: u64,
    /// Set for a text of a request that was divided.
    pub(crate) text: Option<TextPart>,
    /// When it was accepted (point A of docs/spec/observability.md), in ns.
    pub(crate) accepted: u64,
    /// Position in the response order, if the model keeps it.
    pub(crate) place: u64,
    /// Slot and row chosen by the sequence scheduler.
    pub(crate) row: Option<Row>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let (sink, streaming) = (self.sink.take(), self.streaming.take());
        if sink.is_none() && streaming.is_none() {
            return;
        }
        if streaming.is_none() {
            self.ticket.settle();
        }
        let (ticket, place, waits, is_text) = (self.ticket.clone(), self.place, self.waits, self.text.is_some());
        let origin = self.row.take().and_then(|row| row.origin);
        let spare = sink.clone();
        let answer = move || {
            let version = ticket.version();
            let error = version.as_ref().map(|version| version.dropped(waits, origin));
            let error = error.unwrap_or_else(|| Error::unavailable("Server exiting"));
            match (streaming, sink, version) {
                (Some(streaming), ..) => streaming.finish(Some(Err(error))),
                (None, Some(sink), Some(version)) if !is_text => version.deliver(sink, failed(error).at(place)),
                (None, Some(sink), _) => sink.put(failed(error)),
                (None, None, _) => {}
            }
        };
        // On a thread of its own, because this one may hold the lock of the version, and may be unwinding.
        if std::thread::Builder::new().name("nereid-defect".into()).spawn(answer).is_err() {
            log::error!("a request whose handling panicked could not get its error in order");
            let Some(spare) = spare else { return };
            let text = "a request was dropped without a response; this is a defect of the server, please report it";
            let _ = catch_unwind(AssertUnwindSafe(|| spare.put(failed(Error::internal(text)))));
        }
    }
}

/// A request that is executed again, in the queue.
pub(crate) trait RunsAgain: Answers {
    /// Begins an execution.
    fn begin(&self, step: Execute);
}

/// One execution of a request: its only one, or a step of an iterative sequence.
pub(crate) struct Execute {
    pub(crate) execution: Arc<Execution>,
    /// When it was queued for this execution.
    pub(crate) accepted: u64,
    pub(crate) running: Option<RunningRequest>,
}

/// The row of a sequence in an execution.
pub(crate) struct RunningRequest {
    pub(crate) row: Row,
    /// Indices of the requested outputs.
    pub(crate) wanted: Vec<u16>,
    /// Keeps the instance of the batch busy until it is dropped.
    pub(crate) held_instance: Option<Arc<dyn Send + Sync>>,
}

fn failed(error: Error) -> EngineResponse {
    EngineResponse::only(Err(error))
}

/// A request in the form that the scheduler owns.
pub(crate) struct Queued(pub(crate) Box<Pending>);

impl Queued {
    /// Facts that are kept of the request when it begins to run.
    pub(crate) fn seen(&self) -> why::Arrived {
        let short = |number: u64| u16::try_from(number).unwrap_or(u16::MAX);
        why::Arrived {
            arrived: self.0.accepted,
            rows: short(self.rows().into()),
            class: (self.0.class ^ self.0.class >> 16 ^ self.0.class >> 32 ^ self.0.class >> 48) as u16,
            priority: short(self.0.entry.request.priority),
            tokens: short(self.tokens().into()),
        }
    }
}

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
        self.0.key == first.0.key && !self.0.ticket.begins.load(Ordering::Relaxed)
    }
    fn is_decided(&self) -> bool {
        !self.0.ticket.undecided.load(Ordering::Relaxed)
    }
    fn class(&self) -> u64 {
        self.0.class
    }
    fn tokens(&self) -> u32 {
        self.0.text.map_or(0, |text| text.tokens)
    }
    fn place_in_request(&self) -> u32 {
        self.0.text.map_or(0, |text| text.place)
    }
}
