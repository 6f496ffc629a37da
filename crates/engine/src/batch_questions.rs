//! Questions to the batching library of a version: which requests join the batch that forms.
//!
//! Triton asks about each request while it forms a batch. Here the batch that forms is sent whole, by a pool thread,
//! whenever a request waits behind it that was not asked about, also while all instances are busy; until the answer the
//! batch waits ([`Waiting::is_decided`]). A request that runs at once is not asked about. There is one question at a
//! time. If the process of the library ends, only the first request of the question joins.

use crate::batching_library::SHOWN_BYTES_MAX;
use crate::pending::Queued;
use crate::serving_state::Dispatch;
use crate::ticket::TicketState;
use crate::version::{ModelVersion, Work};
use backend::{Answers, BatchEntry, Outcome, Responder, now_ns, shape};
use protocol::{InferRequest, Signature};
use scheduler::Waiting;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tensor::{Data, DataType, Error, Result};

/// A question that is being answered. Its drop is the end of it.
struct Question {
    version: Arc<ModelVersion>,
    tickets: Vec<Arc<TicketState>>,
    /// Requests that join, by index.
    joined: Vec<AtomicBool>,
}

impl ModelVersion {
    /// Asks the library about requests that no batch may take yet. The caller has nothing else to start.
    pub(crate) fn ask_library(&self, dispatch: &Dispatch) {
        let Some(library) = &self.batching else { return };
        let mut tickets = forming(dispatch, library.requests_max).skip(1).map(|queued| &queued.0.ticket);
        let first = tickets.find(|of| of.undecided.load(Ordering::Relaxed) || of.begins.load(Ordering::Relaxed));
        let is_open = first.is_some_and(|of| of.undecided.load(Ordering::Relaxed));
        if !is_open || library.is_asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let question: Vec<_> = forming(dispatch, library.requests_max)
            .map(|queued| (copy_of(&queued.0.entry, &self.signature), queued.0.ticket.clone()))
            .collect();
        let me = self.me.clone();
        self.shared.pool.submit(Work::of(move || {
            if let Some(version) = me.upgrade() {
                ask(version, question);
            }
        }));
    }

    /// A batch was taken: the library is asked anew about those behind it, which form another one.
    pub(crate) fn batch_was_taken(&self, dispatch: &Dispatch) {
        if let Some(library) = &self.batching {
            for queued in forming(dispatch, library.requests_max) {
                queued.0.ticket.begins.store(false, Ordering::Relaxed);
                queued.0.ticket.undecided.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// The first requests of the batch that forms, and of those behind it.
fn forming(dispatch: &Dispatch, most: usize) -> impl Iterator<Item = &Queued> {
    dispatch.schedule.forming().filter(|queued| !queued.is_cancelled()).take(most)
}

fn ask(version: Arc<ModelVersion>, question: Vec<(BatchEntry, Arc<TicketState>)>) {
    let (mut entries, tickets): (Vec<_>, Vec<_>) = question.into_iter().unzip();
    let joined = tickets.iter().map(|_| AtomicBool::new(false)).collect();
    let question = Arc::new(Question { version, tickets, joined });
    for (at, entry) in entries.iter_mut().enumerate() {
        entry.responder = Some(Responder::new(Arc::new(Answer { question: Arc::clone(&question), at })));
    }
    if let Some(library) = &question.version.batching {
        library.ask(&mut entries);
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let Some(library) = &self.version.batching else { return };
        let dispatch = self.version.serving.dispatch.lock();
        library.is_asking.store(false, Ordering::Release);
        // Otherwise the batch was taken meanwhile, and another one forms.
        let is_same = forming(&dispatch, 1)
            .next()
            .is_some_and(|first| self.tickets.first().is_some_and(|asked| Arc::ptr_eq(asked, &first.0.ticket)));
        if is_same {
            for (ticket, joins) in self.tickets.iter().zip(&self.joined).skip(1) {
                let begins = !joins.load(Ordering::Relaxed);
                ticket.begins.store(begins, Ordering::Relaxed);
                ticket.undecided.store(false, Ordering::Relaxed);
                if begins {
                    break;
                }
            }
        }
        self.version.pump(dispatch, now_ns());
    }
}

/// A copy of a request for the library, without the contents of large inputs, whose shapes get a last dimension of 0
/// instead. Strings stay: their size follows from nothing else.
fn copy_of(entry: &BatchEntry, signature: &Signature) -> BatchEntry {
    let mut request = Box::new(InferRequest { trace: None, ..InferRequest::clone(&entry.request) });
    for (input, index) in request.inputs.iter_mut().zip(&entry.checked.inputs) {
        if let Some(spec) = signature.inputs.get(usize::from(*index)) {
            input.shape = shape::to_model(&spec.dims, spec.reshape.as_ref(), &input.shape, signature.batches());
        }
        if input.data.len() > SHOWN_BYTES_MAX && input.datatype != Some(DataType::Bytes) {
            input.data = Data::empty();
        }
        if input.data.is_empty() {
            input.shape.push(0);
        }
    }
    request.outputs.iter_mut().for_each(|output| output.region = None);
    BatchEntry::new(request, entry.checked.clone())
}

/// The answer to one request of a question.
struct Answer {
    question: Arc<Question>,
    at: usize,
}

impl Answers for Answer {
    fn finish(&self, last: Option<Result<Outcome>>) {
        if let (Some(Ok(_)), Some(joined)) = (last, self.question.joined.get(self.at)) {
            joined.store(true, Ordering::Relaxed);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.question.tickets.get(self.at).is_none_or(|ticket| ticket.is_cancelled())
    }

    fn send(&self, _: Outcome) -> Result<(), backend::Stopped> {
        Ok(())
    }
    fn fail(&self, _: Error) {}
    fn skip(&self) {}
    fn output_begins(&self) {}
    fn count_as(&self, _: backend::Counted) {}
    fn again(&self, _: BatchEntry, _: Option<Outcome>) {}
    fn put_back(&self, _: BatchEntry) {}
    fn abandon(&self) {}
    fn on_cancel(&self, _: Box<dyn FnOnce() + Send>) {}
}
