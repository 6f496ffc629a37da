//! One loaded version and its one entrance: every request, of any transport, comes in through [`ModelVersion::call`].
//!
//! A request runs on the thread that brought it when it is cheap and nothing waits; otherwise on a pool thread that
//! takes an instance permit, runs the batch, and goes on with the next one as long as there is one.
//!
//! | file | holds |
//! |---|---|
//! | `version` | that entrance and its checks |
//! | `pending` | an accepted request, and the guarantee that it ends |
//! | `schedule` | which waiting requests run next |
//! | `dispatch` | when they start, and where |
//! | `instances` | instances that are gone, and come back |
//! | `readiness` | whether a version can be used, where its model is to be asked |
//! | `resize` | other instances while it serves |
//! | `execution` | permits, runs, and the answers that come of them |
//! | `streaming` | requests of decoupled models: any number of answers, and their end |
//! | `later` | models whose batches run elsewhere: instances that stay busy until they are freed |
//! | `answer`, `order` | where answers go, and in which order |
//! | `ticket` | giving a request up |
//! | `model_call`, `cycles` | calls of models by models; instances that wait for one another because of them |
//! | `ensemble`, `flow`, `places` | versions that are graphs of calls to others; one request on its way through one |
//! | `batch_key` | which requests may share a batch |
//! | `cached` | the response cache |
//! | `rate_limit` | instances that ask for resources |
//! | `traced` | what is noted of requests that are traced |
//! | `sequence` | control tensors, states and null rows of sequences |
//! | `continuing` | sequences that go on with a version that was replaced |

use crate::answer::Sink;
use crate::batch_key::{ShapeRule, class_of};
use crate::cached::Cached;
use crate::continuing::Continuing;
use crate::dispatch::Run;
use crate::ensemble::Ensemble;
use crate::execution::Inline;
use crate::flow;
use crate::inline::waits_for_device;
use crate::later::Later;
use crate::on_devices::OnDevices;
use crate::options::EngineOptions;
use crate::order::Line;
use crate::padding::{Lengths, Padding};
use crate::pending::{Pending, Queued};
use crate::pool::{Pool, Work};
use crate::rate_limit::{Registered, Resources};
use crate::registry::Engine;
use crate::resize::Wanted;
use crate::schedule::{Removed, Schedule};
use crate::sequence::Sequencing;
use crate::statistics::{Statistics, Totals, VersionStatistics};
use crate::ticket::{Ticket, TicketState};
use crate::timer::Timer;
use crate::turn;
use arc_swap::ArcSwap;
use backend::{Batch, BatchEntry, Capabilities, KeyValueCache, Marks, Model, RemoteModel, RunControl, now_ns};
use bytes::Bytes;
use cache::{Cache, Fingerprint, Secret};
use memory::Admitted;
use parking_lot::Mutex;
use protocol::check::IdPrefix;
use protocol::{Checked, InferRequest, InferResponse, Signature};
use scheduler::profile::RunClass;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tensor::{DataType, Error, Result};
use trace::{Tracer, Watch};

/// What versions share with their engine.
pub(crate) struct Shared {
    pub(crate) options: EngineOptions,
    pub(crate) pool: Arc<Pool<Work>>,
    pub(crate) timer: Arc<Timer>,
    pub(crate) exiting: AtomicBool,
    /// Accepted requests without a reply, over all versions.
    pub(crate) inflight: AtomicU64,
    /// Instances whose batches run elsewhere, over all versions.
    pub(crate) occupied: AtomicU64,
    /// The response cache, and what keys of requests are made under.
    pub(crate) cache: Option<(Arc<dyn Cache>, Secret)>,
    /// `--rate-limit=execution_count`.
    pub(crate) resources: Option<Arc<Resources>>,
    /// Replaced versions whose sequences go on.
    pub(crate) continuing: Continuing,
    /// Versions made so far.
    pub(crate) loads: AtomicU64,
    pub(crate) tracer: Tracer,
    /// To be told when something is ready or not.
    pub(crate) engine: Weak<Engine>,
}

