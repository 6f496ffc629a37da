//! One runner of an instance, from its start to its end.
//!
//! The transport delivers one frame at a time. `state` is shared with other threads (new batches, cancellations), and
//! its lock is never held while engine or model code is called.

mod end;
pub(crate) mod large;
mod questions;
mod room;

use crate::asks::{Asks, Peer};
use crate::batch::InFlight;
use crate::failure::{Failure, ReadyFrame};
use crate::frames::{self, FromRunner, InstanceId, ProtocolError};
use crate::generated::{Frame, Header, ReportKind, VERSION};
use crate::lifecycle::{Before, Lifecycle};
use crate::memory::TensorMemory;
use crate::slots::{Key, RunnerRequest, Slots};
use crate::spec::{COPY_BYTES_MAX, FRAME_BYTES_AT_ONCE_MAX, InstanceSpec, Limits, Prefetch, RunnerKind, Spec};
use crate::transport::{Connection, End, Executor, Next, Reading, Receiver, Transport, Way};
use backend::{
    Executing, Host, Occupied, OpenCall, OpenCalls, ReadyAnswer, Reported, ReportedEnd, ReportedTimes, from_system_ns,
    now_ns,
};
use device::{Closing, Handle};
use parking_lot::Mutex;
use protocol::Signature;
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
    fn spec(&self) -> &Spec;
    /// The server.
    fn host(&self) -> Weak<dyn Host>;
    /// The model has a single instance now.
    fn has_one_instance(&self) -> bool;
    /// Passes on what the model reports, if it belongs to no unfinished request.
    fn reported(&self, runner: &Runner, report: Reported, times: ReportedTimes);
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
    me: Weak<Self>,
}

pub(crate) struct RunnerState {
    pub(crate) lifecycle: Lifecycle,
    pub(crate) slots: Slots,
    pub(crate) in_flight: InFlight,
    /// Time of the last response.
    pub(crate) answered: u64,
    started: Option<Started>,
    questions: Vec<Question>,
    asked: u64,
    /// A check of the batch's duration is scheduled.
    is_watched: bool,
    /// Time since which all requests are cancelled, and the last batch at that time.
    abandoned: Option<(u64, u64)>,
    /// The warning about clients that still wait after the model left service was logged.
    has_warned_of_clients: bool,
    /// Buffer of the last frame, for reuse.
    pub(crate) buffer: Vec<u8>,
}

