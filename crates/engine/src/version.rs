//! One loaded version: its queue, its instances, and the way of a request through them.
//!
//! A request runs on the thread that brought it when it is cheap and nothing waits (design row 6); otherwise on a pool thread that
//! takes an instance permit, runs the batch, and goes on with the next one as long as there is one. Replies are called outside
//! every lock.

use crate::inline::{self, Held, InlineCost, RunClass, TurnPolicy};
use crate::mail::together;
use crate::options::EngineOptions;
use crate::order::Order;
use crate::pool::Pool;
use crate::statistics::{Executed, FailureReason, Statistics, Timings, VersionStatistics};
use crate::ticket::{Ticket, TicketState};
use crate::timer::Timer;
use crate::turn;
use backend::{Batch, BatchEntry, Marks, Model, RunControl, now_ns};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use protocol::check::IdPrefix;
use protocol::{InferRequest, InferResponse, Signature};
use scheduler::{RemovalReason, Scheduler, Step, Waiting};
use smallvec::SmallVec;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use tensor::{DataType, Error, Result};

/// Called once with the answer, on whichever thread has it. Must not block.
pub type Reply = Box<dyn FnOnce(Result<InferResponse>) + Send>;

/// A batch of cheap requests may take this many times as long on the reactor as one of them: less than they would one by one,
/// and above it waking a thread costs little for each.
const TURN_COST: u64 = 2;

/// What versions share with their engine.
pub(crate) struct Shared {
    pub(crate) options: EngineOptions,
    pub(crate) pool: Arc<Pool>,
    pub(crate) timer: Arc<Timer>,
    pub(crate) exiting: AtomicBool,
    /// Accepted requests without a reply, over all versions.
    pub(crate) inflight: AtomicU64,
}

/// A version that serves.
pub struct ModelVersion {
    /// What requests are checked against.
    pub signature: Arc<Signature>,
    /// Version number.
    pub number: i64,
    /// `platform` of the metadata.
    pub platform: String,
    /// Body of GET …/config.
    pub config_json: Bytes,
    /// The same as an encoded `inference.ModelConfig`.
    pub config_pb: Bytes,
    model: Arc<dyn Model>,
    shared: Arc<Shared>,
    run: Mutex<Run>,
    statistics: Statistics,
    shape_rule: ShapeRule,
    /// Responses leave in request order; saves the others a lock.
    ordered: bool,
    /// Requests that arrive together may run together.
    batches: bool,
    /// Requests may run on the thread that brings them: not where order is kept or Triton's timer is asked for, and only models
    /// whose cost follows from shapes.
    may_inline: bool,
    /// What a run costs depends on the bytes of its inputs, too: they do not follow from shapes.
    sized: bool,
    pending: AtomicU64,
    inflight: AtomicU64,
    cancelled: AtomicU64,
    me: Weak<ModelVersion>,
}

struct Run {
    scheduler: Scheduler<Queued>,
    /// Numbers of the instances that do nothing, the one that stopped last on top: its caches are warm.
    idle: SmallVec<[u32; 8]>,
    order: Option<Order>,
    cost: InlineCost,
    turn_policy: TurnPolicy,
    /// Time of the earliest timer that will call `wake`; 0 = none.
    armed: u64,
}

/// Which requests may share a batch (S-12), decided once per model.
enum ShapeRule {
    /// Fixed dims, no optional inputs: any two fit.
    Any,
    /// Compare the shapes of these inputs and, with optional inputs, which inputs there are.
    Compare { variable: Vec<bool>, batching: bool },
}

/// Whatever requests must have in common to share a batch, flattened; equal keys fit.
type Key = SmallVec<[i64; 8]>;

struct Pending {
    entry: BatchEntry,
    /// `None` once it was called, or is not owed.
    reply: Option<Reply>,
    /// Counted as waiting.
    waits: bool,
    version: Weak<ModelVersion>,
    ticket: Arc<TicketState>,
    key: Key,
    class: u64,
    /// A.
    accepted: u64,
    /// Place in the line of a model that preserves order.
    place: u64,
}

