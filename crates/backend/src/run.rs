//! The trait and the values that cross it.

use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering};
use crate::{Host, InstancesOf, Occupied, OpenCalls, Readiness, Responder};
use memory::Need;
pub use memory::thread::now_ns;
use protocol::pb::inference::ModelConfig;
use protocol::{Checked, InferRequest, OutputTensor, Parameter, Signature};
use smallvec::SmallVec;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use tensor::{DataType, Name, Result, Shape};

/// A framework: opens model files.
pub trait Backend: Send + Sync {
    /// Name as in `backend: "…"`.
    fn name(&self) -> &'static str;

    /// Reads the model and says what its file knows of its inputs and outputs. May take seconds; called off the reactor.
    ///
    /// # Errors
    /// Whatever makes the version UNAVAILABLE; the text becomes the reason in the repository index.
    fn open(&self, spec: &OpenSpec) -> Result<Box<dyn Opened>>;

    /// The server that its models may ask things of; told once, before any model is opened. Not to be owned: the server owns the backend.
    fn attach(&self, host: Weak<dyn Host>) {
        let _ = host;
    }
}

/// What a backend is told when it opens a version.
#[derive(Debug, Clone)]
pub struct OpenSpec {
    /// Model name.
    pub model: Name,
    /// Version number.
    pub version: i64,
    /// Directory of the model (`config.pbtxt` lives here).
    pub model_directory: PathBuf,
    /// Directory of the version.
    pub version_directory: PathBuf,
    /// The configuration as the user wrote it, defaults normalised, before completion: `inference.ModelConfig`, protobuf-encoded.
    pub config: bytes::Bytes,
    /// `--backend-config=<backend>,<key>=<value>` pairs for this backend, in command-line order.
    pub settings: Vec<(String, String)>,
    /// `config` in Triton's JSON form, for backends whose models read it.
    pub config_json: String,
    /// Models may complete their configuration.
    pub completes: bool,
    /// Of a backend that is itself written in Python: its directory, where its code is.
    pub code_directory: Option<PathBuf>,
}

/// A model file that could be read. Not serving yet: its configuration may still be completed from `io`.
pub trait Opened: Send {
    /// Inputs and outputs the file declares; `None` for a backend that serves whatever the configuration says.
    fn io(&self) -> Option<ModelIo>;

    /// What the model's code makes of the configuration, as JSON of `inference.ModelConfig`: `max_batch_size`, `input`, `output`, `dynamic_batching` and
    /// `model_transaction_policy` are taken from it. `None`: it says nothing.
    fn completed(&self) -> Option<String> {
        None
    }

    /// The final configuration in Triton's JSON form, told before `finish`, for backends whose models read it.
    fn configured(&mut self, json: &str) {
        let _ = json;
    }

    /// Memory that the model is going to need, asked before `finish`: a load that does not fit is refused there, and the memory stays promised
    /// until the model is dropped. An estimate will do, such as [`file_bytes`](crate::file_bytes) for each device that has an instance. Memory
    /// that is not named here is not counted.
    ///
    /// # Errors
    /// As `Backend::open`.
    fn needs(&self) -> Result<Vec<Need>> {
        Ok(Vec::new())
    }

    /// Checks the final configuration and makes the model ready to run.
    ///
    /// # Errors
    /// As `Backend::open`.
    fn finish(self: Box<Self>, config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>>;
}

/// What a model file says about itself.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct ModelIo {
    pub inputs: Vec<TensorIo>,
    pub outputs: Vec<TensorIo>,
}

/// One tensor of a model file.
#[derive(Debug, Clone)]
pub struct TensorIo {
    /// Name in the graph.
    pub name: String,
    /// `None` when the graph uses an element type the protocol cannot carry.
    pub datatype: Option<DataType>,
    /// Full shape of the graph, -1 = symbolic.
    pub shape: Shape,
    /// An initialiser of the same name exists: a request may leave the input out.
    pub optional: bool,
}

