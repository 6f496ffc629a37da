//! A model that is served by runners: one per instance, started again when it dies.

use crate::failure::Failure;
use crate::generated::{LEASES_MAX, SLOTS_MAX, VERSION};
use crate::guardian::{self, Guarded};
use crate::hub::{Due, Hub};
use crate::link::Link;
use crate::output::Printed;
use crate::restart::{Crashes, DELAY_MAX};
use crate::runner::{COPY_BYTES_MAX, Parts, Runner, Started};
use crate::spec::{Instance, Limits, Output, Spec};
use crate::sys::{self, Program};
use backend::{Batch, Host, InstancesOf, Marks, Readiness, ReadyAnswer, RunControl, now_ns};
use memory::Memfd;
use parking_lot::{Mutex, RwLock};
use protocol::Signature;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tensor::Error;

/// Inputs up to this are copied by the thread that brings the batch, as outputs are by the one that reads them: 1 MiB takes 80 to 240 µs. A thread of
/// the pool would have to be woken, and copies no faster.
const AT_ONCE_BYTES_MAX: usize = COPY_BYTES_MAX as usize;

/// A model and its processes. Its owner is `ProcessModel`; what happens to a process finds it through a weak reference.
pub(crate) struct Model {
    me: Weak<Self>,
    pub(crate) spec: Spec,
    pub(crate) signature: Arc<Signature>,
    pub(crate) host: Weak<dyn Host>,
    places: Vec<Place>,
    listener: OnceLock<InstancesOf>,
    /// It is not served any more: what dies is not started again.
    is_ending: AtomicBool,
    /// Nanoseconds that its processes may work for requests that nobody waits for; `NEVER` while new requests come.
    leaving_ns: AtomicU64,
    /// When it was told that no new ones come.
    left: OnceLock<u64>,
    restarts: AtomicU64,
}

const NEVER: u64 = u64::MAX;
/// How often a model that left service has its processes looked at, as a part of their grace, and at least and at most.
const LOOKS_IN_GRACE: u32 = 10;
const LOOK_MIN: Duration = Duration::from_millis(10);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Where an instance's process is.
struct Place {
    runner: RwLock<Option<Arc<Runner>>>,
    crashes: Mutex<Crashes>,
    /// Why it takes no batches.
    down: Mutex<Option<Error>>,
}

struct ProcessModel(Arc<Model>);

/// Starts the processes of a model and has them load its code. Blocks until all are ready, or one failed.
///
/// # Errors
/// What the first that failed said.
pub fn start(spec: Spec, signature: Arc<Signature>, host: Weak<dyn Host>) -> Result<Arc<dyn backend::Model>, Failure> {
    let hub = Hub::get().map_err(|e| cannot_start(&e))?;
    let places = spec.instances.iter().map(|_| Place {
        runner: RwLock::default(),
        crashes: Mutex::default(),
        down: Mutex::default(),
    });
    let places: Vec<Place> = places.collect();
    let model = Arc::new_cyclic(|me| Model {
        me: me.clone(),
        spec,
        signature,
        host,
        places,
        listener: OnceLock::new(),
        is_ending: AtomicBool::new(false),
        leaving_ns: AtomicU64::new(NEVER),
        left: OnceLock::new(),
        restarts: AtomicU64::new(0),
    });
    // Dropped, also when an instance fails, it ends its processes.
    let owner = ProcessModel(Arc::clone(&model));
    let (send, started) = channel();
    for instance in 0..model.places.len() as u32 {
        let (model, send): (_, Sender<Result<(), Failure>>) = (Arc::clone(&model), send.clone());
        hub.start(move || {
            let told = send.clone();
            let started: Started = Box::new(move |result| drop(told.send(result.map(drop))));
            model.spawn(instance, started);
        });
    }
    drop(send);
    for _ in 0..owner.0.places.len() {
        started.recv().unwrap_or_else(|_| Err(Error::internal("a process could not be started").into()))?;
    }
    Ok(Arc::new(owner))
}

