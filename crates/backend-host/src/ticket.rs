//! Requests that were not answered: what it takes to answer them, which outlives the object that a library holds.

use crate::abi::instance::Instance;
use crate::answer::{Answer, Output};
use crate::link::{Link, Way, short_frame};
use frames::generated::{Frame, INLINE_BYTES_MAX, Report, ReportKind, RespondHead};
use frames::{InstanceId, RequestRef, write};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::ptr::null_mut;
use std::sync::Arc;
use std::thread::ThreadId;
use tensor::Error;

/// A slot that no request has.
const NO_SLOT: u32 = u32::MAX;

/// Frames of statistics that go out with the result of the batch.
type Reports = Option<Vec<u8>>;

thread_local! {
    /// Reports of the batch that this thread executes; `None` while it executes none.
    static REPORTS: RefCell<Reports> = const { RefCell::new(None) };
    /// The request that this thread works for, if its batch has only one.
    static ONLY: Cell<(u32, u32)> = const { Cell::new((NO_SLOT, 0)) };
}

/// Slot and generation of the request that a call from this thread is made for.
pub(crate) fn parent_of_this_thread() -> (u32, u32) {
    ONLY.get()
}

/// Notes the requests that this thread executes from now on.
pub(crate) fn work_for(requests: &[Arc<Ticket>]) {
    ONLY.set(match requests {
        [only] => (only.slot, only.generation),
        _ => (NO_SLOT, 0),
    });
    REPORTS.set(Some(Vec::new()));
}

/// The thread executes nothing any more. Returns the frames to send before the result.
pub(crate) fn work_is_done() -> Vec<u8> {
    ONLY.set((NO_SLOT, 0));
    REPORTS.take().unwrap_or_default()
}

/// Sends statistics: with the result if this thread executes a batch, otherwise at once.
pub(crate) fn report(link: &Link, kind: ReportKind, of: Report) {
    let frame = short_frame(Frame::Report, |to| Report { kind: kind as u8, ..of }.write(to));
    let is_kept =
        REPORTS.with_borrow_mut(|reports| reports.as_mut().map(|reports| reports.extend_from_slice(&frame)).is_some());
    if !is_kept {
        link.send(Way::Side, &frame);
    }
}

/// The part of a request that it takes to answer it.
pub(crate) struct Ticket {
    pub(crate) instance: Arc<Instance>,
    slot: u32,
    generation: u32,
    /// The client's id, or what stands for it in errors.
    id: String,
    progress: Mutex<Progress>,
    /// New values of states.
    #[expect(clippy::vec_box, reason = "libraries hold the addresses of states")]
    states: Mutex<Vec<Box<State>>>,
}

#[derive(Default)]
struct Progress {
    /// The thread that executes the batch. A response that it completes is sent with the batch's result.
    executing: Option<ThreadId>,
    response: Response,
    library: Access,
    /// The request is to run again.
    is_rescheduled: bool,
    /// Responses whose times were reported.
    reported: u32,
}

/// The last response, or what came before it.
#[derive(Default)]
enum Response {
    #[default]
    Awaited,
    /// The response of a model that is not decoupled, until the request is ended.
    Held(Answer),
    /// A response was sent on its own: all others must be, too.
    Streamed,
    /// The last one, until the batch's result is sent.
    Complete(Answer),
    Ended,
}

/// How the library can still answer the request.
#[derive(Default, PartialEq, Eq)]
enum Access {
    #[default]
    Request,
    /// Responses may follow the release of the request.
    Factory,
    Released,
}

impl Ticket {
    /// For a request of a batch that this thread executes.
    pub(crate) fn new(instance: &Arc<Instance>, from: &RequestRef<'_>) -> Arc<Self> {
        let progress = Progress { executing: Some(std::thread::current().id()), ..Progress::default() };
        Arc::new(Self {
            instance: Arc::clone(instance),
            slot: from.head.slot,
            generation: from.head.generation,
            id: if from.id.is_empty() { "<id_unknown>" } else { from.id }.to_owned(),
            progress: Mutex::new(progress),
            states: Mutex::default(),
        })
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.instance.link.flags.is_cancelled(self.slot, self.generation)
    }

    /// A report about the request, without its times.
    pub(crate) fn report(&self) -> Report {
        Report { slot: self.slot, generation: self.generation, ..Report::default() }
    }

    /// Index of the next response whose times are reported.
    pub(crate) fn next_reported(&self) -> u32 {
        let mut progress = self.progress.lock();
        progress.reported += 1;
        progress.reported - 1
    }

    /// An error about the request, as Triton prints it.
    pub(crate) fn error(&self, text: impl std::fmt::Display) -> Error {
        Error::invalid(format!("[request id: {}] {text}", self.id))
    }

    /// The new value of a state, made by `new` the first time.
    pub(crate) fn state(self: &Arc<Self>, name: &str, new: impl FnOnce(&Arc<Self>) -> State) -> *mut State {
        let mut states = self.states.lock();
        let at = states.iter().position(|state| state.output.name() == name).unwrap_or(states.len());
        if at == states.len() {
            states.push(Box::new(new(self)));
        }
        states.get_mut(at).map_or(null_mut(), |state| &raw mut **state)
    }