/// A model that can run.
pub trait Model: Send + Sync {
    /// Runs one batch and puts a result into every request of it: a failure that concerns one request fails only that request,
    /// any other is put into all of them. Rows of the output go back to the request they came from.
    ///
    /// `instance` counts from 0 and tells concurrent calls apart.
    fn execute(&self, instance: u32, batch: &mut Batch<'_>, run: &RunControl) -> Marks;

    /// Properties the engine relies on. Read once, after the model is finished.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// The interface of a model that runs outside this process; `None` if `execute` runs the batch itself. A remote model gets a responder with every
    /// request and the instance with every batch ([`Batch::occupied`]), and completes both after `execute` has returned.
    fn remote(&self) -> Option<&dyn RemoteModel> {
        None
    }

    /// The model's own counters as (family, help text, value); exposed with the labels `model` and `version`.
    fn metrics(&self) -> Vec<(&'static str, &'static str, f64)> {
        Vec::new()
    }

    /// How full its key-value cache is, of a model that generates text; load balancers ask for it.
    fn key_value_cache(&self) -> Option<KeyValueCache> {
        None
    }
}

/// Properties of a model that decide how the engine schedules it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Up to this many bytes of inputs, `execute` only forwards the batch, within microseconds, and may be called on any thread, reactors included.
    /// `None`: never.
    pub starts_at_once_bytes: Option<usize>,
    /// The run time may differ between inputs of the same shapes, or is unknown. Such a model never runs on a reactor, where a long run could not be
    /// stopped and would block other clients.
    pub cost_may_depend_on_data: bool,
    /// `execute` does the same for every instance number, so the number of instances can change while the model serves. Otherwise a change of the
    /// count is a reload.
    pub instances_are_permits: bool,
    /// Batch size in the statistics of a model that does not batch; `None` counts each request as one. Triton's backends report it themselves and
    /// differ.
    pub batch_size_without_batching: Option<u64>,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            starts_at_once_bytes: None,
            cost_may_depend_on_data: true,
            instances_are_permits: false,
            batch_size_without_batching: None,
        }
    }
}

/// A model whose instances run outside this process. They can fail, restart and call other models.
pub trait RemoteModel: Send + Sync {
    /// Registers the listener for failures and restarts of instances. Called before the first batch, including warm-up.
    fn serve(&self, instances: InstancesOf);

    /// No new requests follow: the model is unloaded or replaced, or the server exits. Work for cancelled requests is aborted after the model's own
    /// grace period, `longest` at most. A later call with less shortens it.
    fn leave_service(&self, longest: std::time::Duration) {
        let _ = longest;
    }

    /// Whether the model can serve requests now.
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    /// Number of unfinished calls that the model has made to other models ([`Host::call`](crate::Host::call)).
    fn calls_open(&self) -> usize {
        0
    }

    /// The unfinished calls that began before `at` ([`now_ns`](crate::now_ns)), by instance. Called about once a second while there are any.
    fn calls_made_before(&self, at: u64) -> Vec<OpenCalls> {
        let _ = at;
        Vec::new()
    }

    /// Starts additional instances for a configuration (also in Triton's JSON form) that differs from the current one in its instance groups only. Blocks until all of them can run batches; if one fails, none of them remains. `None`: only a reload
    /// can change the instances.
    fn start_instances(&self, new: &[NewInstance], config: &ModelConfig, json: &str) -> Option<Result<()>> {
        let _ = (new, config, json);
        None
    }

    /// Started instances get batches from now on. Failures since their start are reported to [`serve`](Self::serve)'s listener now.
    fn instances_serve(&self, instances: &[u32]) {
        let _ = instances;
    }

    /// The instance gets no more batches, and its last one has ended. A later instance may reuse its number.
    fn instance_left(&self, instance: u32) {
        let _ = instance;
    }
}

/// An instance to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewInstance {
    /// The number that batches for it come with.
    pub number: u32,
    /// Which of the [`placements`](crate::placements) of the configuration it is; 0 where there are none.
    pub placement: usize,
}

/// The key-value cache of a model: memory for tokens, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyValueCache {
    /// Blocks in use.
    pub blocks_used: u64,
    /// Blocks there are.
    pub blocks_max: u64,
    /// Tokens that a block has room for.
    pub tokens_per_block: u64,
}

/// Requests to run together. Their shapes are compatible (S-12); rows add up to at most the configured maximum.
pub struct Batch<'a> {
    /// In the order their rows stand in the batch.
    pub requests: &'a mut [BatchEntry],
    /// The instance, of a model that answers later: taken, it stays busy until that is freed.
    pub occupied: Option<Occupied>,
}