impl RunnerState {
    pub(crate) fn has_requests(&self) -> bool {
        self.in_flight.running().is_some() || self.slots.taken() > 0
    }
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

/// The model, the server and the threads of a runner.
pub(crate) struct RunnerContext {
    pub(crate) owner: Weak<dyn Owner>,
    /// The server and the model that requests of its code are made for; `None` without an owner: they fail.
    pub(crate) asks: Option<(Weak<dyn Host>, Name)>,
    pub(crate) executor: Arc<dyn Executor>,
}

impl Runner {
    pub(crate) fn new(
        spec: &InstanceSpec,
        instance: u32,
        limits: &Limits,
        RunnerContext { owner, asks, executor }: RunnerContext,
        connection: Connection,
        started: Started,
    ) -> Arc<Self> {
        let Connection { transport, segments, flags } = connection;
        let of_owner = || owner.upgrade().map(|owner| (owner.host(), owner.signature().model.clone()));
        let prefetch = owner.upgrade().map_or(Prefetch::Never, |owner| owner.spec().prefetch);
        let asks = asks.or_else(of_owner);
        let model = asks.as_ref().map(|(_, model)| model.clone()).unwrap_or_default();
        let memory = TensorMemory::new(Arc::clone(&transport), segments, flags, model.to_string(), limits.clone());
        Arc::new_cyclic(|me| Self {
            name: spec.name.clone(),
            kind: spec.kind,
            instance,
            transport,
            memory: Arc::new(memory),
            asks: asks.map_or_else(Asks::default, |(host, model)| Asks::new(host, model)),
            owner,
            limits: limits.clone(),
            executor,
            state: Mutex::new(RunnerState {
                lifecycle: Lifecycle::Starting { has_answered: false },
                slots: Slots::default(),
                in_flight: InFlight::new(prefetch),
                answered: 0,
                started: Some(started),
                questions: Vec::new(),
                asked: 0,
                is_watched: false,
                abandoned: None,
                has_warned_of_clients: false,
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
        let Some(owner) = self.owner.upgrade().filter(|owner| owner.spec().reports_statistics) else { return };
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
        let started = state.started.take().ok_or(ProtocolError("it reported twice that it is ready"))?;
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
        let started = started.ok_or(ProtocolError("it reported a failed start after it had started"))?;
        if matches!(state.lifecycle, Lifecycle::Starting { .. }) {
            state.lifecycle = Lifecycle::Failed;
        }
        drop(state);
        self.later(FAILED_GRACE, |runner| runner.overdue("it failed to start and did not end"));
        started(Err(failure));
        Ok(())
    }

    /// True if the runner has requests.
    pub(crate) fn has_requests(&self) -> bool {
        let state = self.state.lock();
        state.lifecycle.is_in_service() && state.has_requests()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().lifecycle == Lifecycle::Ended
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state.lock().lifecycle, Lifecycle::Ready { .. })
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
        let is_decoupled = self.owner.upgrade().is_none_or(|owner| owner.spec().decoupled);
        let mut state = self.state.lock();
        let RunnerState { slots, in_flight, .. } = &mut *state;
        let mut request_of = |key: Key| slots.pending(key).and_then(|pending| pending.responder.request());
        let batch = in_flight.running().filter(|batch| batch.occupied.is_some());
        // Also prefetched ones get their response after it.
        let members = batch.filter(|_| !is_decoupled).into_iter().chain(in_flight.prefetched());
        let members = members.flat_map(|batch| &batch.members);
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

    /// Unfinished executions, and requests that are answered after their execution.
    pub(crate) fn executing(&self) -> Option<Executing> {
        let state = self.state.lock();
        let sent = state.slots.pendings().map(|pending| pending.since);
        let oldest = sent.chain(state.in_flight.running().map(|batch| batch.since)).min();
        let oldest = oldest.filter(|_| matches!(state.lifecycle, Lifecycle::Ready { .. }))?;
        let requests = state.slots.pendings().count();
        Some(Executing { instance: self.instance, requests, quiet_since: oldest.max(state.answered) })
    }

    /// See [`Transport::write_stack`].
    pub(crate) fn write_stack(&self) -> bool {
        self.transport.write_stack(self.kind == RunnerKind::StubProcess)
    }

    pub(crate) fn has_one_instance(&self) -> bool {
        self.owner.upgrade().is_some_and(|owner| owner.has_one_instance())
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
        let is_silent = state.lifecycle == Lifecycle::Starting { has_answered: false };
        let started = if is_silent { state.started.take() } else { None };
        drop(state);
        if let Some(started) = started {
            let seconds = self.limits.start_timeout.as_secs_f64();
            self.condemn("it did not connect");
            let text = format!("{} was started and did not connect within {seconds} s", self.label());
            started(Err(Error::unavailable(text).by_model().into()));
        }
    }

    fn check_batch(&self) {
        let Some(most) = self.limits.execute_timeout else { return };
        let mut state = self.state.lock();
        state.is_watched = false;
        let Some(since) = state.in_flight.running().map(|batch| batch.since) else { return };
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
        // Its slot stays taken until the runner has passed over it. A library of the C API gets it anyway, and reports
        // how it ended.
        let RunnerState { slots, in_flight, .. } = &mut *state;
        let batch = in_flight.prefetched_with(key).filter(|_| in_flight.requeues());
        let ended =
            batch.and_then(|batch| slots.lift(key).inspect(|_| batch.occupied.iter().for_each(Occupied::leaves)));
        drop(state);
        if let Some(pending) = ended {
            pending.responder.finish(Some(Err(Error::cancelled(""))));
        }
        self.asks.request_cancelled(key);
    }
}

impl Receiver for Runner {
    fn frame(self: Arc<Self>, way: Way, header: &Header, body: &[u8], reading: Reading) -> Result<Next, ProtocolError> {
        let mut state = self.state.lock();
        let members = state.in_flight.all().map(|batch| batch.members.len()).sum();
        let requests = (state.slots.taken(), members);
        if state.lifecycle.is_killed() {
            if header.frame == Frame::Result as u8 {
                state.in_flight.unread();
            }
            return Ok(Next::Go);
        }
        if let Lifecycle::Starting { has_answered } = &mut state.lifecycle {
            *has_answered |= header.frame == Frame::Pong as u8;
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
        let RunnerState { in_flight, slots, .. } = &mut *state;
        let requeued: Vec<_> = in_flight.requeued().filter_map(|key| slots.lift(key)).collect();
        let (batches, pendings) = (in_flight.take(), slots.clear());
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
        for RunnerRequest { responder, entry, .. } in requeued.into_iter().rev() {
            responder.put_back(entry);
        }
        for pending in pendings {
            pending.responder.finish(Some(Err(self.not_healthy())));
        }
        drop(batches);
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
        // The connection of a program that embeds the server has no owner.
        self.owner.strong_count() > 0 && matches!(self.state.lock().lifecycle, Lifecycle::Ready { .. })
    }

    fn answers_on_side(&self) -> bool {
        self.owner.upgrade().is_some_and(|owner| owner.spec().decoupled)
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
