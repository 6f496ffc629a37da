//! Random ensembles with concurrent requests, compared with the interpreter of the crate `graph`: same responses, and
//! in the end no request, ticket, flow, charged byte or thread is left. In its own process.

#[path = "../../graph/tests/common/interpreter.rs"]
mod interpreter;
mod support;

use backend::{Batch, BatchEntry, Outcome, Responder};
use engine::{Engine, EngineResponse, ModelVersion};
use interpreter::{Answers, Graph, Interpreter, Mood, NEVER, Node, Random, behaviour, graphs, hash, interpret};
use memory::Budget;
use protocol::pb::inference as pb;
use protocol::{InferRequest, InputTensor, OutputForm, OutputTensor, RequestedOutput};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use support::*;
use tensor::{Code, Data, DataType, Error, Shape};

/// Number of clients, each with one ensemble at a time.
const CLIENTS: u64 = 4;
/// Concurrent requests of a client.
const REQUESTS: u64 = 2;
/// Threads of the backend for decoupled responses.
const ANSWERERS: usize = 2;
/// Elements of a large tensor, which is charged between steps.
const LARGE: usize = 9000;
/// Maximum number of inputs or outputs of a model.
const ENDS_MAX: u64 = 3;
const UINT64: i32 = 5;

const MOODS: [Mood; 3] = [
    Mood { fails: NEVER, silent: NEVER, absent: NEVER },
    Mood { fails: NEVER, silent: NEVER, absent: 8 },
    Mood { fails: 60, silent: NEVER, absent: 20 },
];

/// One model for all nodes of the same form. Responses depend on its number.
#[derive(Clone, Copy)]
struct Kind {
    inputs: usize,
    outputs: usize,
    decoupled: bool,
    single: bool,
}

impl Kind {
    fn all() -> impl Iterator<Item = Self> {
        (0..4 * ENDS_MAX * ENDS_MAX).map(|i| Self {
            inputs: 1 + (i / 4 % ENDS_MAX) as usize,
            outputs: 1 + (i / 4 / ENDS_MAX) as usize,
            decoupled: i % 2 == 1,
            single: i / 2 % 2 == 1,
        })
    }
    fn of(node: &Node) -> Self {
        let (inputs, outputs) = (node.inputs.len(), node.outputs.len());
        Self { inputs, outputs, decoupled: node.decoupled, single: node.in_order }
    }
    fn number(self) -> u64 {
        let ends = self.inputs as u64 - 1 + ENDS_MAX * (self.outputs as u64 - 1);
        4 * ends + 2 * u64::from(self.single) + u64::from(self.decoupled)
    }
    fn name(self) -> String {
        format!("kind{}", self.number())
    }
    fn config(self) -> pb::ModelConfig {
        let mut config = of_hashes(&self.name(), self.inputs, self.outputs, |i| format!("I{i}"), |o| format!("O{o}"));
        config.backend = config.name.clone();
        if self.decoupled {
            decoupled(&mut config);
        }
        instances(&mut config, if self.single { 1 } else { 3 });
        // Batches of steps of different requests.
        if self.number().is_multiple_of(3) {
            dynamic(&mut config, pb::ModelDynamicBatching::default());
        }
        config
    }
}

/// Tensors of any number of equal UINT64, all optional.
fn of_hashes(
    name: &str,
    inputs: usize,
    outputs: usize,
    input: impl Fn(usize) -> String,
    output: impl Fn(usize) -> String,
) -> pb::ModelConfig {
    let dims = vec![-1];
    let into = |i| pb::ModelInput {
        name: input(i),
        dims: dims.clone(),
        data_type: UINT64,
        optional: true,
        ..Default::default()
    };
    let out = |o| pb::ModelOutput { name: output(o), dims: dims.clone(), data_type: UINT64, ..Default::default() };
    pb::ModelConfig {
        name: name.into(),
        max_batch_size: 8,
        input: (0..inputs).map(into).collect(),
        output: (0..outputs).map(out).collect(),
        ..Default::default()
    }
}

