//! The traits of backends and models, and the values that they exchange with the engine.

pub use crate::outcome::Outcome;
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering};
use crate::{Host, InstanceEventsRef, Occupied, OpenCalls, Readiness, Responder, TextModel};
use memory::Need;
pub use memory::thread::{from_system_ns, now_ns};
pub use options::OpenSpec;
use protocol::pb::inference::ModelConfig;
use protocol::{Checked, InferRequest, Signature};
use std::sync::{Arc, Weak};
use tensor::{DataType, RegionRef, Result, Shape};

/// Opens model files of one kind.
pub trait Backend: Send + Sync {
    /// Name in `backend: "…"`.
    fn name(&self) -> &'static str;

    /// Reads a model and the inputs and outputs that its file declares. May take seconds; never called on a reactor.
    ///
    /// # Errors
    /// The version becomes UNAVAILABLE; the text is its reason in the repository index.
    fn open(&self, spec: &OpenSpec) -> Result<Box<dyn Opened>>;

    /// Passes the server that models call back, before any is opened. Weak, because the server owns the backend.
    fn attach(&self, host: Weak<dyn Host>) {
        let _ = host;
    }
}

/// A readable model file that does not serve yet. Its configuration may still be completed from `io`.
pub trait Opened: Send {
    /// Inputs and outputs that the file declares; `None` if the configuration alone decides.
    fn io(&self) -> Option<ModelIo> {
        None
    }

    /// Configuration that the model's code completed, as JSON of `inference.ModelConfig`; `max_batch_size`, `input`,
    /// `output`, `dynamic_batching` and `model_transaction_policy` are taken from it. `None` if it completes nothing.
    fn completed(&self) -> Option<String> {
        None
    }

    /// Passes the final configuration in Triton's JSON form. Called before `finish`.
    fn configured(&mut self, json: &str) {
        let _ = json;
    }

    /// Estimated memory of the model, for example [`file_bytes`](crate::file_bytes) for each device that has an
    /// instance. Called before `finish`: a load that does not fit is rejected there, otherwise the memory stays
    /// promised until the model is dropped. Other memory is not counted.
    ///
    /// # Errors
    /// The version becomes UNAVAILABLE; the text is its reason in the repository index.
    fn needs(&self) -> Result<Vec<Need>> {
        Ok(Vec::new())
    }

    /// Checks the final configuration and prepares the model to run.
    ///
    /// # Errors
    /// The version becomes UNAVAILABLE; the text is its reason in the repository index.
    fn finish(self: Box<Self>, config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>>;
}

/// Inputs and outputs that a model file declares.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct ModelIo {
    pub inputs: Vec<TensorIo>,
    pub outputs: Vec<TensorIo>,
}

/// One tensor of a model file.
#[derive(Debug, Clone)]
pub struct TensorIo {
    /// Name in the model's graph.
    pub name: String,
    /// `None` if the protocol has no such datatype.
    pub datatype: Option<DataType>,
    /// Full shape; -1 is a symbolic dimension.
    pub shape: Shape,
    /// A request may omit the input, because an initialiser of the same name exists.
    pub optional: bool,
}

/// A model that can run.
pub trait Model: Send + Sync {
    /// Runs a batch and sets the result of each of its requests. An error that concerns one request fails only that
    /// one, any other fails all of them. Each request gets its own rows of the outputs.
    ///
    /// `instance` starts at 0 and distinguishes concurrent calls.
    fn execute(&self, instance: u32, batch: &mut Batch<'_>, run: &RunControl) -> Marks;

    /// Properties that the engine relies on. Read once, after `finish`.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// The interface of a model that runs outside this process; `None` if `execute` runs the batch. A remote model gets
    /// a responder with every request and the instance with every batch ([`Batch::occupied`]), and completes both
    /// later.
    fn remote(&self) -> Option<&dyn RemoteModel> {
        None
    }

    /// The model's own counters as (family, help text, value); exposed with the labels `model` and `version`.
    fn metrics(&self) -> Vec<(&'static str, &'static str, f64)> {
        Vec::new()
    }

    /// The interface of a model that divides requests into texts; `execute` then runs prepared texts.
    fn text(&self) -> Option<&dyn TextModel> {
        None
    }

    /// Usage of the key-value cache of a model that generates text, for load balancers.
    fn key_value_cache(&self) -> Option<KeyValueCache> {
        None
    }
}

/// Properties of a model that decide how the engine schedules it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Up to this many bytes of inputs, `execute` only forwards the batch, within microseconds, and may be called on
    /// any thread, reactors included. `None`: never.
    pub starts_at_once_bytes: Option<usize>,
    /// The run time may differ between inputs of the same shapes, or is unknown. Such a model never runs on a reactor,
    /// where a long run could not be stopped and would block other clients.
    pub cost_may_depend_on_data: bool,
    /// `execute` does the same for every instance number, so the number of instances can change while the model serves.
    /// Otherwise a change of the count is a reload.
    pub instances_are_permits: bool,
    /// Number of cores among which the model divides itself: one run uses all, several share them. If the configuration
    /// names no instances, as many runs as pay may be in progress at once. `None`: the instances are as configured.
    pub cores: Option<u32>,
    /// Batch size in the statistics without batching; `None`: one per request. Triton's backends report it and differ.
    pub batch_size_without_batching: Option<u64>,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            starts_at_once_bytes: None,
            cost_may_depend_on_data: true,
            instances_are_permits: false,
            cores: None,
            batch_size_without_batching: None,
        }
    }
}