/// What a model's code makes of its configuration, asked of a process of its own; `None`: it has nothing to say.
///
/// # Errors
/// What the code said, or that the process died.
pub fn ask(instance: &Instance, limits: &Limits, output: Output) -> Result<Option<String>, Failure> {
    let hub = Hub::get().map_err(|e| cannot_start(&e))?;
    let (instance, limits) = (instance.clone(), limits.clone());
    let grace = limits.exit_grace;
    let (send, answer) = channel();
    hub.start(move || {
        let told: Sender<_> = send.clone();
        let started: Started = Box::new(move |result| drop(told.send(Ok(result))));
        let runner = launch(&instance, 0, &limits, output, Weak::new(), "complete", started);
        drop(send.send(Err(runner)));
    });
    // The process, and its answer, in either order.
    let (mut runner, mut result) = (None, None);
    while result.is_none() {
        match answer.recv() {
            Ok(Ok(told)) => result = Some(told),
            Ok(Err(Ok(started))) => runner = Some(started),
            Ok(Err(Err(e))) => return Err(cannot_start(&e)),
            Err(_) => break,
        }
    }
    if runner.is_none() {
        runner = answer.try_iter().find_map(|told: Result<_, io::Result<Arc<Runner>>>| told.err()?.ok());
    }
    if let Some(runner) = runner {
        runner.end(grace);
    }
    result.unwrap_or_else(|| Err(Error::internal("a process could not be started").into())).map(|ready| ready.config)
}

fn cannot_start(e: &io::Error) -> Failure {
    Error::internal(format!("a process could not be started: {e}")).into()
}

/// Starts a process; on the thread that does that. `started` is told once it answers, or is gone; not when this fails.
fn launch(
    instance: &Instance,
    number: u32,
    limits: &Limits,
    output: Output,
    model: Weak<Model>,
    mode: &str,
    started: Started,
) -> io::Result<Arc<Runner>> {
    let hub = Hub::get()?;
    let name_of_model = model.upgrade().map(|m| m.signature.model.to_string()).unwrap_or_default();
    let (work, their_work) = UnixStream::pair()?;
    let (side, their_side) = UnixStream::pair()?;
    let id = hub.name();
    let link = Link::new(id, work, side, &name_of_model, limits)?;
    let flags = Memfd::new(SLOTS_MAX as usize)?;
    let (out, their_out) = sys::pipe()?;
    let (err, their_err) = sys::pipe()?;
    let nothing = File::open("/dev/null")?;
    let mut environment = instance.command.environment.clone();
    // A server may itself have been started by a model.
    environment.retain(|(name, _)| name != guardian::VARIABLE);
    environment.push(guardian::variable(id));
    let mut program = Program::new(&instance.command.program, &instance.command.arguments, &environment)?;
    program.address_space = limits.memory_bytes_max;
    program.new_privileges = limits.new_privileges;
    let segments = link.first_segments();
    let mut descriptors =
        vec![nothing.as_fd(), their_out.as_fd(), their_err.as_fd(), their_work.as_fd(), their_side.as_fd()];
    if let Some((requests, responses)) = &segments {
        descriptors.extend([requests.as_fd(), responses.as_fd(), flags.as_fd()]);
    }
    let child = sys::spawn(&program, &descriptors)?;
    let guarded = Guarded::new(id, child.pid);
    let label = if instance.name.is_empty() { "auto-complete" } else { instance.name.as_str() };
    let printed = Printed::get()?;
    printed.add(out, label, false, output, limits.output_bytes_per_second)?;
    printed.add(err, label, true, output, limits.output_bytes_per_second)?;
    let name = instance.name.clone();
    let parts =
        Parts { id, name, instance: number, model, link, child, guarded, flags, limits: limits.clone(), started };
    let runner = Runner::new(parts)?;
    let mut frame = Vec::new();
    let hello = hello(&instance.hello, mode, limits);
    crate::frames::write::json(&mut frame, crate::generated::Frame::Hello, &hello)
        .map_err(|_| io::Error::other("the configuration is too long"))?;
    runner.link.send(crate::link::Way::Work, &frame);
    let mut first = Vec::new();
    crate::frames::write::question(&mut first, crate::generated::Frame::Ping, 0);
    runner.link.send(crate::link::Way::Side, &first);
    hub.add(&runner)?;
    hub.after(limits.start_timeout, Due::Contact(id));
    Ok(runner)
}

