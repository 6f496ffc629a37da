//! Panics around an execution: its requests get one response each, and its instance serves the next one.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]

use backend::{Backend, Batch, Capabilities, Marks, Model, OpenSpec, Opened, Outcome, RunControl, now_ns};
use bytes::Bytes;
use engine::{Engine, EngineOptions, EngineResponse, ModelVersion, PublishSpec, ServerState, Sink, Started};
use prost::Message;
use protocol::pb::inference as pb;
use protocol::{InferRequest, InferResponse, InputTensor, OutputForm, OutputTensor, Signature};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tensor::{Code, Data, DataType, Result, Shape};

const WITHIN: Duration = Duration::from_secs(10);

/// Actions selected by the first byte of a request.
const SERVE: u8 = 0;
const PANIC: u8 = 1;
const FORGET: u8 = 2;
/// Output data whose release panics.
const TRAP: u8 = 3;

/// One instance, controlled by the contents of requests.
struct Fragile;

impl Backend for Fragile {
    fn name(&self) -> &'static str {
        "fragile"
    }
    fn open(&self, _: &OpenSpec) -> Result<Box<dyn Opened>> {
        Ok(Box::new(Fragile))
    }
}

impl Opened for Fragile {
    fn finish(self: Box<Self>, _: &pb::ModelConfig, _: Arc<Signature>) -> Result<Arc<dyn Model>> {
        Ok(Arc::new(Fragile))
    }
}

/// Panics when it is released.
struct Trap;

impl AsRef<[u8]> for Trap {
    fn as_ref(&self) -> &[u8] {
        &[0; 4]
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        panic!("a planted panic, when data are released");
    }
}

impl Model for Fragile {
    fn execute(&self, _: u32, batch: &mut Batch<'_>, _: &RunControl) -> Marks {
        for entry in batch.requests.iter_mut() {
            let Data::Bytes(data) = &entry.request.inputs[0].data else { continue };
            let asked = data[0];
            let data = match asked {
                PANIC => panic!("a planted panic, in the backend"),
                FORGET => continue,
                TRAP => {
                    // Stays in the request, and is dropped with it after the response.
                    entry.request.inputs[0].data = Data::Bytes(Bytes::from_owner(Trap));
                    Bytes::from_static(&[9; 4])
                }
                _ => Bytes::from_static(&[7; 4]),
            };
            let output = OutputTensor {
                name: "O".into(),
                datatype: DataType::Fp32,
                shape: Shape::from_slice(&[1, 1]),
                data: data.into(),
                index: 0,
                form: OutputForm::default(),
            };
            let mut outcome = Outcome::default();
            outcome.outputs.push(output);
            entry.result = Some(Ok(outcome));
        }
        let now = now_ns();
        Marks { inputs_ready: now, inference_end: now, outputs_ready: now }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { cost_may_depend_on_data: false, ..Capabilities::default() }
    }
}

fn model() -> (Arc<Engine>, Arc<ModelVersion>) {
    let engine = Engine::new(EngineOptions::default(), vec![Arc::new(Fragile)]).expect("an engine");
    let config = pb::ModelConfig {
        name: "m".into(),
        backend: "fragile".into(),
        max_batch_size: 8,
        input: vec![pb::ModelInput { name: "I".into(), dims: vec![1], data_type: 11, ..Default::default() }],
        output: vec![pb::ModelOutput { name: "O".into(), dims: vec![1], data_type: 11, ..Default::default() }],
        ..Default::default()
    };
    let config = Bytes::from(config.encode_to_vec());
    let spec = OpenSpec {
        model: "m".into(),
        version: 1,
        model_directory: ".".into(),
        version_directory: ".".into(),
        config: config.clone(),
        settings: vec![],
        config_json: String::new(),
        completes: false,
        code_directory: None,
        library: None,
        batching: None,
    };
    let opened = engine.open("fragile", spec).expect("opens");
    engine.publish(opened.handle, PublishSpec { config, ..Default::default() }).expect("publishes");
    engine.set_server_state(ServerState::Ready);
    let version = engine.model("m", "").expect("ready");
    (engine, version)
}

fn request(asked: u8) -> InferRequest {
    let input = InputTensor {
        name: "I".into(),
        datatype: Some(DataType::Fp32),
        shape: Shape::from_slice(&[1, 1]),
        data: Data::Bytes(Bytes::from(vec![asked; 4])),
    };
    InferRequest { inputs: [input].into_iter().collect(), ..InferRequest::default() }
}

/// Starts a request; the receiver gets its responses, and closes after the last.
fn start(version: &ModelVersion, asked: u8, sink_panics: bool) -> Receiver<Result<Box<InferResponse>>> {
    let (send, receive) = channel();
    let sent = send.clone();
    let sink = || {
        Arc::new(move |answer: EngineResponse| {
            assert!(answer.is_final, "the only answer");
            let _ = sent.send(answer.response.expect("a response"));
            assert!(!sink_panics, "a planted panic, in a sink");
        }) as Arc<dyn Sink>
    };
    if let Started::Answered(result) = version.call(Box::new(request(asked)), sink, None).expect("accepted") {
        let _ = send.send(result);
    }
    receive
}

fn code(answers: &Receiver<Result<Box<InferResponse>>>) -> Option<Code> {
    let answer = answers.recv_timeout(WITHIN).expect("an answer");
    assert!(answers.recv_timeout(Duration::from_millis(1)).is_err(), "a second answer");
    answer.err().map(|e| e.code())
}

/// Checks that the model still serves, on the pool and inline.
fn serves(engine: &Engine, version: &ModelVersion) {
    for _ in 0..16 {
        assert_eq!(code(&start(version, SERVE, false)), None);
    }
    assert_eq!(engine.drain(WITHIN), 0, "requests that nobody answered");
}

#[test]
fn a_panic_only_fails_its_own_requests() {
    let (engine, version) = model();
    serves(&engine, &version);
    for asked in [PANIC, FORGET] {
        for _ in 0..8 {
            assert_eq!(code(&start(&version, asked, false)), Some(Code::Internal));
        }
        serves(&engine, &version);
    }
    for _ in 0..8 {
        assert_eq!(code(&start(&version, SERVE, true)), None, "it was answered before its receiver panicked");
        serves(&engine, &version);
    }
}

#[test]
fn data_whose_release_panics_cost_neither_the_instance_nor_a_thread() {
    let (engine, version) = model();
    for _ in 0..8 {
        // On the pool, before the model is known to be cheap.
        let answers = start(&version, TRAP, false);
        answers.recv_timeout(WITHIN).expect("an answer").expect("made before the panic");
    }
    serves(&engine, &version);
    // A thread that still prints its stack is busy, so the next request may have started another one: one for each at
    // most. A count that grew with each panic would be 9 or more.
    let threads = engine.snapshot().gauges.iter().find(|g| g.0 == "nereid_worker_threads").map(|g| g.2);
    assert!(threads.is_some_and(|n| (1.0..=8.0).contains(&n)), "{threads:?}");
}
