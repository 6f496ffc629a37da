//! Random ensembles with responses in random order, compared with an interpreter that has no order.
//!
//! The contents of a tensor are the interpreter's hash and the number of its iteration, so a mix of iterations is
//! detected at once.

mod common;
#[path = "common/interpreter.rs"]
mod interpreter;
use common::{Models, step};
use graph::{Action, GraphExecution, Inflight, Limits, Plan, RunId};
use interpreter::{Answers, Graph, Interpreter, Mood, NEVER, Random, graphs, hash, interpret};
use protocol::{Checked, InferRequest, InferResponse, InputTensor, OutputTensor, Signature};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tensor::{Data, DataType, Error};

fn compile(graph: &Graph, limit: u32) -> Plan {
    let list = |n: usize, p: &str| (0..n).map(|i| format!("{p}{i}:INT64[2]")).collect::<Vec<_>>().join(" ");
    let named = |tensors: &[usize]| tensors.iter().map(|t| format!("t{t}:INT64[2]")).collect::<Vec<_>>().join(" ");
    let maps = |tensors: &[usize], p: &str| {
        tensors.iter().enumerate().map(|(i, t)| format!("{p}{i}=t{t}")).collect::<Vec<_>>().join(", ")
    };
    let mut models = Models::default();
    let mut steps = vec![];
    for (i, node) in graph.nodes.iter().enumerate() {
        let model = models.add(&format!("m{i}"), 0, &list(node.inputs.len(), "I"), &list(node.outputs.len(), "O"));
        (model.signature.decoupled, model.in_order) = (node.decoupled, node.in_order);
        model.signature.inputs.iter_mut().for_each(|i| i.optional = true);
        steps.push(step(&format!("m{i}({}) -> {}", maps(&node.inputs, "I"), maps(&node.outputs, "O"))));
    }
    let inputs: Vec<usize> = (0..graph.inputs).collect();
    let signature = common::signature("e", 0, &named(&inputs), &named(&graph.outputs));
    models.compile(&signature, &steps, limit).unwrap()
}

/// A call that has not ended, with its remaining responses.
struct OpenCall {
    run: RunId,
    step: usize,
    number: Number,
    answers: <Answers as IntoIterator>::IntoIter,
}

struct World<'a> {
    graph: &'a Graph,
    mood: Mood,
    inflight: Inflight<RunId>,
    limit: u32,
    waiting: BTreeMap<RunId, (usize, InferRequest)>,
    open: Vec<OpenCall>,
    /// Number of iterations by decoupled step.
    numbers: BTreeMap<usize, u64>,
    /// Last iteration by step that requires order.
    last: BTreeMap<usize, u64>,
    answers: Vec<Vec<Option<u64>>>,
    last_answer: Option<u64>,
    finish: Option<tensor::Result<()>>,
    calls: usize,
}

/// Iteration of a tensor. `None` if it is unknown because all inputs of its step were absent.
type Number = Option<u64>;

fn pack(hash: u64, number: Number) -> Data {
    Data::Bytes([hash.to_le_bytes(), number.unwrap_or(u64::MAX).to_le_bytes()].concat().into())
}

fn unpack(data: &Data) -> (u64, Number) {
    let number = u64::from_le_bytes(data.read_at(8).unwrap());
    (u64::from_le_bytes(data.read_at(0).unwrap()), (number != u64::MAX).then_some(number))
}

