//! Requests of decoupled models and of iterative sequences: any number of responses, from any thread, and one end.
//!
//! An execution of such a model ends in two ways: `execute` returns, and the instance is free; and each of its requests
//! ends, then or later, through its `Responder`; a request whose responder the backend left ends with its result.
//!
//! One thread at a time delivers responses of a request, one at a time and outside the lock; other threads leave their
//! responses to it. So sinks see the order in which the backend sent them, and may make any call.
//!
//! A request of an iterative sequence may return to the scheduler instead of ending, and run again (S-25): each
//! execution is a step, counted like a request. Its responses and their order stay with it.
//!
//! Invariant: after `is_over` nothing is added to `ready`; the last answer added is the final one.

use crate::answer::{EngineResponse, Sink};
use crate::batch_key::Key;
use crate::execution_cost::ExecutionCost;
use crate::limits::{ANSWERS_HELD_MAX, ANSWERS_WAITING_MAX, ANSWERS_WAITING_NS_MAX};
use crate::pending::{Execute, Pending, Queued, Requests, RunningRequest, RunsAgain};
use crate::response_statistics::ResponseEnd;
use crate::statistics::FailureReason;
use crate::ticket::TicketState;
use crate::times::Execution;
use crate::traced;
use crate::version::ModelVersion;
use backend::{
    Answers, Batch, BatchEntry, Counted, Marks, Outcome, ReportedTimes, RequestId, Responder, RunControl, Stopped,
    now_ns,
};
use parking_lot::{Mutex, MutexGuard};
use protocol::InferResponse;
use scheduler::Waiting;
use scheduler::cores::Plan;
use scheduler::sequence::SequenceError;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::{Code, Error, Fault, Name, Result};
use trace::Trace;

/// Interval at which a thread with one response too many checks whether there is room.
const ROOM_CHECK: Duration = Duration::from_micros(50);

/// A request that is being answered.
pub(crate) struct Streaming {
    version: Arc<ModelVersion>,
    sink: Arc<dyn Sink>,
    ticket: Arc<TicketState>,
    id: Name,
    rows: u32,
    place: u64,
    trace: Option<Trace>,
    key: Key,
    class: u64,
    state: Mutex<ResponderState>,
    me: Weak<Streaming>,
}

struct ResponderState {
    step: Execute,
    is_over: bool,
    /// Set after the first response.
    has_answered: bool,
    counted: Counted,
    /// Index of the next response in the statistics, and when work on it and on its outputs began.
    index: usize,
    response_start: u64,
    output_start: Option<u64>,
    /// Responses of other threads while one is being delivered.
    ready: VecDeque<EngineResponse>,
    is_leaving: bool,
}

