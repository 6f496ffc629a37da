//! One request on its way through an ensemble: does what its execution says, and tells it what the steps answered.
//!
//! No thread waits for a step. A thread that has an answer leaves it in the flow's inbox, and if no thread drives the flow, drives
//! it: tells the execution, calls the next steps, hands out responses, until the inbox is empty. So all of it happens in one
//! order, and never under a lock. A step is an ordinary call with the ensemble's ticket as its parent. Starting many steps takes long,
//! even if none of them runs at once: a reactor hands the driver to a thread of the pool when its share of time is over.
//!
//! Invariants: only the thread that has the driver drives. A flow ends exactly once, whatever panics: a driver that is dropped before its
//! request is over answers the request with an error.

use crate::answer::{Answer, Delivery, Sink};
use crate::call::{Caller, Started};
use crate::ensemble::Ensemble;
use crate::inline::waits_for_device;
use crate::limits::{
    ANSWERS_WAITING_MAX, ENSEMBLE_COPY_BYTES_ON_REACTOR_MAX, ENSEMBLE_INLINE_NS_MAX, FLOWS_TOGETHER_MAX,
};
use crate::places::{Calls, Place, Turn};
use crate::statistics::{FailureReason, Timings};
use crate::ticket::{Ticket, TicketState};
use crate::traced;
use crate::turn::{self, InStretch};
use crate::version::ModelVersion;
use crate::work::Work;
use backend::{Marks, now_ns, scatter};
use graph::{Action, DEPTH_MAX, Execution, Limits, Plan, RunId};
use memory::budget::SMALL_BYTES_MAX;
use memory::{Account, Budget, Kind};
use parking_lot::Mutex;
use protocol::{Checked, InferRequest, InferResponse, OutputTensor};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use tensor::{Base, Code, Data, Error, RegionRef, Result};
use trace::Trace;

/// Under which an ensemble counts its executions: it has no instances.
const NO_INSTANCE: u32 = u32::MAX;

pub(crate) struct Flow {
    /// The version of the ensemble.
    version: Arc<ModelVersion>,
    plan: Arc<Plan>,
    /// The version that each step calls. Held until the request is over.
    models: Vec<Arc<ModelVersion>>,
    /// The parent of the tickets of all calls.
    ticket: Ticket,
    /// The parent of the traces of all calls.
    trace: Option<Trace>,
    /// How many ensembles this one is nested in.
    depth: u32,
    /// Only for a request that belongs to a sequence, in an ensemble whose steps keep the state of sequences.
    turn: Option<Turn>,
    inbox: Mutex<Inbox>,
}

#[derive(Default)]
struct Inbox {
    /// Answers that the execution was not told yet.
    told: VecDeque<Told>,
    /// The driver, while no thread drives the flow.
    driver: Option<Box<Driver>>,
    /// Calls of decoupled steps that are in progress. They may never end by themselves.
    streams: Vec<(RunId, Ticket)>,
    /// The request failed, and the calls in `streams` were cancelled. A call that would be added later is cancelled at once.
    is_stopping: bool,
}

/// An answer of a step.
struct Told {
    run: RunId,
    answer: Result<Option<InferResponse>>,
    last: bool,
    /// Comes with the last answer of a call that has a place among those in flight.
    place: Option<Place>,
}

/// State that only the driving thread may touch.
struct Driver {
    version: Arc<ModelVersion>,
    ticket: Arc<TicketState>,
    execution: Execution,
    /// Actions of the execution that are not done yet. Empty between turns, unless a reactor ran out of time.
    todo: VecDeque<Action>,
    trace: Option<Trace>,
    accepted: u64,
    /// When the flow began. The time from `accepted` until then counts as time in a queue.
    begun: u64,
    rows: u32,
    /// Where answers go. Requested only if the request was not over at once.
    sink: Option<Arc<dyn Sink>>,
    /// Answers that came before there was a sink.
    early: Vec<Answer>,
    /// The response of an ensemble that gives exactly one. Kept until the request is over.
    held: Option<Result<Box<InferResponse>>>,
    is_stopping: bool,
    is_over: bool,
}

