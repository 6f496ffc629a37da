//! Runs a model as the engine does, and records its responses.

use backend::{
    Answers, Backend, Batch, BatchEntry, Counted, Marks, Model, OpenSpec, Outcome, Responder, RunControl, Stopped,
};
use parking_lot::{Condvar, Mutex};
use protocol::pb::inference::{ModelConfig, ModelInput, ModelOutput};
use protocol::{Checked, InferRequest, InputSpec, InputTensor, OutputSpec, Signature};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tensor::{Code, Data, DataType, Error, Result, Shape};

/// A call of the responder, in order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// Sent these values of four bytes.
    Sent(Vec<i32>),
    Failed(Error),
    Skipped,
    Output,
    Counts(Counted),
    Ended(Option<Error>),
    /// Returned the request to run again, after a response.
    Again(Option<Vec<i32>>),
    Dropped,
}

#[derive(Default)]
pub(crate) struct Recorder {
    did: Mutex<Vec<(Event, Instant)>>,
    more: Condvar,
    cancelled: AtomicBool,
    hooks: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    /// The returned request.
    pub(crate) back: Mutex<Option<BatchEntry>>,
}

impl Recorder {
    fn note(&self, did: Event) {
        self.did.lock().push((did, Instant::now()));
        self.more.notify_all();
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        self.call_hooks();
    }

    fn call_hooks(&self) {
        let hooks = std::mem::take(&mut *self.hooks.lock());
        hooks.into_iter().for_each(|hook| hook());
    }

    /// All events with their times, once the request has ended.
    pub(crate) fn all(&self) -> Vec<(Event, Instant)> {
        let mut did = self.did.lock();
        while !did.iter().any(|(d, _)| matches!(d, Event::Ended(_) | Event::Again(_) | Event::Dropped)) {
            assert!(!self.more.wait_for(&mut did, Duration::from_secs(20)).timed_out(), "no end: {did:?}");
        }
        did.clone()
    }

    /// All events without times, and without those of outputs and counting.
    pub(crate) fn answers(&self) -> Vec<Event> {
        let all = self.all().into_iter().map(|(d, _)| d);
        all.filter(|d| !matches!(d, Event::Output | Event::Counts(_))).collect()
    }
}

fn values(outcome: &Outcome) -> Vec<i32> {
    let of = |data: &Data| <[u8; 4]>::try_from(data.to_vec().expect("in memory")).map_or(-1, i32::from_le_bytes);
    outcome.outputs.iter().map(|o| of(&o.data)).collect()
}

impl Answers for Recorder {
    fn send(&self, outcome: Outcome) -> Result<(), Stopped> {
        if self.is_cancelled() {
            return Err(Stopped);
        }
        self.note(Event::Sent(values(&outcome)));
        Ok(())
    }
    fn fail(&self, error: Error) {
        self.note(Event::Failed(error));
    }
    fn skip(&self) {
        self.note(Event::Skipped);
    }
    fn output_begins(&self) {
        self.note(Event::Output);
    }
    fn count_as(&self, counted: Counted) {
        self.note(Event::Counts(counted));
    }
    fn finish(&self, last: Option<Result<Outcome>>) {
        self.note(Event::Ended(last.and_then(Result::err)));
    }
    fn again(&self, entry: BatchEntry, outcome: Option<Outcome>) {
        self.note(Event::Again(outcome.as_ref().map(values)));
        *self.back.lock() = Some(entry);
    }
    fn put_back(&self, entry: BatchEntry) {
        *self.back.lock() = Some(entry);
    }
    fn abandon(&self) {
        if !self.did.lock().iter().any(|(d, _)| matches!(d, Event::Ended(_))) {
            self.note(Event::Dropped);
        }
    }
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }
    fn on_cancel(&self, hook: Box<dyn FnOnce() + Send>) {
        self.hooks.lock().push(hook);
        if self.is_cancelled() {
            self.call_hooks();
        }
    }
}

/// Name, datatype and dims of a configured tensor.
pub(crate) type Tensor = (&'static str, DataType, &'static [i64]);