impl Streaming {
    /// Delivers a response after earlier ones.
    fn leave<'s>(&'s self, mut state: MutexGuard<'s, ResponderState>, mut answer: EngineResponse) {
        answer.place = self.place;
        if state.is_leaving {
            state.ready.push_back(answer);
            let is_full = state.ready.len() > ANSWERS_WAITING_MAX && !state.is_over;
            drop(state);
            if is_full {
                self.wait_for_room();
            }
            return;
        }
        state.is_leaving = true;
        loop {
            drop(state);
            if !self.version.deliver(self.sink.clone(), answer) {
                self.overrun(ANSWERS_HELD_MAX);
            }
            state = self.state.lock();
            let Some(next) = state.ready.pop_front() else { break };
            answer = next;
        }
        state.is_leaving = false;
    }

    /// Waits for room while another thread delivers, which may have no core for a while: that must not end the request.
    #[expect(
        clippy::disallowed_methods,
        reason = "an event would cost each response; this is for a thread without a core"
    )]
    fn wait_for_room(&self) {
        let until = now_ns() + ANSWERS_WAITING_NS_MAX;
        while self.state.lock().ready.len() > ANSWERS_WAITING_MAX {
            if now_ns() > until {
                return self.overrun(ANSWERS_WAITING_MAX);
            }
            // Not a yield: spinning threads would keep the delivering one from its core.
            std::thread::sleep(ROOM_CHECK);
        }
    }

    /// Cancels the request, because more responses are waiting than allowed.
    fn overrun(&self, limit: usize) {
        let text = format!(
            "model '{}' sends responses faster than clients read them: at most {limit} of a request may wait",
            self.version.signature.model
        );
        let reason = Some(Box::new(Error::exhausted(text).by(Fault::Model).retry(false)));
        // Backends are notified and may panic, but later responses still have to be delivered.
        if catch_unwind(AssertUnwindSafe(|| self.ticket.give_up(reason))).is_err() {
            log::error!("the backend of model '{}' panicked on a cancellation", self.version.signature.model);
        }
    }

    /// Keeps the states in a response; its other outputs go to the client.
    fn keep(&self, state: &ResponderState, outcome: &mut Outcome) -> Result<()> {
        match (&self.version.scheduling.sequencing, &state.step.running) {
            (Some(sequencing), Some(running)) => sequencing.keep(&running.row, &running.wanted, &self.id, outcome),
            _ => Ok(()),
        }
    }

    fn response(&self, outcome: Outcome) -> Box<InferResponse> {
        Box::new(InferResponse {
            model_name: self.version.signature.model.clone(),
            model_version: self.version.signature.version.clone(),
            id: self.id.clone(),
            parameters: outcome.parameters,
            outputs: outcome.outputs,
        })
    }

    fn count(&self, state: &mut ResponderState, end: ResponseEnd, now: u64) {
        let (start, output) = (state.response_start, state.output_start.take());
        if state.counted == Counted::Responses {
            self.version.statistics.response(state.index, end, (start, output, now));
        }
        state.index += 1;
        state.response_start = now;
    }

    fn answers_first(&self, state: &mut ResponderState, now: u64) {
        if !std::mem::replace(&mut state.has_answered, true) {
            self.version.statistics.first_response(state.step.accepted, now, self.trace.as_ref());
        }
    }

    /// Ends the request.
    pub(crate) fn end(&self, mut last: Option<Result<Outcome>>) {
        let now = now_ns();
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_over, true) {
            return;
        }
        if let Some(Ok(outcome)) = &mut last
            && let Err(e) = self.keep(&state, outcome)
        {
            last = Some(Err(e));
        }
        let is_cancelled = self.ticket.is_cancelled();
        let is_enough = is_cancelled && self.ticket.is_enough();
        // The end of a request whose reader has all it wants, whatever the model makes of the cancellation.
        last = last.filter(|result| !is_enough || result.is_ok());
        let failure_of = |e: &Error| match is_cancelled || e.code() == Code::Cancelled {
            true => FailureReason::Cancelled,
            false => FailureReason::Backend,
        };
        match last.as_ref().map(|result| result.as_ref().err().map(failure_of)) {
            None => {}
            Some(None) => self.count(&mut state, ResponseEnd::Success, now),
            Some(Some(FailureReason::Cancelled)) => self.count(&mut state, ResponseEnd::Cancelled, now),
            Some(Some(_)) => self.count(&mut state, ResponseEnd::Failed, now),
        }
        let last = match (self.ticket.settle(), last) {
            (Some(reason), _) => Some(Err(reason)),
            (None, None) if is_cancelled && !is_enough => Some(Err(Error::cancelled(""))),
            (None, last) => last,
        };
        let failure = last.as_ref().and_then(|result| result.as_ref().err()).map(failure_of);
        if last.is_some() {
            self.answers_first(&mut state, now);
        }
        let statistics = &self.version.statistics;
        let Execute { execution, accepted, running } = &mut state.step;
        let timings = execution.timings(now);
        let (instance, accepted, running) = (execution.instance, *accepted, running.take());
        self.ticket.add_to_parent(timings.phases());
        match (state.counted, failure) {
            (Counted::Responses | Counted::Nothing, _) => {}
            (Counted::ByLastAnswer, Some(reason)) => statistics.failed_late(instance, accepted, now, reason),
            (Counted::Failure, reason) => {
                statistics.failed_late(instance, accepted, now, reason.unwrap_or(FailureReason::Backend));
                if let Some(rows) = state.step.execution.count_once() {
                    statistics.execution_failed(instance, &timings, rows);
                }
            }
            (_, _) => {
                statistics.ended(instance, &timings, accepted, self.rows, state.step.execution.count_once());
                self.trace.iter().for_each(|trace| statistics.exemplify(trace, &timings));
            }
        }
        if let Some(trace) = &self.trace {
            // As in Triton, where a backend that reports no statistics of a request reports no times of it.
            if matches!(state.counted, Counted::ByLastAnswer | Counted::Success) {
                traced::ran(trace, &timings);
            }
            trace.ended(now, last.as_ref().and_then(|result| result.as_ref().err()));
        }
        let response = last.map(|result| result.map(|outcome| self.response(outcome)));
        if let Some(running) = running {
            // Its slot is free before the client gets the end, because it may continue at once.
            MutexGuard::unlocked(&mut state, || self.release(running));
        }
        self.leave(state, EngineResponse::last(response));
    }

    /// Ends the last execution of the request.
    fn release(&self, mut running: RunningRequest) {
        if let Some(sequencing) = &self.version.scheduling.sequencing {
            sequencing.over(&running.row);
        }
        if let Some(origin) = running.row.origin.take() {
            self.version.release_row(origin);
        }
        // Perhaps the last request that kept the instance busy.
        drop(running.held_instance.take());
    }

    /// True for a second response of a model that is not decoupled, which ends the request.
    fn is_one_too_many(&self) -> bool {
        if self.version.signature.decoupled {
            return false;
        }
        let text =
            format!("model '{}' is not decoupled, but responded before its last step", self.version.signature.model);
        self.end(Some(Err(Error::internal(text).by_model())));
        true
    }

    /// The request, which counts as waiting from now on.
    fn waiting(&self, entry: BatchEntry, accepted: u64) -> Box<Pending> {
        self.version.serving.pending.fetch_add(1, Ordering::Relaxed);
        Box::new(Pending {
            entry,
            sink: None,
            streaming: self.me.upgrade().map(|me| me as Arc<dyn RunsAgain>),
            waits: true,
            ticket: self.ticket.clone(),
            key: self.key.clone(),
            class: self.class,
            text: None,
            accepted,
            place: self.place,
            row: None,
        })
    }

    /// Queues the request for another execution after this response, or ends it.
    fn reschedule(&self, mut entry: BatchEntry, mut outcome: Option<Outcome>) {
        let version = &self.version;
        let Some(sequencing) = version.scheduling.sequencing.as_ref().filter(|s| s.schedule.iterative) else {
            return self.end(Some(Err(SequenceError::NotIterative.error(&version.signature.model))));
        };
        let now = now_ns();
        let mut state = self.state.lock();
        if state.is_over || !self.ticket.waits_again() {
            drop(state);
            return self.end(None);
        }
        if let Some(outcome) = &mut outcome
            && let Err(error) = self.keep(&state, outcome)
        {
            drop(state);
            return self.end(Some(Err(error)));
        }
        let Some(origin) = state.step.running.as_mut().and_then(|running| running.row.origin.take()) else {
            // A warmup has no slot.
            drop(state);
            return self.end(outcome.map(Ok));
        };
        // Dropped after the request is queued, because its idle instance may start it.
        let running = state.step.running.take();
        if let Some(running) = &running {
            sequencing.restore(&mut entry, &running.wanted);
        }
        let timings = state.step.execution.timings(now);
        self.ticket.add_to_parent(timings.phases());
        if matches!(state.counted, Counted::ByLastAnswer | Counted::Success) {
            let once = state.step.execution.count_once();
            let Execute { execution, accepted, .. } = &state.step;
            version.statistics.ended(execution.instance, &timings, *accepted, self.rows, once);
        }
        match outcome {
            None => drop(state),
            Some(outcome) => {
                self.count(&mut state, ResponseEnd::Success, now);
                self.answers_first(&mut state, now);
                self.leave(state, EngineResponse::more(Ok(self.response(outcome))));
            }
        }
        let pending = self.waiting(entry, now);
        let now = now_ns();
        let mut dispatch = version.serving.dispatch.lock();
        let back = match dispatch.schedule.sequences_mut() {
            Some(sequences) => sequences.again(now, origin, Queued(pending)),
            None => Err((SequenceError::NotIterative, Queued(pending))),
        };
        version.pump(dispatch, now);
        drop(running);
        if let Err((why, mut refused)) = back {
            refused.0.streaming = None;
            version.serving.pending.fetch_sub(1, Ordering::Relaxed);
            self.end(Some(Err(why.error(&version.signature.model))));
        }
    }
}