/// Whatever panics, an accepted request gets its answer.
impl Drop for Pending {
    fn drop(&mut self) {
        let Some(reply) = self.reply.take() else { return };
        self.ticket.settle();
        let (version, place, waits) = (self.version.clone(), self.place, self.waits);
        let answer = move || {
            let Some(version) = version.upgrade() else { return reply(Err(Error::unavailable("Server exiting"))) };
            if waits {
                version.pending.fetch_sub(1, Ordering::Relaxed);
            }
            version.deliver(place, Delivery { reply, result: Err(version.defect()) });
        };
        // On a thread of its own: this one may hold the lock of the version, and is perhaps unwinding.
        if std::thread::Builder::new().name("nereid-defect".into()).spawn(answer).is_err() {
            log::error!("a request whose handling panicked could not be answered");
        }
    }
}

/// An instance on its way back: whatever panics meanwhile, it becomes idle again.
struct Permit<'v> {
    version: &'v ModelVersion,
    instance: u32,
    held: bool,
}

impl<'v> Permit<'v> {
    fn new(version: &'v ModelVersion, instance: u32) -> Self {
        Self { version, instance, held: true }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        // Also while a panic unwinds: another one would end the process.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let mut run = self.version.run.lock();
            run.idle.push(self.instance);
            self.version.pump(run, now_ns());
        }));
    }
}

pub(crate) struct Queued(Box<Pending>);

impl Waiting for Queued {
    fn rows(&self) -> u32 {
        self.0.entry.checked.rows.max(1)
    }
    fn is_cancelled(&self) -> bool {
        self.0.ticket.is_cancelled()
    }
    fn fits_with(&self, first: &Self) -> bool {
        self.0.key == first.0.key
    }
    fn class(&self) -> u64 {
        self.0.class
    }
}

/// What became of a request that was not refused.
pub enum Started {
    /// It ran at once on the calling thread; its reply was not asked for.
    Answered(Result<Box<InferResponse>>),
    /// It waits or runs elsewhere.
    Queued(Ticket),
}

/// An answer on its way out.
pub(crate) struct Delivery {
    reply: Reply,
    result: Result<InferResponse>,
}

type Requests = SmallVec<[Queued; 1]>;

/// A batch with the permit to run it.
pub(crate) struct Job {
    version: Arc<ModelVersion>,
    instance: u32,
    requests: Requests,
}

impl Job {
    /// Runs the batch, then whatever the instance can take next, until the queue has nothing for it.
    pub(crate) fn run(self) {
        let Job { version, instance, mut requests } = self;
        let mut permit = Permit::new(&version, instance);
        loop {
            let control = Arc::new(RunControl::new(requests.len() as u32));
            for q in &requests {
                q.0.ticket.running(&control);
            }
            let ran = version.execute(instance, requests, &control, None);
            match version.next(&mut permit, ran) {
                Some(more) => requests = more,
                None => return,
            }
        }
    }
}

/// What is learned from an execution.
#[derive(Clone, Copy)]
struct Ran {
    class: u64,
    kind: RunClass,
    rows: u32,
    /// 0 = failed; failures say nothing about cost.
    duration: u64,
    /// It held the thread that brought the request.
    inline: Option<(Inline, Held)>,
    /// When it ended: as good as now for what follows.
    end: u64,
}

/// A run on the thread that brings the request.
#[derive(Clone, Copy)]
struct Inline {
    limit_ns: u64,
    /// Its CPU is measured exactly.
    exact: bool,
}

/// What makes a version.
pub(crate) struct VersionParts {
    pub signature: Arc<Signature>,
    pub number: i64,
    pub platform: String,
    pub config_json: Bytes,
    pub config_pb: Bytes,
    pub model: Arc<dyn Model>,
    pub scheduling: scheduler::Config,
    pub histogram_buckets_ms: Option<Vec<f64>>,
}