/// A version that serves.
pub struct ModelVersion {
    /// What requests are checked against.
    pub signature: Arc<Signature>,
    /// Version number.
    pub number: i64,
    /// The repository it is from, where repositories are namespaces; else "".
    pub(crate) namespace: String,
    /// `platform` of the metadata.
    pub platform: String,
    /// What it is configured as; changes with its instances.
    pub(crate) config: ArcSwap<ConfigTexts>,
    pub(crate) served: Served,
    /// Capabilities of the model; the default for a graph.
    pub(crate) capabilities: Capabilities,
    /// Where its files are.
    pub(crate) model_directory: PathBuf,
    pub(crate) shared: Arc<Shared>,
    pub(crate) run: Mutex<Run>,
    pub(crate) statistics: Statistics,
    /// Which of its requests are traced.
    pub(crate) trace: Arc<Watch>,
    /// Of a model with sequences.
    pub(crate) sequencing: Option<Sequencing>,
    shape_rule: ShapeRule,
    /// Requests of different lengths may run together.
    pub(crate) padding: Option<Padding>,
    /// Responses leave in request order.
    pub(crate) line: Option<Line>,
    /// Equal requests are answered once.
    pub(crate) cached: Option<Cached>,
    /// What its answers depend on; known where servers share a response cache.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Its instances ask before they execute.
    pub(crate) limited: Option<Registered>,
    /// The memory that it was promised; behind `model`, which has it.
    _admitted: Option<Admitted>,
    /// Requests that arrive together may run together.
    batches: bool,
    /// Requests may run on the thread that brings them: not where order is kept, Triton's timer is asked for or there may be
    /// any number of answers, and only models whose cost follows from shapes.
    pub(crate) may_inline: bool,
    /// Requests end later than their executions, through responders: any number of answers, steps of sequences, or `later`.
    pub(crate) answers_later: bool,
    /// Its model says that it answers later.
    pub(crate) later: Option<Later>,
    /// Its instances by number, as its configurations asked for them. Held while they change, before any other lock.
    pub(crate) instances: Mutex<Vec<(u32, Wanted)>>,
    /// It was loaded with an instance on a device.
    pub(crate) on_device: bool,
    /// How many instances are gone.
    pub(crate) gone: AtomicU32,
    /// Something is to be done whenever its lock was held: it is `limited`, or has `later`.
    pub(crate) has_to_tell: bool,
    /// What a run costs depends on the bytes of its inputs, too: they do not follow from shapes.
    pub(crate) sized: bool,
    /// Ensembles have to call it in the order of their iterations: it keeps order itself, answers streams, or runs one at a time.
    order: CallOrder,
    pub(crate) pending: AtomicU64,
    pub(crate) inflight: AtomicU64,
    /// The thread of the timer is to look for requests that were given up.
    pub(crate) sweep_due: AtomicBool,
    /// Requests that left the queue, for that thread to answer.
    pub(crate) removed: Mutex<Removed>,
    cancelled: AtomicU64,
    /// Tells it from every other version that was made, ensembles included.
    pub(crate) load: u64,
    /// Another version serves in its place.
    pub(crate) replaced: AtomicBool,
    /// No version of its number does.
    pub(crate) retired: AtomicBool,
    pub(crate) me: Weak<ModelVersion>,
}

/// What answers the requests of a version.
pub(crate) enum Served {
    Model(Arc<dyn Model>),
    /// An ensemble: its requests flow through other versions (`flow`). `ModelVersion::run` and what belongs to instances stay unused.
    Graph(Box<Ensemble>),
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

/// In which order requests run that are called one after the other.
enum CallOrder {
    /// Any.
    Free,
    /// That of the calls.
    Kept,
    /// That of the calls as long as there is one instance.
    OneByOne,
}

/// A configuration as clients get it.
pub(crate) struct ConfigTexts {
    pub(crate) json: Bytes,
    pub(crate) pb: Bytes,
}

/// What became of a request that was not refused.
pub enum Started {
    /// It ran at once on the calling thread; its sink was not asked for.
    Answered(Result<Box<InferResponse>>),
    /// It waits or runs elsewhere.
    Queued(Ticket),
}

/// For whom a call is made.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'t> {
    /// The request it is part of.
    pub(crate) parent: Option<&'t Ticket>,
    /// From then on nothing runs on this thread: many cheap steps of an ensemble must not hold it together.
    pub(crate) inline_until: u64,
    /// Ensembles it lies in.
    pub(crate) depth: u32,
}

/// What makes a version.
pub(crate) struct VersionParts {
    pub signature: Arc<Signature>,
    pub number: i64,
    pub namespace: String,
    pub platform: String,
    pub config_json: Bytes,
    pub config_pb: Bytes,
    pub served: Served,
    pub model_directory: PathBuf,
    /// What its instances are.
    pub wanted: Vec<Wanted>,
    pub scheduling: scheduler::Config,
    /// Of a model with sequences.
    pub sequencing: Option<Sequencing>,
    /// Of a model whose requests may be padded.
    pub padding: Option<Padding>,
    pub histogram_buckets_ms: Option<Vec<f64>>,
    /// Of each instance the device it is on.
    pub placed: OnDevices,
    /// `response_cache.enable`.
    pub response_cache: bool,
    /// What its answers depend on; known where servers share a response cache.
    pub fingerprint: Option<Fingerprint>,
    pub limited: Option<Registered>,
    /// The memory that its model was promised.
    pub admitted: Option<Admitted>,
}