    /// The states that the request sets, to be sent with its last response. The objects stay, for the library may still
    /// have them; their buffers are copied.
    fn updated(&self) -> Vec<Output> {
        let states = self.states.lock();
        states.iter().filter(|state| state.is_updated).filter_map(|state| state.output.copy()).collect()
    }

    /// The request is to run again, once its batch has ended.
    pub(crate) fn reschedule(&self) {
        self.progress.lock().is_rescheduled = true;
    }

    /// Sends a response, or keeps it for the batch's result. After the last one, others are dropped.
    pub(crate) fn answer(&self, mut answer: Answer) {
        let mut progress = self.progress.lock();
        let (held, is_streamed) = match std::mem::replace(&mut progress.response, Response::Ended) {
            Response::Awaited => (None, false),
            Response::Held(held) => (Some(held), false),
            Response::Streamed => (None, true),
            over => return progress.response = over,
        };
        if !self.instance.model.signature().is_decoupled {
            // The engine takes one response: it waits for the flag that ends the request.
            match (answer.is_final(), answer.is_none(), held) {
                (true, true, Some(held)) => answer = held.ended(),
                (false, false, None) => return progress.response = Response::Held(answer),
                (_, false, Some(_)) => {
                    answer = Answer::error(&Error::internal("expected a single response, got 2")).ended();
                }
                _ => {}
            }
        }
        let is_executing = progress.executing == Some(std::thread::current().id());
        if !answer.is_final() {
            progress.response = Response::Streamed;
        } else if !answer.is_none() && is_executing && !is_streamed {
            return progress.response = Response::Complete(answer);
        }
        drop(progress);
        let is_final = answer.is_final();
        if is_final {
            answer = self.with_states(answer);
        }
        let mut frame = Vec::new();
        let writing = write::begin(&mut frame, InstanceId::ONLY, Frame::Respond);
        RespondHead { slot: self.slot, generation: self.generation }.write(&mut frame);
        let mut room = INLINE_BYTES_MAX as usize;
        let blocks = answer.write(&mut frame, &mut room, &self.instance.link.segments);
        if writing.end(&mut frame).is_ok() {
            self.instance.link.send(Way::Side, &frame);
            blocks.into_iter().for_each(crate::segments::Allocated::sent);
        } else if is_final {
            self.progress.lock().response = Response::Streamed;
            self.answer(Answer::failed(&too_long()));
        }
    }

    /// The response that goes with the batch's result. `failed` is the error of the whole batch.
    pub(crate) fn result(&self, failed: Option<&Error>) -> Answer {
        let mut progress = self.progress.lock();
        progress.executing = None;
        let is_rescheduled = std::mem::take(&mut progress.is_rescheduled);
        match (std::mem::replace(&mut progress.response, Response::Ended), failed) {
            (Response::Complete(answer), _) => return self.with_states(answer),
            (Response::Awaited | Response::Held(_), Some(error)) => return Answer::failed(error),
            (Response::Ended, _) => {}
            _ if is_rescheduled => return self.with_states(Answer::rescheduled()),
            (response, _) => progress.response = response,
        }
        drop(progress);
        if let Some(error) = failed {
            self.answer(Answer::failed(error));
        }
        self.end_if_abandoned();
        Answer::none()
    }

    /// A last answer with the states that the request sets.
    fn with_states(&self, mut answer: Answer) -> Answer {
        answer.add(self.updated());
        answer
    }

    /// The library made a factory.
    pub(crate) fn has_factory(&self) {
        self.progress.lock().library = Access::Factory;
    }

    /// The library released the request.
    pub(crate) fn released(&self) {
        let mut progress = self.progress.lock();
        if progress.library == Access::Request {
            progress.library = Access::Released;
        }
        drop(progress);
        self.end_if_abandoned();
    }

    /// Ends a request that was released before its last response: others may follow only from a factory, even if the
    /// library has made one and never sends it. While it executes the batch, the order of its calls does not count.
    fn end_if_abandoned(&self) {
        let progress = self.progress.lock();
        let is_abandoned = progress.library == Access::Released && progress.executing.is_none();
        drop(progress);
        if is_abandoned {
            self.end();
        }
    }

    /// Ends a request that the library cannot answer any more: Triton's client would wait for ever.
    fn end(&self) {
        let mut progress = self.progress.lock();
        let last = match std::mem::replace(&mut progress.response, Response::Streamed) {
            Response::Held(held) => held.ended(),
            Response::Awaited | Response::Streamed => {
                let what = "the backend released the request and everything of it without a final response";
                Answer::failed(&Error::internal(what))
            }
            over => return progress.response = over,
        };
        drop(progress);
        self.answer(last);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.end();
    }
}

/// Error of a response that is too long for a frame.
pub(crate) fn too_long() -> Error {
    Error::internal("the response is too long")
}

/// A new value of a state; owned by its ticket.
pub(crate) struct State {
    pub(crate) output: Output,
    /// The value becomes the current one when the request ends.
    pub(crate) is_updated: bool,
    /// The current value, if the state is written where it is read.
    pub(crate) current: Option<Vec<u8>>,
}
