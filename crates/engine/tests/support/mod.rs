//! A backend controlled by a test, and calls whose responses a test can inspect.

#![allow(clippy::disallowed_methods, reason = "tests wait for other threads and processes, and look at clocks")]
#![allow(dead_code)] // each test file uses its part

pub mod later;
pub mod sequences;

use backend::{
    Backend, Batch, BatchEntry, Capabilities, Marks, Model, OpenSpec, Opened, Outcome, Responder, RunControl, now_ns,
};
use bytes::Bytes;
use engine::{
    Engine, EngineOptions, EngineResponse, MetricsOptions, ModelVersion, PublishSpec, ServerState, Sink, Started,
    Ticket,
};
use prost::Message;
use protocol::pb::inference as pb;
use protocol::{InferRequest, InputTensor, OutputForm, OutputTensor, Signature};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tensor::{Code, Data, DataType, Error, Result, Shape};

pub const WITHIN: Duration = Duration::from_secs(20);

/// Behaviour of an execution.
pub type Script = Arc<dyn Fn(u32, &mut Batch<'_>, &RunControl) + Send + Sync>;

#[derive(Clone)]
struct Scripted(&'static str, Script, Capabilities);

impl Backend for Scripted {
    fn name(&self) -> &'static str {
        self.0
    }
    fn open(&self, _: &OpenSpec) -> Result<Box<dyn Opened>> {
        Ok(Box::new(self.clone()))
    }
}

impl Opened for Scripted {
    fn finish(self: Box<Self>, _: &pb::ModelConfig, _: Arc<Signature>) -> Result<Arc<dyn Model>> {
        Ok(Arc::new(*self))
    }
}

impl Model for Scripted {
    fn execute(&self, instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Marks {
        (self.1)(instance, batch, control);
        let now = now_ns();
        Marks { inputs_ready: now, inference_end: now, outputs_ready: now }
    }
    fn capabilities(&self) -> Capabilities {
        self.2
    }
}

/// Capabilities of scripted models, unless a test has others.
fn usual() -> Capabilities {
    Capabilities { instances_are_permits: true, cost_may_depend_on_data: false, ..Capabilities::default() }
}

/// An engine with a backend `scripted`, whose models have these capabilities.
pub fn engine_with_capabilities(capabilities: Capabilities, script: Script) -> Result<Arc<Engine>> {
    let engine = Engine::new(EngineOptions::default(), vec![Arc::new(Scripted("scripted", script, capabilities))])?;
    engine.set_server_state(ServerState::Ready);
    Ok(engine)
}

/// A backend `scripted`, which runs the script.
pub fn scripted(script: impl Fn(u32, &mut Batch<'_>, &RunControl) + Send + Sync + 'static) -> Arc<dyn Backend> {
    Arc::new(Scripted("scripted", Arc::new(script), usual()))
}

/// An engine without models, with a backend for each script.
pub fn engine_with(scripts: Vec<(&'static str, Script)>) -> Result<Arc<Engine>> {
    let metrics = MetricsOptions { histogram_latencies: true, ..MetricsOptions::default() };
    engine_of(EngineOptions { metrics, ..EngineOptions::default() }, scripts)
}

/// Like [`engine_with`], with these options.
pub fn engine_of(options: EngineOptions, scripts: Vec<(&'static str, Script)>) -> Result<Arc<Engine>> {
    let backends =
        scripts.into_iter().map(|(name, script)| Arc::new(Scripted(name, script, usual())) as Arc<dyn Backend>);
    let engine = Engine::new(options, backends.collect())?;
    engine.set_server_state(ServerState::Ready);
    Ok(engine)
}

/// Input and output are one number; batches of up to 8.
pub fn of_numbers(name: &str, backend: &str) -> pb::ModelConfig {
    pb::ModelConfig {
        name: name.into(),
        backend: backend.into(),
        max_batch_size: 8,
        input: vec![pb::ModelInput { name: "I".into(), dims: vec![1], data_type: 2, ..Default::default() }],
        output: vec![pb::ModelOutput { name: "O".into(), dims: vec![1], data_type: 2, ..Default::default() }],
        ..Default::default()
    }
}

/// An ensemble of numbers whose one step is a model.
pub fn ensemble_of(name: &str, model: &str) -> pb::ModelConfig {
    chain_of(name, &[model], 0)
}

/// A chain ensemble of numbers; `limit` calls of a step may be in flight, 0 = any number.
pub fn chain_of(name: &str, models: &[&str], limit: u32) -> pb::ModelConfig {
    let tensor = |i: usize| match i {
        0 => "I".to_owned(),
        i if i == models.len() => "O".to_owned(),
        i => format!("t{i}"),
    };
    let step = |(i, model): (usize, &&str)| pb::model_ensembling::Step {
        model_name: (*model).into(),
        model_version: -1,
        input_map: [("I".to_owned(), tensor(i))].into(),
        output_map: [("O".to_owned(), tensor(i + 1))].into(),
        ..Default::default()
    };
    let graph =
        pb::ModelEnsembling { step: models.iter().enumerate().map(step).collect(), max_inflight_requests: limit };
    let choice = pb::model_config::SchedulingChoice::EnsembleScheduling(graph);
    pb::ModelConfig { scheduling_choice: Some(choice), ..of_numbers(name, "") }
}

/// Loads version 1 of a model.
pub fn publish(engine: &Engine, config: &pb::ModelConfig) -> Result<Arc<ModelVersion>> {
    publish_as(engine, &config.name, 1, config)?;
    engine.model(&config.name, "")
}

/// Loads a version of the model under its name.
pub fn publish_as(engine: &Engine, key: &str, version: i64, config: &pb::ModelConfig) -> Result<()> {
    let encoded = Bytes::from(config.encode_to_vec());
    let spec = OpenSpec {
        model: key.into(),
        version,
        model_directory: ".".into(),
        version_directory: ".".into(),
        config: encoded.clone(),
        settings: vec![],
        config_json: String::new(),
        completes: false,
        code_directory: None,
        library: None,
        batching: None,
    };
    let opened = engine.open(&config.backend, spec)?;
    engine.publish(opened.handle, PublishSpec { config: encoded, ..Default::default() }).map(drop)
}

/// An engine with the model `m` of numbers. `change` adds to its configuration.
pub fn try_model(
    change: impl FnOnce(&mut pb::ModelConfig),
    script: impl Fn(u32, &mut Batch<'_>, &RunControl) + Send + Sync + 'static,
) -> Result<(Arc<Engine>, Arc<ModelVersion>)> {
    let engine = engine_with(vec![("scripted", Arc::new(script))])?;
    let version = load(&engine, change)?;
    Ok((engine, version))
}

/// Like [`try_model`], on an engine with these options.
pub fn try_model_of(
    options: EngineOptions,
    change: impl FnOnce(&mut pb::ModelConfig),
    script: impl Fn(u32, &mut Batch<'_>, &RunControl) + Send + Sync + 'static,
) -> Result<(Arc<Engine>, Arc<ModelVersion>)> {
    let engine = engine_of(options, vec![("scripted", Arc::new(script))])?;
    let version = load(&engine, change)?;
    Ok((engine, version))
}

/// Loads or reloads the model, or another one with the same script.
pub fn load(engine: &Engine, change: impl FnOnce(&mut pb::ModelConfig)) -> Result<Arc<ModelVersion>> {
    let mut config = of_numbers("m", "scripted");
    change(&mut config);
    publish(engine, &config)
}

pub fn model(
    change: impl FnOnce(&mut pb::ModelConfig),
    script: impl Fn(u32, &mut Batch<'_>, &RunControl) + Send + Sync + 'static,
) -> (Arc<Engine>, Arc<ModelVersion>) {
    try_model(change, script).expect("a good configuration")
}

/// Configuration of a decoupled model.
pub fn decoupled(config: &mut pb::ModelConfig) {
    config.model_transaction_policy = Some(pb::ModelTransactionPolicy { decoupled: true });
}

pub fn instances(config: &mut pb::ModelConfig, count: i32) {
    config.instance_group = vec![pb::ModelInstanceGroup { name: "m".into(), count, kind: 2, ..Default::default() }];
}

pub fn dynamic(config: &mut pb::ModelConfig, batching: pb::ModelDynamicBatching) {
    config.scheduling_choice = Some(pb::model_config::SchedulingChoice::DynamicBatching(batching));
}

/// A decoupled model whose responders come to the test.
pub fn handing_out(
    change: impl FnOnce(&mut pb::ModelConfig),
) -> (Arc<Engine>, Arc<ModelVersion>, Receiver<(u8, Responder)>) {
    let (send, receive) = channel();
    let (engine, version) = model(
        |config| {
            decoupled(config);
            change(config);
        },
        move |_, batch, _| {
            for entry in batch.requests.iter_mut() {
                let responder = entry.responder.take().expect("a decoupled model");
                let _ = send.send((asked(entry), responder));
            }
        },
    );
    (engine, version, receive)
}

/// The number in a request.
pub fn asked(entry: &BatchEntry) -> u8 {
    entry.request.inputs[0].data.to_vec().expect("in memory")[0]
}

pub fn outcome(number: u8) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.outputs.push(OutputTensor {
        name: "O".into(),
        datatype: DataType::Uint8,
        shape: Shape::from_slice(&[1, 1]),
        data: Data::Bytes(Bytes::from(vec![number])),
        index: 0,
        form: OutputForm::default(),
    });
    outcome
}

pub fn request(number: u8) -> Box<InferRequest> {
    let input = InputTensor {
        name: "I".into(),
        datatype: Some(DataType::Uint8),
        shape: Shape::from_slice(&[1, 1]),
        data: Data::Bytes(Bytes::from(vec![number])),
    };
    Box::new(InferRequest {
        inputs: [input].into_iter().collect(),
        id: format!("r{number}").into(),
        ..InferRequest::default()
    })
}

/// A response in the form that tests compare.
#[derive(Debug, Clone, PartialEq)]
pub enum Got {
    Number(u8),
    Failed(Code),
    Nothing,
}

pub fn got(answer: EngineResponse) -> (Got, bool) {
    let got = match answer.response {
        Some(Ok(response)) => {
            assert_eq!((&*response.model_name, &*response.model_version), ("m", "1"));
            Got::Number(response.outputs[0].data.to_vec().expect("in memory")[0])
        }
        Some(Err(error)) => Got::Failed(error.code()),
        None => Got::Nothing,
    };
    (got, answer.is_final)
}

/// A call and its responses.
pub struct Call {
    pub answers: Receiver<EngineResponse>,
    pub ticket: Option<Ticket>,
}

/// Calls the model; an inline response is added to those of the sink.
pub fn try_call(version: &ModelVersion, number: u8, parent: Option<&Ticket>) -> Result<Call> {
    try_request(version, request(number), parent)
}

pub fn try_request(version: &ModelVersion, request: Box<InferRequest>, parent: Option<&Ticket>) -> Result<Call> {
    let (send, answers) = channel();
    let sent = send.clone();
    let sink = || Arc::new(move |answer: EngineResponse| drop(sent.send(answer))) as Arc<dyn Sink>;
    let ticket = match version.call(request, sink, parent)? {
        Started::Answered(result) => {
            let _ = send.send(EngineResponse::only(result));
            None
        }
        Started::Queued(ticket) => Some(ticket),
    };
    Ok(Call { answers, ticket })
}

pub fn call(version: &ModelVersion, number: u8) -> Call {
    try_call(version, number, None).expect("accepted")
}

/// Calls the model with this priority, and returns what the access log is written from, too.
pub fn measured(version: &ModelVersion, number: u8, priority: u64) -> (Call, trace::Trace) {
    let trace = trace::Trace::measured();
    let request = InferRequest { trace: Some(trace.clone()), priority, ..*request(number) };
    (try_request(version, Box::new(request), None).expect("accepted"), trace)
}

impl Call {
    pub fn next(&self) -> (Got, bool) {
        got(self.next_answer())
    }

    pub fn next_answer(&self) -> EngineResponse {
        self.answers.recv_timeout(WITHIN).expect("an answer")
    }

    /// The error text that ends the request.
    pub fn error(&self) -> Error {
        let answer = self.next_answer();
        assert!(answer.is_final, "not the end: {answer:?}");
        self.is_over();
        answer.response.expect("an error").expect_err("an error")
    }

    /// The remaining responses, up to the end.
    pub fn rest(&self) -> Vec<Got> {
        let mut all = Vec::new();
        loop {
            let (got, is_final) = self.next();
            all.push(got);
            if is_final {
                self.is_over();
                return all;
            }
        }
    }

    /// Asserts that nothing came so far.
    pub fn is_silent(&self) {
        assert!(self.answers.recv_timeout(Duration::from_millis(20)).is_err(), "an answer too early");
    }

    /// Asserts that nothing comes any more.
    pub fn is_over(&self) {
        assert!(self.answers.recv_timeout(Duration::from_millis(2)).is_err(), "an answer after the last");
    }

    pub fn ticket(&self) -> &Ticket {
        self.ticket.as_ref().expect("queued")
    }
}

/// Waits until nothing is in flight.
pub fn settles(engine: &Engine, version: &ModelVersion) {
    assert_eq!(engine.drain(WITHIN), 0, "requests that nobody ended");
    assert_eq!((version.inflight(), version.statistics().pending), (0, 0));
}

/// Waits for an event on another thread.
pub fn soon(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + WITHIN;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
