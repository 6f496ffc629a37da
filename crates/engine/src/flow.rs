//! Flows: one request on its way through an ensemble. Connects its graph execution with calls of steps.
//!
//! No thread waits for a step. A thread that has a response leaves it in the inbox of the flow, and if no thread drives
//! the flow, drives it: passes responses to the execution, calls the next steps, delivers responses, until the inbox is
//! empty. So all of this happens in one order, and never under a lock. A step is an ordinary call with the ensemble's
//! ticket as its parent. Starting many steps takes long even if none runs inline, so a reactor passes the driver to a
//! pool thread when its share of time is over.
//!
//! Invariants: only the thread that has the driver drives. A flow ends exactly once, even after a panic: a driver that
//! is dropped before its request is over responds with an error.

use crate::answer::{EngineResponse, Sink};
use crate::call::{Caller, Started};
use crate::delivery_scope::{self, DeliveryScope};
use crate::ensemble::Ensemble;
use crate::inline::waits_for_device;
use crate::limits::{
    ANSWERS_WAITING_MAX, ENSEMBLE_COPY_BYTES_ON_REACTOR_MAX, ENSEMBLE_INLINE_NS_MAX, FLOWS_TOGETHER_MAX,
};
use crate::places::{CallPermit, DueCalls, SequenceTurn};
use crate::statistics::FailureReason;
use crate::ticket::{Ticket, TicketState};
use crate::times::Timings;
use crate::traced;
use crate::version::{ModelVersion, Work};
use backend::{Marks, now_ns, scatter};
use graph::{Action, DEPTH_MAX, GraphExecution, Limits, Plan, RunId};
use memory::budget::SMALL_BYTES_MAX;
use memory::{Budget, Kind};
use parking_lot::Mutex;
use protocol::{Checked, InferRequest, InferResponse, OutputTensor};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tensor::{Base, Code, Data, Error, Fault, RegionRef, Result};
use trace::Trace;

/// Instance number for the statistics of an ensemble, which has no instances.
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
    /// Number of ensembles around this one.
    depth: u32,
    /// Only for a request that belongs to a sequence, in an ensemble whose steps keep the state of sequences.
    turn: Option<SequenceTurn>,
    inbox: Mutex<StepInbox>,
}

#[derive(Default)]
struct StepInbox {
    /// Responses that the execution has not processed yet.
    responses: VecDeque<StepResponse>,
    /// The driver, while no thread drives the flow.
    driver: Option<Box<FlowDriver>>,
    /// Calls of decoupled steps that are in progress. They may never end by themselves.
    streams: Vec<(RunId, Ticket)>,
    /// The request failed, and the calls in `streams` were cancelled; later ones are cancelled at once.
    is_stopping: bool,
}

struct StepResponse {
    run: RunId,
    answer: Result<Option<InferResponse>>,
    last: bool,
    /// Set in the last response of a call with a permit.
    place: Option<CallPermit>,
}

/// State that only the driving thread may touch.
struct FlowDriver {
    version: Arc<ModelVersion>,
    ticket: Arc<TicketState>,
    execution: GraphExecution,
    /// Actions not performed yet. Empty between turns, unless a reactor ran out of time.
    todo: VecDeque<Action>,
    trace: Option<Trace>,
    accepted: u64,
    /// When the flow began. The time since `accepted` counts as queue time.
    begun: u64,
    rows: u32,
    /// Receiver of responses; only created if the request was not over at once.
    sink: Option<Arc<dyn Sink>>,
    /// Responses from before there was a sink.
    early: Vec<EngineResponse>,
    /// The response of an ensemble that has exactly one, kept until the request is over.
    held: Option<Result<Box<InferResponse>>>,
    /// Set after the first response of a decoupled ensemble.
    has_answered: bool,
    is_stopping: bool,
    is_over: bool,
}

type Driven = (Arc<Flow>, Box<FlowDriver>);

/// A call of a step to be made. It may have to wait for other calls of the step (`max_inflight_requests`), or until
/// earlier requests of its sequence have called the step.
pub(crate) struct StepCall {
    flow: Arc<Flow>,
    run: RunId,
    step: usize,
    request: Box<InferRequest>,
    /// Set once the call counts as in flight, if the ensemble limits that.
    pub(crate) place: Option<CallPermit>,
}

struct StepSink {
    flow: Arc<Flow>,
    run: RunId,
    step: usize,
    /// Permit of the call, until the last response.
    place: Mutex<Option<CallPermit>>,
}