impl ModelVersion {
    pub(crate) fn new(shared: Arc<Shared>, parts: VersionParts) -> Arc<Self> {
        let VersionParts { signature, number, platform, config_json, config_pb, served, .. } = parts;
        let (mut scheduling, sequencing, padding) = (parts.scheduling, parts.sequencing, parts.padding);
        scheduling.padding = padding.as_ref().map(|p| p.schedule.clone());
        let in_line = scheduling.dynamic.as_ref().is_some_and(|d| d.preserve_ordering)
            || sequencing.as_ref().is_some_and(|s| s.preserves_ordering);
        let line = in_line.then(Line::default);
        // With a limit on the queue a request that finds an idle instance must not take a place in it.
        let unlimited = |d: &scheduler::Dynamic| {
            d.default_policy.max_queue_size == 0 && d.level_policies.values().all(|p| p.max_queue_size == 0)
        };
        let batches = scheduling.max_batch_size > 1 && scheduling.dynamic.as_ref().is_some_and(unlimited);
        let in_order = line.is_some() || scheduling.strict_delay || scheduling.delay_scheduler > 0;
        let limited = parts.limited;
        let in_place = in_order || sequencing.is_some() || limited.is_some();
        let capabilities = served.model().map(|model| model.capabilities()).unwrap_or_default();
        let later = served.remote().map(|_| Later::default());
        // A device is waited for, and what others do there makes that longer.
        let on_device = !parts.placed.is_empty();
        let may_inline =
            !on_device && !in_place && !signature.decoupled && later.is_none() && !capabilities.cost_may_depend_on_data;
        let is_iterative = sequencing.as_ref().is_some_and(|s| s.schedule.iterative);
        let answers_later = signature.decoupled || is_iterative || later.is_some();
        let has_to_tell = limited.is_some() || later.is_some();
        let sized = signature.inputs.iter().any(|i| i.datatype == DataType::Bytes || i.allow_ragged_batch);
        let instances = scheduling.instances;
        let sequences = sequencing.as_ref().map(|s| s.schedule.clone());
        let has_states = sequencing.as_ref().is_some_and(Sequencing::has_states);
        let kept = line.is_some() || signature.decoupled || sequencing.is_some();
        let order = match (&served, kept, scheduling.dynamic.is_none()) {
            (Served::Model(_), true, _) => CallOrder::Kept,
            (Served::Model(_), false, true) => CallOrder::OneByOne,
            _ => CallOrder::Free,
        };
        let batch_size = if scheduling.max_batch_size == 0 { capabilities.batch_size_without_batching } else { None };
        let load = shared.loads.fetch_add(1, Ordering::Relaxed);
        let has_cache = parts.response_cache && !signature.decoupled;
        let cached = shared.cache.as_ref().filter(|_| has_cache).and_then(|(cache, secret)| {
            Cached::new(cache.clone(), secret, (&signature.model, number, load), parts.fingerprint)
        });
        let statistics = Statistics::new(
            &shared.options.metrics,
            parts.histogram_buckets_ms,
            batch_size,
            cached.is_some(),
            parts.placed,
        );
        let shape_rule = ShapeRule::of(&signature);
        let trace = shared.tracer.watch(&signature.model);
        Arc::new_cyclic(|me| Self {
            signature,
            number,
            namespace: parts.namespace,
            platform,
            config: ArcSwap::from_pointee(ConfigTexts { json: config_json, pb: config_pb }),
            served,
            capabilities,
            model_directory: parts.model_directory,
            instances: Mutex::new((0..).zip(parts.wanted).collect()),
            on_device,
            order,
            run: Mutex::new(Run::new(Schedule::new(scheduling, sequences, has_states), instances)),
            sequencing,
            line,
            cached,
            fingerprint: parts.fingerprint,
            limited: limited.inspect(|l| l.belongs_to(me)),
            _admitted: parts.admitted,
            may_inline,
            answers_later,
            later,
            gone: AtomicU32::new(0),
            has_to_tell,
            sized,
            batches,
            statistics,
            trace,
            shape_rule,
            padding,
            shared,
            pending: AtomicU64::new(0),
            inflight: AtomicU64::new(0),
            sweep_due: AtomicBool::new(false),
            removed: Mutex::default(),
            cancelled: AtomicU64::new(0),
            load,
            replaced: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            me: me.clone(),
        })
    }