/// A flow and its driver, on their way to another thread.
pub(crate) struct Driven {
    flow: Arc<Flow>,
    driver: Box<Driver>,
}

/// A call of a step that is to be made. It may have to wait until other calls of the step end (`max_inflight_requests`), or until earlier
/// requests of its sequence have called the step.
pub(crate) struct Waiting {
    flow: Arc<Flow>,
    run: RunId,
    step: usize,
    request: Box<InferRequest>,
    /// Set once the call counts as in flight, where the ensemble limits those.
    pub(crate) place: Option<Place>,
}

struct StepSink {
    flow: Arc<Flow>,
    run: RunId,
    step: usize,
    /// The place of the call among those in flight, until the last answer takes it along.
    place: Mutex<Option<Place>>,
}

impl Sink for StepSink {
    fn put(&self, Answer { response, is_final }: Answer) {
        let answer = match response.transpose() {
            Ok(None) => Ok(None),
            Ok(Some(response)) => self.flow.charged(self.step, *response).map(Some),
            Err(error) => Err(error),
        };
        let place = if is_final { self.place.lock().take() } else { None };
        let told = Told { run: self.run, answer, last: is_final, place };
        if let Some(driver) = self.flow.tell(told) {
            drive(self.flow.clone(), driver);
        }
    }
}

/// Starts a request that passed its check and was accepted. Returns the answer itself if all steps answered at once.
// Not inlined, so that it does not make the code that calls models larger.
#[inline(never)]
pub(crate) fn start(
    version: &ModelVersion,
    ensemble: &Ensemble,
    request: Box<InferRequest>,
    (checked, accepted): (&Checked, u64),
    sink: impl FnOnce() -> Arc<dyn Sink>,
    Caller { parent, inline_until, depth }: Caller<'_>,
) -> Result<Started> {
    // Each plan was within the limit when it was made, but an ensemble inside may have been loaded again since, with more in it.
    if depth > DEPTH_MAX {
        return Err(Error::unavailable(format!("ensembles lie inside one another more than {DEPTH_MAX} deep")));
    }
    let Some(version) = version.me.upgrade() else { return Err(Error::unavailable("Server exiting")) };
    let (compiled, models) = ensemble.begin()?;
    let state = TicketState::new(version.me.clone(), parent.map(|p| &p.state))?;
    let plan = compiled.plan.clone();
    let ticket = Ticket { state: state.clone() };
    let flow = Arc::new(Flow {
        version: version.clone(),
        plan: plan.clone(),
        models,
        ticket: ticket.clone(),
        trace: request.trace.clone(),
        depth,
        turn: Turn::new(&version, &request.sequence.id, &compiled.in_turn),
        inbox: Mutex::default(),
    });
    version.joined(1);
    let inline_until = inline_until.min(may_work_until(accepted));
    let trace = request.trace.clone();
    let begun = catch_unwind(AssertUnwindSafe(|| {
        let (execution, todo) = Execution::start(plan, Limits::default(), *request, checked);
        let mut driver = Box::new(Driver {
            version: version.clone(),
            ticket: state,
            execution,
            todo: todo.into(),
            trace,
            accepted,
            begun: now_ns(),
            rows: checked.rows,
            sink: None,
            early: Vec::new(),
            held: None,
            is_stopping: false,
            is_over: false,
        });
        loop {
            let mut others = flow.turn(&mut driver, inline_until);
            let Some(first) = others.next() else { break };
            for other in std::iter::once(first).chain(std::iter::from_fn(|| others.next())) {
                other.make(inline_until);
            }
        }
        driver
    }));
    let Ok(mut driver) = begun else {
        version.left(1);
        ticket.end();
        return Ok(Started::Answered(Err(version.defect())));
    };
    if driver.is_over && !version.signature.decoupled {
        version.left(1);
        let last = driver.early.pop().and_then(|answer| answer.response);
        return Ok(Started::Answered(last.unwrap_or_else(|| Err(version.defect()))));
    }
    let sink = sink();
    for answer in std::mem::take(&mut driver.early) {
        version.put(Delivery { sink: sink.clone(), answer });
    }
    driver.sink = Some(sink);
    if let Some(driver) = flow.park(driver) {
        if driver.leaves(inline_until) { flow.hand_over(driver) } else { drive(flow, driver) }
    }
    Ok(Started::Queued(ticket))
}