fn ensemble(name: &str, graph: &Graph, limit: u32) -> pb::ModelConfig {
    let map = |tensors: &[usize], end: char| {
        tensors.iter().enumerate().map(|(i, t)| (format!("{end}{i}"), format!("t{t}"))).collect()
    };
    let step = |node: &Node| pb::model_ensembling::Step {
        model_name: Kind::of(node).name(),
        model_version: -1,
        input_map: map(&node.inputs, 'I'),
        output_map: map(&node.outputs, 'O'),
        ..Default::default()
    };
    let plan = pb::ModelEnsembling { step: graph.nodes.iter().map(step).collect(), max_inflight_requests: limit };
    let outputs = graph.outputs.len();
    let mut config = of_hashes(name, graph.inputs, outputs, |i| format!("t{i}"), |o| format!("t{}", graph.outputs[o]));
    config.scheduling_choice = Some(pb::model_config::SchedulingChoice::EnsembleScheduling(plan));
    config
}

/// One in fifty is large.
fn pack(hash: u64) -> (Shape, Data) {
    let times = if hash.is_multiple_of(50) { LARGE } else { 1 };
    (Shape::from_slice(&[1, times as i64]), Data::Bytes(hash.to_le_bytes().repeat(times).into()))
}

fn unpack(data: &Data) -> u64 {
    let all = data.to_vec().expect("in memory");
    let hash = u64::from_le_bytes(all[..8].try_into().unwrap());
    assert!(pack(hash).1.to_vec().expect("in memory") == all, "a tensor as it was made");
    hash
}

fn charged() -> usize {
    Budget::global().counters().used_bytes.iter().sum()
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn outputs_of(answer: &[Option<u64>]) -> Outcome {
    let output = |(o, hash): (usize, &Option<u64>)| {
        let (shape, data) = pack((*hash)?);
        let (name, index) = (format!("O{o}").into(), o as u16);
        Some(OutputTensor { name, index, datatype: DataType::Uint64, shape, data, form: OutputForm::default() })
    };
    Outcome { outputs: answer.iter().enumerate().filter_map(output).collect(), ..Outcome::default() }
}

/// The response of the model `kind`. The mood is the request's id, which steps inherit.
fn answers(kind: Kind, entry: &BatchEntry) -> Answers {
    let request = &entry.request;
    let given = |i: usize| request.inputs.iter().find(|t| *t.name == *format!("I{i}")).map(|t| unpack(&t.data));
    let inputs: Vec<_> = (0..kind.inputs).map(given).collect();
    let mood = MOODS[request.id.parse::<usize>().unwrap()];
    behaviour(kind.number(), kind.decoupled, kind.outputs, &inputs, mood)
}

/// Sends the responses of a decoupled request, until it is cancelled.
fn respond(responder: Responder, all: Answers) {
    let last = all.len().wrapping_sub(1);
    for (i, answer) in all.into_iter().enumerate() {
        match answer {
            // The end is sent with the last response or alone.
            Ok(outputs) if i == last && outputs.first().is_some_and(|o| o.is_none_or(|hash| hash % 2 == 0)) => {
                return responder.finish(Some(Ok(outputs_of(&outputs))));
            }
            Ok(outputs) => {
                if responder.send(outputs_of(&outputs)).is_err() {
                    break;
                }
            }
            Err(text) => responder.fail(Error::internal(text)),
        }
    }
    responder.finish(None);
}

type Later = (Responder, Answers);

fn script(kind: Kind, later: Sender<Later>, peak: Arc<AtomicUsize>) -> Script {
    let later = Mutex::new(later);
    Arc::new(move |_, batch: &mut Batch<'_>, _| {
        peak.fetch_max(charged(), SeqCst);
        for entry in batch.requests.iter_mut() {
            let mut all = answers(kind, entry);
            match entry.responder.take() {
                None => entry.result = Some(all.remove(0).map(|o| outputs_of(&o)).map_err(Error::internal)),
                // Some before `execute` returns, some from another thread.
                Some(responder) if all.len().is_multiple_of(2) => respond(responder, all),
                Some(responder) => later.lock().unwrap().send((responder, all)).unwrap(),
            }
        }
    })
}

