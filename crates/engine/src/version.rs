//! One loaded version: a model with its instances, or a graph of calls to other versions.
//!
//! This file declares its data, and what versions share. The data consists of these parts, which know no version; a
//! request knows the one that accepted it as an [`Acceptor`](crate::ticket::Acceptor).
//!
//! | below | holds |
//! |---|---|
//! | `identity`, `cached`, `statistics` | name and origin, scope in the response cache, counters |
//! | `batch_key`, `sequence`, `order`, `rate_limit` | the parts of `scheduling`, from the configuration |
//! | `batching_library` | the library that divides requests into batches, if the model has one |
//! | `ticket`, `pending` | cancellation; an accepted request, and the guarantee that it ends |
//! | `schedule`, `remote_state`, `serving_state` | waiting requests, batches in other processes, instances |
//!
//! A graph calls versions that it finds in the table, so `ensemble`, `flow` (requests on their way through a graph),
//! `places`, `table` and `directory` use this file, and it uses them. Operations are in files with `impl ModelVersion`:
//!
//! | above | holds |
//! |---|---|
//! | `admission`, `turn_queue`, `cached_calls`, `lookup` | acceptance of requests, with the response cache |
//! | `dispatch`, `limited` | the start of batches |
//! | `batch_questions` | questions to the batching library |
//! | `execution`, `sequence::run`, `execution_cost` | permits, runs and their responses; costs |
//! | `texts` | requests that are divided into texts |
//! | `streaming` | requests of decoupled models: any number of responses, and their end |
//! | `hand_on`, `held_instance` | models in other processes: instances that are busy until they are freed |
//! | `delivery` | delivery of responses |
//! | `instances`, `resize`, `version_readiness` | instances that go, return, change; readiness that the model answers |
//! | `continuing` | sequences that continue on a replaced version |
//! | `registry`, `publish`, `model_call`, `cycles` | the engine; calls between models, deadlocks of instances |

use crate::batching_library::BatchingLibrary;
use crate::cached::Cached;
use crate::chat_model::ChatModel;
use crate::ensemble::Ensemble;
use crate::identity::Identity;
use crate::pending::Requests;
use crate::pool::{Pool, Task};
use crate::rate_limit::Resources;
use crate::scheduling::{CallOrder, Scheduling};
use crate::serving_state::ServingState;
use crate::statistics::{Statistics, VersionStatistics};
use crate::text_identity::TextIdentity;
use crate::timer::Timer;
use crate::usage::UsageLog;
use backend::{Batch, KeyValueCache, Marks, Model, RemoteModel, RunControl, now_ns};
use cache::{Cache, Secret};
use memory::MemoryPromise;
use options::EngineOptions;
use parking_lot::Mutex;
use protocol::Signature;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tensor::{DataType, RegionRef};
use trace::{Tracer, Watch};

/// A loaded version.
pub struct ModelVersion {
    /// Inputs, outputs and limits, against which requests are checked.
    pub signature: Arc<Signature>,
    /// Name, origin and configuration.
    pub identity: Identity,
    pub(crate) served: Served,
    /// The batching library, of a model that is not a library's.
    pub(crate) batching: Option<BatchingLibrary>,
    pub(crate) scheduling: Scheduling,
    pub(crate) serving: ServingState,
    pub(crate) statistics: Statistics,
    /// Role and names of a text model.
    pub(crate) text: Option<Box<TextIdentity>>,
    /// Facts of a model that chats.
    pub(crate) chat: Option<Box<ChatModel>>,
    /// Selects the requests to trace.
    pub(crate) trace: Arc<Watch>,
    /// The response cache, if the model uses it.
    pub(crate) cached: Option<Cached>,
    pub(crate) shared: Arc<EngineContext>,
    /// Memory promised to the model. After `served`, so that it is released after the model.
    pub(crate) _admitted: Option<MemoryPromise>,
    pub(crate) me: Weak<ModelVersion>,
}

/// The executor of a version's requests.
pub(crate) enum Served {
    Model(Arc<dyn Model>),
    /// An ensemble: its requests flow through other versions (`flow`). Instance fields of `ServingState` are unused.
    Graph(Box<Ensemble>),
}

/// Options, threads and caches that all versions of an engine share.
pub(crate) struct EngineContext {
    pub(crate) options: EngineOptions,
    pub(crate) pool: Arc<Pool<Work>>,
    pub(crate) timer: Arc<Timer>,
    pub(crate) exiting: AtomicBool,
    /// Accepted requests without a final response, over all versions.
    pub(crate) inflight: AtomicU64,
    /// Instances whose batches run in other processes, over all versions.
    pub(crate) occupied: AtomicU64,
    /// The response cache, and the secret of its keys.
    pub(crate) cache: Option<(Arc<dyn Cache>, Secret)>,
    /// Runs in progress of models that divide their cores, over all versions.
    pub(crate) computing: AtomicU32,
    /// Present with `--rate-limit=execution_count`.
    pub(crate) resources: Option<Arc<Resources>>,
    pub(crate) continuing: Continuing,
    /// Memory of what happened lately, over all versions.
    pub(crate) recent_bytes: Arc<why::Budget>,
    /// Use of the cores lately.
    pub(crate) usage: UsageLog,
    /// Unique id of the next load.
    pub(crate) loads: AtomicU64,
    pub(crate) tracer: Tracer,
    /// Call it after the readiness of a version changed.
    pub(crate) on_readiness: Box<dyn Fn() + Send + Sync>,
}