impl RunsAgain for Streaming {
    fn begin(&self, step: Execute) {
        let start = step.execution.start();
        let mut state = self.state.lock();
        (state.step, state.response_start) = (step, start);
    }
}

impl Answers for Streaming {
    fn send(&self, mut outcome: Outcome) -> Result<(), Stopped> {
        let now = now_ns();
        if self.is_one_too_many() {
            return Err(Stopped);
        }
        let mut state = self.state.lock();
        if state.is_over {
            return Err(Stopped);
        }
        if let Err(e) = self.keep(&state, &mut outcome) {
            drop(state);
            self.end(Some(Err(e)));
            return Err(Stopped);
        }
        if self.ticket.is_cancelled() {
            self.count(&mut state, ResponseEnd::Cancelled, now);
            return Err(Stopped);
        }
        self.count(&mut state, ResponseEnd::Success, now);
        self.answers_first(&mut state, now);
        self.leave(state, EngineResponse::more(Ok(self.response(outcome))));
        Ok(())
    }

    fn fail(&self, error: Error) {
        let now = now_ns();
        if self.is_one_too_many() {
            return;
        }
        let mut state = self.state.lock();
        if state.is_over {
            return;
        }
        let is_cancelled = self.ticket.is_cancelled();
        let is_cancel = is_cancelled || error.code() == Code::Cancelled;
        let end = if is_cancel { ResponseEnd::Cancelled } else { ResponseEnd::Failed };
        self.count(&mut state, end, now);
        // Nothing is sent to a client that cancelled, and only the reason to one whose request was ended with a reason.
        if !is_cancelled {
            self.answers_first(&mut state, now);
            self.leave(state, EngineResponse::more(Err(error)));
        }
    }

