//! A model that is served by runners: one per instance, restarted when it dies. Instances can be added and removed
//! while the model serves.

mod restarts;

use crate::failure::Failure;
use crate::frames::{self, InstanceId};
use crate::generated::{Frame, LEASES_MAX, SLOTS_MAX};
use crate::lifecycle::{Before, Lifecycle};
use crate::restart::Crashes;
use crate::runner::{Owner, Runner, RunnerContext, Started};
use crate::spec::{COPY_BYTES_MAX, InstanceSpec, Limits, RunnerKind, Spec};
use crate::transport::{Executor, Way};
use backend::{
    Batch, Capabilities, Executing, Host, InstanceEventsRef, Marks, NewInstance, OpenCalls, Readiness, ReadyAnswer,
    RemoteModel, Reported, ReportedTimes, RunControl, now_ns,
};
use parking_lot::{Mutex, RwLock};
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tensor::{Error, Fault, RegionRef};

/// Maximum bytes of inputs that the thread of the batch copies itself, like outputs on the thread that reads them:
/// 1 MiB takes 80 to 240 µs. A thread of the pool would have to be woken, and copies no faster.
const AT_ONCE_BYTES_MAX: usize = COPY_BYTES_MAX as usize;

/// A model and its runners. Owned by `Served`; runners have weak references.
pub(crate) struct RunnerModel {
    me: Weak<Self>,
    spec: Spec,
    signature: Arc<Signature>,
    host: Weak<dyn Host>,
    executor: Arc<dyn Executor>,
    /// Instances by their number.
    places: RwLock<Vec<Option<Arc<InstanceRunner>>>>,
    /// Runners of removed instances that still have requests, and the time of their removal.
    removed: Mutex<Vec<(Arc<Runner>, u64)>>,
    listener: OnceLock<InstanceEventsRef>,
    /// The model is not served any more: its runners are not restarted.
    is_ending: AtomicBool,
    /// Nanoseconds that runners may spend on requests without a waiting client; `NEVER` while the model is in service.
    abandoned_ns_max: AtomicU64,
    /// Time when the model left service.
    left_service: OnceLock<u64>,
    restarts: AtomicU64,
}

const NEVER: u64 = u64::MAX;
/// Number of checks of the runners in their grace period after the model left service, with limits of the interval.
const CHECKS_IN_GRACE: u32 = 10;
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(10);
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Interval of checks of a runner whose instance was removed, while it has requests.
const REMOVED_CHECK_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) struct InstanceRunner {
    number: u32,
    instance: InstanceSpec,
    runner: RwLock<Option<Arc<Runner>>>,
    crashes: Mutex<Crashes>,
    /// Reason why the instance accepts no batches.
    down: Mutex<Option<Error>>,
    /// Number of times that its requests waited for a restart.
    pauses: AtomicU64,
    /// False while the runner is started for the first time.
    serves: AtomicBool,
    /// The instance was removed: its runner is not restarted, and its end is not reported.
    is_removed: AtomicBool,
}

impl InstanceRunner {
    fn new(number: u32, instance: InstanceSpec, serves: bool) -> Arc<Self> {
        Arc::new(Self {
            number,
            instance,
            runner: RwLock::default(),
            crashes: Mutex::default(),
            down: Mutex::default(),
            pauses: AtomicU64::new(0),
            serves: AtomicBool::new(serves),
            is_removed: AtomicBool::new(false),
        })
    }

    fn name(&self) -> &str {
        &self.instance.name
    }
}

struct Served(Arc<RunnerModel>);

/// Starts the runners of a model, which load its code. Blocks until all are ready or one has failed.
///
/// # Errors
/// The failure of the first runner that failed.
pub fn start(
    spec: Spec,
    signature: Arc<Signature>,
    host: Weak<dyn Host>,
    executor: Arc<dyn Executor>,
) -> Result<Arc<dyn backend::Model>, Failure> {
    let places: Vec<_> =
        (0..).zip(&spec.instances).map(|(n, instance)| InstanceRunner::new(n, instance.clone(), true)).collect();
    let model = Arc::new_cyclic(|me| RunnerModel {
        me: me.clone(),
        spec,
        signature,
        host,
        executor,
        places: RwLock::new(places.iter().cloned().map(Some).collect()),
        removed: Mutex::default(),
        listener: OnceLock::new(),
        is_ending: AtomicBool::new(false),
        abandoned_ns_max: AtomicU64::new(NEVER),
        left_service: OnceLock::new(),
        restarts: AtomicU64::new(0),
    });
    // Its drop ends all runners, also after a failure below.
    let owner = Served(Arc::clone(&model));
    model.start_all(&places)?;
    Ok(Arc::new(owner))
}