    /// Whether inputs go to a device, so that bytes which that reads itself are copied once less. Models in other processes get theirs in
    /// memory of the host.
    pub fn reads_on_device(&self) -> bool {
        match &self.served {
            Served::Graph(ensemble) => ensemble.reads_on_device(),
            Served::Model(_) => self.later.is_none() && self.on_device,
        }
    }

    /// The one door: checks a request and either runs it at once on this thread, when it is cheap and nothing waits, or queues it.
    ///
    /// `sink` is asked for only when the request is queued; that sink will get the answers, perhaps before this returns: one, which is
    /// final, or any number of a decoupled model, whose requests are always queued. `parent` is the request that this one is made
    /// for: when that is cancelled, so is this.
    ///
    /// # Errors
    /// Refusals: the request does not fit the signature, the queue is full, the server is stopping, the parent was cancelled. They are
    /// counted nowhere (S-02), and `sink` is not asked for or gets nothing.
    pub fn call(
        &self,
        request: Box<InferRequest>,
        sink: impl FnOnce() -> Arc<dyn Sink>,
        parent: Option<&Ticket>,
    ) -> Result<Started> {
        self.start(request, sink, Caller { parent, inline_until: u64::MAX, depth: 0 })
    }

    /// As `call`, for a step of an ensemble.
    pub(crate) fn start(
        &self,
        mut request: Box<InferRequest>,
        sink: impl FnOnce() -> Arc<dyn Sink>,
        caller: Caller<'_>,
    ) -> Result<Started> {
        let parent = caller.parent;
        // What is called for an accepted request is part of it, and finishes.
        // Sequences that have begun go on: their schedule refuses new ones.
        let stops = self.is_stopping() && parent.is_none();
        if stops && self.sequencing.is_none() {
            return Err(Error::unavailable(format!(
                "{}Server is stopping, scheduler for model has stopped accepting new inference requests",
                IdPrefix(&request.id)
            )));
        }
        if parent.is_some_and(Ticket::is_cancelled) {
            return Err(Error::cancelled(""));
        }
        if self.sequencing.is_some()
            && let Some(former) = self.former_of(&request)
        {
            return former.start(request, sink, caller);
        }
        let checked = self.signature.check(&mut request)?;
        if let Some(sequencing) = &self.sequencing {
            sequencing.check(&request, &self.signature.model)?;
            if stops {
                self.run.lock().schedule.stop();
            } else if request.sequence.start {
                self.begins(&request);
            }
        }
        let now = now_ns();
        if let Some(trace) = &request.trace {
            self.trace_accepted(trace, &request, now);
        }
        match &self.cached {
            None => self.admit(request, checked, now, None, sink, caller),
            Some(cached) => self.call_cached(cached, request, checked, now, sink, caller),
        }
    }

    /// Runs or queues a checked request. `place` is that in the line, where it has one already.
    // A part of `call` for models without the response cache: what it is given is not to be moved for the few that have it.
    #[inline(always)]
    pub(crate) fn admit(
        &self,
        request: Box<InferRequest>,
        checked: Checked,
        now: u64,
        place: Option<u64>,
        sink: impl FnOnce() -> Arc<dyn Sink>,
        caller: Caller<'_>,
    ) -> Result<Started> {
        if let Served::Graph(ensemble) = &self.served {
            return flow::start(self, ensemble, request, (&checked, now), sink, caller);
        }
        let Caller { parent, inline_until, .. } = caller;
        let key = self.shape_rule.key(&request, &checked);
        let class = class_of(&key);
        let rows = checked.rows.max(1);
        // Built once, and run or queued from here.
        let mut entry = BatchEntry::new(request, checked);

        let kind = RunClass::new(class, rows, self.bytes_of(std::iter::once(&entry)));

        let mut run = self.run.lock();
        let may_inline = self.may_inline && now < inline_until && !waits_for_device(&entry.request);
        let cheap = may_inline && !run.idle.is_empty() && run.schedule.profile().is_cheap(kind, self.inline_limit(1));
        // A model that batches waits for the end of the turn: others may arrive in it.
        let in_turn = cheap && self.batches && turn::has_turns() && run.turn_policy.expected(now);
        if cheap
            && !in_turn
            && run.schedule.is_empty()
            && let Some(instance) = run.idle.pop()
        {
            let inline = Inline { limit_ns: self.inline_limit(1), exact: run.schedule.profile().is_doubted() };
            drop(run);
            self.joined(1);
            // A panic here is our defect, but it must cost this request only.
            let ran = catch_unwind(AssertUnwindSafe(|| {
                self.run_here(instance, (class, kind), now, &mut entry, inline, parent)
            }));
            self.left(1);
            return Ok(Started::Answered(ran.unwrap_or_else(|_| Err(self.defect()))));
        }
        if let Some(why) = run.refusal() {
            return Err(why);
        }
        let ticket = TicketState::new(self.me.clone(), parent.map(|p| &p.state))?;
        let handle = Ticket { state: ticket.clone() };
        let sink = Some(sink());
        let (has_place, place) = (place.is_some(), place.or_else(|| self.line.as_ref().map(Line::place)).unwrap_or(0));
        let lengths = Lengths::new();
        let mut pending = Box::new(Pending {
            entry,
            sink,
            streaming: None,
            waits: true,
            ticket,
            key,
            class,
            lengths,
            accepted: now,
            place,
            row: None,
        });
        if let Some(padding) = &self.padding {
            padding
                .prepare(&mut pending, |entry, masked| self.shape_rule.key_but(&entry.request, &entry.checked, masked));
        }
        // Counted before the push: another thread may take the request at once, and the gauge must never go below zero.
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.joined(1);
        if let Err((why, mut refused)) = run.schedule.push(now, Queued(pending), &self.signature.model) {
            refused.0.sink = None;
            refused.0.ticket.settle();
            if let Some(line) = self.line.as_ref().filter(|_| !has_place) {
                line.withdraw(place);
            }
            self.pending.fetch_sub(1, Ordering::Relaxed);
            self.left(1);
            return Err(why);
        }
        if in_turn && let Some(me) = self.me.upgrade() {
            drop(run);
            turn::join(me);
        } else {
            self.pump(run, now);
        }
        Ok(Started::Queued(handle))
    }

