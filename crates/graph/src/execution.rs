//! The state machine of one request to an ensemble.
//!
//! Call [`GraphExecution::start`], perform its actions, pass each response of each run to [`GraphExecution::answered`],
//! perform its actions, until [`Action::Finish`]. Responses of one run are passed in order, the last one marked as
//! last; runs may interleave in any order.
//!
//! Invariants: a started run ends exactly once; `Finish` is returned once, after all runs have ended and all responses
//! are sent, and then no tensor is kept; responses are complete and in the order of their iterations. After the first
//! error or a cancellation no run starts, no response is sent, and all tensors are dropped.

use crate::batch::convert;
use crate::iteration::{Iteration, Progress, SlotState, TensorSlot, Value};
use crate::limits::Limits;
use crate::order::Order;
use crate::plan::{Plan, Step};
use crate::request::RequestPlan;
use crate::sequence;
use protocol::{
    Checked, InferRequest, InferResponse, InputTensor, OutputForm, OutputTensor, Sequence, check::IdPrefix,
};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tensor::{Error, Fault, Result, reshape};

/// A call of one step's model for one iteration. Ids are unique in an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(u64);

/// An action for the caller. Actions are performed in order.
#[derive(Debug)]
pub enum Action {
    /// Call the model of `Plan::steps()[step]`. A rejection counts as its last response.
    Start {
        /// Id of the call, for its responses.
        run: RunId,
        /// Index of the step.
        step: usize,
        /// The complete request to the model.
        request: InferRequest,
    },
    /// Send this response to the client.
    Respond(InferResponse),
    /// End the request. An error is the last message after the responses.
    Finish(Result<()>),
}

/// Resources of an execution, for the flow control of decoupled steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pressure {
    /// Iterations that are not done.
    pub iterations: usize,
    /// Bytes of kept tensors.
    pub bytes: u64,
    /// Iterations that may be added before their number ends the request with RESOURCE_EXHAUSTED.
    pub room: usize,
}

/// Scope (see `plan`) and iteration number.
type IterationId = (usize, u64);

struct Run {
    step: usize,
    iteration: IterationId,
    sequence: Sequence,
    responded: bool,
}

/// The execution of one request. Not thread-safe: the caller serialises its calls.
pub struct GraphExecution {
    plan: Arc<Plan>,
    state: ExecutionState,
}

struct ExecutionState {
    limits: Limits,
    request: RequestPlan,
    iterations: BTreeMap<IterationId, Iteration>,
    runs: BTreeMap<RunId, Run>,
    /// Indexed by `Step::order`; the last one orders the responses.
    orders: Vec<Order>,
    /// Iterations so far, by scope.
    numbers: Vec<u64>,
    runs_begun: u64,
    held_bytes: u64,
    responded: bool,
    /// First error, with the text for the client.
    failure: Option<Error>,
    finished: bool,
    /// Steps that became ready, and iterations to check; empty between calls.
    ready: VecDeque<(IterationId, usize)>,
    touched: VecDeque<IterationId>,
    actions: Vec<Action>,
}

impl GraphExecution {
    /// Starts a request for which `Signature::check` returned `checked`.
    pub fn start(plan: Arc<Plan>, limits: Limits, request: InferRequest, checked: &Checked) -> (Self, Vec<Action>) {
        let mut state = ExecutionState::new(&plan, limits, request, checked);
        state.begin(&plan, checked);
        let actions = state.settle(&plan);
        (Self { plan, state }, actions)
    }

    /// Processes one message of a run: a response, an empty final message, or an error. Ignores runs that have ended.
    pub fn answered(&mut self, run: RunId, answer: Result<Option<InferResponse>>, last: bool) -> Vec<Action> {
        self.state.answered(&self.plan, run, answer, last);
        self.state.settle(&self.plan)
    }

    /// Cancels the request: no run starts any more, and `Finish` with this reason follows when all runs have ended. The
    /// caller cancels the runs.
    pub fn cancel(&mut self, reason: Error) -> Vec<Action> {
        if !self.state.finished {
            self.state.fail(&self.plan, reason);
        }
        self.state.settle(&self.plan)
    }

    /// True if the request failed or was cancelled and only waits for its runs. The caller reports runs that it has
    /// not begun as ended.
    pub fn is_stopping(&self) -> bool {
        self.state.failure.is_some()
    }