impl ModelVersion {
    pub(crate) fn new(shared: Arc<Shared>, parts: VersionParts) -> Arc<Self> {
        let VersionParts { signature, number, platform, config_json, config_pb, model, scheduling, .. } = parts;
        let order = scheduling.dynamic.as_ref().is_some_and(|d| d.preserve_ordering).then(Order::default);
        let ordered = order.is_some();
        // With a limit on the queue a request that finds an idle instance must not take a place in it.
        let unlimited = |d: &scheduler::Dynamic| {
            d.default_policy.max_queue_size == 0 && d.level_policies.values().all(|p| p.max_queue_size == 0)
        };
        let batches = scheduling.max_batch_size > 1 && scheduling.dynamic.as_ref().is_some_and(unlimited);
        let in_order = ordered || scheduling.strict_delay || scheduling.delay_scheduler > 0;
        let may_inline = !in_order && !model.cost_may_depend_on_data();
        let sized = signature.inputs.iter().any(|i| i.datatype == DataType::Bytes || i.allow_ragged_batch);
        let idle = (0..scheduling.instances.max(1)).rev().collect();
        let batch_size = if scheduling.max_batch_size == 0 { model.batch_size_without_batching() } else { None };
        let statistics = Statistics::new(&shared.options.metrics, parts.histogram_buckets_ms, batch_size);
        let shape_rule = ShapeRule::of(&signature);
        Arc::new_cyclic(|me| Self {
            signature,
            number,
            platform,
            config_json,
            config_pb,
            model,
            run: Mutex::new(Run {
                scheduler: Scheduler::new(scheduling),
                idle,
                order,
                cost: InlineCost::default(),
                turn_policy: TurnPolicy::default(),
                armed: 0,
            }),
            ordered,
            may_inline,
            sized,
            batches,
            statistics,
            shape_rule,
            shared,
            pending: AtomicU64::new(0),
            inflight: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            me: me.clone(),
        })
    }

    /// Checks a request and either runs it at once on this thread, when it is cheap and nothing waits, or queues it.
    ///
    /// `reply` is asked for only when the request is queued; that reply will be called exactly once, perhaps before this returns.
    ///
    /// # Errors
    /// Refusals: the request does not fit the signature, the queue is full, the server is stopping. They are counted nowhere
    /// (S-02), and `reply` is not asked for or dropped uncalled.
    pub fn start(&self, mut request: Box<InferRequest>, reply: impl FnOnce() -> Reply) -> Result<Started> {
        if self.shared.exiting.load(Ordering::Acquire) {
            return Err(Error::unavailable(format!(
                "{}Server is stopping, scheduler for model has stopped accepting new inference requests",
                IdPrefix(&request.id)
            )));
        }
        let checked = self.signature.check(&mut request)?;
        let now = now_ns();
        let key = self.shape_rule.key(&request, &checked);
        let class = class_of(&key);
        let rows = checked.rows.max(1);
        // Built once, and run or queued from here.
        let mut entry = BatchEntry { request, checked, result: None };

        let kind = RunClass::new(class, rows, self.bytes_of(std::iter::once(&entry)));

        let mut run = self.run.lock();
        let cheap = self.may_inline && !run.idle.is_empty() && run.cost.is_cheap(kind, self.inline_limit(1));
        // A model that batches waits for the end of the turn: others may arrive in it.
        let in_turn = cheap && self.batches && turn::has_turns() && run.turn_policy.expected(now);
        if cheap
            && !in_turn
            && run.scheduler.is_empty()
            && let Some(instance) = run.idle.pop()
        {
            let inline = Inline { limit_ns: self.inline_limit(1), exact: run.cost.is_doubted() };
            drop(run);
            self.joined(1);
            // A panic here is our defect, but it must cost this request only.
            let ran =
                catch_unwind(AssertUnwindSafe(|| self.run_here(instance, (class, kind), now, &mut entry, inline)));
            self.left(1);
            return Ok(Started::Answered(ran.unwrap_or_else(|_| Err(self.defect()))));
        }
        let ticket = Arc::new(TicketState::default());
        let handle = Ticket { state: ticket.clone(), version: self.me.clone() };
        let (priority, timeout_us) = (entry.request.priority, entry.request.timeout_us);
        let id = entry.request.id.clone();
        let place = run.order.as_mut().map_or(0, Order::place);
        let (reply, version) = (Some(reply()), self.me.clone());
        let pending =
            Box::new(Pending { entry, reply, waits: true, version, ticket, key, class, accepted: now, place });
        // Counted before the push: another thread may take the request at once, and the gauge must never go below zero.
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.joined(1);
        if let Err((scheduler::Refusal::QueueFull, mut refused)) =
            run.scheduler.push(now, priority, timeout_us, Queued(pending))
        {
            refused.0.reply = None;
            if let Some(order) = &mut run.order {
                order.withdraw(place);
            }
            self.pending.fetch_sub(1, Ordering::Relaxed);
            self.left(1);
            return Err(Error::unavailable(format!("{}Exceeds maximum queue size", IdPrefix(&id))));
        }
        if in_turn && let Some(me) = self.me.upgrade() {
            drop(run);
            turn::join(me);
        } else {
            self.pump(run, now);
        }
        Ok(Started::Queued(handle))
    }

