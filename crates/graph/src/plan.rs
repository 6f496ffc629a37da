//! The compiled form of an ensemble: indices instead of names, and the scope of every tensor.
//!
//! Invariant: a step reads tensors of one scope and writes tensors of one: the same, or a new one if it is decoupled.
//! The ensemble's outputs are in one scope. Steps have no cycles.
//!
//! A step may write a tensor that is an input of the ensemble. Steps that read it receive the request's input; the
//! ensemble's output of that name is the step's. (Triton loads such ensembles without defining their meaning.)

use crate::check;
use crate::limits::{CALLS_MAX, DEPTH_MAX, MAPPINGS_MAX, STEPS_MAX};
use protocol::pb::inference::{ModelEnsembling, model_ensembling};
use protocol::{OutputForm, RequestedOutput, Signature};
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{Error, Name, Result, Shape};

/// A composing model: the version that a step calls.
#[derive(Clone, Copy)]
pub struct Composing<'a> {
    /// Signature of the version.
    pub signature: &'a Signature,
    /// True if it must receive requests in the order of their iterations: sequences, one instance without a dynamic
    /// batcher, `preserve_ordering`, decoupled models.
    pub in_order: bool,
    /// True if its requests may name regions for outputs. False with a response cache, which skips such requests.
    pub takes_regions: bool,
    /// Plan of the model, if it is an ensemble.
    pub plan: Option<&'a Plan>,
}

/// A compiled ensemble, shared by all its requests.
#[derive(Debug)]
pub struct Plan {
    pub(crate) signature: Arc<Signature>,
    pub(crate) steps: Vec<Step>,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) scopes: Vec<IterationScope>,
    /// Tensor of each input of the signature.
    pub(crate) inputs: Vec<usize>,
    /// Tensor of each output of the signature.
    pub(crate) outputs: Vec<usize>,
    pub(crate) output_scope: usize,
    /// True for each step that an output depends on.
    pub(crate) needed: Vec<bool>,
    /// Number of steps that take several iterations in order.
    pub(crate) orders: usize,
    max_inflight: u32,
    calls: u64,
    depth: u32,
}

/// One step: a model and the mapping of its tensors.
#[derive(Debug)]
pub struct Step {
    /// Model to call.
    pub model: Name,
    /// Version of the model; -1 = the latest when the request starts.
    pub version: i64,
    pub(crate) batches: bool,
    pub(crate) decoupled: bool,
    /// Index of its order, if it takes iterations in order.
    pub(crate) order: Option<usize>,
    pub(crate) inputs: Vec<StepInput>,
    /// The tensors of `inputs`, each once.
    pub(crate) needs: Vec<usize>,
    /// Tensor of each output of the model.
    pub(crate) outputs: Vec<Option<usize>>,
    /// The mapped outputs, in the form of a request.
    pub(crate) requested: Vec<RequestedOutput>,
    /// True if every output is mapped, so that a request need not name them.
    pub(crate) wants_all: bool,
    /// Copy of `Composing::takes_regions`.
    pub(crate) takes_regions: bool,
    /// Scopes of its inputs and of its outputs.
    pub(crate) from: usize,
    pub(crate) into: usize,
    /// Index in `IterationScope::steps` of `from`.
    pub(crate) place: usize,
}

#[derive(Debug)]
pub(crate) struct StepInput {
    pub name: Name,
    pub tensor: usize,
    pub dims: Shape,
}

#[derive(Debug)]
pub(crate) struct Tensor {
    pub scope: usize,
    /// Index among the tensors of its scope.
    pub place: usize,
    pub producer: Option<usize>,
    pub consumers: Vec<usize>,
    /// Number of outputs of the ensemble with this tensor.
    pub outputs: usize,
}

#[derive(Debug, Default)]
pub(crate) struct IterationScope {
    pub tensors: usize,
    pub steps: Vec<usize>,
}

