//! One runner of an instance, from its start to its end.
//!
//! The transport delivers one frame at a time. `state` is shared with other threads (new batches, cancellations), and
//! its lock is never held while engine or model code is called.

mod end;
mod in_flight;
pub(crate) mod large;
mod questions;
mod room;

pub(crate) use in_flight::BatchInFlight;

use crate::asks::{Asks, Peer};
use crate::failure::{Failure, ReadyFrame};
use crate::frames::{self, FromRunner, InstanceId, ProtocolError};
use crate::generated::{Frame, Header, ReportKind, VERSION};
use crate::lifecycle::{Before, Lifecycle};
use crate::memory::TensorMemory;
use crate::slots::{Key, RunnerRequest, Slots};
use crate::spec::{Ahead, COPY_BYTES_MAX, FRAME_BYTES_AT_ONCE_MAX, Limits, RunnerKind};
use crate::transport::{Connection, End, Executor, Next, Reading, Receiver, Transport, Way};
use backend::{Host, OpenCall, OpenCalls, ReadyAnswer, Reported, ReportedEnd, ReportedTimes, from_system_ns, now_ns};
use device::{Closing, Handle};
use parking_lot::Mutex;
use protocol::Signature;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::{Error, Name};

/// Time that a runner has to end after FAILED.
const FAILED_GRACE: Duration = Duration::from_secs(5);
/// Time to write a stack trace after a batch took too long.
const ABORT_GRACE: Duration = Duration::from_millis(500);

/// Receives the result of a start, once.
pub(crate) type Started = Box<dyn FnOnce(Result<ReadyFrame, Failure>) + Send>;

/// The model that a runner serves.
pub(crate) trait Owner: Send + Sync {
    fn signature(&self) -> &Arc<Signature>;
    fn is_decoupled(&self) -> bool;
    /// The model reports its own statistics.
    fn reports_statistics(&self) -> bool;
    /// An execution counts even if the model failed in it.
    fn counts_failed(&self) -> bool;
    /// Batches that are sent before the result of the first.
    fn ahead(&self) -> Ahead;
    /// The model has a single instance now.
    fn has_one_instance(&self) -> bool;
    /// Clients get all outputs that the model sends, requested or not.
    fn sends_all_outputs(&self) -> bool;
    /// Passes on what the model reports, if it belongs to no unfinished request.
    fn reported(&self, runner: &Runner, report: Reported, times: ReportedTimes);
    /// The server.
    fn host(&self) -> Weak<dyn Host>;
    /// Reports the end of a runner that was ready, with its last state.
    fn died(&self, runner: &Runner, was: Lifecycle);
}

pub(crate) struct Runner {
    /// Name of the instance, for errors and before each line that the runner prints.
    pub(crate) name: Name,
    kind: RunnerKind,
    pub(crate) instance: u32,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) memory: Arc<TensorMemory>,
    pub(crate) asks: Asks,
    /// Dangling while a configuration is completed.
    pub(crate) owner: Weak<dyn Owner>,
    pub(crate) limits: Limits,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) state: Mutex<RunnerState>,
    pub(crate) ahead: Ahead,
    me: Weak<Self>,
}

pub(crate) struct RunnerState {
    pub(crate) lifecycle: Lifecycle,
    pub(crate) slots: Slots,
    pub(crate) batch: Option<BatchInFlight>,
    /// Batches that were sent while `batch` runs, in their order.
    pub(crate) ready: VecDeque<BatchInFlight>,
    pub(crate) batches: u64,
    /// Time of the last response.
    pub(crate) answered: u64,
    /// All tensors of the last result were in its frame.
    pub(crate) was_small: bool,
    /// A result was not read, so that a batch that lies ready may have begun.
    pub(crate) may_have_begun: bool,
    started: Option<Started>,
    questions: Vec<Question>,
    asked: u64,
    /// A check of the batch's duration is scheduled.
    is_watched: bool,
    /// Time since which no client waits for a response, and the last batch at that time.
    for_nobody: Option<(u64, u64)>,
    /// The warning about clients that still wait after the model left service was logged.
    told_of_clients: bool,
    /// Buffer of the last frame, for reuse.
    pub(crate) buffer: Vec<u8>,
}

