//! Questions to the batching library of a version: which requests join the batch that forms.
//!
//! Triton asks about each request while it forms a batch. Here the batch that forms is sent whole, by a pool thread,
//! whenever a request waits behind it that was not asked about, also while all instances are busy. Until the answer,
//! that request is [`Verdict::Undecided`], and the batch waits. A request
//! that runs at once is not asked about.
//!
//! One question at a time; the library sees it as one batch. An error of the library or the end of its process excludes
//! the request.

use crate::batching_library::SHOWN_BYTES_MAX;
use crate::pending::Queued;
use crate::running::Run;
use crate::ticket::{TicketState, Verdict};
use crate::version::{ModelVersion, Work};
use backend::{Answers, Batch, BatchEntry, LetGo, Marks, Occupancy, Occupied, Outcome, Responder, now_ns, shape};
use parking_lot::Mutex;
use protocol::{InferRequest, InputTensor, RequestedOutput, Signature};
use scheduler::Waiting;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tensor::{Code, Data, DataType, Error, Result};

/// A question that is being answered. Its drop is the end of it.
struct Question {
    version: Arc<ModelVersion>,
    tickets: Vec<Arc<TicketState>>,
    /// Requests that join, by index.
    joined: Vec<AtomicBool>,
    error: Mutex<Option<Error>>,
}

impl ModelVersion {
    /// Asks the library about requests that no batch may take yet. The caller has nothing else to start.
    pub(crate) fn ask_library(&self, run: &Run) {
        let Some(library) = &self.batching else { return };
        let is_open = forming(run, library.requests_max)
            .skip(1)
            .map(|queued| queued.0.ticket.verdict())
            .find(|verdict| *verdict != Verdict::Joins);
        if is_open != Some(Verdict::Undecided) || library.is_asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let question: Vec<_> = forming(run, library.requests_max)
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
    pub(crate) fn batch_was_taken(&self, run: &Run) {
        if let Some(library) = &self.batching {
            forming(run, library.requests_max).for_each(|queued| queued.0.ticket.decide(Verdict::Undecided));
        }
    }
}

/// The first requests of the batch that forms, and of those behind it.
fn forming(run: &Run, most: usize) -> impl Iterator<Item = &Queued> {
    run.schedule.forming().filter(|queued| !queued.is_cancelled()).take(most)
}

fn ask(version: Arc<ModelVersion>, question: Vec<(BatchEntry, Arc<TicketState>)>) {
    let (mut entries, tickets): (Vec<_>, Vec<_>) = question.into_iter().unzip();
    let joined = tickets.iter().map(|_| AtomicBool::new(false)).collect();
    let question = Arc::new(Question { version, tickets, joined, error: Mutex::default() });
    for (at, entry) in entries.iter_mut().enumerate() {
        entry.responder = Some(Responder::new(Arc::new(Answer { question: Arc::clone(&question), at })));
    }
    let occupied = Some(Occupied::new(Box::new(Open(Arc::clone(&question)))));
    if let Some(library) = &question.version.batching {
        library.ask(&mut Batch { requests: &mut entries, occupied });
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let Some(library) = &self.version.batching else { return };
        library.answered(self.error.get_mut().take(), &self.version.signature.model);
        let run = self.version.running.run.lock();
        library.is_asking.store(false, Ordering::Release);
        // Otherwise the batch was taken meanwhile, and another one forms.
        let is_same = forming(&run, 1).next().is_some_and(|first| {
            self.tickets.first().is_some_and(|asked| Arc::ptr_eq(asked, &first.0.ticket))
        });
        if is_same {
            for (ticket, joins) in self.tickets.iter().zip(&self.joined).skip(1) {
                let verdict = if joins.load(Ordering::Relaxed) { Verdict::Joins } else { Verdict::Begins };
                ticket.decide(verdict);
                if verdict == Verdict::Begins {
                    break;
                }
            }
        }
        self.version.pump(run, now_ns());
    }
}

/// A copy of a request for the library, without the contents of large inputs, whose shapes get a last dimension of 0
/// instead. Strings stay: their size follows from nothing else.
fn copy_of(entry: &BatchEntry, signature: &Signature) -> BatchEntry {
    let of = &entry.request;
    let shown = |(at, input): (usize, &InputTensor)| {
        let spec = entry.checked.inputs.get(at).and_then(|index| signature.inputs.get(usize::from(*index)));
        let mut shape = spec.map_or_else(
            || input.shape.clone(),
            |spec| shape::to_model(&spec.dims, spec.reshape.as_ref(), &input.shape, signature.batches()),
        );
        let is_shown = input.data.len() <= SHOWN_BYTES_MAX || input.datatype == Some(DataType::Bytes);
        let data = if is_shown { input.data.clone() } else { Data::empty() };
        if data.is_empty() {
            shape.push(0);
        }
        InputTensor { name: input.name.clone(), datatype: input.datatype, shape, data }
    };
    let request = InferRequest {
        id: of.id.clone(),
        inputs: of.inputs.iter().enumerate().map(shown).collect(),
        outputs: of.outputs.iter().map(|output| RequestedOutput { region: None, ..output.clone() }).collect(),
        parameters: of.parameters.clone(),
        priority: of.priority,
        timeout_us: of.timeout_us,
        ..InferRequest::default()
    };
    BatchEntry::new(Box::new(request), entry.checked.clone())
}

/// The answer to one request of a question.
struct Answer {
    question: Arc<Question>,
    at: usize,
}

impl Answers for Answer {
    fn finish(&self, last: Option<Result<Outcome>>) {
        match last {
            Some(Err(error)) if error.code() != Code::Cancelled => *self.question.error.lock() = Some(error),
            Some(Err(_)) => {}
            _ => self.question.joined.get(self.at).into_iter().for_each(|joined| joined.store(true, Ordering::Relaxed)),
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

/// Keeps a question open while the library's instance is busy with it.
struct Open(#[allow(dead_code, reason = "dropping it is its use")] Arc<Question>);

impl Occupancy for Open {
    fn free(self: Box<Self>, _: Option<Marks>) {}
    fn let_go(&mut self) -> Option<LetGo> {
        None
    }
    fn waits(&self) {}
    fn leaves(&self) {}
    fn begins(&self, _: u64) {}
}