pub(crate) fn not_started(kind: RunnerKind) -> Failure {
    Error::internal(format!("a {} could not be started", kind.noun())).by(Fault::Environment).into()
}

pub(crate) fn cannot_start(kind: RunnerKind, e: &io::Error) -> Failure {
    Error::internal(format!("a {} could not be started: {e}", kind.noun())).by(Fault::Environment).into()
}

/// Starts a runner, on the thread for starts. Calls `started` when the runner responds or ends, but not if this fails.
pub(crate) fn launch(
    instance: &InstanceSpec,
    number: u32,
    limits: &Limits,
    context: RunnerContext,
    mode: &str,
    started: Started,
) -> io::Result<Arc<Runner>> {
    let mut load = Vec::new();
    frames::write::json(&mut load, InstanceId::ONLY, Frame::Load, &load_of(&instance.load, mode))
        .map_err(|_| io::Error::other("the configuration is too long"))?;
    let connection = instance.start.start()?;
    let runner = Runner::new(instance, number, limits, context, connection, started);
    crate::trim::watch(Arc::downgrade(&runner) as _);
    // First of all: a thread that answers before its receiver is there would not be heard.
    runner.transport.on_frame(Arc::clone(&runner) as _)?;
    runner.transport.send(Way::Work, &load);
    let mut first = Vec::new();
    frames::write::question(&mut first, InstanceId::PROCESS, Frame::Ping, 0);
    runner.transport.send(Way::Side, &first);
    runner.later(limits.start_timeout, |runner| runner.check_contact());
    Ok(runner)
}