/// Replaced versions of all models, whose sequences go on; see `continuing`.
#[derive(Default)]
pub(crate) struct Continuing {
    /// By table key, in the order of replacement.
    pub(crate) all: Mutex<HashMap<String, Vec<Arc<ModelVersion>>>>,
    /// Number of versions in `all`.
    pub(crate) count: AtomicUsize,
}

/// Work for a pool thread.
pub(crate) enum Work {
    /// A batch to run. Not boxed, because models that run on the pool need one per batch.
    Batch(Job),
    Other(Box<dyn FnOnce() + Send>),
}

/// A batch and its instance.
pub(crate) struct Job {
    pub(crate) version: Arc<ModelVersion>,
    pub(crate) instance: u32,
    pub(crate) requests: Requests,
}

impl Work {
    pub(crate) fn of(work: impl FnOnce() + Send + 'static) -> Self {
        Self::Other(Box::new(work))
    }
}

impl Task for Work {
    fn run(self) {
        match self {
            Self::Batch(job) => job.run(),
            Self::Other(work) => work(),
        }
    }
}

impl Served {
    pub(crate) fn model(&self) -> Option<&dyn Model> {
        match self {
            Self::Model(model) => Some(&**model),
            Self::Graph(_) => None,
        }
    }

    pub(crate) fn remote(&self) -> Option<&dyn RemoteModel> {
        self.model()?.remote()
    }
}

impl ModelVersion {
    /// True if inputs go to a device, which saves a copy of contents that it reads itself. False for models in other
    /// processes, whose inputs are in host memory.
    pub fn reads_on_device(&self) -> bool {
        match &self.served {
            Served::Graph(ensemble) => ensemble.reads_on_device(),
            Served::Model(_) => self.serving.remote.is_none() && self.scheduling.on_device,
        }
    }

    /// Whether nothing but the model's process reads large inputs and writes large outputs, so that front ends may use
    /// its memory for them: [`Self::lend_input`], [`InferRequest::sends_regions`](protocol::InferRequest).
    pub fn lends_memory(&self) -> bool {
        self.serving.remote.is_some() && self.cached.is_none() && self.scheduling.sequencing.is_none()
    }

    /// See [`RemoteModel::lend_input`].
    pub fn lend_input(&self, bytes: usize) -> Option<RegionRef> {
        // Strings are checked in a private copy, which would be one more.
        let has_numbers = self.signature.inputs.iter().any(|input| input.datatype != DataType::Bytes);
        if has_numbers && self.lends_memory() { self.served.remote()?.lend_input(bytes) } else { None }
    }

    pub(crate) fn table_key(&self) -> String {
        let (namespace, model) = (&self.identity.namespace, &self.signature.model);
        if namespace.is_empty() { model.to_string() } else { format!("{namespace}/{model}") }
    }

    /// True if ensembles have to call it in the order of their iterations.
    pub(crate) fn in_order(&self) -> bool {
        match self.scheduling.order {
            CallOrder::Any => false,
            CallOrder::Kept => true,
            CallOrder::OneByOne => {
                let dispatch = self.serving.dispatch.lock();
                dispatch.members.len() == 1 || dispatch.schedule.shares_cores()
            }
        }
    }

    /// True if it keeps the state of sequences, or calls a model that does.
    pub(crate) fn keeps_state(&self) -> bool {
        self.scheduling.sequencing.is_some() || self.graph().is_some_and(Ensemble::keeps_state)
    }

    /// Selects the requests to trace.
    pub fn trace(&self) -> &Watch {
        &self.trace
    }

    /// True if the server rejects new requests.
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.exiting.load(Ordering::Acquire)
    }

    /// Accepted requests that are not over; if there are none, unfinished batches.
    pub fn inflight(&self) -> u64 {
        self.serving.inflight()
    }

    /// All counters so far.
    pub fn statistics(&self) -> VersionStatistics {
        let mut s = self.statistics.read(now_ns(), &self.shared.options.metrics.summary_quantiles);
        s.name = self.signature.model.to_string();
        s.version = self.identity.number;
        s.namespace = self.identity.namespace.clone();
        s.pending = self.serving.pending.load(Ordering::Relaxed);
        s.inflight = self.inflight();
        s.cancelled = self.serving.cancelled.load(Ordering::Relaxed);
        if let Some(model) = self.served.model() {
            s.custom = model.metrics();
            s.custom.push(self.oldest_execution());
        }
        s
    }

    pub(crate) fn graph(&self) -> Option<&Ensemble> {
        match &self.served {
            Served::Graph(ensemble) => Some(ensemble),
            Served::Model(_) => None,
        }
    }

    /// Runs a batch; the only caller of `Model::execute`. `None` if the backend panicked, which fails this batch only.
    pub(crate) fn hand_over(&self, instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Option<Marks> {
        let model = self.served.model()?;
        catch_unwind(AssertUnwindSafe(|| model.execute(instance, batch, control))).ok()
    }

    /// Calls `notify` if the model is remote.
    pub(crate) fn notify_remote(&self, notify: impl FnOnce(&dyn RemoteModel)) {
        if let Some(remote) = self.served.remote() {
            notify(remote);
        }
    }

    /// Number of unfinished calls that the model has made to other models.
    pub(crate) fn calls_open(&self) -> usize {
        self.served.remote().map_or(0, RemoteModel::calls_open)
    }

    /// See [`backend::Model::key_value_cache`].
    pub fn key_value_cache(&self) -> Option<KeyValueCache> {
        self.served.model()?.key_value_cache()
    }
}
