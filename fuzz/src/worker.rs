//! A worker thread of a JavaScript model that sends anything, in any order, while its model has requests.
//!
//! A real model of `backend-javascript` is behind it, over its real transport; only Node is played: this target makes
//! the worker's frames, and reports its end. Checks: no panic on any thread, each request is answered once and each
//! batch frees its instance once, calls of the worker end with it, nothing of it stays in memory, its instance is
//! started again and answers, and so does the model beside it.
//!
//! The first byte chooses the model, then follow steps: a byte that names one, the length of its bytes (u16), they.

#![allow(
    clippy::disallowed_methods,
    reason = "the worker is played by this thread, which waits for those of the model"
)]

use backend::metrics::CustomMetrics;
use backend::{
    Backend, Call, CallAnswers, ControlAnswer, Host, Model, ModelCall, ModelControl, ModelOperation, OpenSpec,
    Readiness,
};
use backend_javascript::worker::{attach, ended};
use backend_javascript::{Inbox, JavaScriptBackend, Threads, Worker, WorkerSpec};
use backend_remote::Way;
use frames::generated::{AnswerHead, ExecuteHead, Frame, Header, RespondHead, ResultHead, TensorHead, VERSION};
use memory::Budget;
use options::JavaScriptOptions;
use parking_lot::{Condvar, Mutex};
use prost::Message;
use protocol::pb::inference::{ModelConfig, ModelSequenceBatching, model_config::SchedulingChoice};
use protocol::{InferResponse, Signature};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, Once};
use support::{Event, Ran, bytes, remote, request, run, signature, until};
use tensor::{Data, DataType, Error, Result};

// The engine that tests of `backend-remote` have.
#[path = "../../crates/backend-remote/tests/support/mod.rs"]
mod support;

/// Steps of a script.
const WORK: u8 = 0;
const SIDE: u8 = 1;
/// A batch for the worker: number and size of its requests.
const BATCH: u8 = 2;
/// A client leaves: number of its request.
const CANCEL: u8 = 3;
/// The RESULT of the running batch, with these answers.
const RESULT: u8 = 4;
/// A RESPOND for a running request: its number, and the answer.
const RESPOND: u8 = 5;
const PRINT: u8 = 6;
/// Looks for memory: place, segment, offset and bytes.
const MEMORY: u8 = 7;
/// The thread ends.
const END: u8 = 8;
/// The server asks whether the model is ready.
const ASK: u8 = 9;
/// The server unloads the model.
const UNLOAD: u8 = 10;

/// Bits of the first byte.
const DECOUPLED: u8 = 1;
const ASKS_READY: u8 = 2;
const ITERATIVE: u8 = 4;
/// The bytes of the first step are the worker's answer to LOAD.
const GREETS: u8 = 8;

/// Batches of one input.
const BATCHES_MAX: usize = 16;

/// Plays the steps of `data`. True if a request was answered by the worker, and not with an error.
pub fn worker(data: &[u8]) -> bool {
    let Some((&form, script)) = data.split_first() else { return false };
    let panics = panics();
    let (charged, held) = (charges(), CALLS_HELD.load(SeqCst));
    let mut script = Script(script);
    let greeting = if form & GREETS == 0 { None } else { script.next().map(|step| step.1) };
    let mut stage = Stage::load(form, greeting);
    let worker = Arc::downgrade(&stage.played.worker);
    while let Some((step, bytes)) = script.next() {
        if !stage.step(step, bytes) {
            break;
        }
    }
    ended(stage.played.id, "was ended by the target");
    assert_eq!(CALLS_HELD.load(SeqCst), held, "calls of a worker that has ended");
    let mut accepted = false;
    for ran in &stage.batches {
        let events: Vec<_> = ran.events.try_iter().collect();
        let ends = events.iter().filter(|event| !matches!(event, Event::Sent(_) | Event::Failed(_))).count();
        assert_eq!(ends, ran.answers.len(), "ends of requests: {events:?}");
        accepted |= events.iter().any(|event| matches!(event, Event::Sent(_) | Event::Ended(Some(Ok(_)), _)));
        stage.freed += ran.freed.try_iter().count();
    }
    assert_eq!(stage.freed, stage.batches.len(), "instances that were freed");
    assert_eq!(stage.asked, stage.told.load(SeqCst), "checks of readiness that were answered");
    if let Some(model) = &stage.model {
        assert_eq!(remote(&**model).calls_open(), 0, "calls that are open");
        let bytes = model.metrics().into_iter().find(|metric| metric.0 == "nereid_runner_request_bytes");
        assert_eq!(bytes.map(|metric| metric.2), Some(0.0), "bytes of requests that are over");
        let again = Played::next(&stage.node);
        again.worker.receive(Way::Work, &ready(form));
        assert!(asks(&**model, &again), "the worker that was started again does not answer");
        drop(stage.model.take());
        ended(again.id, "was ended by the target");
    }
    stage.node.close();
    drop(stage);
    until("the worker is forgotten", || worker.strong_count() == 0);
    until("its memory is given back", || charges() == charged);
    let beside = BESIDE.lock();
    assert!(asks(&*beside.model, &beside.played), "the model beside it does not answer");
    drop(beside);
    assert_eq!(self::panics(), panics, "a thread panicked");
    accepted
}