impl Sink for StepSink {
    fn put(&self, EngineResponse { response, is_final, .. }: EngineResponse) {
        let answer = match response.transpose() {
            Ok(None) => Ok(None),
            Ok(Some(response)) => self.flow.charged(self.step, *response).map(Some),
            Err(error) => Err(error),
        };
        let place = if is_final { self.place.lock().take() } else { None };
        let response = StepResponse { run: self.run, answer, last: is_final, place };
        if let Some(driver) = self.flow.enqueue(response) {
            drive((self.flow.clone(), driver));
        }
    }
}

/// Starts an accepted request. Returns the response if all steps finished at once.
// Not inlined, to keep the code of other calls small.
#[inline(never)]
pub(crate) fn start(
    version: &ModelVersion,
    ensemble: &Ensemble,
    request: Box<InferRequest>,
    (checked, accepted): (&Checked, u64),
    sink: impl FnOnce() -> Arc<dyn Sink>,
    Caller { parent, inline_until, depth, .. }: Caller<'_>,
) -> Result<Started> {
    // Plans are limited in depth, but a nested ensemble may have been reloaded with more in it.
    if depth > DEPTH_MAX {
        let text = format!("ensembles contain one another more than {DEPTH_MAX} levels deep");
        return Err(Error::unavailable(text).by_model().retry(false));
    }
    let Some(version) = version.me.upgrade() else { return Err(Error::unavailable("Server exiting")) };
    let (compiled, models) = ensemble.begin()?;
    let state = TicketState::new(Some(version.me.clone()), parent.map(|p| &p.state))?;
    let plan = compiled.plan.clone();
    let ticket = Ticket::new(state.clone());
    let flow = Arc::new(Flow {
        version: version.clone(),
        plan: plan.clone(),
        models,
        ticket: ticket.clone(),
        trace: request.trace.clone(),
        depth,
        turn: SequenceTurn::new(&version, &request.sequence.id, &compiled.in_turn),
        inbox: Mutex::default(),
    });
    version.joined(1);
    let inline_until = inline_until.min(may_work_until(accepted));
    let trace = request.trace.clone();
    let begun = catch_unwind(AssertUnwindSafe(|| {
        let (execution, todo) = GraphExecution::start(plan, Limits::default(), *request, checked);
        let mut driver = Box::new(FlowDriver {
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
            has_answered: false,
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
        version.put(sink.clone(), answer);
    }
    driver.sink = Some(sink);
    if let Some(driver) = flow.park(driver) {
        if driver.leaves(inline_until) { flow.hand_over(driver) } else { drive((flow, driver)) }
    }
    Ok(Started::Queued(ticket))
}

/// Drives a flow until its inbox is empty, and then other flows that can continue because of that. A list replaces
/// recursion, because a call that ends may let another request's call begin, which may end at once, and so on.
fn drive(driven: Driven) {
    let _scope = DeliveryScope::begin();
    let inline_until = may_work_until(now_ns());
    let mut open = vec![driven];
    while let Some((flow, driver)) = open.pop() {
        // A panic costs this request only.
        let driven = catch_unwind(AssertUnwindSafe(|| flow.drive_until_empty(driver, inline_until, &mut open)));
        if driven.is_err() {
            log::error!("driving an ensemble panicked; this is a defect of the server, please report it");
        }
    }
}

/// End of the time in which this thread may run steps, shared by all flows that it drives in one delivery scope.
fn may_work_until(now: u64) -> u64 {
    now.saturating_add(ENSEMBLE_INLINE_NS_MAX).min(delivery_scope::ends(now))
}

/// True if this is a reactor that has driven for as long as it may, because others wait for it.
fn is_late(until: u64) -> bool {
    delivery_scope::has_turns() && now_ns() >= until
}

thread_local! {
    static HANDED_OVER: RefCell<Vec<Driven>> = const { RefCell::new(Vec::new()) };
}

/// Called at the end of a delivery scope: passes the flows that were handed over in it to pool threads.
fn submit_handed_over() {
    let all = HANDED_OVER.with_borrow_mut(std::mem::take);
    let Some(first) = all.first() else { return };
    let pool = first.0.version.shared.pool.clone();
    let mut all = all.into_iter();
    while all.len() > 0 {
        let some: Vec<Driven> = all.by_ref().take(FLOWS_TOGETHER_MAX).collect();
        pool.submit(Work::of(|| some.into_iter().for_each(drive)));
    }
}

impl Flow {
    /// Charges large outputs that later steps use to the memory budget, because they may wait for those steps.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if there is no memory for them now.
    fn charged(&self, step: usize, mut response: InferResponse) -> Result<InferResponse> {
        let account = Budget::global().common();
        for output in &mut response.outputs {
            let Data::Bytes(bytes) = &mut output.data else { continue };
            if bytes.len() > SMALL_BYTES_MAX && self.plan.is_taken(step, usize::from(output.index)) {
                let charged = account.charge(Kind::Answer, false, bytes.len());
                let charge = charged.inspect_err(|_| account.count_refusal())?;
                *bytes = charge.hold(std::mem::take(bytes));
            }
        }
        Ok(response)
    }

    /// Leaves a response in the inbox. Returns the driver if no thread drives the flow; then the caller has to.
    fn enqueue(&self, mut response: StepResponse) -> Option<Box<FlowDriver>> {
        let mut inbox = self.inbox.lock();
        let waiting = inbox.responses.len();
        if waiting >= ANSWERS_WAITING_MAX && !response.last {
            if waiting > ANSWERS_WAITING_MAX {
                return None;
            }
            response.answer = Err(Error::exhausted(format!(
                "a step sends responses faster than they can be processed: at most {ANSWERS_WAITING_MAX} of a request \
                 may wait"
            ))
            .by(Fault::Model)
            .retry(false));
        }
        if response.last && !inbox.streams.is_empty() {
            inbox.streams.retain(|(run, _)| *run != response.run);
        }
        inbox.responses.push_back(response);
        inbox.driver.take()
    }

    /// Drives this flow until its inbox is empty. Other flows that can continue because of that are added to `open`.
    fn drive_until_empty(self: &Arc<Self>, mut driver: Box<FlowDriver>, inline_until: u64, open: &mut Vec<Driven>) {
        loop {
            // One response takes little, but a batch that ends may have many requests on this thread.
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

    /// Prepares a call of a step. Returns it, with its permit, if it may be made now; otherwise it is queued.
    fn enter(self: &Arc<Self>, run: RunId, step: usize, request: InferRequest) -> Option<StepCall> {
        let waiting = StepCall { flow: self.clone(), run, step, request: Box::new(request), place: None };
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

    /// Called after a call was queued. If its request was cancelled just before, that sweep did not find the call.
    fn sweep_if_cancelled(&self) {
        if self.ticket.is_cancelled() {
            self.version.sweep_cancelled();
        }
    }

    /// Lets a pool thread continue with the driver. In a scope, flows are collected and submitted together at its
    /// end, because waking a thread costs this one more than driving a flow.
    fn hand_over(self: &Arc<Self>, driver: Box<FlowDriver>) {
        let driven = (self.clone(), driver);
        if delivery_scope::at_end(submit_handed_over) {
            HANDED_OVER.with_borrow_mut(|all| all.push(driven));
        } else {
            self.version.shared.pool.submit(Work::of(|| drive(driven)));
        }
    }

    /// Returns the driver to the inbox; hands it back if work is left, and drops it if the request is over.
    fn park(&self, driver: Box<FlowDriver>) -> Option<Box<FlowDriver>> {
        let mut inbox = self.inbox.lock();
        if !driver.todo.is_empty() || !inbox.responses.is_empty() {
            return Some(driver);
        }
        if !driver.is_over {
            inbox.driver = Some(driver);
        }
        None
    }

    /// Performs actions and processes responses as long as there is time. Returns the calls, of any request, that took
    /// the permits of finished calls: the caller makes them.
    #[must_use]
    fn turn(self: &Arc<Self>, driver: &mut FlowDriver, inline_until: u64) -> DueCalls {
        let mut next = DueCalls::default();
        loop {
            self.perform(driver, inline_until, &mut next);
            if !driver.todo.is_empty() {
                return next;
            }
            let Some(response) = self.inbox.lock().responses.pop_front() else { return next };
            next.add(response.place.and_then(CallPermit::pass_on));
            driver.todo.extend(driver.execution.answered(response.run, response.answer, response.last));
        }
    }

    fn perform(self: &Arc<Self>, driver: &mut FlowDriver, inline_until: u64, others: &mut DueCalls) {
        while driver.todo.front().is_some_and(|next| driver.may_do(next, inline_until))
            && let Some(action) = driver.todo.pop_front()
        {
            match action {
                Action::Start { run, step, request } => {
                    if let Some(waiting) = self.enter(run, step, request) {
                        // No driver is returned, because this thread has it.
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
                        driver.answers_first(now_ns());
                        driver.put(EngineResponse::more(placed));
                    }
                }
                Action::Finish(ended) => driver.finish(ended),
            }
        }
        if driver.execution.is_stopping() && !std::mem::replace(&mut driver.is_stopping, true) {
            self.stop();
        }
    }

    /// Logs each output that was requested and that no step returned, in Triton's words, which its QA looks for. The
    /// response is sent without these outputs.
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

    /// Stops a failed request. Calls of decoupled steps are cancelled, because they may never end by themselves; other
    /// calls run to their end, and queued calls are not made.
    fn stop(self: &Arc<Self>) {
        let streams = {
            let mut inbox = self.inbox.lock();
            inbox.is_stopping = true;
            std::mem::take(&mut inbox.streams)
        };
        streams.iter().for_each(|(_, ticket)| ticket.cancel());
        let Some(ensemble) = self.version.graph() else { return };
        let mut mine = ensemble.inflight.lock().withdraw(|waiting| Arc::ptr_eq(&waiting.flow, self));
        mine.extend(self.turn.iter().flat_map(SequenceTurn::withdraw));
        for StepCall { run, .. } in mine {
            let response = StepResponse { run, answer: Ok(None), last: true, place: None };
            self.inbox.lock().responses.push_back(response);
        }
    }
}

impl StepCall {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.flow.ticket.is_cancelled()
    }

    /// Makes the call, and the calls that can continue because of it. Drives each flow unless another thread does.
    pub(crate) fn make(self, inline_until: u64) {
        let mut calls = DueCalls::default();
        calls.add([self]);
        while let Some(call) = calls.next() {
            let flow = call.flow.clone();
            if let Some(driver) = call.call(inline_until, &mut calls) {
                drive((flow, driver));
            }
        }
    }

    /// Takes a permit, if calls in flight are limited. Returns the call with it, or `None` if it was queued.
    pub(crate) fn placed(self) -> Option<Self> {
        let flow = self.flow.clone();
        let Some(ensemble) = flow.version.graph().filter(|_| flow.plan.max_inflight() > 0) else { return Some(self) };
        let step = self.step;
        let entered = ensemble.inflight.lock().enter(step, self);
        match entered {
            Some(waiting) => Some(Self { place: Some(CallPermit::new(flow.version.clone(), step)), ..waiting }),
            None => {
                flow.sweep_if_cancelled();
                None
            }
        }
    }

    /// Lets a pool thread make the call.
    pub(crate) fn submit(self) {
        let pool = self.flow.version.shared.pool.clone();
        pool.submit(Work::of(|| self.make(u64::MAX)));
    }

    /// Makes the call. Returns the flow's driver if the call finished at once and no thread drives the flow. Adds calls
    /// of later requests of the sequence that may be made now to `others`.
    fn call(self, inline_until: u64, others: &mut DueCalls) -> Option<Box<FlowDriver>> {
        let flow = self.flow.clone();
        let step = self.step;
        let driver = self.made(inline_until);
        // The model has accepted or rejected the request, so calls of later requests reach it behind this one.
        if let Some(turn) = flow.turn.as_ref().filter(|_| flow.plan.is_called_once(step)) {
            others.add(turn.leave(step).into_iter().filter_map(Self::placed));
        }
        driver
    }

    fn made(self, inline_until: u64) -> Option<Box<FlowDriver>> {
        let Self { flow, run, step, mut request, mut place } = self;
        // The request ended in a panic while this call was queued, so no response is needed.
        if (place.is_some() || flow.turn.is_some()) && flow.ticket.is_settled() {
            return None;
        }
        if let Some(trace) = &flow.trace {
            request.trace = trace.child();
        }
        let answered = |answer, place| StepResponse { run, answer, last: true, place };
        let Some(model) = flow.models.get(step) else {
            return flow.enqueue(answered(Err(flow.version.defect()), place));
        };
        let sink =
            || Arc::new(StepSink { flow: flow.clone(), run, step, place: Mutex::new(place.take()) }) as Arc<dyn Sink>;
        // A call that panics gets an error. If it had responded before, the execution ignores the second response.
        let started = catch_unwind(AssertUnwindSafe(|| {
            let depth = flow.depth.saturating_add(1);
            model.start(request, sink, Caller { parent: Some(&flow.ticket), inline_until, depth, text: None })
        }));
        match started.unwrap_or_else(|_| Err(flow.version.defect())) {
            Err(refusal) => flow.enqueue(answered(Err(refusal), place)),
            Ok(Started::Answered(result)) => {
                let answer = result.and_then(|response| flow.charged(step, *response)).map(Some);
                flow.enqueue(answered(answer, place))
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

    /// Ends the call of a cancelled request without making it.
    pub(crate) fn cancel(self) {
        let Self { flow, run, .. } = self;
        let response = StepResponse { run, answer: Err(Error::cancelled("")), last: true, place: None };
        if let Some(driver) = flow.enqueue(response) {
            drive((flow, driver));
        }
    }
}

impl FlowDriver {
    /// True if this thread may perform the action. A reactor leaves long ones to other threads.
    fn may_do(&self, next: &Action, inline_until: u64) -> bool {
        match next {
            Action::Start { .. } => !is_late(inline_until),
            Action::Respond(response) => {
                !delivery_scope::has_turns() || self.bytes_to_copy(response) <= ENSEMBLE_COPY_BYTES_ON_REACTOR_MAX
            }
            Action::Finish(_) => true,
        }
    }

    /// Bytes that `place` would copy. `usize::MAX` if a device takes part, because the time of such a copy is unknown.
    fn bytes_to_copy(&self, response: &InferResponse) -> usize {
        let has_regions = self.has_regions();
        let copied = |output: &OutputTensor| match &output.data {
            // The step wrote it into the client's region.
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

    /// True if the client named a region for an output.
    fn has_regions(&self) -> bool {
        self.execution.request().outputs.iter().any(|wanted| wanted.region.is_some())
    }

    /// True if another thread should continue with this driver.
    fn leaves(&self, inline_until: u64) -> bool {
        is_late(inline_until) || self.todo.front().is_some_and(|next| !self.may_do(next, inline_until))
    }

    /// The region that the client named for an output.
    fn region_of(&self, output: &OutputTensor) -> Option<&RegionRef> {
        let wanted = &self.execution.request().outputs;
        let mut named = wanted.iter().filter(|wanted| wanted.region.is_some());
        named.find(|wanted| wanted.name == output.name)?.region.as_ref()
    }

    /// Moves the outputs to the locations that the client requested.
    fn place(&self, response: &mut InferResponse) -> Result<()> {
        for output in &mut response.outputs {
            let is_offer = output.form.anywhere;
            let len = output.data.len();
            let region = self.region_of(output).filter(|region| !is_offer || region.len() >= len);
            output.data = match std::mem::take(&mut output.data) {
                // A step of the enclosing ensemble will use it.
                Data::Region(source) if region.is_none() && is_offer => scatter::kept_on_device(source)?,
                data => scatter::place(&output.name, data, region)?,
            };
        }
        Ok(())
    }

    fn put(&mut self, answer: EngineResponse) {
        match &self.sink {
            Some(sink) => self.version.put(sink.clone(), answer),
            None => self.early.push(answer),
        }
    }

    fn answers_first(&mut self, now: u64) {
        if !std::mem::replace(&mut self.has_answered, true) {
            self.version.statistics.first_response(self.accepted, now, self.trace.as_ref());
        }
    }

    /// Counts the request and sends its last response.
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
                // The sums of the times of all steps, although steps may have run side by side.
                let inputs_ready = self.begun + input;
                let inference_end = inputs_ready + infer;
                let marks = Marks { inputs_ready, inference_end, outputs_ready: inference_end + output };
                let timings = Timings { start: self.begun, marks, end: now };
                statistics.ended(NO_INSTANCE, &timings, self.accepted, self.rows, Some(u64::from(self.rows.max(1))));
                self.trace.iter().for_each(|trace| statistics.exemplify(trace, &timings));
                self.answers_first(now);
            }
            Some(error) if error.code() == Code::Cancelled => {
                statistics.failed(self.accepted, now, FailureReason::Cancelled);
            }
            // Twice, as in Triton, because dashboards expect it (observability.md 1.7).
            Some(_) => {
                statistics.failed(self.accepted, now, FailureReason::Other);
                statistics.failed_late(NO_INSTANCE, self.accepted, now, FailureReason::Other);
            }
        }
        self.ticket.add_to_parent([input, infer, output]);
        if let Some(trace) = &self.trace {
            match &last {
                Some(result) if !self.version.signature.decoupled => traced::answered(trace, result, now),
                last => trace.ended(now, last.as_ref().and_then(|result| result.as_ref().err())),
            }
        }
        self.put(EngineResponse::last(last));
    }
}

impl Drop for FlowDriver {
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
        let answer = EngineResponse::only(Err(self.version.defect()));
        let put = catch_unwind(AssertUnwindSafe(|| self.version.put(sink, answer)));
        if put.is_err() {
            log::error!("a response of an ensemble could not be sent");
        }
    }
}
