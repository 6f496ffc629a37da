//! Models and ensembles from one line of text, and executions as text.
//!
//! A model's tensors are `name:TYPE[dims]`, with `?` behind an optional input and `->[dims]` for a reshape; an
//! ensemble's steps are `model(input=tensor, …) -> output=tensor, …`.
#![allow(dead_code)]

use graph::{Action, Composing, GraphExecution, Limits, Plan, RunId};
use protocol::pb::inference::{ModelEnsembling, model_ensembling};
use protocol::{Checked, InferRequest, InferResponse, InputSpec, InputTensor, OutputSpec, OutputTensor, Signature};
use std::collections::BTreeMap;
use std::sync::Arc;
use tensor::{Data, DataType, Error, Result, Shape};

#[derive(Clone)]
pub struct Model {
    pub signature: Signature,
    pub in_order: bool,
    pub takes_regions: bool,
    pub plan: Option<Arc<Plan>>,
}

/// Parses tensors separated by spaces.
fn tensors(line: &str) -> impl Iterator<Item = (String, DataType, Shape, Option<Shape>, bool)> {
    let dims = |text: &str| -> Shape {
        text.split(',').filter(|d| !d.is_empty()).map(|d| d.trim().parse().unwrap()).collect()
    };
    line.split_whitespace().map(move |word| {
        let (word, optional) = word.strip_suffix('?').map_or((word, false), |w| (w, true));
        let (word, reshape) = match word.split_once("->[") {
            Some((word, reshape)) => (word, Some(dims(reshape.trim_end_matches(']')))),
            None => (word, None),
        };
        let (name, rest) = word.split_once(':').unwrap();
        let (datatype, shape) = rest.split_once('[').unwrap();
        let datatype = DataType::from_name(datatype).unwrap();
        (name.to_owned(), datatype, dims(shape.trim_end_matches(']')), reshape, optional)
    })
}

pub fn signature(model: &str, max_batch_size: u32, inputs: &str, outputs: &str) -> Signature {
    Signature {
        model: model.into(),
        version: "1".into(),
        max_batch_size,
        inputs: tensors(inputs)
            .map(|(name, datatype, dims, reshape, optional)| InputSpec {
                name: name.into(),
                datatype,
                dims,
                reshape,
                optional,
                allow_ragged_batch: false,
            })
            .collect(),
        outputs: tensors(outputs)
            .map(|(name, datatype, dims, reshape, _)| OutputSpec {
                name: name.into(),
                datatype,
                dims,
                reshape,
                labels: Default::default(),
            })
            .collect(),
        decoupled: false,
    }
}

/// Parses `model(input=tensor, …) -> output=tensor, …`.
pub fn step(line: &str) -> model_ensembling::Step {
    let map = |text: &str| -> BTreeMap<String, String> {
        let pairs = text.split(',').map(str::trim).filter(|p| !p.is_empty());
        pairs.map(|p| p.split_once('=').unwrap()).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
    };
    let (call, outputs) = line.split_once(") -> ").unwrap();
    let (model, inputs) = call.split_once('(').unwrap();
    model_ensembling::Step {
        model_name: model.to_owned(),
        model_version: -1,
        input_map: map(inputs),
        output_map: map(outputs),
        model_namespace: String::new(),
    }
}

/// The models of the recorded suites, as far as ensembles there use them.
#[derive(Clone, Default)]
pub struct Models(pub BTreeMap<String, Model>);

impl Models {
    pub fn recorded() -> Self {
        let mut models = Self::default();
        let (input, output) = ("INPUT0:INT32[-1]", "OUTPUT0:INT32[-1]");
        for name in ["plus1", "plus10", "slow", "gather"] {
            models.add(name, 0, input, output);
        }
        models.add("plus1_b", 8, "INPUT0:INT32[1]", "OUTPUT0:INT32[1]");
        models.add("plus1_b4", 4, "INPUT0:INT32[1]", "OUTPUT0:INT32[1]");
        models.add("add2", 0, "A:INT32[-1] B:INT32[-1]", "S:INT32[-1]");
        models.add("opt", 0, "INPUT0:INT32[-1] INPUT1:INT32[2]?", "OUTPUT0:INT32[-1] OUTPUT1:INT32[2]");
        models.add("f32", 0, "INPUT0:FP32[-1]", "OUTPUT0:FP32[-1]");
        models.add("fixed4", 0, "INPUT0:INT32[4]", "OUTPUT0:INT32[4]");
        models.add("fixed8", 0, "INPUT0:INT32[8]", "OUTPUT0:INT32[8]");
        models.add("rank2", 0, "INPUT0:INT32[-1,-1]", "OUTPUT0:INT32[-1,-1]");
        models.add("strings", 0, "A:BYTES[-1] B:BYTES[-1]", "C:BYTES[-1]");
        models
            .add("repeat", 0, "IN:INT32[-1] DELAY:UINT32[-1] WAIT:UINT32[1]", "OUT:INT32[1] IDX:UINT32[1]")
            .decoupled();
        models.add("square", 0, "IN:INT32[1]", "OUT:INT32[1]").decoupled();
        models.add("square2", 0, "IN:INT32[1]", "OUT:INT32[1]").decoupled();
        models
    }