/// Panics of all threads so far. The worker's own are caught by the transport.
fn panics() -> usize {
    static COUNTED: Once = Once::new();
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    COUNTED.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, SeqCst);
            usual(info);
        }));
    });
    PANICS.load(SeqCst)
}

fn charges() -> usize {
    Budget::global().counters().used_bytes.iter().sum()
}

/// Steps that are left.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[step, low, high], rest) = self.0.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (bytes, rest) = rest.split_at(length);
        self.0 = rest;
        Some((step, bytes))
    }
}

/// Node: it notes which workers the server wants.
#[derive(Default)]
struct Node {
    wanted: Mutex<Wanted>,
    came: Condvar,
}

#[derive(Default)]
struct Wanted {
    ids: Vec<u32>,
    is_closed: bool,
}

impl Threads for Node {
    fn start(&self, spec: WorkerSpec) -> io::Result<()> {
        let mut wanted = self.wanted.lock();
        if wanted.is_closed {
            return Err(io::Error::other("the input is over"));
        }
        wanted.ids.push(spec.id);
        self.came.notify_all();
        Ok(())
    }

    fn terminate(&self, _: u32) {}

    fn write_stack(&self, _: u32, _: bool) {}
}

impl Node {
    /// Ends the workers that were wanted and never attached.
    fn close(&self) {
        let mut wanted = self.wanted.lock();
        wanted.is_closed = true;
        let ids = std::mem::take(&mut wanted.ids);
        drop(wanted);
        ids.into_iter().for_each(|id| ended(id, "was never there"));
    }
}

/// Frames that a worker has not taken.
#[derive(Default)]
struct Frames {
    all: Mutex<Vec<Vec<u8>>>,
    came: Condvar,
}

impl Inbox for Frames {
    fn deliver(&self, frames: Vec<u8>) {
        self.all.lock().push(frames);
        self.came.notify_all();
    }

    fn waiting_bytes(&self) -> usize {
        self.all.lock().iter().map(Vec::len).sum()
    }
}

impl Frames {
    /// Takes all frames, once one of this kind has come.
    fn take(&self, kind: Frame) -> Vec<u8> {
        let mut all = self.all.lock();
        loop {
            let found = all.iter().find(|frames| frames.get(4) == Some(&(kind as u8))).cloned();
            if let Some(found) = found {
                all.clear();
                return found;
            }
            assert!(!self.came.wait_for(&mut all, support::LONG).timed_out(), "no {kind:?} came");
        }
    }
}

/// A worker thread, which this target plays.
struct Played {
    id: u32,
    worker: Arc<Worker>,
    frames: Arc<Frames>,
}

impl Played {
    /// Attaches as the next worker that the server wants, and takes its LOAD.
    fn next(node: &Node) -> Self {
        let mut wanted = node.wanted.lock();
        let id = loop {
            if let Some(id) = wanted.ids.pop() {
                break id;
            }
            assert!(!node.came.wait_for(&mut wanted, support::LONG).timed_out(), "no worker is wanted");
        };
        drop(wanted);
        let frames = Arc::new(Frames::default());
        let worker = attach(id, frames.clone()).expect("it waits for its worker");
        let _ = frames.take(Frame::Load);
        Self { id, worker, frames }
    }
}

fn framed(kind: Frame, flags: u8, count: u16, body: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    let length = body.iter().map(|part| part.len()).sum::<usize>() as u32;
    Header { length, frame: kind as u8, flags, count, model: 1, instance: 0 }.write(&mut out);
    body.iter().for_each(|part| out.extend_from_slice(part));
    out
}