impl World<'_> {
    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            assert!(self.finish.is_none(), "an action after the end");
            match action {
                Action::Start { run, step, request } => {
                    self.waiting.insert(run, (step, request));
                    if let Some(run) = self.inflight.enter(step, run) {
                        self.call(run);
                    }
                }
                Action::Respond(response) => {
                    let mut outputs = response.outputs.iter().peekable();
                    let mut number: Number = None;
                    let mut answer = vec![];
                    for tensor in &self.graph.outputs {
                        let here = outputs.next_if(|o| *o.name == *format!("t{tensor}"));
                        answer.push(here.map(|o| unpack(&o.data)).map(|(hash, n)| {
                            assert!(number.is_none() || n.is_none() || number == n, "a response mixes iterations");
                            number = number.or(n);
                            hash
                        }));
                    }
                    // The response has only requested outputs.
                    assert!(outputs.next().is_none());
                    assert!(number.is_none() || self.last_answer.is_none_or(|last| Some(last) < number), "in order");
                    self.last_answer = number.or(self.last_answer);
                    self.answers.push(answer);
                }
                Action::Finish(ended) => self.finish = Some(ended),
            }
        }
    }

    fn call(&mut self, run: RunId) {
        let (step, request) = self.waiting.remove(&run).unwrap();
        let node = &self.graph.nodes[step];
        let given: BTreeMap<&str, (u64, Number)> = request.inputs.iter().map(|i| (&*i.name, unpack(&i.data))).collect();
        let numbers: BTreeSet<u64> = given.values().filter_map(|v| v.1).collect();
        assert!(numbers.len() <= 1, "inputs mix iterations: {numbers:?}");
        let number = numbers.first().copied();
        if let (true, Some(number)) = (node.in_order, number) {
            let last = self.last.insert(step, number);
            assert!(last.is_none_or(|l| l < number), "in order");
        }
        let inputs: Vec<_> = (0..node.inputs.len()).map(|i| given.get(format!("I{i}").as_str()).map(|v| v.0)).collect();
        let answers = node.behaviour(&inputs, self.mood).into_iter();
        self.open.push(OpenCall { run, step, number, answers });
        self.calls += 1;
        let in_flight = self.open.iter().filter(|o| o.step == step).count();
        assert!(self.limit == 0 || in_flight <= self.limit as usize);
    }

    /// Converts the outputs of a call into a response.
    fn response(&mut self, step: usize, number: Number, answer: &[Option<u64>]) -> InferResponse {
        let node = &self.graph.nodes[step];
        let mut number = number;
        if node.decoupled && answer.iter().any(Option::is_some) {
            let next = self.numbers.entry(step).or_default();
            number = Some(*next);
            *next += 1;
        }
        let outputs = answer.iter().enumerate().filter_map(|(o, hash)| {
            let data = pack((*hash)?, number);
            let (name, index) = (format!("O{o}").into(), o as u16);
            let shape = [2].into_iter().collect();
            Some(OutputTensor { name, index, datatype: DataType::Int64, shape, data, form: Default::default() })
        });
        InferResponse { outputs: outputs.collect(), ..InferResponse::default() }
    }

    /// Sends the next response of a random call.
    fn step(&mut self, random: &mut Random, execution: &mut GraphExecution) {
        let at = random.below(self.open.len() as u64) as usize;
        let (run, step, number) = (self.open[at].run, self.open[at].step, self.open[at].number);
        let next = self.open[at].answers.next();
        // The final message contains the last response or is empty.
        let last = next.is_none() || (self.open[at].answers.len() == 0 && random.one_in(2));
        let answer = match next {
            Some(Ok(outputs)) => Ok(Some(self.response(step, number, &outputs))),
            Some(Err(text)) => Err(Error::internal(text)),
            None => Ok(None),
        };
        let actions = execution.answered(run, answer, last);
        if last {
            self.open.swap_remove(at);
        }
        self.act(actions);
        if last && let Some(next) = self.inflight.leave(step) {
            self.call(next);
        }
        if execution.is_stopping() {
            self.withdraw(execution);
        }
    }

    /// Ends calls that were not made yet.
    fn withdraw(&mut self, execution: &mut GraphExecution) {
        for run in self.inflight.withdraw(|_| true) {
            self.waiting.remove(&run);
            let actions = execution.answered(run, Ok(None), true);
            self.act(actions);
        }
    }
}