    /// As [`start`](Self::start), for callers that have their reply at hand: it is called in either case.
    ///
    /// # Errors
    /// As `start`.
    pub fn infer(&self, request: InferRequest, reply: Reply) -> Result<Option<Ticket>> {
        let mut reply = Some(reply);
        let started = self.start(Box::new(request), || reply.take().unwrap_or_else(|| Box::new(|_| ())))?;
        Ok(match started {
            Started::Queued(ticket) => Some(ticket),
            Started::Answered(result) => {
                if let Some(reply) = reply {
                    reply(result.map(|response| *response));
                }
                None
            }
        })
    }

    /// Runs one request on this thread. The instance was taken from the idle ones.
    fn run_here(
        &self,
        instance: u32,
        (class, kind): (u64, RunClass),
        accepted: u64,
        entry: &mut BatchEntry,
        inline: Inline,
    ) -> Result<Box<InferResponse>> {
        let mut permit = Permit::new(self, instance);
        let rows = entry.checked.rows.max(1);
        inline::hold(accepted, inline.exact);
        let timings = self.run(instance, std::slice::from_mut(entry), &RunControl::alone(), accepted);
        let held = inline::held(accepted, timings.end, inline.exact, inline.limit_ns);
        let executed = Executed::of(entry, accepted);
        let duration = if executed.failure.is_none() { timings.end.saturating_sub(timings.start).max(1) } else { 0 };
        self.statistics.executed(&timings, std::iter::once(executed));
        let answer = self.answer(entry).map(Box::new);
        let ran = Ran { class, kind, rows, duration, inline: Some((inline, held)), end: timings.end };
        if let Some(requests) = self.next(&mut permit, ran) {
            permit.held = false;
            self.submit(instance, requests);
        }
        answer
    }

    /// Runs requests as one batch on this thread, past the scheduler; for warm-up, before the version serves. Returns how those
    /// that failed did.
    ///
    /// # Errors
    /// A request that does not fit the signature; nothing ran then.
    pub(crate) fn execute_now(&self, instance: u32, requests: Vec<InferRequest>) -> Result<Vec<Error>> {
        let errors = Arc::new(Mutex::new(Vec::new()));
        let now = now_ns();
        let mut batch = Requests::new();
        for mut request in requests {
            let checked = self.signature.check(&mut request)?;
            let errors = errors.clone();
            let reply: Reply = Box::new(move |result| {
                if let Err(e) = result {
                    errors.lock().push(e);
                }
            });
            let place = self.run.lock().order.as_mut().map_or(0, Order::place);
            let (key, class, ticket) = (Key::new(), 0, Arc::default());
            let entry = BatchEntry { request: Box::new(request), checked, result: None };
            let (reply, version, waits) = (Some(reply), self.me.clone(), true);
            batch.push(Queued(Box::new(Pending {
                entry,
                reply,
                waits,
                version,
                ticket,
                key,
                class,
                accepted: now,
                place,
            })));
        }
        let n = batch.len() as u64;
        self.pending.fetch_add(n, Ordering::Relaxed);
        self.joined(n);
        self.execute(instance, batch, &RunControl::alone(), None);
        Ok(std::mem::take(&mut *errors.lock()))
    }

    /// Steps the scheduler until it has nothing more to start; what it starts goes to the pool.
    fn pump(&self, mut run: MutexGuard<'_, Run>, now: u64) {
        let dropped = self.start_batches(&mut run, now, None).1;
        drop(run);
        self.answer_dropped(dropped);
    }