fn ready(form: u8) -> Vec<u8> {
    let asks_ready = form & ASKS_READY != 0;
    framed(Frame::Ready, VERSION as u8, 0, &[format!(r#"{{"runner":"fuzz","asks_ready":{asks_ready}}}"#).as_bytes()])
}

fn result(batch: u64, count: u16, answers: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    ResultHead { batch, releases: 0, error_bytes: 0 }.write(&mut head);
    framed(Frame::Result, 0, count, &[&head, answers])
}

/// An answer with an output of one byte.
fn answer() -> Vec<u8> {
    let mut out = Vec::new();
    AnswerHead { kind: 1, flags: 1, outputs: 1, ..AnswerHead::default() }.write(&mut out);
    let datatype = DataType::Uint8 as u8;
    TensorHead { name_bytes: 3, datatype, rank: 1, bytes: 1, ..TensorHead::default() }.write(&mut out);
    out.extend_from_slice(b"OUT");
    out.extend_from_slice(&1i64.to_le_bytes());
    out.push(7);
    out
}

/// A model with one instance, its requests, and its worker.
struct Stage {
    node: Arc<Node>,
    /// Absent if the load failed, or after an unload.
    model: Option<Arc<dyn Model>>,
    played: Played,
    batches: Vec<Ran>,
    /// Batches whose instance was seen to be free.
    freed: usize,
    /// Checks of readiness that began, and that were answered.
    asked: usize,
    told: Arc<AtomicUsize>,
}

impl Stage {
    /// Loads a model. `greeting` takes the place of the worker's READY; the worker of a load that hangs ends.
    fn load(form: u8, greeting: Option<&[u8]>) -> Self {
        let node = Arc::new(Node::default());
        let (backend, config, signature) = opened(&node, form);
        std::thread::scope(|threads| {
            let loading = threads.spawn(move || backend.finish(&config, signature));
            let played = Played::next(&node);
            match greeting {
                None => played.worker.receive(Way::Work, &ready(form)),
                Some(bytes) => {
                    played.worker.receive(Way::Work, bytes);
                    ended(played.id, "was ended by the target");
                }
            }
            let model = loading.join().expect("a load does not panic").ok();
            Self { node: node.clone(), model, played, batches: Vec::new(), freed: 0, asked: 0, told: Arc::default() }
        })
    }

    /// False once the worker has ended.
    fn step(&mut self, step: u8, bytes: &[u8]) -> bool {
        let worker = &self.played.worker;
        let number = |at: usize| usize::from(bytes.get(at).copied().unwrap_or_default());
        match step {
            WORK => worker.receive(Way::Work, bytes),
            SIDE => worker.receive(Way::Side, bytes),
            BATCH => self.batch(1 + number(0) % 4, number(1)),
            CANCEL => {
                if let Some(client) = self.batches.iter().flat_map(|ran| &ran.answers).nth(number(0)) {
                    client.cancel();
                }
            }
            RESULT => {
                let running = self.batches.last().map_or(0, |ran| ran.answers.len());
                worker.receive(Way::Work, &result(self.batches.len() as u64, running as u16, bytes));
            }
            RESPOND => {
                let Some((&at, answer)) = bytes.split_first() else { return true };
                let mut head = Vec::new();
                RespondHead { slot: u32::from(at & 15), generation: 1 + u32::from(at >> 4) }.write(&mut head);
                worker.receive(Way::Side, &framed(Frame::Respond, 0, 0, &[&head, answer]));
            }
            PRINT => worker.print(number(0) & 1 == 1, bytes),
            MEMORY => {
                let at = |at: usize| number(at) << 16 | number(at + 1);
                drop(worker.response_segment(number(1)));
                if let Some(region) = worker.request_block(number(1), at(2), at(4)) {
                    assert!(at(2) + at(4) <= region.len(), "a block outside of its segment");
                }
            }
            ASK => {
                if let Some(model) = &self.model
                    && let Readiness::Ask(ask) = remote(&**model).readiness()
                {
                    self.asked += 1;
                    let told = Arc::clone(&self.told);
                    ask(Box::new(move |_| {
                        told.fetch_add(1, SeqCst);
                    }));
                }
            }
            UNLOAD => drop(self.model.take()),
            END => return false,
            _ => {}
        }
        true
    }

    fn batch(&mut self, count: usize, size: usize) {
        let Some(model) = &self.model else { return };
        self.freed += self.batches.last().map_or(0, |ran| ran.freed.try_iter().count());
        if self.freed < self.batches.len() || self.batches.len() == BATCHES_MAX {
            return;
        }
        let length = [1, 300, 5000, 70_000][size & 3];
        let entry = |_| match size & 4 {
            0 => bytes("", length),
            _ => {
                let string = [&(length as u32).to_le_bytes()[..], &vec![b'x'; length]].concat();
                request("", &[("IN_S", DataType::Bytes, Data::Bytes(string.into()), &[1])])
            }
        };
        self.batches.push(run(&**model, 0, (0..count).map(entry).collect()));
    }
}

/// The parts of a load: the opened model, its configuration and its signature.
fn opened(node: &Arc<Node>, form: u8) -> (Box<dyn backend::Opened>, ModelConfig, Arc<Signature>) {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let directory = std::env::temp_dir().join(format!("nereid-fuzz-worker-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::write(directory.join("model.mjs"), "").expect("a file");
        directory
    });
    static SERVER: LazyLock<Arc<dyn Host>> = LazyLock::new(|| Arc::new(Server(CustomMetrics::new(true))));
    let backend = JavaScriptBackend::new(JavaScriptOptions::default(), node.clone());
    backend.attach(Arc::downgrade(&*SERVER));
    let iterative = ModelSequenceBatching { iterative_sequence: true, ..ModelSequenceBatching::default() };
    let config = ModelConfig {
        name: "m".into(),
        default_model_filename: "model.mjs".into(),
        scheduling_choice: (form & ITERATIVE != 0).then_some(SchedulingChoice::SequenceBatching(iterative)),
        ..ModelConfig::default()
    };
    let setting = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let opened = backend.open(&OpenSpec {
        model: "m".into(),
        version: 1,
        model_directory: DIRECTORY.clone(),
        version_directory: DIRECTORY.clone(),
        config: config.encode_to_vec().into(),
        // NEED_SEGMENT reaches its limit soon, and few timers wait.
        settings: vec![
            setting("shm-max-byte-size", "4194304"),
            setting("exit-grace-seconds", "1"),
            setting("start-timeout-seconds", "5"),
        ],
        config_json: "{}".into(),
        completes: false,
        code_directory: None,
        library: None,
        batching: None,
    });
    let signature = Signature { decoupled: form & DECOUPLED != 0, ..(*signature()).clone() };
    (opened.expect("its file is there"), config, signature.into())
}

/// True if a worker that keeps to the protocol answers a request.
fn asks(model: &dyn Model, played: &Played) -> bool {
    let ran = run(model, 0, vec![bytes("", 1)]);
    let frame = played.frames.take(Frame::Execute);
    let body = frame.get(Header::BYTES..).and_then(|body| body.first_chunk()).expect("a whole frame");
    played.worker.receive(Way::Work, &result(ExecuteHead::read(body).batch, 1, &answer()));
    ran.freed.try_recv().is_ok() && matches!(ran.events.try_recv(), Ok(Event::Ended(Some(Ok(_)), _)))
}

/// A model whose worker keeps to the protocol.
struct Beside {
    model: Arc<dyn Model>,
    played: Played,
}

static BESIDE: LazyLock<Mutex<Beside>> = LazyLock::new(|| {
    let Stage { model, played, .. } = Stage::load(0, None);
    Mutex::new(Beside { model: model.expect("it loads"), played })
});

/// Calls that wait for a cancel.
static CALLS_HELD: AtomicUsize = AtomicUsize::new(0);

/// The server that a worker calls.
struct Server(Arc<CustomMetrics>);

/// A call that is answered when it is cancelled; `None` once it is.
struct HeldCall(Mutex<Option<Arc<dyn CallAnswers>>>);

impl Call for HeldCall {
    fn cancel(&self) {
        let answers = self.0.lock().take();
        if let Some(answers) = answers {
            CALLS_HELD.fetch_sub(1, SeqCst);
            answers.answer(Some(Err(Error::unavailable("cancelled"))), true);
        }
    }
}

impl Host for Server {
    fn call(&self, call: ModelCall, answers: Arc<dyn CallAnswers>) -> Result<Box<dyn Call>> {
        match call.version & 3 {
            0 => Err(Error::unavailable("no such model")),
            1 => {
                answers.answer(Some(Ok(Box::new(InferResponse::default()))), true);
                Ok(Box::new(HeldCall(Mutex::new(None))))
            }
            _ => {
                CALLS_HELD.fetch_add(1, SeqCst);
                Ok(Box::new(HeldCall(Mutex::new(Some(answers)))))
            }
        }
    }

    fn describe(&self, model: &str, _: i64) -> Result<backend::CallableModel, tensor::Error> {
        Err(tensor::Error::not_found(format!("Request for unknown model: '{model}' is not found")))
    }

    fn control(&self, control: ModelControl, answer: ControlAnswer) {
        answer(match control.operation {
            ModelOperation::IsReady { .. } => Ok("true".into()),
            ModelOperation::Load { .. } => Err(Error::unavailable("no such model")),
            ModelOperation::Unload { .. } | ModelOperation::Repositories(_) => Ok("{}".into()),
            ModelOperation::IsServerReady => Ok("false".into()),
            ModelOperation::Read { .. } => Ok("[]".into()),
        });
    }

    fn metrics(&self) -> &Arc<CustomMetrics> {
        &self.0
    }
}