/// A model whose instances run outside this process. They can fail, restart and call other models.
pub trait RemoteModel: Send + Sync {
    /// Registers the listener for failures and restarts of instances. Called before the first batch, including warm-up.
    fn serve(&self, instances: InstanceEventsRef);

    /// No new requests follow: the model is unloaded or replaced, or the server exits. Work for cancelled requests is
    /// aborted after the model's own grace period, `longest` at most. A later call with less shortens it.
    fn leave_service(&self, longest: std::time::Duration) {
        let _ = longest;
    }

    /// Whether the model can serve requests now.
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    /// Number of unfinished calls that the model has made to other models ([`Host::call`]).
    fn calls_open(&self) -> usize {
        0
    }

    /// Unfinished calls that began before `at` ([`now_ns`]), by instance. Polled once a second.
    fn calls_made_before(&self, at: u64) -> Vec<OpenCalls> {
        let _ = at;
        Vec::new()
    }

    /// Starts additional instances for a configuration (also in Triton's JSON form) that differs from the current one
    /// in its instance groups only. Blocks until all of them can run batches; if one fails, none of them remains.
    /// `None`: only a reload can change the instances.
    fn start_instances(&self, new: &[NewInstance], config: &ModelConfig, json: &str) -> Option<Result<()>> {
        let _ = (new, config, json);
        None
    }

    /// Started instances get batches now. Failures since their start are reported to the listener of `serve` now.
    fn instances_serve(&self, instances: &[u32]) {
        let _ = instances;
    }

    /// Memory of an instance for one input of `bytes` bytes. The caller fills it and makes it contents of a request,
    /// which are then not copied. The instance may write to it at any time. `None`: contents are copied.
    fn lend_input(&self, bytes: usize) -> Option<RegionRef> {
        let _ = bytes;
        None
    }

    /// Whether the region is a whole block of `lend_input` that the instance can be sent now, without a copy. It is not
    /// once the instance has it, and after the process was replaced.
    fn has_lent(&self, region: &RegionRef) -> bool {
        let _ = region;
        false
    }

    /// Instances with unfinished executions.
    fn executing(&self) -> Vec<Executing> {
        Vec::new()
    }

    /// Logs that an instance hangs: `what`, the option that would end the execution, and the stack if there is one.
    fn warn_of_hang(&self, instance: u32, what: &str) {
        let _ = (instance, what);
    }

    /// The instance gets no more batches, and its last one has ended. A later instance may reuse its number.
    fn instance_left(&self, instance: u32) {
        let _ = instance;
    }
}

/// Unfinished executions of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Executing {
    /// Instance number.
    pub instance: u32,
    /// Requests without a final response.
    pub requests: usize,
    /// Time of its last response, or of the start of the oldest execution if that was later.
    pub quiet_since: u64,
}

/// An instance to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewInstance {
    /// Instance number.
    pub number: u32,
    /// Index into the [`placements`](crate::placements) of the configuration; 0 if there are none.
    pub placement: usize,
}

/// Usage of a key-value cache, which holds tokens in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct KeyValueCache {
    pub blocks_used: u64,
    pub blocks_max: u64,
    pub tokens_per_block: u64,
}

/// Requests that run together. Their shapes are compatible (S-12); their rows do not exceed the configured maximum.
pub struct Batch<'a> {
    /// In the order of their rows.
    pub requests: &'a mut [BatchEntry],
    /// The instance, for a remote model: if `execute` takes it, it stays busy until it is freed.
    pub occupied: Option<Occupied>,
}