/// Drives a flow until its inbox is empty, and then the other flows that can go on because of that. A list takes the place of recursion:
/// a call that ends may let a call of another request begin, which may end at once and let the next one begin, and so on.
fn drive(flow: Arc<Flow>, driver: Box<Driver>) {
    let _stretch = InStretch::begin();
    let inline_until = may_work_until(now_ns());
    let mut open = vec![(flow, driver)];
    while let Some((flow, driver)) = open.pop() {
        // A panic costs this request only.
        let driven = catch_unwind(AssertUnwindSafe(|| flow.go_on(driver, inline_until, &mut open)));
        if driven.is_err() {
            log::error!("driving an ensemble panicked; this is a defect of the server, please report it");
        }
    }
}

/// Until when this thread may run steps of a flow. All flows that it drives in one stretch share this time.
fn may_work_until(now: u64) -> u64 {
    now.saturating_add(ENSEMBLE_INLINE_NS_MAX).min(turn::stretch_ends(now))
}

/// Whether this thread is a reactor that has driven for as long as it may. Others wait for it.
fn is_late(until: u64) -> bool {
    turn::has_turns() && now_ns() >= until
}

thread_local! {
    static HANDED_OVER: RefCell<Vec<Driven>> = const { RefCell::new(Vec::new()) };
}

/// To be called at the end of a stretch: gives the flows that were handed over in it to threads of the pool.
pub(crate) fn submit_handed_over() {
    let all = HANDED_OVER.with_borrow_mut(std::mem::take);
    let Some(first) = all.first() else { return };
    let pool = first.flow.version.shared.pool.clone();
    let mut all = all.into_iter();
    while all.len() > 0 {
        let some: Vec<Driven> = all.by_ref().take(FLOWS_TOGETHER_MAX).collect();
        pool.submit(Work::of(|| some.into_iter().for_each(Driven::run)));
    }
}

impl Driven {
    pub(crate) fn run(self) {
        drive(self.flow, self.driver);
    }
}

impl Flow {
    fn ensemble(&self) -> Option<&Ensemble> {
        self.version.graph()
    }

    /// Charges outputs of a step to the memory of the server as a whole where later steps take them: they may have to wait for those
    /// steps. Small tensors are not charged.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED when there is no memory for them now.
    fn charged(&self, step: usize, mut response: InferResponse) -> Result<InferResponse> {
        static ACCOUNT: LazyLock<Account> = LazyLock::new(|| Budget::global().common());
        for output in &mut response.outputs {
            let Data::Bytes(bytes) = &mut output.data else { continue };
            if bytes.len() > SMALL_BYTES_MAX && self.plan.is_taken(step, usize::from(output.index)) {
                let charged = ACCOUNT.charge(Kind::Answer, false, bytes.len());
                let charge = charged.inspect_err(|_| ACCOUNT.count_refusal())?;
                *bytes = charge.hold(std::mem::take(bytes));
            }
        }
        Ok(response)
    }

    /// Leaves an answer in the inbox. Returns the driver if no thread drives the flow: then the caller has to.
    fn tell(&self, mut told: Told) -> Option<Box<Driver>> {
        let mut inbox = self.inbox.lock();
        let waiting = inbox.told.len();
        if waiting >= ANSWERS_WAITING_MAX && !told.last {
            if waiting > ANSWERS_WAITING_MAX {
                return None;
            }
            told.answer = Err(Error::exhausted(format!(
                "a step answers faster than its answers can be taken: at most {ANSWERS_WAITING_MAX} of a request may wait"
            )));
        }
        if told.last && !inbox.streams.is_empty() {
            inbox.streams.retain(|(run, _)| *run != told.run);
        }
        inbox.told.push_back(told);
        inbox.driver.take()
    }