impl<'a> Batch<'a> {
    /// A batch that is over when `execute` returns.
    pub fn new(requests: &'a mut [BatchEntry]) -> Self {
        Self { requests, occupied: None }
    }
}

/// One request of a batch.
#[derive(Default)]
pub struct BatchEntry {
    /// The request; the backend may take its data apart. Boxed where it is read: it changes hands a dozen times, at half a kilobyte.
    pub request: Box<InferRequest>,
    /// What its check found out.
    pub checked: Checked,
    /// Filled in by `Model::execute`, unless it takes the responder.
    pub result: Option<Result<Outcome>>,
    /// Of a decoupled model: taken, it answers the request instead of `result`.
    pub responder: Option<Responder>,
}

impl BatchEntry {
    /// A request to be answered once.
    pub fn new(request: Box<InferRequest>, checked: Checked) -> Self {
        Self { request, checked, result: None, responder: None }
    }
}

/// What a request gets back.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The wanted outputs, in configuration order.
    pub outputs: SmallVec<[OutputTensor; 2]>,
    /// Response parameters.
    pub parameters: Vec<(Name, Parameter)>,
}

/// When the phases of an execution ended, in nanoseconds of [`now_ns`] (S-43: D, E, F).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// Inputs gathered, inference begins.
    pub inputs_ready: u64,
    /// Inference ended.
    pub inference_end: u64,
    /// Outputs split and copied.
    pub outputs_ready: u64,
}

type Hook = Box<dyn FnOnce() + Send>;

/// Lets a running batch be stopped when none of its requests is wanted any more.
///
/// Invariant: the hook runs at most once, and never after `disarm` returned.
#[derive(Default)]
pub struct RunControl {
    wanted: AtomicU32,
    hook: Mutex<HookState>,
    /// Only the thread that runs the batch has it: no other thread can stop the run.
    alone: bool,
    /// The batch ran, later than `execute` did.
    over: AtomicBool,
}

#[derive(Default)]
enum HookState {
    #[default]
    Empty,
    Armed(Hook),
    /// All requests of the batch are cancelled; a hook that is armed now is told at once.
    Stopped,
}

impl RunControl {
    /// A control for a batch of `requests` requests.
    pub fn new(requests: u32) -> Self {
        Self { wanted: AtomicU32::new(requests), hook: Mutex::default(), alone: false, over: AtomicBool::new(false) }
    }

    /// A control for a batch that cannot be stopped, since it runs on the thread that brought it.
    pub fn alone() -> Self {
        Self { wanted: AtomicU32::new(1), hook: Mutex::default(), alone: true, over: AtomicBool::new(false) }
    }

    /// One request of the batch was cancelled. When it was the last wanted one, the execution is told to stop.
    pub fn cancel_one(&self) {
        if self.wanted.fetch_sub(1, Ordering::AcqRel) == 1 && !self.over.load(Ordering::Acquire) {
            // The hook runs under the lock, so that `disarm` returns only after it ended.
            let mut state = self.hook.lock();
            if let HookState::Armed(hook) = std::mem::replace(&mut *state, HookState::Stopped) {
                hook();
            }
        }
    }

    /// Called by the backend before it starts something that the hook can stop. Returns false, without keeping the hook, when
    /// the batch need not be started at all. `hook` is not asked for where no other thread could stop the batch.
    pub fn arm<H: FnOnce() + Send + 'static>(&self, hook: impl FnOnce() -> H) -> bool {
        if self.alone {
            return true;
        }
        let mut state = self.hook.lock();
        if matches!(*state, HookState::Stopped) {
            return false;
        }
        *state = HookState::Armed(Box::new(hook()));
        true
    }

    /// Called by the backend when `hook` must not run any more.
    pub fn disarm(&self) {
        if self.alone {
            return;
        }
        let mut state = self.hook.lock();
        if matches!(*state, HookState::Armed(_)) {
            *state = HookState::Empty;
        }
    }

    /// The instance of the batch was freed: what is cancelled from now on does not concern it. A hook that runs right now goes on, for
    /// it may itself be what freed the instance.
    pub fn over(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Whether every request of the batch was cancelled.
    pub fn is_stopped(&self) -> bool {
        !self.alone && matches!(*self.hook.lock(), HookState::Stopped)
    }
}