/// Threads that respond to the backend's requests, until it is dropped.
fn answerers() -> (Sender<Later>, Vec<std::thread::JoinHandle<()>>) {
    let (send, receive) = channel::<Later>();
    let receive: Arc<Mutex<Receiver<Later>>> = Arc::new(Mutex::new(receive));
    let work = |receive: Arc<Mutex<Receiver<Later>>>| {
        move || {
            loop {
                let next = receive.lock().unwrap().recv();
                let Ok((responder, all)) = next else { return };
                respond(responder, all);
            }
        }
    };
    (send, (0..ANSWERERS).map(|_| std::thread::spawn(work(receive.clone()))).collect())
}

/// A request in flight, and its expected result.
struct Asked {
    call: Call,
    wanted: Vec<usize>,
    expected: Vec<Vec<Option<u64>>>,
    failures: BTreeSet<String>,
    cancelled: bool,
}

fn ask(graph: &Graph, version: &ModelVersion, mood: usize, random: &mut Random) -> Asked {
    let mut wanted = graph.outputs.clone();
    if random.one_in(3) {
        wanted.retain(|_| random.one_in(2));
    }
    if wanted.is_empty() {
        wanted.clone_from(&graph.outputs);
    }
    let absent = MOODS[mood].absent;
    let inputs: Vec<_> = (0..graph.inputs).map(|_| (!random.one_in(absent)).then(|| random.next())).collect();
    // Without inputs a request has no rows.
    let inputs = if inputs.iter().all(Option::is_none) { vec![Some(random.next()); graph.inputs] } else { inputs };
    let Interpreter { answers: expected, failures, .. } = interpret(graph, MOODS[mood], &wanted, &inputs);
    let tensor = |(i, hash): (usize, &Option<u64>)| {
        let (shape, data) = pack((*hash)?);
        Some(InputTensor { name: format!("t{i}").into(), datatype: Some(DataType::Uint64), shape, data })
    };
    let request = InferRequest {
        id: mood.to_string().into(),
        inputs: inputs.iter().enumerate().filter_map(tensor).collect(),
        outputs: wanted
            .iter()
            .map(|t| RequestedOutput { name: format!("t{t}").into(), form: OutputForm::default(), region: None })
            .collect(),
        ..InferRequest::default()
    };
    let call = try_request(version, Box::new(request), None).unwrap();
    let mut cancelled = false;
    if let (Some(ticket), true) = (&call.ticket, random.one_in(8)) {
        for _ in 0..random.below(2000) {
            std::hint::spin_loop();
        }
        ticket.cancel();
        cancelled = true;
    }
    Asked { call, wanted, expected, failures, cancelled }
}

/// Compares the responses of a request. Returns whether it failed.
fn judge(graph: &Graph, asked: Asked) -> bool {
    let Asked { call, wanted, mut expected, failures, cancelled } = asked;
    let mut got = vec![];
    let ended = loop {
        let EngineResponse { response, is_final, .. } = call.next_answer();
        match response {
            Some(Ok(response)) => {
                let find = |t: &usize| response.outputs.iter().find(|o| *o.name == *format!("t{t}"));
                assert!(response.outputs.iter().all(|o| wanted.iter().any(|t| *o.name == *format!("t{t}"))));
                got.push(wanted.iter().map(|t| find(t).map(|o| unpack(&o.data))).collect::<Vec<_>>());
            }
            Some(Err(error)) if is_final => break Err(error),
            Some(Err(error)) => panic!("an error that is not the end: {error}"),
            None => assert!(is_final),
        }
        if is_final {
            break Ok(());
        }
    };
    assert!(call.answers.try_recv().is_err(), "an answer after the last");
    if cancelled || !failures.is_empty() {
        for answer in &got {
            let at = expected.iter().position(|e| e == answer).expect("an answer that the interpreter has, too");
            expected.swap_remove(at);
        }
        let Err(error) = ended else {
            // A cancellation after the last response is too late.
            assert!(cancelled && failures.is_empty() && expected.is_empty(), "{failures:?}");
            return false;
        };
        let text = error.message().split_once(", ").map_or(error.message(), |parts| parts.1);
        assert!(failures.contains(text) || (cancelled && error.code() == Code::Cancelled), "{error}");
        return true;
    }
    assert_eq!(ended, Ok(()));
    // After two decoupled steps iterations have the order of arrival; otherwise there is only one order.
    if graph.depth(graph.scopes[wanted[0]]) > 1 {
        got.sort_unstable();
        expected.sort_unstable();
    }
    assert_eq!(got, expected);
    false
}