    /// Drives this flow until its inbox is empty. Other flows that can go on because of that are added to `open`.
    fn go_on(self: &Arc<Self>, mut driver: Box<Driver>, inline_until: u64, open: &mut Vec<(Arc<Self>, Box<Driver>)>) {
        loop {
            // One answer takes little. But a batch that ends answers many requests, and this thread gets all of them.
            if is_late(inline_until) {
                return self.hand_over(driver);
            }
            let mut others = self.turn(&mut driver, inline_until);
            while let Some(other) = others.next() {
                let flow = other.flow.clone();
                open.extend(other.call(inline_until, &mut others).map(|driver| (flow, driver)));
            }
            match self.park(driver) {
                Some(again) if again.leaves(inline_until) => return self.hand_over(again),
                Some(again) => driver = again,
                None => return,
            }
        }
    }

    /// Prepares a call of a step. Returns it, with its place, if it may be made now; otherwise it is left in line.
    fn enter(self: &Arc<Self>, run: RunId, step: usize, request: InferRequest) -> Option<Waiting> {
        let waiting = Waiting { flow: self.clone(), run, step, request: Box::new(request), place: None };
        let waiting = match &self.turn {
            None => waiting,
            Some(turn) => {
                let Some(waiting) = turn.enter(step, waiting) else {
                    self.sweep_if_cancelled();
                    return None;
                };
                waiting
            }
        };
        waiting.placed()
    }

    /// To be called after a call was left in line. If its request was cancelled just before, the sweep of that cancellation did not find
    /// the call there.
    fn sweep_if_cancelled(&self) {
        if self.ticket.is_cancelled() {
            self.version.sweep_cancelled();
        }
    }

    /// Lets a thread of the pool go on with the driver. In a stretch, flows are collected and submitted together at its end: waking a
    /// thread costs this one more than driving a flow.
    fn hand_over(self: &Arc<Self>, driver: Box<Driver>) {
        let driven = Driven { flow: self.clone(), driver };
        if turn::in_stretch() {
            HANDED_OVER.with_borrow_mut(|all| all.push(driven));
        } else {
            self.version.shared.pool.submit(Work::of(|| driven.run()));
        }
    }

    /// Puts the driver back into the inbox. Returns it instead if actions are left or answers came meanwhile. Drops it if the request is
    /// over.
    fn park(&self, driver: Box<Driver>) -> Option<Box<Driver>> {
        let mut inbox = self.inbox.lock();
        if !driver.todo.is_empty() || !inbox.told.is_empty() {
            return Some(driver);
        }
        if !driver.is_over {
            inbox.driver = Some(driver);
        }
        None
    }

    /// Does the actions that are left, and tells the execution each answer in the inbox, as long as there is time. Returns the calls, of
    /// any request, that took the places of calls that ended: the caller makes them.
    #[must_use]
    fn turn(self: &Arc<Self>, driver: &mut Driver, inline_until: u64) -> Calls {
        let mut next = Calls::default();
        loop {
            self.perform(driver, inline_until, &mut next);
            if !driver.todo.is_empty() {
                return next;
            }
            let Some(told) = self.inbox.lock().told.pop_front() else { return next };
            next.add(told.place.and_then(Place::pass_on));
            driver.todo.extend(driver.execution.answered(told.run, told.answer, told.last));
        }
    }

