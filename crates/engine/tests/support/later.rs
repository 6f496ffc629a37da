//! A backend whose batches run elsewhere, controlled by a test.

use super::load;
use backend::{
    Backend, Batch, Capabilities, InstanceEventsRef, Marks, Model, NewInstance, Occupied, OpenSpec, Opened, Readiness,
    RemoteModel, Responder, RunControl, now_ns,
};
use engine::{Engine, EngineOptions, ModelVersion, ServerState};
use protocol::Signature;
use protocol::pb::inference as pb;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tensor::Result;

type Execute = Arc<dyn Fn(u32, &mut Batch<'_>, &RunControl) + Send + Sync>;
type Serve = Arc<dyn Fn(InstanceEventsRef) + Send + Sync>;
type Ready = Arc<dyn Fn() -> Readiness + Send + Sync>;
type Start = Arc<dyn Fn(&[NewInstance]) -> Option<Result<()>> + Send + Sync>;
type Left = Arc<dyn Fn(u32) + Send + Sync>;

/// Behaviour of the model.
#[derive(Clone)]
pub struct LaterModel {
    pub execute: Execute,
    pub at_once: bool,
    pub serve: Serve,
    pub readiness: Ready,
    pub start: Start,
    pub left: Left,
}

impl LaterModel {
    pub fn new(execute: impl Fn(u32, &mut Batch<'_>, &RunControl) + Send + Sync + 'static) -> Self {
        Self {
            execute: Arc::new(execute),
            at_once: false,
            serve: Arc::new(|_| ()),
            readiness: Arc::new(|| Readiness::Ready),
            start: Arc::new(|_| None),
            left: Arc::new(|_| ()),
        }
    }

    /// True if any thread may start its batches.
    pub fn at_once(self) -> Self {
        Self { at_once: true, ..self }
    }

    /// Receives the listener of instance events.
    pub fn telling(self) -> (Self, Receiver<InstanceEventsRef>) {
        let (send, receive) = channel();
        (Self { serve: Arc::new(move |instances| drop(send.send(instances))), ..self }, receive)
    }

    pub fn ready(self, readiness: impl Fn() -> Readiness + Send + Sync + 'static) -> Self {
        Self { readiness: Arc::new(readiness), ..self }
    }

    /// An engine with it as the model `m` of numbers.
    pub fn model_of(
        self,
        options: EngineOptions,
        change: impl FnOnce(&mut pb::ModelConfig),
    ) -> (Arc<Engine>, Arc<ModelVersion>) {
        let engine = Engine::new(options, vec![Arc::new(self) as Arc<dyn Backend>]).expect("an engine");
        engine.set_server_state(ServerState::Ready);
        let version = load(&engine, |config| {
            config.backend = "later".into();
            change(config);
        });
        (engine, version.expect("a good configuration"))
    }

    pub fn model(self, change: impl FnOnce(&mut pb::ModelConfig)) -> (Arc<Engine>, Arc<ModelVersion>) {
        self.model_of(EngineOptions::default(), change)
    }
}

/// A server with one `R`.
pub fn one_resource() -> EngineOptions {
    let one = engine::Available { name: "R".into(), count: 1, device: None };
    EngineOptions { rate_limit: Some(vec![one]), ..EngineOptions::default() }
}

/// Two instances; the one with the `R` executes.
pub fn two_that_share(config: &mut pb::ModelConfig) {
    let resources = vec![pb::model_rate_limiter::Resource { name: "R".into(), global: false, count: 1 }];
    config.instance_group = vec![pb::ModelInstanceGroup {
        name: "m".into(),
        count: 2,
        kind: 2,
        rate_limiter: Some(pb::ModelRateLimiter { resources, priority: 0 }),
        ..Default::default()
    }];
}

impl Backend for LaterModel {
    fn name(&self) -> &'static str {
        "later"
    }
    fn open(&self, _: &OpenSpec) -> Result<Box<dyn Opened>> {
        Ok(Box::new(self.clone()))
    }
}

impl Opened for LaterModel {
    fn finish(self: Box<Self>, _: &pb::ModelConfig, _: Arc<Signature>) -> Result<Arc<dyn Model>> {
        Ok(Arc::new(*self))
    }
}

impl Model for LaterModel {
    fn execute(&self, instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Marks {
        (self.execute)(instance, batch, control);
        marks(now_ns())
    }
    fn capabilities(&self) -> Capabilities {
        // Its cost does not make it run inline.
        Capabilities {
            starts_at_once_bytes: self.at_once.then_some(usize::MAX),
            cost_may_depend_on_data: false,
            ..Capabilities::default()
        }
    }
    fn remote(&self) -> Option<&dyn RemoteModel> {
        Some(self)
    }
}

impl RemoteModel for LaterModel {
    fn serve(&self, instances: InstanceEventsRef) {
        (self.serve)(instances);
    }
    fn readiness(&self) -> Readiness {
        (self.readiness)()
    }
    fn start_instances(&self, new: &[NewInstance], _: &pb::ModelConfig, _: &str) -> Option<Result<()>> {
        (self.start)(new)
    }
    fn instance_left(&self, instance: u32) {
        (self.left)(instance);
    }
}

/// All phases end at this time.
pub fn marks(at: u64) -> Marks {
    Marks { inputs_ready: at, inference_end: at, outputs_ready: at }
}

/// A batch in progress: its instance, and its requests with their responders.
pub struct Out {
    pub instance: u32,
    pub occupied: Option<Occupied>,
    pub requests: Vec<(u8, Responder)>,
}

impl Out {
    /// Receives the next batch.
    pub fn of(instance: u32, batch: &mut Batch<'_>) -> Self {
        let requests = batch.requests.iter_mut().map(|entry| {
            let number = entry.request.inputs[0].data.to_vec().expect("in memory")[0];
            (number, entry.responder.take().expect("a responder for each"))
        });
        let requests = requests.collect();
        Self { instance, occupied: batch.occupied.take(), requests }
    }

    /// The numbers of its requests.
    pub fn numbers(&self) -> Vec<u8> {
        self.requests.iter().map(|(number, _)| *number).collect()
    }

    pub fn free(&mut self) {
        self.occupied.take().expect("not free yet").free(marks(now_ns()));
    }

    /// Responds to each request with its number.
    pub fn answer(&mut self) {
        for (number, responder) in self.requests.drain(..) {
            responder.finish(Some(Ok(super::outcome(number))));
        }
    }
}

/// A model whose batches come to the test.
pub fn handing_out() -> (LaterModel, Receiver<Out>) {
    let (send, receive): (Sender<Out>, _) = channel();
    (LaterModel::new(move |instance, batch, _| drop(send.send(Out::of(instance, batch)))), receive)
}