    /// The client's request, without its inputs.
    pub fn request(&self) -> &InferRequest {
        &self.state.request.head
    }

    /// The plan of the ensemble.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Current resources.
    pub fn pressure(&self) -> Pressure {
        let iterations = self.state.iterations();
        let room = self.state.limits.iterations_max.saturating_sub(iterations);
        Pressure { iterations, bytes: self.state.held_bytes, room }
    }

    /// The runs that have not ended.
    pub fn runs(&self) -> impl Iterator<Item = RunId> {
        self.state.runs.keys().copied()
    }

    /// True if no state of the request is left, as after `Finish`.
    pub fn is_empty(&self) -> bool {
        let s = &self.state;
        let idle = s.iterations.is_empty() && s.runs.is_empty() && s.orders.iter().all(Order::is_empty);
        idle && s.held_bytes == 0 && s.ready.is_empty() && s.touched.is_empty() && s.actions.is_empty()
    }
}

impl ExecutionState {
    fn new(plan: &Plan, limits: Limits, head: InferRequest, checked: &Checked) -> Self {
        Self {
            limits,
            request: RequestPlan::new(plan, head, checked),
            iterations: BTreeMap::new(),
            runs: BTreeMap::new(),
            orders: (0..=plan.orders).map(|_| Order::default()).collect(),
            numbers: vec![0; plan.scopes.len()],
            runs_begun: 0,
            held_bytes: 0,
            responded: false,
            failure: None,
            finished: false,
            ready: VecDeque::new(),
            touched: VecDeque::new(),
            actions: Vec::new(),
        }
    }

    /// Sets the tensors of the inputs, and makes the first steps ready.
    fn begin(&mut self, plan: &Plan, checked: &Checked) {
        let inputs = std::mem::take(&mut self.request.head.inputs);
        let iteration = self.open(plan, 0);
        let batches = plan.signature.batches();
        for (input, &index) in inputs.into_iter().zip(&checked.inputs) {
            let index = usize::from(index);
            let (Some(spec), Some(&tensor)) = (plan.signature.inputs.get(index), plan.inputs.get(index)) else {
                continue;
            };
            let shape = reshape::to_model(&spec.dims, spec.reshape.as_ref(), &input.shape, batches);
            let datatype = input.datatype.unwrap_or(spec.datatype);
            let value = Value { datatype, shape, rows: i64::from(checked.rows), data: input.data };
            self.set(plan, iteration, tensor, Some(value), None);
        }
        for &tensor in &plan.inputs {
            self.set(plan, iteration, tensor, None, None);
        }
        // Steps without inputs.
        for (index, step) in plan.steps.iter().enumerate() {
            if step.needs.is_empty() && self.request.needs(plan, index) {
                self.make_ready(iteration, index, step);
            }
        }
        self.touched.push_back(iteration);
    }

    /// Number of iterations of decoupled steps that are not done.
    fn iterations(&self) -> usize {
        self.iterations.len() - usize::from(self.iterations.contains_key(&(0, 0)))
    }

    fn open(&mut self, plan: &Plan, scope: usize) -> IterationId {
        let number = match self.numbers.get_mut(scope) {
            Some(next) => std::mem::replace(next, *next + 1),
            None => 0,
        };
        let (tensors, steps) = plan.scopes.get(scope).map_or((0, &[][..]), |s| (s.tensors, &s.steps));
        let mut progress = Vec::with_capacity(steps.len());
        for &index in steps {
            let Some(step) = plan.steps.get(index) else { continue };
            progress.push(Progress::Missing(step.needs.len()));
            if self.request.needs(plan, index)
                && let Some(order) = step.order.and_then(|o| self.orders.get_mut(o))
            {
                order.push(number);
            }
        }
        let answers = scope == plan.output_scope;
        if answers && let Some(order) = self.orders.last_mut() {
            order.push(number);
        }
        let iteration = Iteration {
            slots: std::iter::repeat_with(TensorSlot::default).take(tensors).collect(),
            steps: progress,
            ready: 0,
            running: 0,
            unset: answers.then_some(self.request.wanted.len()),
        };
        self.iterations.insert((scope, number), iteration);
        (scope, number)
    }