    fn perform(self: &Arc<Self>, driver: &mut Driver, inline_until: u64, others: &mut Calls) {
        while driver.todo.front().is_some_and(|next| driver.may_do(next, inline_until))
            && let Some(action) = driver.todo.pop_front()
        {
            match action {
                Action::Start { run, step, request } => {
                    if let Some(waiting) = self.enter(run, step, request) {
                        // Returns a driver only if no thread has it, but this thread does.
                        _ = waiting.call(inline_until, others);
                    }
                }
                Action::Respond(mut response) => {
                    self.log_missing_outputs(driver.execution.request(), &response);
                    let placed = driver.place(&mut response).map(|()| Box::new(response));
                    let is_last = matches!(driver.todo.front(), Some(Action::Finish(Ok(()))));
                    if is_last || !self.version.signature.decoupled {
                        driver.held = Some(placed);
                    } else {
                        driver.put(Answer { response: Some(placed), is_final: false });
                    }
                }
                Action::Finish(ended) => driver.finish(ended),
            }
        }
        if driver.execution.is_stopping() && !std::mem::replace(&mut driver.is_stopping, true) {
            self.stop();
        }
    }

    /// Logs each output that the client asked for and no step gave, in Triton's words: its QA looks for them. The response leaves
    /// without these outputs.
    fn log_missing_outputs(&self, request: &InferRequest, response: &InferResponse) {
        if !log::log_enabled!(log::Level::Debug) {
            return;
        }
        for output in &self.version.signature.outputs {
            let is_asked = request.outputs.is_empty() || request.outputs.iter().any(|asked| asked.name == output.name);
            if is_asked && !response.outputs.iter().any(|given| given.name == output.name) {
                log::debug!("Composing models did not output tensor {}", output.name);
            }
        }
    }

    /// The request failed. Calls of decoupled steps are cancelled, as they may never end by themselves; other calls run to their end.
    /// Calls in line are not made.
    fn stop(self: &Arc<Self>) {
        let streams = {
            let mut inbox = self.inbox.lock();
            inbox.is_stopping = true;
            std::mem::take(&mut inbox.streams)
        };
        streams.iter().for_each(|(_, ticket)| ticket.cancel());
        let Some(ensemble) = self.ensemble() else { return };
        let mut mine = ensemble.inflight.lock().withdraw(|waiting| Arc::ptr_eq(&waiting.flow, self));
        mine.extend(self.turn.iter().flat_map(Turn::withdraw));
        for Waiting { run, .. } in mine {
            let told = Told { run, answer: Ok(None), last: true, place: None };
            self.inbox.lock().told.push_back(told);
        }
    }
}