    /// The end of a turn of the reactor that collected requests for this version.
    pub(crate) fn end_turn(&self) {
        let now = now_ns();
        let mut run = self.run.lock();
        let Some(instance) = run.idle.last().copied() else { return };
        let (requests, dropped) = self.start_batches(&mut run, now, Some(instance));
        run.turn_policy.turn_of(requests.as_ref().map_or(0, SmallVec::len));
        let limit_ns = self.inline_limit(TURN_COST);
        // What was cheap for each when it arrived may not be cheap for all of them together.
        let cheap =
            requests.as_ref().is_some_and(|all| self.may_inline && run.cost.is_cheap(self.kind_of(all), limit_ns));
        let inline = Inline { limit_ns, exact: run.cost.is_doubted() };
        drop(run);
        self.answer_dropped(dropped);
        let Some(requests) = requests else { return };
        if !cheap {
            return self.submit(instance, requests);
        }
        let mut permit = Permit::new(self, instance);
        let ran = self.execute(instance, requests, &RunControl::alone(), Some(inline));
        if let Some(requests) = self.next(&mut permit, ran) {
            permit.held = false;
            self.submit(instance, requests);
        }
    }

    /// Starts every batch that can be started. The first one for `mine` is handed back instead, to the thread that holds it.
    fn start_batches(
        &self,
        run: &mut Run,
        now: u64,
        mine: Option<u32>,
    ) -> (Option<Requests>, Vec<(RemovalReason, Queued)>) {
        let (mut kept, mut dropped) = (None, Vec::new());
        loop {
            let idle = run.idle.len() as u32;
            // A schedule that panics loses its step, not the instances; the requests it held are answered when they are dropped.
            let step = catch_unwind(AssertUnwindSafe(|| run.scheduler.step(now, idle, &mut dropped)));
            match step.unwrap_or(Step::Idle) {
                Step::Run(requests) => match run.idle.pop() {
                    Some(instance) if Some(instance) == mine && kept.is_none() => kept = Some(requests),
                    Some(instance) => self.submit(instance, requests),
                    None => {
                        // A scheduler that starts more than there are instances is our bug; the batch still has to be answered.
                        debug_assert!(false, "batch without an idle instance");
                        self.submit(0, requests);
                    }
                },
                Step::SleepUntil(at) => {
                    if run.armed == 0 || at < run.armed {
                        run.armed = at;
                        self.shared.timer.arm(at, self.me.clone());
                    }
                    break;
                }
                Step::Idle => break,
            }
        }
        (kept, dropped)
    }

    /// What an inline run of `times` requests' worth may take.
    fn inline_limit(&self, times: u64) -> u64 {
        times * self.shared.options.inline_cost_max_ns
    }

    /// The class of a batch's cost.
    fn kind_of(&self, requests: &Requests) -> RunClass {
        let rows = requests.iter().map(Waiting::rows).fold(0, u32::saturating_add);
        let bytes = self.bytes_of(requests.iter().map(|q| &q.0.entry));
        RunClass::new(requests.first().map_or(0, Waiting::class), rows, bytes)
    }