    pub fn add(&mut self, name: &str, max_batch_size: u32, inputs: &str, outputs: &str) -> &mut Model {
        let signature = signature(name, max_batch_size, inputs, outputs);
        let model = Model { signature, in_order: false, takes_regions: true, plan: None };
        self.0.insert(name.to_owned(), model);
        self.0.get_mut(name).unwrap()
    }

    /// Compiles an ensemble of these models.
    pub fn compile(&self, signature: &Signature, steps: &[model_ensembling::Step], max_inflight: u32) -> Result<Plan> {
        let config = ModelEnsembling { step: steps.to_vec(), max_inflight_requests: max_inflight };
        let composing: Vec<Composing<'_>> = steps
            .iter()
            .map(|step| &self.0[&step.model_name])
            .map(|m| Composing {
                signature: &m.signature,
                in_order: m.in_order,
                takes_regions: m.takes_regions,
                plan: m.plan.as_deref(),
            })
            .collect();
        Plan::compile(Arc::new(signature.clone()), &config, &composing)
    }

    pub fn plan(&self, signature: &Signature, steps: &[&str]) -> Result<Plan> {
        self.compile(signature, &steps.iter().map(|s| step(s)).collect::<Vec<_>>(), 0)
    }
}

impl Model {
    pub fn decoupled(&mut self) -> &mut Self {
        self.signature.decoupled = true;
        self
    }
    pub fn in_order(&mut self) -> &mut Self {
        self.in_order = true;
        self
    }
}

/// Drives one execution by hand. Contents are texts, and actions are logged as text.
pub struct Player {
    pub execution: GraphExecution,
    pub log: Vec<String>,
    pub runs: Vec<(RunId, usize)>,
    /// Last request of each step.
    pub requests: BTreeMap<usize, InferRequest>,
    pub response: Option<InferResponse>,
}

/// Parses inputs `name:TYPE[shape]=data`, separated by spaces.
pub fn request(inputs: &str) -> InferRequest {
    let inputs = inputs.split_whitespace().map(|word| {
        let (tensor, data) = word.split_once('=').unwrap();
        let (name, datatype, shape, ..) = tensors(tensor).next().unwrap();
        InputTensor { name: name.into(), datatype: Some(datatype), shape, data: bytes(data) }
    });
    InferRequest { id: "r".into(), inputs: inputs.collect(), ..InferRequest::default() }
}

fn bytes(text: &str) -> Data {
    let mut out = tensor::Data::default();
    if !text.is_empty() {
        out = Data::Bytes(text.as_bytes().to_vec().into());
    }
    out
}

fn text(data: &Data) -> String {
    String::from_utf8(data.to_vec().expect("in memory")).unwrap()
}

impl Player {
    /// Starts `request`, for the outputs named (none = all).
    pub fn start(plan: Plan, request: InferRequest, outputs: &[&str]) -> Self {
        Self::limited(plan, Limits::default(), request, outputs)
    }