impl Waiting {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.flow.ticket.is_cancelled()
    }

    /// Makes the call, and then the calls that can go on because of it. Drives the flow of each unless another thread does.
    pub(crate) fn make(self, inline_until: u64) {
        let mut calls = Calls::default();
        calls.add([self]);
        while let Some(call) = calls.next() {
            let flow = call.flow.clone();
            if let Some(driver) = call.call(inline_until, &mut calls) {
                drive(flow, driver);
            }
        }
    }

    /// Takes a place among the calls of its step that are in flight, if the ensemble limits those. Returns the call with its place;
    /// `None` if it was left in line.
    pub(crate) fn placed(self) -> Option<Self> {
        let flow = self.flow.clone();
        let Some(ensemble) = flow.ensemble().filter(|_| flow.plan.max_inflight() > 0) else { return Some(self) };
        let step = self.step;
        let entered = ensemble.inflight.lock().enter(step, self);
        match entered {
            Some(waiting) => Some(Self { place: Some(Place::new(flow.version.clone(), step)), ..waiting }),
            None => {
                flow.sweep_if_cancelled();
                None
            }
        }
    }

    /// Has a thread of the pool make the call.
    pub(crate) fn submit(self) {
        let pool = self.flow.version.shared.pool.clone();
        pool.submit(Work::of(|| self.make(u64::MAX)));
    }

    /// Makes the call. Returns the flow's driver if the call was answered at once and no thread drives the flow. Calls of later requests
    /// of the sequence that may be made now are added to `others`.
    fn call(self, inline_until: u64, others: &mut Calls) -> Option<Box<Driver>> {
        let flow = self.flow.clone();
        let step = self.step;
        let driver = self.made(inline_until);
        // The model has accepted or refused the request, so calls of later requests reach it behind this one.
        if let Some(turn) = flow.turn.as_ref().filter(|_| flow.plan.is_called_once(step)) {
            others.add(turn.leave(step).into_iter().filter_map(Self::placed));
        }
        driver
    }

    fn made(self, inline_until: u64) -> Option<Box<Driver>> {
        let Self { flow, run, step, mut request, mut place } = self;
        // The request ended in a panic while this call stood in line: nobody waits for the answer.
        if (place.is_some() || flow.turn.is_some()) && flow.ticket.is_settled() {
            return None;
        }
        if let Some(trace) = &flow.trace {
            request.trace = trace.child();
        }
        let answered = |answer, place| Told { run, answer, last: true, place };
        let Some(model) = flow.models.get(step) else {
            return flow.tell(answered(Err(flow.version.defect()), place));
        };
        let sink =
            || Arc::new(StepSink { flow: flow.clone(), run, step, place: Mutex::new(place.take()) }) as Arc<dyn Sink>;
        // A call that panics is answered with an error. If it was answered before the panic, the execution ignores the second answer.
        let started = catch_unwind(AssertUnwindSafe(|| {
            let depth = flow.depth.saturating_add(1);
            model.start(request, sink, Caller { parent: Some(&flow.ticket), inline_until, depth })
        }));
        match started.unwrap_or_else(|_| Err(flow.version.defect())) {
            Err(refusal) => flow.tell(answered(Err(refusal), place)),
            Ok(Started::Answered(result)) => {
                let answer = result.and_then(|response| flow.charged(step, *response)).map(Some);
                flow.tell(answered(answer, place))
            }
            Ok(Started::Queued(ticket)) => {
                if model.signature.decoupled && !ticket.is_settled() {
                    let mut inbox = flow.inbox.lock();
                    if inbox.is_stopping {
                        drop(inbox);
                        ticket.cancel();
                    } else {
                        inbox.streams.push((run, ticket));
                    }
                }
                None
            }
        }
    }

    /// Ends the call without making it: its request was cancelled.
    pub(crate) fn refuse(self) {
        let Self { flow, run, .. } = self;
        let told = Told { run, answer: Err(Error::cancelled("")), last: true, place: None };
        if let Some(driver) = flow.tell(told) {
            drive(flow, driver);
        }
    }
}

impl Driver {
    /// Whether this thread may do this action. A reactor leaves what takes long to another thread; anything else costs less than handing
    /// it over.
    fn may_do(&self, next: &Action, inline_until: u64) -> bool {
        match next {
            Action::Start { .. } => !is_late(inline_until),
            Action::Respond(response) => {
                !turn::has_turns() || self.bytes_to_copy(response) <= ENSEMBLE_COPY_BYTES_ON_REACTOR_MAX
            }
            Action::Finish(_) => true,
        }
    }

    /// Bytes that `place` would copy. `usize::MAX` if a device takes part: then the copy takes as long as the device likes, however few
    /// bytes there are.
    fn bytes_to_copy(&self, response: &InferResponse) -> usize {
        let has_regions = self.has_regions();
        let copied = |output: &OutputTensor| match &output.data {
            // A step has written it into the client's region.
            data if self.region_of(output).is_some_and(|region| scatter::is_in(data, region)) => 0,
            Data::Region(region) if matches!(region.base(), Base::Device(_)) => {
                // An output that may stay on the device is not copied.
                if output.form.anywhere && !region.is_shared() { 0 } else { usize::MAX }
            }
            _ if has_regions && waits_for_device(self.execution.request()) => usize::MAX,
            Data::Bytes(bytes) => {
                if has_regions {
                    bytes.len()
                } else {
                    0
                }
            }
            Data::Region(region) => region.len(),
        };
        response.outputs.iter().map(copied).fold(0, usize::saturating_add)
    }