    /// Bytes of the requests' inputs; 0 where they follow from shapes.
    fn bytes_of<'e>(&self, entries: impl Iterator<Item = &'e BatchEntry>) -> u64 {
        if !self.sized {
            return 0;
        }
        entries.flat_map(|e| &e.request.inputs).map(|i| i.data.len() as u64).sum()
    }

    fn submit(&self, instance: u32, requests: Requests) {
        // `me` upgrades: a caller holds an `Arc` to call anything on `self`.
        if let Some(version) = self.me.upgrade() {
            self.shared.pool.submit(Job { version, instance, requests });
        }
    }

    /// After an execution: the instance takes the next batch, or becomes idle.
    fn next(&self, permit: &mut Permit<'_>, ran: Ran) -> Option<Requests> {
        let now = ran.end;
        let mut run = self.run.lock();
        if ran.duration > 0 {
            run.scheduler.observe(ran.class, ran.rows, ran.duration);
            run.cost.observe(ran.kind, ran.duration);
        }
        let mut overran = false;
        if let Some((inline, held)) = ran.inline {
            run.turn_policy.ran(now);
            // A run that failed held the thread all the same.
            overran = run.cost.ran_inline(held, inline.limit_ns);
        }
        run.idle.push(permit.instance);
        permit.held = false;
        let (mine, dropped) = self.start_batches(&mut run, now, Some(permit.instance));
        permit.held = mine.is_some();
        drop(run);
        if overran {
            log::warn!(
                "model '{}' version {} held a thread of the front end for longer than a request may; its requests run on worker threads until it is loaded again",
                self.signature.model,
                self.signature.version
            );
        }
        self.answer_dropped(dropped);
        mine
    }

    /// A timer armed for `at` fired.
    pub(crate) fn wake(&self, at: u64) {
        let mut run = self.run.lock();
        if run.armed == at {
            run.armed = 0;
        }
        self.pump(run, now_ns());
    }

    /// Takes cancelled requests out of the queue and answers them.
    pub(crate) fn sweep_cancelled(&self) {
        let mut dropped = Vec::new();
        let mut run = self.run.lock();
        run.scheduler.remove_cancelled(&mut dropped);
        self.pump(run, now_ns());
        self.answer_dropped(dropped);
    }

    pub(crate) fn count_cancelled(&self) {
        self.cancelled.fetch_add(1, Ordering::Relaxed);
    }

    fn answer_dropped(&self, dropped: Vec<(RemovalReason, Queued)>) {
        if dropped.is_empty() {
            return;
        }
        let now = now_ns();
        self.pending.fetch_sub(dropped.len() as u64, Ordering::Relaxed);
        for (why, Queued(mut p)) in dropped {
            p.waits = false;
            let (reason, error) = match why {
                RemovalReason::Expired => (FailureReason::Rejected, Error::unavailable("Request timeout expired")),
                RemovalReason::Cancelled => (FailureReason::Cancelled, Error::cancelled("")),
            };
            p.ticket.settle();
            self.statistics.failed(p.accepted, now, reason);
            if let Some(reply) = p.reply.take() {
                self.deliver(p.place, Delivery { reply, result: Err(error) });
            }
        }
    }

    /// Runs a batch and answers its requests. `inline`: on the thread that brought them.
    fn execute(&self, instance: u32, mut requests: Requests, control: &RunControl, inline: Option<Inline>) -> Ran {
        let class = requests.first().map_or(0, Waiting::class);
        let rows = requests.iter().map(Waiting::rows).fold(0, u32::saturating_add);
        // Before the backend takes the requests apart.
        let kind = self.kind_of(&requests);
        let start = now_ns();
        if let Some(inline) = inline {
            inline::hold(start, inline.exact);
        }
        self.pending.fetch_sub(requests.len() as u64, Ordering::Relaxed);
        requests.iter_mut().for_each(|q| q.0.waits = false);
        // Entries side by side, as the backend wants them, where there are several. They are answered from there: each is most of
        // a kilobyte, and a request alone stays where it is.
        let mut several = Vec::new();
        let timings = match &mut requests[..] {
            [alone] => self.run(instance, std::slice::from_mut(&mut alone.0.entry), control, start),
            all => {
                several.extend(all.iter_mut().map(|q| std::mem::take(&mut q.0.entry)));
                self.run(instance, &mut several, control, start)
            }
        };
        let inline = inline.map(|i| (i, inline::held(start, timings.end, i.exact, i.limit_ns)));
        let mut any = false;
        self.statistics.executed(
            &timings,
            requests.iter().enumerate().map(|(i, Queued(p))| {
                let entry = several.get(i).unwrap_or(&p.entry);
                any |= matches!(entry.result, Some(Ok(_)));
                Executed::of(entry, p.accepted)
            }),
        );
        let mut several = several.iter_mut();
        together(|| {
            for Queued(mut p) in requests {
                let result = self.answer(several.next().unwrap_or(&mut p.entry));
                p.ticket.settle();
                if let Some(reply) = p.reply.take() {
                    self.deliver(p.place, Delivery { reply, result });
                }
            }
        });
        let duration = if any { timings.end.saturating_sub(start).max(1) } else { 0 };
        Ran { class, kind, rows, inline, end: timings.end, duration }
    }

    /// Lets the backend run the entries and sees to it that each has a result.
    fn run(&self, instance: u32, entries: &mut [BatchEntry], control: &RunControl, start: u64) -> Timings {
        // A panic in a backend is our bug, but it is this batch's failure, not the server's.
        let ran =
            catch_unwind(AssertUnwindSafe(|| self.model.execute(instance, &mut Batch { requests: entries }, control)));
        let marks = ran.unwrap_or_else(|_| {
            let end = now_ns();
            Marks { inputs_ready: end, inference_end: end, outputs_ready: end }
        });
        for entry in entries {
            entry.result.get_or_insert_with(|| {
                Err(Error::internal(format!(
                    "the backend of model '{}' stopped without an answer; this is a defect of the server, please report it",
                    self.signature.model
                )))
            });
        }
        Timings { start, marks, end: marks.outputs_ready.max(start) }
    }

    /// The response made of an entry's result, which `run` has put there.
    #[inline]
    fn answer(&self, entry: &mut BatchEntry) -> Result<InferResponse> {
        let outcome = entry.result.take().unwrap_or_else(|| Err(Error::internal("answered twice")))?;
        Ok(InferResponse {
            model_name: self.signature.model.clone(),
            model_version: self.signature.version.clone(),
            id: std::mem::take(&mut entry.request.id),
            parameters: outcome.parameters,
            outputs: outcome.outputs,
        })
    }

    fn deliver(&self, place: u64, delivery: Delivery) {
        if !self.ordered {
            self.reply(delivery);
            return;
        }
        let mut ready = Vec::new();
        if let Some(order) = &mut self.run.lock().order {
            order.give(place, delivery, &mut ready);
        }
        ready.into_iter().for_each(|d| self.reply(d));
    }

    /// Calls a reply. One that panics must not cost the other requests of its batch theirs.
    fn reply(&self, delivery: Delivery) {
        if catch_unwind(AssertUnwindSafe(|| (delivery.reply)(delivery.result))).is_err() {
            log::error!("the receiver of an answer of model '{}' panicked", self.signature.model);
        }
        self.left(1);
    }

    fn defect(&self) -> Error {
        Error::internal(format!(
            "the server panicked while it handled a request for model '{}'; this is a defect, please report it with the log",
            self.signature.model
        ))
    }

    fn joined(&self, requests: u64) {
        self.inflight.fetch_add(requests, Ordering::AcqRel);
        self.shared.inflight.fetch_add(requests, Ordering::AcqRel);
    }

    fn left(&self, requests: u64) {
        self.inflight.fetch_sub(requests, Ordering::AcqRel);
        self.shared.inflight.fetch_sub(requests, Ordering::AcqRel);
    }

    /// The server takes no new requests.
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.exiting.load(Ordering::Acquire)
    }

    /// Accepted requests without a reply.
    pub fn inflight(&self) -> u64 {
        self.inflight.load(Ordering::Acquire)
    }

    /// Everything counted so far.
    pub fn statistics(&self) -> VersionStatistics {
        let mut s = self.statistics.read(now_ns(), &self.shared.options.metrics.quantiles);
        s.name = self.signature.model.to_string();
        s.version = self.number;
        s.pending = self.pending.load(Ordering::Relaxed);
        s.cancelled = self.cancelled.load(Ordering::Relaxed);
        s.custom = self.model.metrics();
        s
    }
}