pub(crate) fn config(inputs: &[Tensor], outputs: &[Tensor], parameters: &[(&str, &str)]) -> ModelConfig {
    let mut config = ModelConfig::default();
    for (name, datatype, dims) in inputs {
        let (name, data_type, dims) = ((*name).into(), *datatype as i32, dims.to_vec());
        config.input.push(ModelInput { name, data_type, dims, ..Default::default() });
    }
    for (name, datatype, dims) in outputs {
        let (name, data_type, dims) = ((*name).into(), *datatype as i32, dims.to_vec());
        config.output.push(ModelOutput { name, data_type, dims, ..Default::default() });
    }
    for (key, value) in parameters {
        let value = protocol::pb::inference::ModelParameter { string_value: (*value).into() };
        config.parameters.insert((*key).into(), value);
    }
    config
}

/// The signature that the engine makes of a configuration.
pub(crate) fn signature(config: &ModelConfig) -> Signature {
    let datatype = |number| DataType::from_number(number).unwrap_or(DataType::Int32);
    Signature {
        model: "m".into(),
        max_batch_size: u32::try_from(config.max_batch_size).unwrap_or(0),
        decoupled: true,
        inputs: config
            .input
            .iter()
            .map(|i| InputSpec {
                name: i.name.as_str().into(),
                datatype: datatype(i.data_type),
                dims: Shape::from_slice(&i.dims),
                reshape: None,
                optional: false,
                allow_ragged_batch: false,
            })
            .collect(),
        outputs: config
            .output
            .iter()
            .map(|o| OutputSpec {
                name: o.name.as_str().into(),
                datatype: datatype(o.data_type),
                dims: Shape::from_slice(&o.dims),
                reshape: None,
                labels: Default::default(),
            })
            .collect(),
        ..Signature::default()
    }
}

pub(crate) fn load(backend: &dyn Backend, config: &ModelConfig) -> Result<Arc<dyn Model>> {
    let spec = OpenSpec {
        model: "m".into(),
        version: 1,
        model_directory: ".".into(),
        version_directory: ".".into(),
        config: Default::default(),
        settings: Vec::new(),
        config_json: String::new(),
        completes: false,
        code_directory: None,
        library: None,
        batching: None,
    };
    let signature = signature(config);
    backend.open(&spec)?.finish(config, Arc::new(signature))
}

/// A request with these inputs, in configuration order, and all outputs.
pub(crate) fn entry(inputs: &[&[i32]], outputs: u16) -> BatchEntry {
    let mut request = InferRequest::default();
    let mut checked = Checked { outputs: (0..outputs).map(|o| (o, None)).collect(), ..Checked::default() };
    for (index, values) in inputs.iter().enumerate() {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        request.inputs.push(InputTensor {
            name: format!("{index}").into(),
            datatype: Some(DataType::Int32),
            shape: Shape::from_slice(&[values.len() as i64]),
            data: Data::Bytes(bytes.into()),
        });
        checked.inputs.push(index as u16);
    }
    BatchEntry::new(Box::new(request), checked)
}

/// Runs a request of a decoupled model; returns when the instance is free.
pub(crate) fn run(model: &dyn Model, mut entry: BatchEntry) -> Arc<Recorder> {
    let recorder = Arc::new(Recorder::default());
    entry.responder = Some(Responder::new(recorder.clone()));
    let _: Marks = model.execute(0, &mut Batch::new(std::slice::from_mut(&mut entry)), &RunControl::new(1));
    assert!(entry.responder.is_none() && entry.result.is_none(), "answered through its responder");
    recorder
}

/// Runs a request of a model that is not decoupled.
pub(crate) fn run_once(model: &dyn Model, mut entry: BatchEntry) -> Result<Vec<i32>> {
    model.execute(0, &mut Batch::new(std::slice::from_mut(&mut entry)), &RunControl::new(1));
    entry.result.expect("a result").map(|outcome| values(&outcome))
}

/// Asserts that a configuration is rejected with this text.
pub(crate) fn refused(backend: &dyn Backend, config: &ModelConfig, text: &str) {
    let error = load(backend, config).err().unwrap_or_else(|| panic!("loads, instead of: {text}"));
    assert_eq!((error.code(), error.message()), (Code::InvalidArg, text));
}