    /// Whether the client named a region for an output.
    fn has_regions(&self) -> bool {
        self.execution.request().outputs.iter().any(|wanted| wanted.region.is_some())
    }

    /// Whether another thread should go on with this driver.
    fn leaves(&self, inline_until: u64) -> bool {
        is_late(inline_until) || self.todo.front().is_some_and(|next| !self.may_do(next, inline_until))
    }

    /// The region that the client named for an output.
    fn region_of(&self, output: &OutputTensor) -> Option<&RegionRef> {
        let wanted = &self.execution.request().outputs;
        let mut named = wanted.iter().filter(|wanted| wanted.region.is_some());
        named.find(|wanted| wanted.name == output.name)?.region.as_ref()
    }

    /// Brings the outputs to where the client wants them.
    fn place(&self, response: &mut InferResponse) -> Result<()> {
        for output in &mut response.outputs {
            let is_offer = output.form.anywhere;
            let len = output.data.len();
            let region = self.region_of(output).filter(|region| !is_offer || region.len() >= len);
            output.data = match std::mem::take(&mut output.data) {
                // It goes to a step of an ensemble around this one.
                Data::Region(source) if region.is_none() && is_offer => scatter::left(source)?,
                data => scatter::place(&output.name, data, region)?,
            };
        }
        Ok(())
    }

    fn put(&mut self, answer: Answer) {
        match &self.sink {
            Some(sink) => self.version.put(Delivery { sink: sink.clone(), answer }),
            None => self.early.push(answer),
        }
    }

    /// Counts the request and gives its last answer.
    fn finish(&mut self, ended: Result<()>) {
        self.is_over = true;
        let held = self.held.take();
        let last = match (self.ticket.settle(), ended) {
            (Some(reason), _) => Some(Err(reason)),
            (None, Err(error)) => Some(Err(error)),
            (None, Ok(())) => held,
        };
        let now = now_ns();
        let [input, infer, output] = self.ticket.spent();
        let statistics = &self.version.statistics;
        match last.as_ref().and_then(|result| result.as_ref().err()) {
            None => {
                // The times of all steps added up, although steps may have run side by side.
                let inputs_ready = self.begun + input;
                let inference_end = inputs_ready + infer;
                let marks = Marks { inputs_ready, inference_end, outputs_ready: inference_end + output };
                let timings = Timings { start: self.begun, marks, end: now };
                statistics.first_response(self.accepted, now);
                statistics.ended(NO_INSTANCE, &timings, self.accepted, self.rows, Some(u64::from(self.rows.max(1))));
            }
            Some(error) if error.code() == Code::Cancelled => {
                statistics.failed(self.accepted, now, FailureReason::Cancelled);
            }
            // Twice, as Triton counts it and its dashboards have learned to read it (observability.md 1.7).
            Some(_) => {
                statistics.failed(self.accepted, now, FailureReason::Other);
                statistics.failed_late(NO_INSTANCE, self.accepted, now, FailureReason::Other);
            }
        }
        self.ticket.tell_spent([input, infer, output]);
        if let Some(trace) = &self.trace {
            match &last {
                Some(result) if !self.version.signature.decoupled => traced::answered(trace, result, now),
                last => trace.ended(now, last.as_ref().and_then(|result| result.as_ref().err())),
            }
        }
        self.put(Answer { response: last, is_final: true });
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.ticket.settle();
        // Calls of decoupled steps may never end by themselves.
        let stopped = catch_unwind(AssertUnwindSafe(|| self.ticket.cancel()));
        if stopped.is_err() {
            log::error!("the steps of a request whose handling panicked could not be stopped");
        }
        let Some(sink) = self.sink.take() else { return };
        // This may run while a panic unwinds, where a second panic would end the process.
        let answer = Answer::only(Err(self.version.defect()));
        let put = catch_unwind(AssertUnwindSafe(|| self.version.put(Delivery { sink, answer })));
        if put.is_err() {
            log::error!("a request of an ensemble could not be answered");
        }
    }
}