    /// What its model is known by in the table.
    pub(crate) fn table_key(&self) -> String {
        let model = &self.signature.model;
        if self.namespace.is_empty() { model.to_string() } else { format!("{}/{model}", self.namespace) }
    }

    /// Whether ensembles have to call it in the order of their iterations.
    pub(crate) fn in_order(&self) -> bool {
        match self.order {
            CallOrder::Free => false,
            CallOrder::Kept => true,
            CallOrder::OneByOne => self.run.lock().members.len() == 1,
        }
    }

    /// Whether it keeps the state of sequences, or calls a model that does.
    pub(crate) fn keeps_state(&self) -> bool {
        self.sequencing.is_some() || self.graph().is_some_and(Ensemble::keeps_state)
    }

    /// Which of its requests are traced.
    pub fn trace(&self) -> &Watch {
        &self.trace
    }

    /// Body of GET …/config.
    pub fn config_json(&self) -> Bytes {
        self.config.load().json.clone()
    }

    /// The same as an encoded `inference.ModelConfig`.
    pub fn config_pb(&self) -> Bytes {
        self.config.load().pb.clone()
    }

    /// The server takes no new requests.
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.exiting.load(Ordering::Acquire)
    }

    /// Accepted requests that are not over; where none is left, batches that are not.
    pub fn inflight(&self) -> u64 {
        // Requests first: a batch is counted before the last of its requests ends.
        match self.inflight.load(Ordering::Acquire) {
            0 => self.later.as_ref().map_or(0, Later::occupied),
            requests => requests,
        }
    }

    pub(crate) fn count_cancelled(&self) {
        self.cancelled.fetch_add(1, Ordering::Relaxed);
    }

    /// As [`crate::statistics::Statistics::work`].
    pub(crate) fn totals(&self) -> Totals {
        self.statistics.totals()
    }

    /// Everything counted so far.
    pub fn statistics(&self) -> VersionStatistics {
        let mut s = self.statistics.read(now_ns(), &self.shared.options.metrics.quantiles);
        s.name = self.signature.model.to_string();
        s.version = self.number;
        s.namespace = self.namespace.clone();
        s.pending = self.pending.load(Ordering::Relaxed);
        s.inflight = self.inflight();
        s.cancelled = self.cancelled.load(Ordering::Relaxed);
        s.custom = self.served.model().map(|model| model.metrics()).unwrap_or_default();
        s
    }

    /// The graph of an ensemble.
    pub(crate) fn graph(&self) -> Option<&Ensemble> {
        match &self.served {
            Served::Graph(ensemble) => Some(ensemble),
            Served::Model(_) => None,
        }
    }

    /// Hands a batch to the model: the one place that calls `Model::execute`. `None` if the backend panicked, which fails this batch and not the server.
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

    /// As [`backend::Model::key_value_cache`].
    pub fn key_value_cache(&self) -> Option<KeyValueCache> {
        self.served.model()?.key_value_cache()
    }
}