/// Tickets of a version and flows through it own a reference to it.
fn references(version: &Arc<ModelVersion>) -> (usize, usize) {
    (Arc::strong_count(version), Arc::weak_count(version))
}

/// One client with its graphs. Returns the number of failed requests, and its ensembles, which should be dropped soon.
fn client(engine: &Engine, number: u64) -> (u64, Vec<Weak<ModelVersion>>) {
    let (mut failed, mut ensembles) = (0, vec![]);
    for seed in (number..graphs()).step_by(CLIENTS as usize) {
        let play = || {
            let mut random = Random(hash(&[seed, 1]));
            let mut graph = Graph::new(&mut random);
            graph.nodes.iter_mut().for_each(|node| node.model = Kind::of(node).number());
            let limit = if random.one_in(3) { 1 + random.below(2) as u32 } else { 0 };
            let version = publish(engine, &ensemble(&format!("e{number}"), &graph, limit)).unwrap();
            let before = references(&version);
            let mood = random.below(MOODS.len() as u64) as usize;
            let asked: Vec<_> = (0..REQUESTS).map(|_| ask(&graph, &version, mood, &mut random)).collect();
            let failed = asked.into_iter().map(|asked| judge(&graph, asked)).filter(|failed| *failed).count();
            // Another client may have held the table for a moment.
            soon("no ticket and no flow is left", || {
                let (strong, weak) = references(&version);
                strong <= before.0 && weak <= before.1
            });
            (failed as u64, Arc::downgrade(&version))
        };
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(play));
        let (bad, version) = played.unwrap_or_else(|_| panic!("graph {seed}"));
        failed += bad;
        ensembles.push(version);
    }
    (failed, ensembles)
}

#[test]
fn s30_random_ensembles_match_the_interpreter_and_leave_nothing() {
    // The thread that starts the others stays.
    memory::serving::call("nereid-first", || ()).expect("a thread");
    let threads_before = threads();
    let peak = Arc::new(AtomicUsize::new(0));
    let (later, answerers) = answerers();
    let names: Vec<&'static str> = Kind::all().map(|kind| &*kind.name().leak()).collect();
    let scripts = Kind::all().zip(&names).map(|(kind, name)| (*name, script(kind, later.clone(), peak.clone())));
    let engine = engine_with(scripts.collect()).unwrap();
    drop(later);
    let models: Vec<_> = Kind::all().map(|kind| publish(&engine, &kind.config()).unwrap()).collect();
    let before: Vec<_> = models.iter().map(references).collect();

    let (failed, ensembles) = std::thread::scope(|scope| {
        let engine = &engine;
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(engine, number))).collect();
        let all = clients.into_iter().map(|client| client.join().unwrap());
        all.fold((0, vec![]), |(failed, mut all), (bad, more)| {
            all.extend(more);
            (failed + bad, all)
        })
    });

    assert_eq!(engine.drain(WITHIN), 0, "requests that nobody ended");
    soon("no step is in flight", || models.iter().all(|m| (m.inflight(), m.statistics().pending) == (0, 0)));
    soon("nothing is charged", || charged() == 0);
    soon("no ticket of a step is left", || models.iter().map(references).eq(before.iter().copied()));
    let alive = || ensembles.iter().filter(|e| e.strong_count() > 0).count();
    soon("only the last ensembles are left", || alive() <= CLIENTS as usize);
    let calls: u64 = models.iter().map(|m| m.statistics().inference_count).sum();
    drop(models);
    engine.close();
    drop(engine);
    answerers.into_iter().for_each(|thread| thread.join().unwrap());
    soon("no thread is left", || threads() <= threads_before);
    // So that a change of the generator does not empty the test.
    assert!(calls > 10 * graphs() && failed > graphs() / 20, "{calls} calls, {failed} failed");
    assert!(peak.load(SeqCst) > 0, "large tensors were charged");
}