/// HELLO: what its author says, and what this crate adds.
fn hello(told: &str, mode: &str, limits: &Limits) -> String {
    let rest = told.trim_start().strip_prefix('{').unwrap_or("}").trim_start();
    let comma = if rest.starts_with('}') { "" } else { "," };
    let bytes = limits.segment_bytes;
    let segments = match limits.shared_memory {
        true => format!(r#"{{"request":{bytes},"response":{bytes},"slots":{SLOTS_MAX}}}"#),
        false => "null".to_owned(),
    };
    let devices = limits.device_inputs;
    format!(r#"{{"protocol":{VERSION},"mode":"{mode}","segments":{segments},"devices":{devices}{comma}{rest}"#)
}

impl Model {
    /// Starts an instance's process for the first time.
    fn spawn(&self, instance: u32, started: Started) {
        if self.is_ending.load(SeqCst) {
            return;
        }
        let Some((spec, place)) = self.spec.instances.get(instance as usize).zip(self.places.get(instance as usize))
        else {
            return;
        };
        let told: Arc<Mutex<Option<Started>>> = Arc::new(Mutex::new(Some(started)));
        let tell = {
            let told = Arc::clone(&told);
            move |result| {
                if let Some(started) = told.lock().take() {
                    started(result);
                }
            }
        };
        let (limits, output) = (&self.spec.limits, self.spec.output);
        // Its place is taken before it can answer: an answer that finds none would be lost.
        let mut held = place.runner.write();
        match launch(spec, instance, limits, output, self.me.clone(), "run", Box::new(tell.clone())) {
            Ok(runner) => {
                if self.is_ending.load(SeqCst) {
                    runner.end(Duration::ZERO);
                }
                *held = Some(runner);
            }
            Err(e) => {
                drop(held);
                tell(Err(cannot_start(&e)));
            }
        }
    }

    /// Starts an instance's process again.
    pub(crate) fn launch(self: &Arc<Self>, instance: u32) {
        let me = Arc::downgrade(self);
        self.restarts.fetch_add(1, Relaxed);
        let started: Started = Box::new(move |result| {
            let Some(model) = me.upgrade() else { return };
            match result {
                Ok(_) => model.is_up(instance),
                Err(failure) => {
                    log::error!("{}: {}", model.name_of(instance), failure.error);
                    model.crashed(instance);
                }
            }
        });
        self.spawn(instance, started);
    }

    fn name_of(&self, instance: u32) -> &str {
        self.spec.instances.get(instance as usize).map_or("", |i| i.name.as_str())
    }

    fn is_up(&self, instance: u32) {
        let Some(place) = self.places.get(instance as usize) else { return };
        *place.down.lock() = None;
        log::info!("{}: the process was started again", self.name_of(instance));
        if let Some(listener) = self.listener.get() {
            listener.up(instance);
        }
    }

    /// A process of it is gone. `was_running`: it had been ready; else whoever started it hears of it.
    pub(crate) fn died(&self, runner: &Runner, was_running: bool) {
        if !was_running || self.is_ending.load(SeqCst) {
            return;
        }
        if runner.is_given_up() {
            // What still waits goes to other instances, or is refused.
            let model = &self.signature.model;
            return self.is_down(runner.instance, Error::unavailable(format!("model '{model}' is being unloaded")));
        }
        self.crashed(runner.instance);
    }

    fn is_down(&self, instance: u32, why: Error) {
        let Some(place) = self.places.get(instance as usize) else { return };
        *place.down.lock() = Some(why.clone());
        if let Some(listener) = self.listener.get() {
            listener.down(instance, why);
        }
    }

    /// It left service: processes that hang, or work for nobody, are ended after their grace.
    pub(crate) fn look_at_leaving(&self) {
        let (grace, now) = (Duration::from_nanos(self.leaving_ns.load(SeqCst)), now_ns());
        let left = Duration::from_nanos(now.saturating_sub(*self.left.get_or_init(|| now)));
        for runner in self.runners() {
            runner.look_for_nobody(grace, left, now);
        }
        if let Ok(hub) = Hub::get() {
            let pause = (grace / LOOKS_IN_GRACE).clamp(LOOK_MIN, LOOK_MAX);
            hub.after(pause, Due::Leaving(self.me.clone()));
        }
    }

    fn crashed(&self, instance: u32) {
        let Some(place) = self.places.get(instance as usize) else { return };
        let again = self.spec.limits.restart.then(|| place.crashes.lock().crashed(now_ns()));
        let (model, name) = (&self.signature.model, self.name_of(instance));
        let why = match again {
            Some(again) if again.delay.is_zero() => Error::unavailable(format!(
                "model '{model}' cannot be used at the moment: process '{name}' ended and is being started again"
            )),
            Some(again) => Error::unavailable(format!(
                "model '{model}' cannot be used at the moment: process '{name}' ended and is started again after a pause of {:.1} s",
                again.delay.as_secs_f64()
            )),
            None => Error::internal(format!("Stub process '{name}' is not healthy.")),
        };
        self.is_down(instance, why);
        if let Some(times) = again.and_then(|again| again.told) {
            log::error!(
                "{name}: the process ended {times} times, each within a minute of the time before; it is started again after longer and longer \
                 pauses, of {} s at most, until it runs for a minute or model '{model}' is loaded again",
                DELAY_MAX.as_secs()
            );
        }
        match (again, Hub::get()) {
            (Some(again), Ok(hub)) => hub.after(again.delay, Due::Restart(self.me.clone(), instance)),
            _ => log::error!("{name}: the process is not started again until model '{model}' is loaded again"),
        }
    }

    fn runner(&self, instance: u32) -> Option<Arc<Runner>> {
        self.places.get(instance as usize)?.runner.read().clone()
    }

    fn runners(&self) -> impl Iterator<Item = Arc<Runner>> + '_ {
        self.places.iter().filter_map(|place| place.runner.read().clone()).filter(|runner| !runner.is_over())
    }
}

impl backend::Model for ProcessModel {
    fn execute(&self, instance: u32, batch: &mut Batch<'_>, _: &RunControl) -> Marks {
        let occupied = batch.occupied.take();
        match self.0.runner(instance) {
            Some(runner) => runner.execute(batch.requests, occupied, SLOTS_MAX as u32, self.0.spec.iterative),
            None => backend::scatter::fail_all(batch.requests, &Error::unavailable("there is no such instance")),
        }
        Marks::default()
    }

    fn answers_later(&self) -> bool {
        true
    }

    fn starts_at_once(&self, bytes: usize) -> bool {
        bytes <= AT_ONCE_BYTES_MAX
    }

    fn leave_service(&self, longest: Duration) {
        let grace = self.0.spec.limits.exit_grace.min(longest);
        let grace_ns = u64::try_from(grace.as_nanos()).unwrap_or(NEVER).min(NEVER - 1);
        self.0.leaving_ns.fetch_min(grace_ns, SeqCst);
        // One look follows another, until the model is dropped.
        if self.0.left.set(now_ns()).is_ok()
            && let Ok(hub) = Hub::get()
        {
            hub.after(Duration::ZERO, Due::Leaving(self.0.me.clone()));
        }
    }

    fn serve(&self, instances: InstancesOf) {
        if self.0.listener.set(Arc::clone(&instances)).is_ok() {
            // What happened before anybody listened.
            for (instance, place) in self.0.places.iter().enumerate() {
                let why = place.down.lock().clone();
                if let Some(why) = why {
                    instances.down(instance as u32, why);
                }
            }
        }
    }

    fn readiness(&self) -> Readiness {
        let downs = self.0.places.iter().map(|place| place.down.lock().clone());
        let mut last = None;
        let mut is_up = false;
        for down in downs {
            match down {
                Some(why) => last = Some(why),
                None => is_up = true,
            }
        }
        if let (false, Some(why)) = (is_up, last) {
            return Readiness::NotReady(why.message().to_owned());
        }
        let asked: Vec<_> = self.0.runners().filter(|runner| runner.asks_ready()).collect();
        if asked.is_empty() {
            return Readiness::Ready;
        }
        Readiness::Ask(Box::new(move |answer| {
            let all = Arc::new(Mutex::new((asked.len(), Some(answer))));
            for runner in asked {
                let all = Arc::clone(&all);
                runner.ask(Box::new(move |result| one_of_all(&all, result)));
            }
        }))
    }

    fn metrics(&self) -> Vec<(&'static str, &'static str, f64)> {
        let restarts = self.0.restarts.load(Relaxed);
        let resident: u64 = self.0.runners().map(|r| r.resident_bytes()).sum();
        let shared: u64 = self.0.runners().map(|r| r.link.bytes()).sum();
        let used: u64 = self.0.runners().map(|r| r.link.request_bytes_used()).sum();
        let lent = self.0.runners().map(|r| r.link.leases.open());
        let (leases, lent) = lent.fold((0, 0), |sum: (usize, u64), one| (sum.0 + one.0, sum.1.saturating_add(one.1)));
        let leases_max = self.0.places.len() as u64 * LEASES_MAX;
        let calls: usize = self.0.runners().map(|r| r.asks.calls_open()).sum();
        vec![
            (
                "nereid_runner_calls",
                "Inferences of other models that the model's processes have in progress",
                calls as f64,
            ),
            (
                "nereid_runner_calls_max",
                "Most of them, all processes of the model together",
                (self.0.places.len() * crate::asks::CALLS_MAX) as f64,
            ),
            ("nereid_runner_restarts", "Processes of the model that were started again", restarts as f64),
            ("nereid_runner_resident_bytes", "Memory of the model's processes", resident as f64),
            ("nereid_runner_shared_bytes", "Shared memory of the model's processes, mapped", shared as f64),
            ("nereid_runner_request_bytes", "Inputs that the model's processes have not given back", used as f64),
            (
                "nereid_runner_device_bytes",
                "Inputs on devices that the model's processes have not given back",
                lent as f64,
            ),
            ("nereid_runner_leases", "How many those are", leases as f64),
            ("nereid_runner_leases_max", "Most of them, all processes of the model together", leases_max as f64),
        ]
    }
}

/// A model is ready when all its instances are: the first that is not, or the last that is, gives the answer.
fn one_of_all(all: &Mutex<(usize, Option<ReadyAnswer>)>, result: tensor::Result<()>) {
    let mut state = all.lock();
    state.0 -= 1;
    let answer = if result.is_err() || state.0 == 0 { state.1.take() } else { None };
    drop(state);
    if let Some(answer) = answer {
        answer(result);
    }
}

impl Drop for ProcessModel {
    /// Nothing waits for the processes: they are told to end, and killed once their grace is over.
    fn drop(&mut self) {
        self.0.is_ending.store(true, SeqCst);
        for runner in self.0.runners() {
            runner.end(self.0.spec.limits.exit_grace);
        }
    }
}

/// Waits until all processes have ended, or that long: for the end of the server, after its models were dropped.
pub fn wait_for_ends(longest: Duration) -> bool {
    let until = std::time::Instant::now() + longest;
    while Hub::get().is_ok_and(|hub| hub.is_busy()) {
        if std::time::Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