/// A readiness check that the runner has not answered.
struct Question {
    number: u64,
    since: u64,
    answers: Vec<ReadyAnswer>,
}

/// True if the runner lends device memory for the tensor.
fn is_lent(tensor: &frames::TensorRef<'_>) -> bool {
    matches!(tensor.contents, frames::Contents::Device(lent) if !lent.by_host)
}

/// Parameters of `Runner::new`.
pub(crate) struct Parts {
    pub(crate) name: Name,
    pub(crate) kind: RunnerKind,
    pub(crate) instance: u32,
    pub(crate) owner: Weak<dyn Owner>,
    /// The server and the model that requests of its code are made for; `None` without an owner: they fail.
    pub(crate) asks: Option<(Weak<dyn Host>, Name)>,
    pub(crate) connection: Connection,
    pub(crate) limits: Limits,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) started: Started,
}

impl Runner {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let Parts { kind, name, instance, owner, asks, connection, limits, executor, started } = parts;
        let Connection { transport, segments, flags } = connection;
        let of_owner = || owner.upgrade().map(|owner| (owner.host(), owner.signature().model.clone()));
        let ahead = owner.upgrade().map_or(Ahead::Never, |owner| owner.ahead());
        let asks = asks.or_else(of_owner);
        let model = asks.as_ref().map(|(_, model)| model.clone()).unwrap_or_default();
        let memory = TensorMemory::new(Arc::clone(&transport), segments, flags, model.to_string(), limits.clone());
        Arc::new_cyclic(|me| Self {
            name,
            kind,
            instance,
            transport,
            memory: Arc::new(memory),
            asks: asks.map_or_else(Asks::default, |(host, model)| Asks::new(host, model)),
            owner,
            limits,
            executor,
            ahead,
            state: Mutex::new(RunnerState {
                lifecycle: Lifecycle::Starting { is_there: false },
                slots: Slots::default(),
                batch: None,
                ready: VecDeque::new(),
                batches: 0,
                answered: 0,
                was_small: false,
                may_have_begun: false,
                started: Some(started),
                questions: Vec::new(),
                asked: 0,
                is_watched: false,
                for_nobody: None,
                told_of_clients: false,
                buffer: Vec::new(),
            }),
            me: me.clone(),
        })
    }

    /// Runs a job after a delay, if the runner still exists.
    pub(crate) fn later(&self, delay: Duration, job: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let me = self.me.clone();
        self.executor.after(
            delay,
            Box::new(move || {
                if let Some(runner) = me.upgrade() {
                    job(&runner);
                }
            }),
        );
    }

    /// Error of a request whose runner ended.
    pub(crate) fn not_healthy(&self) -> Error {
        self.kind.not_healthy(&self.name)
    }

    /// Kills the runner. `why` is only for the log.
    pub(crate) fn condemn(&self, why: &str) {
        let mut state = self.state.lock();
        if state.lifecycle == Lifecycle::Ended {
            return;
        }
        let killed = state.lifecycle.killed();
        state.lifecycle = killed.unwrap_or(state.lifecycle);
        drop(state);
        if killed.is_some() {
            log::error!("{}: the {} is killed: {why}", self.label(), self.kind.noun());
        }
        self.transport.end(End::Killed);
    }

    /// Prefix of log lines about the runner.
    pub(crate) fn label(&self) -> &str {
        if self.name.is_empty() { "a process that completes a configuration" } else { self.name.as_str() }
    }

    /// Handles a result, or returns the step that must come first.
    fn batch_result(
        &self,
        result: &frames::ResultRef<'_>,
        (open, members): (usize, usize),
        reading: Reading,
    ) -> Result<Next, ProtocolError> {
        if !reading.may_copy && self.takes_long_to_copy(result) {
            return Ok(Next::Copy);
        }
        // Earlier frames of the side channel first: a response there may be in blocks that this frame returns.
        let stay = result.answers.iter().any(|a| a.kind == crate::generated::Answer::None);
        // Also returned leases first: a client that has its response may unregister its region.
        let lent = self.limits.device_inputs && self.memory.leases.open().0 > 0;
        if !reading.side_is_read && (stay || lent || result.failed.is_some() || open > members) {
            return Ok(Next::ReadSide);
        }
        let lends = result.answers.iter().any(|a| a.outputs.iter().any(is_lent));
        self.result(result)?;
        if lends {
            self.memory.give_back_many();
        }
        Ok(Next::Go)
    }

    /// Handles statistics that the model reports of its own work.
    fn reported(&self, kind: ReportKind, of: &frames::generated::Report) {
        // Runners read the clock of the system.
        let times = ReportedTimes {
            start: from_system_ns(of.start),
            compute_start: from_system_ns(of.compute_start),
            compute_end: from_system_ns(of.compute_end),
            end: from_system_ns(of.end),
        };
        let response = |end| Reported::Response { index: of.index as usize, end };
        let report = match kind {
            ReportKind::Success | ReportKind::Failure => Reported::Request { is_success: kind == ReportKind::Success },
            ReportKind::Batch => Reported::Batch { rows: of.size },
            ReportKind::Response => response(ReportedEnd::Success),
            ReportKind::ResponseFailed => response(ReportedEnd::Failed),
            ReportKind::ResponseEmpty => response(ReportedEnd::Empty),
            ReportKind::ResponseCancelled => response(ReportedEnd::Cancelled),
        };
        let Some(owner) = self.owner.upgrade().filter(|owner| owner.reports_statistics()) else { return };
        if let Reported::Request { is_success } = report
            && let key = (of.slot, of.generation)
            && let Some(pending) = self.state.lock().slots.pending(key)
        {
            return pending.responder.report(is_success, times);
        }
        owner.reported(self, report, times);
    }

    fn ready(self: &Arc<Self>, ready: ReadyFrame) -> Result<(), ProtocolError> {
        let mut state = self.state.lock();
        let started = state.started.take().ok_or(ProtocolError("it says twice that it is ready"))?;
        if matches!(state.lifecycle, Lifecycle::Starting { .. }) {
            state.lifecycle = Lifecycle::Ready { asks_ready: ready.asks_ready };
        }
        drop(state);
        log::debug!("{}: ready, {}", self.label(), ready.runner);
        if ready.devices {
            self.memory.set_lends(true);
            let me: Weak<dyn Closing> = Arc::downgrade(&(Arc::clone(self) as Arc<dyn Closing>));
            device::watch_closing(me);
        }
        started(Ok(ready));
        Ok(())
    }

    fn failed(&self, failure: Failure) -> Result<(), ProtocolError> {
        let mut state = self.state.lock();
        let started = state.started.take();
        let started = started.ok_or(ProtocolError("it says that its start failed when it had started"))?;
        if matches!(state.lifecycle, Lifecycle::Starting { .. }) {
            state.lifecycle = Lifecycle::Failed;
        }
        drop(state);
        self.later(FAILED_GRACE, |runner| runner.overdue("it could not start and did not end"));
        started(Err(failure));
        Ok(())
    }

    /// Checks a runner whose model left service `left` ago. Kills a runner that worked for `grace` without a waiting
    /// client: it hangs or is stopped, and would keep its memory for ever. Requests of clients may finish.
    pub(crate) fn look_for_nobody(&self, grace: Duration, left: Duration, now: u64) {
        let mut state = self.state.lock();
        let works = state.batch.is_some() || state.slots.taken() > 0;
        if !works || !matches!(state.lifecycle, Lifecycle::Ready { .. }) {
            state.for_nobody = None;
            return;
        }
        let requests = state.slots.pendings().count();
        // A batch that lies ready keeps no runner that hangs.
        let RunnerState { ready, slots, .. } = &mut *state;
        let behind: Vec<Key> = ready.iter().flat_map(|batch| batch.members.iter().copied()).collect();
        let waits = |pending: &RunnerRequest| !pending.responder.is_cancelled();
        let behind = behind.into_iter().filter(|&key| slots.pending(key).is_some_and(|pending| waits(pending))).count();
        let waiting = slots.pendings().filter(|pending| waits(pending)).count() - behind;
        if waiting > 0 {
            state.for_nobody = None;
            if left >= grace && !std::mem::replace(&mut state.told_of_clients, true) {
                drop(state);
                let seconds = left.as_secs_f64();
                log::warn!(
                    "{}: its model left service {seconds:.1} s ago, and the {} still has requests that clients wait \
                     for: {waiting}",
                    self.label(),
                    self.kind.noun()
                );
            }
            return;
        }
        let batch = state.batches;
        let since = match state.for_nobody {
            Some((since, of)) if of == batch => since,
            _ => {
                state.for_nobody = Some((now, batch));
                now
            }
        };
        if Duration::from_nanos(now.saturating_sub(since)) < grace {
            return;
        }
        state.lifecycle = Lifecycle::Killed(Before::Abandoned);
        drop(state);
        let seconds = grace.as_secs_f64();
        log::error!(
            "{}: the {} is killed: its model left service, and it worked for {seconds} s (exit-grace-seconds, less \
             when the server exits) for requests that nobody waits for: {requests}",
            self.label(),
            self.kind.noun()
        );
        self.transport.end(End::Killed);
    }

    /// True if the runner has requests.
    pub(crate) fn works(&self) -> bool {
        let state = self.state.lock();
        state.lifecycle.is_in_service() && (state.batch.is_some() || state.slots.taken() > 0)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().lifecycle == Lifecycle::Ended
    }

    /// True if the model has its own readiness check. That of a killed runner fails.
    pub(crate) fn asks_ready(&self) -> bool {
        let lifecycle = self.state.lock().lifecycle;
        matches!(
            lifecycle,
            Lifecycle::Ready { asks_ready: true } | Lifecycle::Killed(Before::Ready { asks_ready: true })
        )
    }

    /// Open calls of its code that were made before time `at`; `None` if there are none.
    pub(crate) fn calls_made_before(&self, at: u64) -> Option<OpenCalls> {
        let calls = self.asks.calls_made_before(at);
        if calls.is_empty() {
            return None;
        }
        let is_decoupled = self.owner.upgrade().is_none_or(|owner| owner.is_decoupled());
        let mut state = self.state.lock();
        let RunnerState { slots, batch, ready, .. } = &mut *state;
        let mut request_of = |key: Key| slots.pending(key).and_then(|pending| pending.responder.request());
        let batch = batch.as_ref().filter(|batch| batch.occupied.is_some());
        // Also those that lie ready get their response after it.
        let members = batch.filter(|_| !is_decoupled).into_iter().chain(&*ready).flat_map(|batch| &batch.members);
        let members = members.filter_map(|&key| request_of(key)).collect();
        let id = batch.map(|batch| batch.id);
        let calls = calls.into_iter().map(|made| OpenCall {
            call: made.call,
            request: made.parent.and_then(&mut request_of),
            is_for_batch: id.is_some() && made.batch == id,
            since: made.since,
        });
        let calls = calls.collect();
        drop(state);
        Some(OpenCalls { instance: self.instance, batch: id, members, calls })
    }

    /// Schedules a check of the duration of batches. Only one check is scheduled at a time.
    pub(crate) fn watch(&self, state: &mut RunnerState) {
        if let Some(most) = self.limits.execute_timeout
            && !std::mem::replace(&mut state.is_watched, true)
        {
            self.later(most, |runner| runner.check_batch());
        }
    }

    /// Fails the start if the runner has not responded in time.
    pub(crate) fn check_contact(&self) {
        let mut state = self.state.lock();
        let is_silent = state.lifecycle == Lifecycle::Starting { is_there: false };
        let started = if is_silent { state.started.take() } else { None };
        drop(state);
        if let Some(started) = started {
            let seconds = self.limits.start_timeout.as_secs_f64();
            self.condemn("it is not heard of");
            let text = format!("{} was started and not heard of for {seconds} s", self.label());
            started(Err(Error::unavailable(text).by_model().into()));
        }
    }

    fn check_batch(&self) {
        let Some(most) = self.limits.execute_timeout else { return };
        let mut state = self.state.lock();
        state.is_watched = false;
        let Some(since) = state.batch.as_ref().map(|b| b.since) else { return };
        let left = most.saturating_sub(Duration::from_nanos(now_ns().saturating_sub(since)));
        if !left.is_zero() {
            state.is_watched = true;
            drop(state);
            return self.later(left, |runner| runner.check_batch());
        }
        drop(state);
        log::error!("{}: a batch takes longer than {} ms", self.label(), most.as_millis());
        self.transport.end(End::Hung);
        self.later(ABORT_GRACE, |runner| runner.condemn("its batch took too long"));
    }

    /// Cancels a request and its calls. Its model sees the flag.
    pub(crate) fn cancelled(&self, key: Key) {
        let mut state = self.state.lock();
        if state.slots.has(key) {
            self.memory.flag(key, true);
        }
        // It does not wait for the batch that runs. Its slot stays taken until the runner has passed over it. A library
        // of the C API gets it anyway, and reports how it ended.
        let may_end = self.ahead == Ahead::BehindSmall && state.lies_ready(key);
        let waits = if may_end { state.slots.lift(key) } else { None };
        let batch = state.ready.iter().find(|batch| waits.is_some() && batch.members.contains(&key));
        batch.and_then(|batch| batch.occupied.as_ref()).into_iter().for_each(|occupied| occupied.leaves());
        drop(state);
        if let Some(pending) = waits {
            pending.responder.finish(Some(Err(Error::cancelled(""))));
        }
        self.asks.request_cancelled(key);
    }
}