/// JSON object of LOAD: the members of `json`, and the mode.
fn load_of(json: &str, mode: &str) -> String {
    let rest = json.trim_start().strip_prefix('{').unwrap_or("}").trim_start();
    let comma = if rest.starts_with('}') { "" } else { "," };
    format!(r#"{{"mode":"{mode}"{comma}{rest}"#)
}

impl RunnerModel {
    /// Starts runners, and waits until all have loaded the model's code or one has failed.
    fn start_all(self: &Arc<Self>, places: &[Arc<InstanceRunner>]) -> Result<(), Failure> {
        let (send, started) = channel();
        for place in places {
            let (model, place, send): (_, _, Sender<Result<(), Failure>>) =
                (Arc::clone(self), Arc::clone(place), send.clone());
            self.executor.start(Box::new(move || {
                let started: Started = Box::new(move |result| drop(send.send(result.map(drop))));
                model.spawn(&place, started);
            }));
        }
        drop(send);
        let mut failed = None;
        for place in places {
            let result = started.recv().unwrap_or_else(|_| Err(not_started(place.instance.kind)));
            failed = failed.or(result.err());
            // As in Triton, libraries make all instances, whatever becomes of one.
            if failed.is_some() && !self.spec.reports_statistics {
                break;
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Starts the runner of an instance. `started` is called once.
    fn spawn(&self, place: &InstanceRunner, started: Started) {
        let is_wanted = || !self.is_ending.load(SeqCst) && !place.is_removed.load(SeqCst);
        if !is_wanted() {
            return;
        }
        let started: Arc<Mutex<Option<Started>>> = Arc::new(Mutex::new(Some(started)));
        let report = move |result| {
            if let Some(started) = started.lock().take() {
                started(result);
            }
        };
        let limits = &self.spec.limits;
        // Locked before the runner can respond: otherwise its first response could be lost.
        let mut held = place.runner.write();
        let reporting = Box::new(report.clone());
        let context = RunnerContext { owner: self.me.clone(), asks: None, executor: Arc::clone(&self.executor) };
        match launch(&place.instance, place.number, limits, context, "run", reporting) {
            Ok(runner) => {
                if !is_wanted() {
                    runner.end(Duration::ZERO);
                }
                *held = Some(runner);
            }
            Err(e) => {
                drop(held);
                report(Err(cannot_start(place.instance.kind, &e)));
            }
        }
    }

    /// Runs a job after a delay, if the model still exists.
    fn later(&self, delay: Duration, job: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let me = self.me.clone();
        self.executor.after(
            delay,
            Box::new(move || {
                if let Some(model) = me.upgrade() {
                    job(&model);
                }
            }),
        );
    }

    fn place(&self, instance: u32) -> Option<Arc<InstanceRunner>> {
        self.places.read().get(instance as usize)?.clone()
    }

    fn all_places(&self) -> Vec<Arc<InstanceRunner>> {
        self.places.read().iter().flatten().cloned().collect()
    }

    /// Ends runners that hang or work without a waiting client, after their grace period.
    fn check_leaving(&self) {
        let (grace, now) = (Duration::from_nanos(self.abandoned_ns_max.load(SeqCst)), now_ns());
        let left = Duration::from_nanos(now.saturating_sub(*self.left_service.get_or_init(|| now)));
        for runner in self.runners() {
            runner.check_abandoned(grace, left, now);
        }
        self.later((grace / CHECKS_IN_GRACE).clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX), |model| {
            model.check_leaving()
        });
    }

    /// Removes an instance. Its runner ends after its last request, which may take long if the model is decoupled.
    fn remove(&self, instance: u32) {
        let place = self.places.write().get_mut(instance as usize).and_then(Option::take);
        let Some(place) = place else { return };
        place.is_removed.store(true, SeqCst);
        let Some(runner) = place.runner.read().clone() else { return };
        log::debug!("{}: the instance is being removed", place.name());
        let mut removed = self.removed.lock();
        removed.push((runner, now_ns()));
        if removed.len() == 1 {
            self.later(Duration::ZERO, |model| model.check_removed());
        }
    }

    /// Ends idle runners of removed instances, and those that work without a waiting client after their grace period.
    /// Checks the others again later.
    fn check_removed(&self) {
        let (grace, now) = (self.spec.limits.exit_grace, now_ns());
        let mut removed = self.removed.lock();
        removed.retain(|(runner, since)| {
            if runner.is_over() {
                return false;
            }
            if !runner.has_requests() {
                runner.end(grace);
                return false;
            }
            runner.check_abandoned(grace, Duration::from_nanos(now.saturating_sub(*since)), now);
            true
        });
        if !removed.is_empty() {
            self.later(REMOVED_CHECK_INTERVAL, |model| model.check_removed());
        }
    }

    fn runner(&self, instance: u32) -> Option<Arc<Runner>> {
        self.places.read().get(instance as usize)?.as_ref()?.runner.read().clone()
    }

    /// Runners of all instances, including removed ones.
    fn runners(&self) -> impl Iterator<Item = Arc<Runner>> {
        let mut all: Vec<_> = self.all_places().into_iter().filter_map(|place| place.runner.read().clone()).collect();
        all.extend(self.removed.lock().iter().map(|(runner, _)| Arc::clone(runner)));
        all.into_iter().filter(|runner| !runner.is_over())
    }
}

impl Owner for RunnerModel {
    fn signature(&self) -> &Arc<Signature> {
        &self.signature
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn has_one_instance(&self) -> bool {
        self.places.read().iter().flatten().nth(1).is_none()
    }

    fn reported(&self, runner: &Runner, report: Reported, times: ReportedTimes) {
        if let Some(listener) = self.listener.get() {
            listener.reported(runner.instance, report, times);
        }
    }

    fn host(&self) -> Weak<dyn Host> {
        self.host.clone()
    }

    fn died(&self, runner: &Runner, was: Lifecycle) {
        if self.is_ending.load(SeqCst) {
            return;
        }
        // If the instance was removed, another one may have its number.
        let is_its =
            |place: &Arc<InstanceRunner>| place.runner.read().as_ref().is_some_and(|its| std::ptr::eq(&**its, runner));
        let Some(place) = self.place(runner.instance).filter(is_its) else { return };
        if was == Lifecycle::Killed(Before::Abandoned) {
            // Waiting requests go to other instances or are rejected.
            let model = &self.signature.model;
            return self.is_down(&place, Error::unavailable(format!("model '{model}' is being unloaded")));
        }
        self.crashed(&place);
    }
}

impl backend::Model for Served {
    fn execute(&self, instance: u32, batch: &mut Batch<'_>, _: &RunControl) -> Marks {
        let occupied = batch.occupied.take();
        match self.0.runner(instance) {
            Some(runner) => runner.execute(batch.requests, occupied, SLOTS_MAX as u32, self.0.spec.iterative),
            None => backend::scatter::fail_all(batch.requests, &Error::unavailable("there is no such instance")),
        }
        Marks::default()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { starts_at_once_bytes: Some(AT_ONCE_BYTES_MAX), ..Capabilities::default() }
    }

    fn remote(&self) -> Option<&dyn RemoteModel> {
        Some(self)
    }

    fn metrics(&self) -> Vec<(&'static str, &'static str, f64)> {
        let restarts = self.0.restarts.load(Relaxed);
        let resident: u64 = self.0.runners().map(|r| r.transport.resident_bytes()).sum();
        let shared: u64 = self.0.runners().map(|r| r.memory.bytes()).sum();
        let used: u64 = self.0.runners().map(|r| r.memory.request_bytes_used()).sum();
        let lent = self.0.runners().map(|r| r.memory.leases.open());
        let (leases, lent) = lent.fold((0, 0), |sum: (usize, u64), one| (sum.0 + one.0, sum.1.saturating_add(one.1)));
        let places = self.0.places.read().iter().flatten().count();
        let leases_max = places as u64 * LEASES_MAX;
        let calls = self.calls_open();
        vec![
            (
                "nereid_runner_calls",
                "Inferences of other models that the model's processes have in progress",
                calls as f64,
            ),
            ("nereid_runner_calls_max", "Limit of nereid_runner_calls", (places * crate::asks::CALLS_MAX) as f64),
            ("nereid_runner_restarts", "Processes of the model that were started again", restarts as f64),
            ("nereid_runner_resident_bytes", "Memory of the model's processes", resident as f64),
            ("nereid_runner_shared_bytes", "Shared memory of the model's processes, mapped", shared as f64),
            ("nereid_runner_request_bytes", "Inputs that the model's processes have not given back", used as f64),
            (
                "nereid_runner_device_bytes",
                "Inputs on devices that the model's processes have not given back",
                lent as f64,
            ),
            ("nereid_runner_leases", "Leases of device memory to the model's processes", leases as f64),
            ("nereid_runner_leases_max", "Limit of nereid_runner_leases", leases_max as f64),
        ]
    }
}

impl Served {
    /// The runner whose memory front ends may use.
    fn lender(&self) -> Option<Arc<Runner>> {
        let places = self.0.places.read();
        let mut places = places.iter().flatten();
        let place = places.next()?;
        // Which of several instances will run the request is not known yet.
        if places.next().is_some() {
            return None;
        }
        place.runner.read().clone()
    }
}

impl RemoteModel for Served {
    fn leave_service(&self, longest: Duration) {
        let grace = self.0.spec.limits.exit_grace.min(longest);
        let grace_ns = u64::try_from(grace.as_nanos()).unwrap_or(NEVER).min(NEVER - 1);
        self.0.abandoned_ns_max.fetch_min(grace_ns, SeqCst);
        // Repeats until the model is dropped.
        if self.0.left_service.set(now_ns()).is_ok() {
            self.0.later(Duration::ZERO, |model| model.check_leaving());
        }
    }

    fn start_instances(&self, new: &[NewInstance], config: &ModelConfig, json: &str) -> Option<tensor::Result<()>> {
        let further = self.0.spec.further.as_ref()?;
        let start = || {
            let all = further.instances(config, json)?;
            let place =
                |new: &NewInstance| Some(InstanceRunner::new(new.number, all.get(new.placement)?.clone(), false));
            let places: Vec<_> = new.iter().filter_map(place).collect();
            let mut known = self.0.places.write();
            for place in &places {
                let at = place.number as usize;
                if at >= known.len() {
                    known.resize(at + 1, None);
                }
                if let Some(known) = known.get_mut(at) {
                    *known = Some(Arc::clone(place));
                }
            }
            drop(known);
            self.0.start_all(&places).map_err(|failure| {
                places.iter().for_each(|place| self.0.remove(place.number));
                further.error(&failure)
            })
        };
        Some(start())
    }

    fn instances_serve(&self, instances: &[u32]) {
        for place in instances.iter().filter_map(|&instance| self.0.place(instance)) {
            // Locked until the listener is called, so that a restart is reported afterwards.
            let down = place.down.lock();
            place.serves.store(true, SeqCst);
            if let Some((why, listener)) = down.as_ref().zip(self.0.listener.get()) {
                listener.down(place.number, why.clone());
            }
        }
    }

    fn lend_input(&self, bytes: usize) -> Option<RegionRef> {
        self.lender()?.memory.lend_input(bytes)
    }

    fn has_lent(&self, region: &RegionRef) -> bool {
        self.lender().is_some_and(|runner| runner.memory.has_lent(region))
    }

    fn instance_left(&self, instance: u32) {
        self.0.remove(instance);
    }

    fn serve(&self, instances: InstanceEventsRef) {
        if self.0.listener.set(Arc::clone(&instances)).is_ok() {
            // Reports failures from before the registration.
            for place in self.0.all_places() {
                let why = place.down.lock().clone();
                if let Some(why) = why {
                    instances.down(place.number, why);
                }
            }
        }
    }

    fn readiness(&self) -> Readiness {
        let mut places = self.0.all_places();
        places.retain(|place| place.serves.load(SeqCst));
        let downs: Vec<_> = places.iter().filter_map(|place| place.down.lock().clone()).collect();
        if let Some(why) = downs.last()
            && downs.len() == places.len()
        {
            return Readiness::NotReady(why.message().to_owned());
        }
        let runners = places.iter().filter_map(|place| place.runner.read().clone());
        let asked: Vec<_> = runners.filter(|runner| runner.asks_ready()).collect();
        // An instance that is about to be restarted says nothing about a model that others serve.
        let (serving, killed): (Vec<_>, Vec<_>) = asked.into_iter().partition(|runner| runner.is_ready());
        let asked = if serving.is_empty() { killed } else { serving };
        if asked.is_empty() {
            return Readiness::Ready;
        }
        Readiness::Ask(Box::new(move |answer| {
            let checks = Checks { open: asked.len(), result: Ok(()), answer: Some(answer) };
            let checks = Arc::new(Mutex::new(checks));
            for runner in asked {
                let checks = Arc::clone(&checks);
                runner.ask(Box::new(move |result| {
                    let last = checks.lock().add(result);
                    if let Some((answer, result)) = last {
                        answer(result);
                    }
                }));
            }
        }))
    }

    fn executing(&self) -> Vec<Executing> {
        self.0.runners().filter_map(|runner| runner.executing()).collect()
    }

    fn warn_of_hang(&self, instance: u32, what: &str) {
        let Some(runner) = self.0.runner(instance) else { return };
        let Spec { limits, parameter_prefix, .. } = &self.0.spec;
        let end = match limits.execute_timeout {
            // Not while the request is answered after its execution.
            Some(most) => format!("executions are ended after {} ms (execute-timeout-ms)", most.as_millis()),
            None => format!("the parameter '{parameter_prefix}execute-timeout-ms' of the model ends such executions"),
        };
        log::warn!("{what}; {end}");
        if !runner.write_stack() {
            log::warn!("{}: its stack cannot be read from outside", runner.label());
        }
    }

    fn calls_open(&self) -> usize {
        self.0.runners().map(|runner| runner.asks.calls_open()).sum()
    }

    fn calls_made_before(&self, at: u64) -> Vec<OpenCalls> {
        self.0.runners().filter_map(|runner| runner.calls_made_before(at)).collect()
    }
}

/// The answers of a model's instances to one readiness check.
struct Checks {
    open: usize,
    result: tensor::Result<()>,
    answer: Option<ReadyAnswer>,
}

impl Checks {
    /// The answer is sent after that of the last instance, also when it is negative already: an open check is shared
    /// by the checks that follow, and the next one must not get the state of an instance from before it.
    fn add(&mut self, result: tensor::Result<()>) -> Option<(ReadyAnswer, tensor::Result<()>)> {
        self.open -= 1;
        if self.result.is_ok() {
            self.result = result;
        }
        let answer = if self.open == 0 { self.answer.take() } else { None };
        answer.map(|answer| (answer, std::mem::replace(&mut self.result, Ok(()))))
    }
}

impl Drop for Served {
    /// Ends the runners without waiting: they are killed after their grace period.
    fn drop(&mut self) {
        self.0.is_ending.store(true, SeqCst);
        for runner in self.0.runners() {
            runner.end(self.0.spec.limits.exit_grace);
        }
    }
}