    /// Sets a tensor; `None` if there is none in this iteration.
    fn set(&mut self, plan: &Plan, id: IterationId, tensor: usize, value: Option<Value>, sequence: Option<&Sequence>) {
        let Some(known) = plan.tensors.get(tensor) else { return };
        let outputs = self.request.outputs_of(plan, tensor);
        let consumers = || known.consumers.iter().copied().filter(|&step| self.request.needs(plan, step));
        let uses = outputs + consumers().count();
        let consumers: SmallVec<[usize; 8]> = consumers().collect();
        let Some(iteration) = self.iterations.get_mut(&id) else { return };
        let Some(slot) = iteration.slots.get_mut(known.place) else { return };
        if !matches!(slot.state, SlotState::Missing) {
            return;
        }
        slot.uses = uses;
        slot.sequence = sequence.cloned().map(Box::new);
        slot.state = match value {
            _ if uses == 0 => SlotState::Used,
            Some(value) => SlotState::Present(value),
            None => SlotState::Absent,
        };
        self.held_bytes += slot.bytes();
        if let Some(unset) = &mut iteration.unset {
            *unset = unset.saturating_sub(outputs);
        }
        for index in consumers {
            let Some(step) = plan.steps.get(index) else { continue };
            let Some(progress) = iteration.steps.get_mut(step.place) else { continue };
            match progress {
                Progress::Missing(1) => {
                    *progress = Progress::Ready;
                    iteration.ready += 1;
                    self.ready.push_back((id, index));
                }
                Progress::Missing(left) => *left -= 1,
                Progress::Ready | Progress::Begun => {}
            }
        }
    }

    fn make_ready(&mut self, id: IterationId, index: usize, step: &Step) {
        let Some(iteration) = self.iterations.get_mut(&id) else { return };
        if let Some(progress) = iteration.steps.get_mut(step.place) {
            *progress = Progress::Ready;
            iteration.ready += 1;
            self.ready.push_back((id, index));
        }
    }