impl Plan {
    /// Compiles an ensemble with this signature. `models` has the composing model of each step, in order.
    ///
    /// # Errors
    /// INVALID_ARG with the texts of scheduling.md 6.1, second table, or with the limit that is exceeded.
    pub fn compile(signature: Arc<Signature>, config: &ModelEnsembling, models: &[Composing<'_>]) -> Result<Self> {
        let ensemble = signature.model.clone();
        if models.len() != config.step.len() {
            return Err(Error::internal(format!(
                "ensemble '{ensemble}' has {} steps, and {} models were given for them",
                config.step.len(),
                models.len()
            )));
        }
        let (calls, depth) = size(&signature, config, models)?;
        check::consistent(&signature, config, models.iter().map(|model| model.signature))?;

        let mut names = TensorNames::of(&signature, config)?;
        let steps: Vec<Step> =
            config.step.iter().zip(models).map(|(step, model)| names.step(step, model)).collect::<Result<_>>()?;
        let output = |name: &Name| {
            let tensor = names.written.get(name.as_str()).or_else(|| names.tensors.get(name.as_str()));
            tensor
                .copied()
                .ok_or_else(|| Error::invalid(format!("ensemble output '{name}' for ensemble {ensemble}' is not used")))
        };
        let outputs: Vec<usize> = signature.outputs.iter().map(|o| output(&o.name)).collect::<Result<_>>()?;
        let inputs = signature.inputs.iter().filter_map(|i| names.tensors.get(i.name.as_str()).copied()).collect();
        let mut plan = Self {
            tensors: names.list,
            scopes: vec![IterationScope::default()],
            inputs,
            outputs,
            output_scope: 0,
            needed: Vec::new(),
            orders: 0,
            max_inflight: config.max_inflight_requests,
            calls,
            depth,
            steps,
            signature,
        };
        for &output in &plan.outputs {
            if let Some(tensor) = plan.tensors.get_mut(output) {
                tensor.outputs += 1;
            }
        }
        plan.find_scopes(models)?;
        plan.needed = plan.needed_for(plan.outputs.iter().copied());
        Ok(plan)
    }

    /// The ensemble's signature.
    pub fn signature(&self) -> &Arc<Signature> {
        &self.signature
    }

    /// The steps, in the order of the configuration.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// True if a request may have any number of responses, because a step is decoupled.
    pub fn decoupled(&self) -> bool {
        self.steps.iter().any(|step| step.decoupled)
    }

    /// `max_inflight_requests`: most calls of one step in flight, over all requests of the ensemble; 0 = no limit.
    pub fn max_inflight(&self) -> u32 {
        self.max_inflight
    }

    /// True if a later step reads this output.
    pub fn is_taken(&self, step: usize, output: usize) -> bool {
        let tensor = self.steps.get(step).and_then(|s| s.outputs.get(output).copied().flatten());
        tensor.and_then(|t| self.tensors.get(t)).is_some_and(|t| !t.consumers.is_empty())
    }

    /// True if a request calls the step at most once, not once per response of an earlier decoupled step.
    pub fn is_called_once(&self, step: usize) -> bool {
        self.steps.get(step).is_some_and(|step| step.from == 0)
    }

    /// Step and output that produce an output of the ensemble, which inherits its labels (C-11). `None` if it is an
    /// input.
    pub fn origin(&self, output: usize) -> Option<(&Step, usize)> {
        let tensor = *self.outputs.get(output)?;
        let step = self.steps.get(self.tensors.get(tensor)?.producer?)?;
        Some((step, step.outputs.iter().position(|t| *t == Some(tensor))?))
    }

    /// Steps that the given tensors depend on.
    pub(crate) fn needed_for(&self, tensors: impl Iterator<Item = usize>) -> Vec<bool> {
        let mut needed = vec![false; self.steps.len()];
        let mut open: Vec<usize> = tensors.collect();
        while let Some(tensor) = open.pop() {
            let Some(producer) = self.tensors.get(tensor).and_then(|t| t.producer) else { continue };
            let (Some(seen), Some(step)) = (needed.get_mut(producer), self.steps.get(producer)) else { continue };
            if !std::mem::replace(seen, true) {
                open.extend(&step.needs);
            }
        }
        needed
    }

    /// Finds the scopes of all tensors and steps, starting at the request.
    fn find_scopes(&mut self, models: &[Composing<'_>]) -> Result<()> {
        let ensemble = self.signature.model.clone();
        let mixed = || {
            // Triton prints the ensemble's name instead of the step's.
            Error::invalid(format!(
                "in ensemble {ensemble}, step of model '{ensemble}' receives inputs originated from different \
                 decoupled models"
            ))
        };
        let mut scope_of: Vec<Option<usize>> = self.tensors.iter().map(|t| t.producer.is_none().then_some(0)).collect();
        let known = |scope_of: &[Option<usize>], tensor: usize| scope_of.get(tensor).copied().flatten();
        let mut missing: Vec<usize> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            missing.push(step.needs.iter().filter(|&&t| known(&scope_of, t).is_none()).count());
        }
        let mut ready: Vec<usize> = (0..self.steps.len()).rev().filter(|&s| missing.get(s) == Some(&0)).collect();
        let mut done = 0;
        while let Some(at) = ready.pop() {
            let (Some(step), Some(model)) = (self.steps.get_mut(at), models.get(at)) else { continue };
            done += 1;
            let mut scopes = step.needs.iter().filter_map(|&t| known(&scope_of, t));
            let from = scopes.next().unwrap_or(0);
            if scopes.any(|other| other != from) {
                return Err(mixed());
            }
            step.from = from;
            step.into = if step.decoupled { self.scopes.len() } else { from };
            if step.decoupled {
                self.scopes.push(IterationScope::default());
            }
            if model.in_order && from != 0 {
                step.order = Some(self.orders);
                self.orders += 1;
            }
            let (into, outputs) = (step.into, step.outputs.clone());
            if let Some(scope) = self.scopes.get_mut(from) {
                step.place = scope.steps.len();
                scope.steps.push(at);
            }
            for tensor in outputs.into_iter().flatten() {
                if let Some(scope) = scope_of.get_mut(tensor) {
                    *scope = Some(into);
                }
                for &consumer in self.tensors.get(tensor).map_or(&[][..], |t| &t.consumers) {
                    let Some(left) = missing.get_mut(consumer) else { continue };
                    *left -= 1;
                    if *left == 0 {
                        ready.push(consumer);
                    }
                }
            }
        }
        if done < self.steps.len() {
            let output = self.signature.outputs.first().map(|o| o.name.clone()).unwrap_or_default();
            return Err(Error::invalid(format!("output '{output}' for ensemble '{ensemble}' is not written")));
        }
        for (tensor, scope) in self.tensors.iter_mut().zip(scope_of) {
            tensor.scope = scope.unwrap_or(0);
            if let Some(scope) = self.scopes.get_mut(tensor.scope) {
                tensor.place = scope.tensors;
                scope.tensors += 1;
            }
        }
        let mut scopes = self.outputs.iter().filter_map(|&t| self.tensors.get(t)).map(|t| t.scope);
        self.output_scope = scopes.next().unwrap_or(0);
        if scopes.any(|scope| scope != self.output_scope) { Err(mixed()) } else { Ok(()) }
    }
}

/// Number of calls of a request, with each iteration counted once, and nesting depth of ensembles.
fn size(signature: &Signature, config: &ModelEnsembling, models: &[Composing<'_>]) -> Result<(u64, u32)> {
    let ensemble = &signature.model;
    let within = |what: &str, number: u64, max: u64| {
        if number <= max {
            return Ok(());
        }
        Err(Error::invalid(format!("ensemble '{ensemble}' has {number} {what}: at most {max} are supported")))
    };
    within("steps", config.step.len() as u64, STEPS_MAX as u64)?;
    let ends = signature.inputs.len() + signature.outputs.len();
    let maps: usize = config.step.iter().map(|s| s.input_map.len() + s.output_map.len()).sum();
    within("inputs, outputs and entries in its maps", (ends + maps) as u64, MAPPINGS_MAX as u64)?;
    let calls: u64 = models.iter().map(|m| m.plan.map_or(1, |p| p.calls.saturating_add(1))).sum();
    within("calls for each request, those inside its composing ensembles included", calls, CALLS_MAX)?;
    let depth = models.iter().map(|m| m.plan.map_or(0, |p| p.depth + 1)).max().unwrap_or(0);
    within("ensembles inside one another", depth.into(), DEPTH_MAX.into())?;
    Ok((calls, depth))
}

/// Tensors by name, while a plan is compiled.
struct TensorNames<'a> {
    ensemble: &'a str,
    list: Vec<Tensor>,
    tensors: HashMap<&'a str, usize>,
    /// Tensors that steps write with the name of an input of the ensemble.
    written: HashMap<&'a str, usize>,
    at: usize,
}

impl<'a> TensorNames<'a> {
    /// All tensors: the ensemble's inputs and the outputs of steps.
    fn of(signature: &'a Signature, config: &'a ModelEnsembling) -> Result<Self> {
        let mut names = Self {
            ensemble: &signature.model,
            list: Vec::new(),
            tensors: HashMap::new(),
            written: HashMap::new(),
            at: 0,
        };
        for input in &signature.inputs {
            let next = names.list.len();
            if *names.tensors.entry(&input.name).or_insert(next) == next {
                names.list.push(Tensor { scope: 0, place: 0, producer: None, consumers: Vec::new(), outputs: 0 });
            }
        }
        let inputs = names.list.len();
        for (at, step) in config.step.iter().enumerate() {
            for tensor in step.output_map.values() {
                let next = names.list.len();
                let is_input = names.tensors.get(tensor.as_str()).is_some_and(|&t| t < inputs);
                let map = if is_input { &mut names.written } else { &mut names.tensors };
                if map.insert(tensor, next).is_some() {
                    return Err(Error::invalid(format!(
                        "ensemble tensor '{tensor}' can appear in an output map only once for ensemble '{}' step {at}",
                        names.ensemble
                    )));
                }
                names.list.push(Tensor { scope: 0, place: 0, producer: Some(at), consumers: Vec::new(), outputs: 0 });
            }
        }
        Ok(names)
    }