impl Receiver for Runner {
    fn frame(self: Arc<Self>, way: Way, header: &Header, body: &[u8], reading: Reading) -> Result<Next, ProtocolError> {
        let mut state = self.state.lock();
        let members = state.batch.iter().chain(&state.ready).map(|batch| batch.members.len()).sum();
        let requests = (state.slots.taken(), members);
        if state.lifecycle.is_killed() {
            state.may_have_begun |= header.frame == Frame::Result as u8;
            return Ok(Next::Go);
        }
        if let Lifecycle::Starting { is_there } = &mut state.lifecycle {
            *is_there |= header.frame == Frame::Pong as u8;
        }
        drop(state);
        if !reading.may_copy && body.len() > FRAME_BYTES_AT_ONCE_MAX {
            return Ok(Next::Copy);
        }
        if !matches!(InstanceId::of(header), InstanceId::PROCESS | InstanceId::ONLY) {
            return Err(ProtocolError("a frame about an instance that it does not have"));
        }
        let frame = frames::read(header, body)?;
        let needs =
            |expected: Way| if way == expected { Ok(()) } else { Err(ProtocolError("a frame on the wrong socket")) };
        match frame {
            FromRunner::Result(result) => {
                needs(Way::Work)?;
                return self.batch_result(&result, requests, reading);
            }
            FromRunner::Respond { slot, generation, answer } => {
                needs(Way::Side)?;
                if !reading.may_copy && self.copied_bytes(&answer.outputs) > COPY_BYTES_MAX {
                    return Ok(Next::Copy);
                }
                self.respond((slot, generation), &answer)?;
                self.memory.give_back_many();
            }
            FromRunner::Ready(text) => {
                needs(Way::Work)?;
                self.ready(ReadyFrame::read(text)?)?;
            }
            FromRunner::Failed(text) => {
                needs(Way::Work)?;
                self.failed(Failure::read(text)?)?;
            }
            FromRunner::NeedSegment(bytes) => self.need_responses(bytes),
            FromRunner::NoDevices => {
                log::warn!(
                    "{}: it cannot open memory of devices: inputs are copied to the host from now on",
                    self.label()
                );
                self.memory.set_lends(false);
            }
            FromRunner::Release(ids) => self.memory.released(ids.iter())?,
            FromRunner::IsReadyResult { question, is_ready } => self.answered(question, is_ready),
            FromRunner::Pong(_) => {}
            FromRunner::Report(kind, report) => self.reported(kind, &report),
            // Python models name themselves where they want to.
            FromRunner::Log(line)
                if self.kind != RunnerKind::StubProcess && !line.text.contains(self.name.as_str()) =>
            {
                let text = format!("{}: {}", self.name, line.text);
                self.asks.log(frames::LogRef { text: &text, ..line });
            }
            FromRunner::Call(call) if !reading.may_copy && self.copied_bytes(&call.request.inputs) > COPY_BYTES_MAX => {
                return Ok(Next::Copy);
            }
            asked => {
                self.asks.frame(&(Arc::clone(&self) as Arc<dyn Peer>), way, asked)?;
                self.memory.give_back_many();
            }
        }
        Ok(Next::Go)
    }