    pub fn limited(plan: Plan, limits: Limits, request: InferRequest, outputs: &[&str]) -> Self {
        let signature = plan.signature();
        let index = |n: usize| u16::try_from(n).unwrap();
        let wanted = signature
            .outputs
            .iter()
            .enumerate()
            .filter(|(_, o)| outputs.is_empty() || outputs.contains(&o.name.as_str()));
        let rows = request.inputs.first().filter(|_| signature.batches()).map_or(0, |i| i.shape[0]);
        let checked = Checked {
            rows: u32::try_from(rows).unwrap(),
            inputs: request.inputs.iter().map(|i| index(signature.input_index(&i.name).unwrap())).collect(),
            outputs: wanted.map(|(o, _)| (index(o), None)).collect(),
        };
        let (execution, actions) = GraphExecution::start(Arc::new(plan), limits, request, &checked);
        let mut player = Self { execution, log: vec![], runs: vec![], requests: BTreeMap::new(), response: None };
        player.act(actions);
        player
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            self.log.push(match action {
                Action::Start { run, step, request } => {
                    self.runs.push((run, step));
                    let model = &self.execution.plan().steps()[step].model;
                    let inputs: Vec<_> = request
                        .inputs
                        .iter()
                        .map(|i| format!("{}{}={}", i.name, tensor::ShapeDisplay(&i.shape), text(&i.data)))
                        .collect();
                    let line = format!("{model}({})", inputs.join(" "));
                    self.requests.insert(step, request);
                    line
                }
                Action::Respond(response) => {
                    let outputs: Vec<_> = response
                        .outputs
                        .iter()
                        .map(|o| format!("{}{}={}", o.name, tensor::ShapeDisplay(&o.shape), text(&o.data)))
                        .collect();
                    self.response = Some(response);
                    format!("respond {}", outputs.join(" "))
                }
                Action::Finish(Ok(())) => "finish".to_owned(),
                Action::Finish(Err(e)) => format!("finish {}: {}", e.code().name(), e.message()),
            });
        }
        if self.log.iter().any(|line| line.starts_with("finish")) {
            assert!(self.execution.is_empty(), "state is left after the end");
        }
    }

    /// The actions since the last call, separated by `; `.
    pub fn take_log(&mut self) -> String {
        std::mem::take(&mut self.log).join("; ")
    }

    fn run_of(&self, model: &str, nth: usize) -> RunId {
        let plan = self.execution.plan();
        let mut open = self.runs.iter().filter(|(_, step)| plan.steps()[*step].model == model);
        open.nth(nth).unwrap_or_else(|| panic!("no run {nth} of {model}")).0
    }

    /// Ends the oldest open run of a model with outputs `name[shape]=data`, separated by spaces.
    pub fn answer(&mut self, model: &str, outputs: &str) -> String {
        self.respond(model, 0, outputs, true)
    }

    /// Sends a response of the `nth` open run of a model, which ends if it is the last one.
    pub fn respond(&mut self, model: &str, nth: usize, outputs: &str, last: bool) -> String {
        let run = self.run_of(model, nth);
        let response = self.response_of(run, outputs);
        self.respond_run(run, Ok(Some(response)), last)
    }

    pub fn response_of(&self, run: RunId, outputs: &str) -> InferResponse {
        let step = self.runs.iter().find(|(r, _)| *r == run).unwrap().1;
        let model = &self.execution.plan().steps()[step].model;
        let models = Models::recorded();
        let signature = models.0.get(model.as_str()).map(|m| m.signature.clone());
        let outputs = outputs.split_whitespace().map(|word| {
            let (name, rest) = word.split_once('[').unwrap();
            let (shape, data) = rest.split_once("]=").unwrap();
            // Outputs of a model that is not recorded are named `0`, `1`, …
            let index = match &signature {
                Some(s) => s.output_index(&name.into()).unwrap(),
                None => name.parse().unwrap(),
            };
            OutputTensor {
                name: name.into(),
                index: u16::try_from(index).unwrap(),
                datatype: DataType::Int32,
                shape: shape.split(',').filter(|d| !d.is_empty()).map(|d| d.parse().unwrap()).collect(),
                data: bytes(data),
                form: Default::default(),
            }
        });
        InferResponse { outputs: outputs.collect(), ..InferResponse::default() }
    }

    /// Ends the oldest open run of a model without a response.
    pub fn end(&mut self, model: &str) -> String {
        let run = self.run_of(model, 0);
        self.respond_run(run, Ok(None), true)
    }

    pub fn fail(&mut self, model: &str, error: Error) -> String {
        let run = self.run_of(model, 0);
        self.respond_run(run, Err(error), true)
    }

    pub fn respond_run(&mut self, run: RunId, answer: Result<Option<InferResponse>>, last: bool) -> String {
        let actions = self.execution.answered(run, answer, last);
        if last {
            self.runs.retain(|(r, _)| *r != run);
        }
        self.act(actions);
        self.take_log()
    }

    pub fn cancel(&mut self) -> String {
        let actions = self.execution.cancel(Error::cancelled("the client went away"));
        self.act(actions);
        self.take_log()
    }
}