    fn step(&mut self, step: &'a model_ensembling::Step, model: &Composing<'_>) -> Result<Step> {
        let signature = model.signature;
        let mut inputs = Vec::new();
        let mut needs = Vec::new();
        for input in &signature.inputs {
            let Some(name) = step.input_map.get(input.name.as_str()) else { continue };
            let Some(&tensor) = self.tensors.get(name.as_str()) else {
                return Err(Error::invalid(format!(
                    "ensemble tensor '{name}' is unused in ensemble '{}'",
                    self.ensemble
                )));
            };
            inputs.push(StepInput { name: input.name.clone(), tensor, dims: input.dims.clone() });
            // The step is the last consumer of a tensor that it reads already.
            if let Some(known) = self.list.get_mut(tensor).filter(|t| t.consumers.last() != Some(&self.at)) {
                known.consumers.push(self.at);
                needs.push(tensor);
            }
        }
        let mut outputs = Vec::new();
        let mut requested = Vec::new();
        for output in &signature.outputs {
            let name = step.output_map.get(output.name.as_str()).map(String::as_str);
            let tensor = name.and_then(|name| self.written.get(name).or_else(|| self.tensors.get(name)));
            outputs.push(tensor.copied());
            if tensor.is_some() {
                requested.push(RequestedOutput { name: output.name.clone(), form: OutputForm::ANYWHERE, region: None });
            }
        }
        self.at += 1;
        Ok(Step {
            model: Name::from(step.model_name.as_str()),
            version: step.model_version,
            batches: signature.batches(),
            decoupled: signature.decoupled,
            order: None,
            inputs,
            needs,
            outputs,
            wants_all: requested.len() == signature.outputs.len(),
            requested,
            takes_regions: model.takes_regions,
            from: 0,
            into: 0,
            place: 0,
        })
    }
}