impl ShapeRule {
    fn of(signature: &Signature) -> Self {
        let optional = signature.inputs.iter().any(|i| i.optional);
        let variable: Vec<bool> =
            signature.inputs.iter().map(|i| i.dims.contains(&-1) && !i.allow_ragged_batch).collect();
        if !optional && !variable.contains(&true) {
            return Self::Any;
        }
        Self::Compare { variable, batching: signature.max_batch_size > 0 }
    }

    fn key(&self, request: &InferRequest, checked: &protocol::Checked) -> Key {
        let Self::Compare { variable, batching } = self else { return Key::new() };
        // Inputs may come in any order; the key is in configuration order, each input led by its index.
        let mut order: SmallVec<[(u16, usize); 8]> = checked.inputs.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let mut key = Key::new();
        for (spec, i) in order {
            key.push(i64::from(spec));
            if variable.get(usize::from(spec)) == Some(&true)
                && let Some(input) = request.inputs.get(i)
            {
                key.extend(input.shape.iter().skip(usize::from(*batching)).copied());
            }
        }
        key
    }
}

/// Requests of one class cost the same per row: same shapes, apart from the batch dimension. Keyed: a client that could choose two
/// shapes of one class could have a dear one taken for a cheap one.
fn class_of(key: &Key) -> u64 {
    static KEYED: OnceLock<RandomState> = OnceLock::new();
    if key.is_empty() { 0 } else { KEYED.get_or_init(RandomState::new).hash_one(&key[..]) }
}