/// Runs one request on one random graph. Returns the number of calls, and true if it failed.
fn play(seed: u64) -> (usize, bool) {
    let mut random = Random(hash(&[seed]));
    let graph = Graph::new(&mut random);
    let mood = match seed % 3 {
        0 => Mood { fails: NEVER, silent: NEVER, absent: NEVER },
        1 => Mood { fails: NEVER, silent: 40, absent: 8 },
        _ => Mood { fails: 60, silent: NEVER, absent: 20 },
    };
    let limit = if random.one_in(3) { 1 + random.below(2) as u32 } else { 0 };
    let plan = Arc::new(compile(&graph, limit));
    let mut wanted = graph.outputs.clone();
    if random.one_in(3) {
        wanted.retain(|_| random.one_in(2));
    }
    if wanted.is_empty() {
        wanted.clone_from(&graph.outputs);
    }
    let inputs: Vec<Option<u64>> =
        (0..graph.inputs).map(|_| (!random.one_in(mood.absent)).then(|| random.next())).collect();

    let Interpreter { answers: expected, failures, .. } = interpret(&graph, mood, &wanted, &inputs);

    let (request, checked) = request(plan.signature(), &inputs, &wanted);
    let mut world = World {
        graph: &graph,
        mood,
        inflight: Inflight::new(plan.max_inflight(), plan.steps().len()),
        limit,
        waiting: BTreeMap::new(),
        open: vec![],
        numbers: BTreeMap::new(),
        last: BTreeMap::new(),
        answers: vec![],
        last_answer: None,
        finish: None,
        calls: 0,
    };
    let (mut execution, actions) = GraphExecution::start(Arc::clone(&plan), Limits::default(), request, &checked);
    world.act(actions);
    let mut cancel_after = if random.one_in(8) { random.below(20) } else { u64::MAX };
    let mut cancelled = false;
    while world.finish.is_none() {
        if cancel_after == 0 {
            (cancelled, cancel_after) = (true, u64::MAX);
            let calls = world.calls;
            let actions = execution.cancel(Error::cancelled("gone"));
            world.act(actions);
            world.withdraw(&mut execution);
            assert_eq!(world.calls, calls, "a call started after the cancellation");
        } else {
            cancel_after -= 1;
            world.step(&mut random, &mut execution);
        }
    }
    assert!(execution.is_empty() && world.open.is_empty() && world.waiting.is_empty(), "state is left after the end");
    check(&graph, &wanted, &world, expected, &failures, cancelled);
    (world.calls, !failures.is_empty() || cancelled)
}

fn request(signature: &Signature, inputs: &[Option<u64>], wanted: &[usize]) -> (InferRequest, Checked) {
    let tensor = |(i, hash): (usize, &Option<u64>)| {
        let name = format!("t{i}").into();
        let shape = [2].into_iter().collect();
        Some(InputTensor { name, datatype: Some(DataType::Int64), shape, data: pack((*hash)?, Some(0)) })
    };
    let request = InferRequest {
        id: "r".into(),
        inputs: inputs.iter().enumerate().filter_map(tensor).collect(),
        ..InferRequest::default()
    };
    let checked = Checked {
        rows: 0,
        inputs: request.inputs.iter().map(|i| signature.input_index(&i.name).unwrap() as u16).collect(),
        outputs: wanted
            .iter()
            .map(|t| (signature.output_index(&format!("t{t}").into()).unwrap() as u16, None))
            .collect(),
    };
    (request, checked)
}

fn check(
    graph: &Graph,
    wanted: &[usize],
    world: &World<'_>,
    mut expected: Vec<Vec<Option<u64>>>,
    failures: &BTreeSet<String>,
    cancelled: bool,
) {
    let requested = |answer: &Vec<Option<u64>>| -> Vec<Option<u64>> {
        graph.outputs.iter().zip(answer).filter(|(t, _)| wanted.contains(t)).map(|(_, hash)| *hash).collect()
    };
    let mut got: Vec<_> = world.answers.iter().map(requested).collect();
    let decoupled = graph.nodes.iter().any(|n| n.decoupled);
    let finish = world.finish.clone().unwrap();
    if cancelled || !failures.is_empty() {
        for answer in &got {
            let at = expected.iter().position(|e| e == answer).expect("a response of the interpreter");
            expected.swap_remove(at);
        }
        // The request must end with one of the failures, or with the cancellation.
        let Err(error) = finish else { panic!("{cancelled} {failures:?}") };
        let text = error.message().strip_prefix("in ensemble 'e', ").unwrap();
        assert!(failures.contains(text) || (cancelled && text == "gone"), "{text}");
        return;
    }
    if !decoupled && expected.is_empty() {
        assert!(finish.unwrap_err().message().contains("unexpected deadlock"));
    } else {
        assert_eq!(finish, Ok(()));
    }
    // After two decoupled steps in a chain, the order of iterations depends on timing.
    if graph.depth(graph.scopes[wanted[0]]) > 1 {
        got.sort_unstable();
        expected.sort_unstable();
    }
    assert_eq!(got, expected);
}

#[test]
fn random_ensembles_return_the_responses_of_the_interpreter() {
    let (mut calls, mut failed) = (0, 0);
    for seed in 0..graphs() {
        let play = std::panic::catch_unwind(|| play(seed));
        let (made, bad) = play.unwrap_or_else(|_| panic!("graph {seed}"));
        calls += made;
        failed += u64::from(bad);
    }
    // Guards against a generator that makes too few calls or failures.
    assert!(calls > 20 * graphs() as usize / 3 && failed > graphs() / 20, "{calls} calls, {failed} failed");
}