    fn answered(&mut self, plan: &Plan, id: RunId, answer: Result<Option<InferResponse>>, last: bool) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        let (index, iteration) = (run.step, run.iteration);
        let Some(step) = plan.steps.get(index) else { return };
        match answer {
            Err(error) => self.fail(plan, error),
            Ok(Some(response)) if self.failure.is_none() => {
                // A model that is not decoupled has one response; further ones belong to no iteration.
                if step.decoupled || !std::mem::replace(&mut run.responded, true) {
                    let given = run.sequence.clone();
                    if let Err(error) = self.take(plan, step, iteration, &given, response) {
                        self.fail(plan, error);
                    }
                }
            }
            Ok(_) => {}
        }
        if !last {
            return;
        }
        self.runs.remove(&id);
        if !step.decoupled {
            if let Some(iteration) = self.iterations.get_mut(&iteration) {
                iteration.running -= 1;
            }
            self.touched.push_back(iteration);
        }
    }

    fn take(
        &mut self,
        plan: &Plan,
        step: &Step,
        mut iteration: IterationId,
        given: &Sequence,
        response: InferResponse,
    ) -> Result<()> {
        let sequence = sequence::overridden(given, &response.parameters)?;
        // Without a sequence in the response, that of the call applies.
        let sequence = sequence.as_ref().or_else(|| (*given != self.request.head.sequence).then_some(given));
        if step.decoupled {
            // A response without outputs is not an iteration.
            if response.outputs.is_empty() {
                return Ok(());
            }
            self.require_room(step, response.outputs.iter().map(|o| o.data.len() as u64).sum())?;
            iteration = self.open(plan, step.into);
        }
        for output in response.outputs {
            let Some(&Some(tensor)) = step.outputs.get(usize::from(output.index)) else { continue };
            let rows = if step.batches { output.shape.first().copied().unwrap_or(0) } else { 0 };
            let value = Value { datatype: output.datatype, shape: output.shape, rows, data: output.data };
            self.set(plan, iteration, tensor, Some(value), sequence);
        }
        for &tensor in step.outputs.iter().flatten() {
            self.set(plan, iteration, tensor, None, sequence);
        }
        self.touched.push_back(iteration);
        Ok(())
    }

    fn require_room(&self, step: &Step, bytes: u64) -> Result<()> {
        let Limits { iterations_max, bytes_max } = self.limits;
        let (iterations, held) = (self.iterations(), self.held_bytes.saturating_add(bytes));
        let what = if iterations >= iterations_max {
            format!("{iterations} of its responses are")
        } else if iterations > 0 && held > bytes_max {
            format!("{iterations} of its responses and the next one, {held} bytes, are")
        } else {
            return Ok(());
        };
        Err(Error::exhausted(format!(
            "model '{}' sends responses faster than the next steps process them: {what} waiting; at most \
             {iterations_max} responses and {bytes_max} bytes may",
            step.model
        ))
        .by(Fault::Model)
        .retry(false))
    }

    /// Processes ready steps and touched iterations; returns the actions.
    fn settle(&mut self, plan: &Plan) -> Vec<Action> {
        loop {
            if let Some((iteration, step)) = self.ready.pop_front() {
                self.begin_run(plan, iteration, step);
            } else if let Some(iteration) = self.touched.pop_front() {
                self.look_at(plan, iteration);
            } else {
                break;
            }
        }
        if self.runs.is_empty() && !self.finished {
            self.finished = true;
            let ended = match self.failure.clone() {
                Some(error) => Err(error),
                None if self.responded || plan.decoupled() => Ok(()),
                None => Err(self.deadlock(plan)),
            };
            self.actions.push(Action::Finish(ended));
        }
        std::mem::take(&mut self.actions)
    }

    /// Starts a step that has all tensors, if its iteration is next.
    fn begin_run(&mut self, plan: &Plan, id: IterationId, index: usize) {
        let (Some(iteration), Some(step)) = (self.iterations.get_mut(&id), plan.steps.get(index)) else { return };
        let Some(progress) = iteration.steps.get_mut(step.place).filter(|p| **p == Progress::Ready) else { return };
        if let Some(order) = step.order.and_then(|o| self.orders.get_mut(o)) {
            if !order.is_next(id.1) {
                return;
            }
            if let Some(next) = order.leave(id.1) {
                self.ready.push_back(((id.0, next), index));
            }
        }
        *progress = Progress::Begun;
        iteration.ready -= 1;
        if !step.decoupled {
            iteration.running += 1;
        }
        let mut sequence = None;
        let mut inputs = SmallVec::with_capacity(step.inputs.len());
        for input in &step.inputs {
            let place = plan.tensors.get(input.tensor).map_or(usize::MAX, |t| t.place);
            let Some(slot) = iteration.slots.get(place) else { continue };
            sequence = slot.sequence.as_deref().or(sequence);
            let SlotState::Present(value) = &slot.state else { continue };
            inputs.push(InputTensor {
                name: input.name.clone(),
                datatype: Some(value.datatype),
                shape: convert(&input.dims, step.batches, value.rows, &value.shape),
                data: value.data.clone(),
            });
        }
        let sequence = sequence.unwrap_or(&self.request.head.sequence).clone();
        for tensor in step.needs.iter().filter_map(|&t| plan.tensors.get(t)) {
            if let Some(slot) = iteration.slots.get_mut(tensor.place) {
                self.held_bytes -= slot.used();
            }
        }
        let run = RunId(self.runs_begun);
        self.runs_begun += 1;
        self.runs.insert(run, Run { step: index, iteration: id, sequence: sequence.clone(), responded: false });
        let request = InferRequest {
            id: self.request.head.id.clone(),
            inputs,
            outputs: self.request.asked_of(plan, step),
            default_form: OutputForm::ANYWHERE,
            parameters: self.request.head.parameters.clone(),
            sequence,
            priority: self.request.head.priority,
            timeout_us: self.request.head.timeout_us,
            trace: None,
            depth: self.request.head.depth,
            sends_regions: false,
        };
        self.actions.push(Action::Start { run, step: index, request });
        self.touched.push_back(id);
    }

    /// Responds for an iteration that has all outputs, and ends one that is over.
    fn look_at(&mut self, plan: &Plan, id: IterationId) {
        let Some(iteration) = self.iterations.get_mut(&id) else { return };
        if iteration.unset == Some(0) && self.orders.last().is_some_and(|o| o.is_next(id.1)) {
            iteration.unset = None;
            let response = respond(plan, &self.request.head, &self.request.wanted, iteration, &mut self.held_bytes);
            self.responded = true;
            self.actions.push(Action::Respond(response));
            self.leave_answers(plan, id.1);
        }
        let Some(iteration) = self.iterations.get(&id).filter(|f| f.is_over()) else { return };
        self.held_bytes -= iteration.bytes();
        let begun: SmallVec<[bool; 16]> = iteration.steps.iter().map(|p| *p == Progress::Begun).collect();
        let unanswered = iteration.unset.is_some();
        self.iterations.remove(&id);
        if unanswered {
            self.leave_answers(plan, id.1);
        }
        let steps = plan.scopes.get(id.0).map_or(&[][..], |s| &s.steps);
        for (&index, _) in steps.iter().zip(&begun).filter(|(_, begun)| !**begun) {
            let order = plan.steps.get(index).and_then(|s| s.order).and_then(|o| self.orders.get_mut(o));
            if let Some(next) = order.and_then(|o| o.leave(id.1)) {
                self.ready.push_back(((id.0, next), index));
            }
        }
    }

    fn leave_answers(&mut self, plan: &Plan, number: u64) {
        if let Some(next) = self.orders.last_mut().and_then(|o| o.leave(number)) {
            self.touched.push_back((plan.output_scope, next));
        }
    }

    /// Keeps the first error and drops everything but the runs.
    fn fail(&mut self, plan: &Plan, error: Error) {
        if self.failure.is_some() {
            return;
        }
        // The error of a cancelled request has no text.
        self.failure = Some(match error.message() {
            "" => error,
            _ => error.prefixed(format_args!("in ensemble '{}', ", plan.signature.model)),
        });
        self.iterations.clear();
        self.orders.iter_mut().for_each(Order::clear);
        self.ready.clear();
        self.touched.clear();
        self.held_bytes = 0;
    }

    fn deadlock(&self, plan: &Plan) -> Error {
        Error::invalid(format!(
            "in ensemble '{}', {}unexpected deadlock, at least one output is not set while no more ensemble steps can \
             be made",
            plan.signature.model,
            IdPrefix(&self.request.head.id)
        ))
    }
}