    fn skip(&self) {
        let now = now_ns();
        let mut state = self.state.lock();
        if !state.is_over {
            self.count(&mut state, ResponseEnd::Empty, now);
        }
    }

    fn output_begins(&self) {
        self.state.lock().output_start = Some(now_ns());
    }

    fn count_as(&self, counted: Counted) {
        self.state.lock().counted = counted;
    }

    fn report(&self, is_success: bool, times: ReportedTimes) {
        let state = self.state.lock();
        let Execute { execution, accepted, .. } = &state.step;
        let (instance, statistics) = (execution.instance, &self.version.statistics);
        let timings = statistics.request_reported(instance, is_success, times, *accepted, self.rows);
        if let Some(trace) = &self.trace {
            traced::ran(trace, &timings);
        }
    }

    fn finish(&self, last: Option<Result<Outcome>>) {
        self.end(last);
    }

    fn again(&self, entry: BatchEntry, outcome: Option<Outcome>) {
        if outcome.is_some() && self.is_one_too_many() {
            return;
        }
        self.reschedule(entry, outcome);
    }

    fn put_back(&self, entry: BatchEntry) {
        let state = self.state.lock();
        let (is_over, accepted) = (state.is_over, state.step.accepted);
        drop(state);
        if is_over || !self.ticket.waits_again() {
            return self.end(None);
        }
        let mut pending = Queued(self.waiting(entry, accepted));
        let mut dispatch = self.version.serving.dispatch.lock();
        // If no instance is left, the queue was emptied before.
        let refused = match dispatch.refusal() {
            Some(why) => Err((why, pending)),
            None => dispatch.schedule.put_back(pending).map_err(|pending| (self.version.no_answer(), pending)),
        };
        self.version.pump(dispatch, now_ns());
        match refused {
            Err((why, refused)) => {
                pending = refused;
                pending.0.streaming = None;
                self.version.serving.pending.fetch_sub(1, Ordering::Relaxed);
                self.end(Some(Err(why)));
            }
            // The sweep after a cancel may not have found it yet.
            Ok(()) if self.ticket.is_cancelled() => self.version.sweep_cancelled(),
            Ok(()) => {}
        }
    }

    fn abandon(&self) {
        if self.state.lock().is_over {
            return;
        }
        // Perhaps while a panic unwinds, where another panic would end the process.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            self.end(Some(Err(Error::internal(format!(
                "the backend of model '{}' dropped a request without ending it; this is a defect of the backend, \
                 please report it",
                self.version.signature.model
            )))));
        }));
        if ended.is_err() {
            log::error!("the error for a request that its backend dropped could not be sent");
        }
    }

    fn is_cancelled(&self) -> bool {
        self.ticket.is_cancelled()
    }

    fn on_cancel(&self, hook: Box<dyn FnOnce() + Send>) {
        self.ticket.on_cancel(hook);
    }

    fn request(&self) -> Option<RequestId> {
        Some(self.ticket.id())
    }
}