    fn other_version(&self, version: u64) {
        let text = format!("the runtime speaks version {version} of the runner protocol, the server {VERSION}");
        self.condemn(&text);
        let started = self.state.lock().started.take();
        if let Some(started) = started {
            started(Err(Error::internal(text).into()));
        }
    }

    fn condemn(&self, why: &str) {
        Self::condemn(self, why);
    }

    fn over(self: Arc<Self>, how: &str) {
        let mut state = self.state.lock();
        let was = std::mem::replace(&mut state.lifecycle, Lifecycle::Ended);
        if was == Lifecycle::Ended {
            return;
        }
        let mut back = Vec::new();
        if self.ahead == Ahead::BehindSmall && !state.may_have_begun {
            let RunnerState { ready, slots, .. } = &mut *state;
            back.extend(ready.iter().flat_map(|batch| &batch.members).filter_map(|&key| slots.lift(key)));
        }
        let (batch, pendings) = ((state.batch.take(), std::mem::take(&mut state.ready)), state.slots.clear());
        let (started, questions) = (state.started.take(), std::mem::take(&mut state.questions));
        drop(state);
        let is_asked = was.is_in_service() && self.owner.strong_count() == 0;
        if was.is_stopping() || is_asked {
            log::debug!("{}: the runner {how}", self.label());
        } else if started.is_none() || !was.is_killed() {
            log::error!("{}: the runner {how}; requests it had: {}", self.label(), pendings.len());
        }
        // Before the requests end, so that a retry does not find this runner.
        if let Some(owner) = self.owner.upgrade().filter(|_| was.is_in_service()) {
            owner.died(&self, was);
        }
        // Each goes before all others.
        for RunnerRequest { responder, entry, .. } in back.into_iter().rev() {
            responder.put_back(entry);
        }
        for pending in pendings {
            pending.responder.finish(Some(Err(self.not_healthy())));
        }
        drop(batch);
        self.memory.closed();
        for answer in questions.into_iter().flat_map(|q| q.answers) {
            answer(Err(self.not_healthy()));
        }
        if let Some(started) = started {
            started(Err(self.not_healthy().into()));
        }
        self.asks.closed();
    }

    fn may_close(&self) -> bool {
        let lifecycle = self.state.lock().lifecycle;
        lifecycle.is_stopping() || lifecycle == Lifecycle::Failed
    }

    fn is_brief(&self) -> bool {
        // Responses of a decoupled model come on the side channel, which would be read as well.
        let is_decoupled = self.owner.upgrade().is_none_or(|owner| owner.is_decoupled());
        !is_decoupled && matches!(self.state.lock().lifecycle, Lifecycle::Ready { .. })
    }
}

impl Closing for Runner {
    fn closing(&self, device: u32, handle: &Handle) {
        if self.memory.leases.forget(device, handle) {
            let mut frame = Vec::new();
            frames::write::close_handle(&mut frame, device, &handle.0);
            self.transport.send(Way::Side, &frame);
        }
    }
}