/// Response of an iteration whose outputs are set, without absent ones.
fn respond(
    plan: &Plan,
    head: &InferRequest,
    wanted: &[(u16, Option<u16>)],
    iteration: &mut Iteration,
    held_bytes: &mut u64,
) -> InferResponse {
    let signature = &plan.signature;
    let batches = signature.batches();
    let mut sequence = head.sequence.clone();
    let mut has_data = false;
    let mut outputs = SmallVec::new();
    for &(index, asked) in wanted {
        let place = plan.outputs.get(usize::from(index)).and_then(|&t| plan.tensors.get(t)).map(|t| t.place);
        let (Some(spec), Some(slot)) =
            (signature.outputs.get(usize::from(index)), place.and_then(|p| iteration.slots.get_mut(p)))
        else {
            continue;
        };
        if let Some(changed) = &slot.sequence {
            sequence = (**changed).clone();
        }
        if let SlotState::Present(value) = &slot.state {
            // A region may be larger than the output in it, so the shape decides if there is data.
            has_data |= !value.data.is_empty() && !value.shape.contains(&0);
            let dims = spec.reshape.as_ref().unwrap_or(&spec.dims);
            let shape = convert(dims, batches, value.rows, &value.shape);
            outputs.push(OutputTensor {
                name: spec.name.clone(),
                index,
                datatype: value.datatype,
                // An output that does not match its reshape keeps its shape.
                shape: reshape::to_client(&spec.dims, spec.reshape.as_ref(), &shape, batches).unwrap_or(shape),
                data: value.data.clone(),
                form: asked.and_then(|a| head.outputs.get(usize::from(a))).map_or(head.default_form, |o| o.form),
            });
        }
        *held_bytes -= slot.used();
    }
    InferResponse {
        model_name: signature.model.clone(),
        model_version: signature.version.clone(),
        id: head.id.clone(),
        // As in Triton, only if a tensor has data.
        parameters: if has_data { sequence::to_parameters(&sequence) } else { Vec::new() },
        outputs,
    }
}