impl ModelVersion {
    /// Runs a batch of a decoupled model or of steps of iterative sequences, whose requests end now or later.
    pub(crate) fn execute_streaming(
        self: &Arc<Self>,
        instance: u32,
        mut requests: Requests,
        control: &RunControl,
    ) -> ExecutionCost {
        let (execution, cost) = self.execution_of(instance, &requests);
        let mut entries = self.entries_with_responders(&mut requests, &execution, None);
        drop(requests);
        let mut batch = Batch::new(&mut entries);
        let executed = self.hand_over(instance, &mut batch, control);
        let end = now_ns();
        execution.set_marks(executed.unwrap_or(Marks { inputs_ready: end, inference_end: end, outputs_ready: end }));
        self.finish_left_alone(entries);
        let duration = if executed.is_some() { end.saturating_sub(execution.start()).max(1) } else { 0 };
        ExecutionCost { duration, end, ..cost }
    }

    /// An execution of these requests that begins now, and its cost class.
    pub(crate) fn execution_of(&self, instance: u32, requests: &Requests) -> (Arc<Execution>, ExecutionCost) {
        let class = requests.first().map_or(0, Waiting::class);
        let slots = requests.iter().filter_map(|q| q.0.row.as_ref()).map(|row| row.rows as u32).max().unwrap_or(0);
        let rows = requests.iter().map(Waiting::rows).fold(0, u32::saturating_add).max(slots);
        let kind = self.scheduling.kind_of(requests);
        let start = now_ns();
        let execution = Arc::new(Execution::new(start, instance, rows.into()));
        (
            execution,
            ExecutionCost { class, kind, rows, tokens: 0, duration: 0, plan: Plan::None, inline: None, end: start },
        )
    }

    /// The entries of a batch that begins now. Their responders ensure from here on that the requests end.
    /// `held_instance` is set if the instance stays busy until then.
    pub(crate) fn entries_with_responders(
        self: &Arc<Self>,
        requests: &mut Requests,
        execution: &Arc<Execution>,
        held_instance: Option<&Arc<dyn Send + Sync>>,
    ) -> Vec<BatchEntry> {
        self.serving.pending.fetch_sub(requests.len() as u64, Ordering::Relaxed);
        match &self.scheduling.sequencing {
            None => requests.iter_mut().filter_map(|q| self.with_responder(&mut q.0, execution)).collect(),
            Some(sequencing) => self.rows_with_responders(sequencing, requests, execution, held_instance),
        }
    }

    fn with_responder(self: &Arc<Self>, pending: &mut Pending, execution: &Arc<Execution>) -> Option<BatchEntry> {
        let mut entry = std::mem::take(&mut pending.entry);
        entry.responder = Some(self.responder(pending, &entry, execution, None)?);
        Some(entry)
    }

    /// Creates the responder of a request whose execution begins now.
    pub(crate) fn responder(
        self: &Arc<Self>,
        pending: &mut Pending,
        entry: &BatchEntry,
        execution: &Arc<Execution>,
        running: Option<RunningRequest>,
    ) -> Option<Responder> {
        pending.waits = false;
        let step = Execute { execution: execution.clone(), accepted: pending.accepted, running };
        if let Some(streaming) = pending.streaming.take() {
            streaming.begin(step);
            return Some(Responder::new(streaming));
        }
        let sink = pending.sink.take()?;
        Some(Responder::new(Arc::new_cyclic(|me| Streaming {
            version: self.clone(),
            sink,
            ticket: pending.ticket.clone(),
            id: entry.request.id.clone(),
            rows: entry.checked.rows,
            place: pending.place,
            trace: entry.request.trace.clone(),
            key: pending.key.clone(),
            class: pending.class,
            state: Mutex::new(ResponderState {
                step,
                is_over: false,
                has_answered: false,
                counted: Counted::default(),
                index: 0,
                response_start: execution.start(),
                output_start: None,
                ready: VecDeque::new(),
                is_leaving: false,
            }),
            me: me.clone(),
        })))
    }
}