impl<'a> Batch<'a> {
    /// A batch that ends when `execute` returns.
    pub fn new(requests: &'a mut [BatchEntry]) -> Self {
        Self { requests, occupied: None }
    }
}

/// One request of a batch.
#[derive(Default)]
pub struct BatchEntry {
    /// The request; the backend may take its data out. Boxed: half a kilobyte would be moved about a dozen times.
    pub request: Box<InferRequest>,
    /// Results of the request's check.
    pub checked: Checked,
    /// Set by `Model::execute`, unless it takes the responder.
    pub result: Option<Result<Outcome>>,
    /// For a decoupled model: if `execute` takes it, it answers the request instead of `result`.
    pub responder: Option<Responder>,
}

impl BatchEntry {
    /// A request with one response.
    pub fn new(request: Box<InferRequest>, checked: Checked) -> Self {
        Self { request, checked, result: None, responder: None }
    }

    /// Notes bytes of inputs that were copied for the request.
    #[inline]
    pub fn copied_in(&self, bytes: usize) {
        if let Some(trace) = &self.request.trace {
            trace.phases().copied_in(bytes);
        }
    }

    /// Notes bytes of outputs that were copied for the request.
    #[inline]
    pub fn copied_out(&self, bytes: usize) {
        if let Some(trace) = &self.request.trace {
            trace.phases().copied_out(bytes);
        }
    }
}

/// When the phases of an execution ended, in ns of [`now_ns`] (points D, E and F of S-43).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marks {
    /// Inputs were gathered, and inference began.
    pub inputs_ready: u64,
    /// Inference ended.
    pub inference_end: u64,
    /// Outputs were split and copied.
    pub outputs_ready: u64,
}

type Hook = Box<dyn FnOnce() + Send>;

/// Stops a running batch once all of its requests are cancelled.
///
/// Invariant: the hook runs at most once, and never after `disarm` has returned.
#[derive(Default)]
pub struct RunControl {
    wanted: AtomicU32,
    hook: Mutex<HookState>,
    /// The batch cannot be stopped, because only the thread that runs it has this value.
    alone: bool,
    /// The batch ended after `execute` had returned.
    over: AtomicBool,
    /// The batch waits at its instance for another one.
    prefetched: AtomicBool,
}

#[derive(Default)]
enum HookState {
    #[default]
    Empty,
    Armed(Hook),
    /// All requests of the batch are cancelled; a hook that is armed now is not kept.
    Stopped,
}

impl RunControl {
    /// A control for a batch of `requests` requests.
    pub fn new(requests: u32) -> Self {
        let (hook, over, prefetched) = (Mutex::default(), AtomicBool::new(false), AtomicBool::new(false));
        Self { wanted: AtomicU32::new(requests), hook, alone: false, over, prefetched }
    }

    /// A control for a batch that cannot be stopped, because the thread that submitted it also runs it.
    pub fn alone() -> Self {
        Self { alone: true, ..Self::new(1) }
    }

    /// Records whether the batch waits at its instance for another one. Its requests count as queued meanwhile.
    pub fn set_prefetched(&self, prefetched: bool) {
        self.prefetched.store(prefetched, Ordering::Release);
    }

    /// See [`set_prefetched`](Self::set_prefetched).
    pub fn is_prefetched(&self) -> bool {
        self.prefetched.load(Ordering::Acquire)
    }

    /// Counts a cancelled request of the batch. The last one stops the execution.
    pub fn cancel_one(&self) {
        if self.wanted.fetch_sub(1, Ordering::AcqRel) == 1 && !self.over.load(Ordering::Acquire) {
            // The hook runs under the lock, so that `disarm` waits for its end.
            let mut state = self.hook.lock();
            if let HookState::Armed(hook) = std::mem::replace(&mut *state, HookState::Stopped) {
                hook();
            }
        }
    }

    /// Sets the hook that stops the execution; called by the backend before it starts. Returns false and drops the hook
    /// if all requests are cancelled already. `hook` is not called for a batch that cannot be stopped.
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

    /// Removes the hook.
    pub fn disarm(&self) {
        if self.alone {
            return;
        }
        let mut state = self.hook.lock();
        if matches!(*state, HookState::Armed(_)) {
            *state = HookState::Empty;
        }
    }

    /// Marks the batch as ended, because its instance was freed: later cancellations do not concern it. Does not wait
    /// for a running hook, which may itself have freed the instance.
    pub fn over(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Whether all requests of the batch are cancelled.
    pub fn is_stopped(&self) -> bool {
        !self.alone && matches!(*self.hook.lock(), HookState::Stopped)
    }
}
