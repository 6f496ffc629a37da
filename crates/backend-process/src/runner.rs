//! One process that runs an instance of a model, from its start to its end.
//!
//! What it says is handled under `inbound`, by the hub's thread, or by the one for large copies while `is_parked`: so its frames are handled one at a time, in the order in
//! which they came on a socket. `state` is for what other threads touch as well (batches that begin, cancellations), and is never held while engine or model code is called.

use crate::asks::{Asks, Peer};
use crate::failure::{Failure, Ready};
use crate::frames::{self, FromRunner, InstanceId, Lie};
use crate::generated::{Frame, Header, VERSION};
use crate::guardian::Guarded;
use crate::hub::{Due, Hub, READ_BYTES};
use crate::link::{Link, Way};
use crate::model::Model;
use crate::reader;
use crate::slots::{Key, Slots};
use crate::spec::Limits;
use crate::sys::{self, Child};
use backend::{Occupied, OpenCall, OpenCalls, ReadyAnswer, now_ns};
use memory::Memfd;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::{Error, Name, RegionMemory};

/// Outputs of one frame above this are copied by another thread than the hub's: a copy of 1 MiB takes 80 to 240 µs.
pub(crate) const COPY_BYTES_MAX: u64 = 1 << 20;
/// Longer frames, of texts or of tensors that are sent inline, are handled by that thread, too.
const FRAME_BYTES_AT_ONCE_MAX: usize = 1 << 20;
/// How long a process may live that closed its sockets.
const DEAF: Duration = Duration::from_millis(500);
/// Why a runner is killed whose frames brought a thread of ours down.
pub(crate) const FAILED_OVER_IT: &str = "the host failed over what it said";
/// How long it may take to end after it said that it could not start.
const FAILED_GRACE: Duration = Duration::from_secs(5);
/// How long it has to write down its stacks once its batch took too long.
const ABORT_GRACE: Duration = Duration::from_millis(500);
/// How long a model may take to say whether it is ready.
pub(crate) const QUESTION_TIME: Duration = Duration::from_secs(5);

/// Told once how the start went.
pub(crate) type Started = Box<dyn FnOnce(Result<Ready, Failure>) + Send>;

pub(crate) struct Runner {
    pub(crate) id: u64,
    /// Of the instance: it stands in errors and in front of what the process prints.
    pub(crate) name: Name,
    pub(crate) instance: u32,
    pub(crate) link: Link,
    pub(crate) child: Mutex<Child>,
    /// Until the process is over.
    guarded: Mutex<Option<Guarded>>,
    pub(crate) asks: Asks,
    /// None while a configuration is completed.
    pub(crate) model: Weak<Model>,
    pub(crate) flags: Memfd,
    pub(crate) limits: Limits,
    pub(crate) state: Mutex<State>,
    inbound: Mutex<Inbound>,
    /// Another thread copies for it, and the hub looks away.
    is_parked: AtomicBool,
    /// It is over, and that is handled once it is no longer parked.
    is_over: AtomicBool,
    /// It lied, hung or went deaf: what it says is not heard any more.
    is_condemned: AtomicBool,
    /// It is killed because it worked for nobody, and is not started again.
    is_given_up: AtomicBool,
    /// It answered its first question: its code runs, whatever the model's does.
    is_there: AtomicBool,
    hub: &'static Hub,
}

pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) slots: Slots,
    pub(crate) batch: Option<Running>,
    pub(crate) batches: u64,
    started: Option<Started>,
    questions: Vec<Question>,
    asked: u64,
    /// The hub will look how long the batch takes.
    is_watched: bool,
    /// Since when it works for nobody, and which batch it was then.
    for_nobody: Option<(u64, u64)>,
    /// That its model left service and clients still wait was told.
    told_of_clients: bool,
    /// The last frame's buffer, to be used again.
    pub(crate) buffer: Vec<u8>,
}

/// A batch that was handed over.
pub(crate) struct Running {
    pub(crate) id: u64,
    pub(crate) members: SmallVec<[Key; 4]>,
    pub(crate) occupied: Option<Occupied>,
    /// When its inputs were there.
    pub(crate) since: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    Running {
        asks_ready: bool,
    },
    /// It was told to end.
    Ending,
    Over,
}

struct Question {
    number: u64,
    since: u64,
    answers: Vec<ReadyAnswer>,
}

#[derive(Default)]
struct Inbound {
    work: Vec<u8>,
    side: Vec<u8>,
    /// Room to read the side socket in while a frame of the other is handled.
    spare: Vec<u8>,
}

impl Inbound {
    fn of(&mut self, way: Way) -> &mut Vec<u8> {
        match way {
            Way::Work => &mut self.work,
            Way::Side => &mut self.side,
        }
    }
}

/// What is to be done after a frame.
enum Next {
    Go,
    /// This frame has large outputs: another thread is to handle it, and what comes behind it.
    Park,
}

/// Whether the runner lends memory of a device for it.
fn is_lent(tensor: &frames::TensorRef<'_>) -> bool {
    matches!(tensor.contents, frames::Contents::Device(lent) if !lent.by_host)
}

/// A runner that the hub looks away from. Dropped, also by a panic, the hub goes on: not a reactor at once, which would get a descriptor of its own
/// each time and know of the last one's end only when something comes on the work socket.
struct Parked(Arc<Runner>);

impl Drop for Parked {
    fn drop(&mut self) {
        let runner = &self.0;
        if std::thread::panicking() {
            runner.condemn(FAILED_OVER_IT);
        }
        runner.is_parked.store(false, SeqCst);
        let listens = runner.link.listen(Way::Side).and_then(|()| runner.link.listen(Way::Work));
        if runner.is_over.load(SeqCst) || listens.is_err() {
            runner.hub.look_at(runner.id);
        }
    }
}

pub(crate) struct Parts {
    pub(crate) id: u64,
    pub(crate) name: Name,
    pub(crate) instance: u32,
    pub(crate) model: Weak<Model>,
    pub(crate) link: Link,
    pub(crate) child: Child,
    pub(crate) guarded: Guarded,
    pub(crate) flags: Memfd,
    pub(crate) limits: Limits,
    pub(crate) started: Started,
}

impl Runner {
    pub(crate) fn new(parts: Parts) -> io::Result<Arc<Self>> {
        let Parts { id, name, instance, model, link, child, guarded, flags, limits, started } = parts;
        Ok(Arc::new(Self {
            id,
            name,
            instance,
            link,
            child: Mutex::new(child),
            guarded: Mutex::new(Some(guarded)),
            asks: model.upgrade().map_or_else(Asks::default, |m| Asks::new(m.host.clone(), m.signature.model.clone())),
            model,
            flags,
            limits,
            state: Mutex::new(State {
                phase: Phase::Starting,
                slots: Slots::default(),
                batch: None,
                batches: 0,
                started: Some(started),
                questions: Vec::new(),
                asked: 0,
                is_watched: false,
                for_nobody: None,
                told_of_clients: false,
                buffer: Vec::new(),
            }),
            inbound: Mutex::default(),
            is_parked: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            is_condemned: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            is_there: AtomicBool::new(false),
            hub: Hub::get()?,
        }))
    }

    /// The text that clients know for a process that took their request with it.
    pub(crate) fn not_healthy(&self) -> Error {
        Error::internal(format!("Stub process '{}' is not healthy.", self.name))
    }

    /// Kills it. Why is for the log only.
    pub(crate) fn condemn(&self, why: &str) {
        if !self.is_condemned.swap(true, SeqCst) {
            log::error!("{}: the process is killed: {why}", self.label());
        }
        self.child.lock().kill();
    }

    /// What stands in front of lines about it.
    pub(crate) fn label(&self) -> &str {
        if self.name.is_empty() { "a process that completes a configuration" } else { self.name.as_str() }
    }

    /// A socket can be read. Whether there may be more to read.
    pub(crate) fn readable(self: &Arc<Self>, way: Way, scratch: &mut [u8]) -> bool {
        if self.is_parked.load(SeqCst) {
            return false;
        }
        let mut inbound = self.inbound.lock();
        self.read_once(way, &mut inbound, scratch, false)
    }

    /// Whether it may be read by a thread that serves others: not one whose answers lie on the side socket, which would be read as well.
    pub(crate) fn is_brief(&self) -> bool {
        let decoupled = self.model.upgrade().is_none_or(|model| model.spec.decoupled);
        !decoupled && !self.is_parked.load(SeqCst) && matches!(self.state.lock().phase, Phase::Running { .. })
    }

    /// Reads once and handles the whole frames that are there. Whether there may be more to read.
    fn read_once(self: &Arc<Self>, way: Way, inbound: &mut Inbound, scratch: &mut [u8], copies: bool) -> bool {
        let socket = if way == Way::Work { &self.link.work } else { &self.link.side };
        match sys::receive(socket.stream.as_fd(), scratch) {
            Ok(0) => {
                // It ends, most likely, and the kernel says so in a moment.
                self.link.ignore(way);
                self.hub.after(DEAF, Due::Kill(self.id, "it closed a socket"));
                false
            }
            Ok(n) => {
                if !self.is_condemned.load(Relaxed) {
                    self.take(way, inbound, scratch.get(..n).unwrap_or_default(), copies);
                }
                n == scratch.len()
            }
            Err(e) => e.kind() == io::ErrorKind::Interrupted,
        }
    }

    /// Handles frames: what came before and was not whole, and `came` behind it.
    fn take(self: &Arc<Self>, way: Way, inbound: &mut Inbound, came: &[u8], copies: bool) {
        let mut before = std::mem::take(inbound.of(way));
        let is_split = !before.is_empty();
        if is_split {
            before.extend_from_slice(came);
        }
        let all = if is_split { &before[..] } else { came };
        let mut rest = all;
        let mut parks = false;
        if let Some(version) = frames::other_version(rest).filter(|_| way == Way::Work) {
            return self.refuse_version(version);
        }
        loop {
            match frames::split(rest) {
                Err(lie) => return self.condemn(lie.0),
                Ok(None) => break,
                Ok(Some((header, body, behind))) => match self.frame(way, &header, body, inbound, copies) {
                    Err(lie) => return self.condemn(lie.0),
                    Ok(Next::Go) => rest = behind,
                    Ok(Next::Park) => {
                        parks = true;
                        break;
                    }
                },
            }
        }
        if is_split && rest.len() == before.len() {
            // A long frame grows in place.
            *inbound.of(way) = before;
        } else {
            *inbound.of(way) = rest.to_vec();
        }
        if parks {
            self.park();
        }
    }

    /// It speaks another version of the protocol: its frames cannot be read.
    fn refuse_version(&self, version: u64) {
        let text = format!("the runtime speaks version {version} of the runner protocol, the server {VERSION}");
        self.condemn(&text);
        let started = self.state.lock().started.take();
        if let Some(started) = started {
            started(Err(Error::internal(text).into()));
        }
    }

    /// Another thread goes on: with the frames that were read, then it is the hub's turn again.
    fn park(self: &Arc<Self>) {
        self.is_parked.store(true, SeqCst);
        self.link.ignore(Way::Side);
        self.link.ignore(Way::Work);
        let parked = Parked(Arc::clone(self));
        self.hub.copy(move || {
            let runner = &parked.0;
            let mut inbound = runner.inbound.lock();
            for way in [Way::Side, Way::Work] {
                runner.take(way, &mut inbound, &[], true);
            }
        });
    }

    fn frame(
        self: &Arc<Self>,
        way: Way,
        header: &Header,
        body: &[u8],
        inbound: &mut Inbound,
        copies: bool,
    ) -> Result<Next, Lie> {
        if !copies && body.len() > FRAME_BYTES_AT_ONCE_MAX {
            return Ok(Next::Park);
        }
        if !matches!(InstanceId::of(header), InstanceId::PROCESS | InstanceId::ONLY) {
            return Err(Lie("a frame about an instance that it does not have"));
        }
        let frame = frames::read(header, body)?;
        let needs = |expected: Way| if way == expected { Ok(()) } else { Err(Lie("a frame on the wrong socket")) };
        match frame {
            FromRunner::Result(result) => {
                needs(Way::Work)?;
                if !copies && result.answers.iter().map(|a| self.copied_bytes(&a.outputs)).sum::<u64>() > COPY_BYTES_MAX
                {
                    return Ok(Next::Park);
                }
                // What it said on the side before it ended the batch comes first: the blocks that this frame gives back may be those of an answer that lies there.
                let open = self.state.lock().slots.taken();
                let members = self.state.lock().batch.as_ref().map_or(0, |b| b.members.len());
                let stay = result.answers.iter().any(|a| a.kind == crate::generated::Answer::None);
                // So do the leases that are over with it: a client that has its answer may unregister its region.
                let lent = self.limits.device_inputs && self.link.leases.open().0 > 0;
                if stay || lent || result.failed.is_some() || open > members {
                    self.read_side(inbound);
                }
                let lends = result.answers.iter().any(|a| a.outputs.iter().any(is_lent));
                self.result(&result)?;
                if lends {
                    self.link.give_back_many();
                }
            }
            FromRunner::Respond { slot, generation, answer } => {
                needs(Way::Side)?;
                if !copies && self.copied_bytes(&answer.outputs) > COPY_BYTES_MAX {
                    return Ok(Next::Park);
                }
                self.respond((slot, generation), &answer)?;
                self.link.give_back_many();
            }
            FromRunner::Ready(text) => {
                needs(Way::Work)?;
                self.ready(Ready::read(text)?)?;
            }
            FromRunner::Failed(text) => {
                needs(Way::Work)?;
                let failure = Failure::read(text)?;
                let started = self.state.lock().started.take();
                let started = started.ok_or(Lie("it says that its start failed when it had started"))?;
                self.hub.after(FAILED_GRACE, Due::Kill(self.id, "it could not start and did not end"));
                started(Err(failure));
            }
            FromRunner::NeedSegment(bytes) => self.link.need_responses(bytes),
            FromRunner::NoDevices => {
                log::warn!(
                    "{}: it cannot open memory of devices: inputs are copied to the host from now on",
                    self.label()
                );
                self.link.set_lends(false);
            }
            FromRunner::Release(ids) => self.link.released(ids.iter())?,
            FromRunner::IsReadyResult { question, is_ready } => self.answered(question, is_ready),
            FromRunner::Pong(_) => self.is_there.store(true, Relaxed),
            FromRunner::Call(call) if !copies && self.copied_bytes(&call.request.inputs) > COPY_BYTES_MAX => {
                return Ok(Next::Park);
            }
            asked => {
                self.asks.frame(&(Arc::clone(self) as Arc<dyn Peer>), way, asked)?;
                self.link.give_back_many();
            }
        }
        Ok(Next::Go)
    }

    /// Handles what is on the side socket now.
    fn read_side(self: &Arc<Self>, inbound: &mut Inbound) {
        let mut spare = std::mem::take(&mut inbound.spare);
        spare.resize(READ_BYTES / 4, 0);
        // A runner that never stops talking must not keep the hub.
        let mut left = 256;
        while left > 0 && self.read_once(Way::Side, inbound, &mut spare, true) {
            left -= 1;
        }
        inbound.spare = spare;
    }

    fn ready(self: &Arc<Self>, ready: Ready) -> Result<(), Lie> {
        let mut state = self.state.lock();
        let started = state.started.take().ok_or(Lie("it says twice that it is ready"))?;
        if state.phase == Phase::Starting {
            state.phase = Phase::Running { asks_ready: ready.asks_ready };
        }
        drop(state);
        log::debug!("{}: ready, {}", self.label(), ready.runner);
        if ready.devices {
            self.link.set_lends(true);
            let me: Weak<dyn device::Closing> = Arc::downgrade(&(Arc::clone(self) as Arc<dyn device::Closing>));
            device::watch_closing(me);
        }
        reader::pass_on(self);
        started(Ok(ready));
        Ok(())
    }

    /// The hub was asked to look: something about it changed on another thread.
    pub(crate) fn look(self: &Arc<Self>) {
        if self.link.is_broken() {
            self.condemn("it does not read what it is sent");
        }
        if self.is_over.load(SeqCst) {
            self.over();
        }
    }

    /// The process is over.
    pub(crate) fn over(self: &Arc<Self>) {
        if self.is_parked.load(SeqCst) {
            self.is_over.store(true, SeqCst);
            self.hub.ignore(self.child.lock().pidfd());
            if self.is_parked.load(SeqCst) {
                return;
            }
        }
        let Some(ended) = self.child.lock().reap(false) else { return };
        let mut inbound = self.inbound.lock();
        if !self.is_condemned.load(SeqCst) {
            // What it said before it ended counts.
            let mut scratch = vec![0; READ_BYTES];
            for way in [Way::Side, Way::Work] {
                let mut left = 64;
                while left > 0 && self.read_once(way, &mut inbound, &mut scratch, true) {
                    left -= 1;
                }
            }
        }
        drop(inbound);
        self.hub.remove(self);
        drop(self.guarded.lock().take());
        let mut state = self.state.lock();
        let phase = std::mem::replace(&mut state.phase, Phase::Over);
        if phase == Phase::Over {
            return;
        }
        let (batch, pendings) = (state.batch.take(), state.slots.clear());
        let (started, questions) = (state.started.take(), std::mem::take(&mut state.questions));
        drop(state);
        let is_asked = matches!(phase, Phase::Running { .. }) && self.model.strong_count() == 0;
        if phase == Phase::Ending || is_asked {
            log::debug!("{}: the process {ended}", self.label());
        } else if started.is_none() || !self.is_condemned.load(SeqCst) {
            log::error!("{}: the process {ended}; requests it had: {}", self.label(), pendings.len());
        }
        // Before its requests end: what comes after them is to find it gone.
        if let Some(model) = self.model.upgrade() {
            model.died(self, matches!(phase, Phase::Running { .. }));
        }
        for pending in pendings {
            pending.responder.finish(Some(Err(self.not_healthy())));
        }
        drop(batch);
        self.link.leases.clear();
        for answer in questions.into_iter().flat_map(|q| q.answers) {
            answer(Err(self.not_healthy()));
        }
        if let Some(started) = started {
            started(Err(self.not_healthy().into()));
        }
        self.asks.closed();
    }

    /// Tells it to end, and kills it when it has not by then.
    pub(crate) fn end(&self, grace: Duration) {
        let mut state = self.state.lock();
        let was = state.phase;
        if matches!(was, Phase::Ending | Phase::Over) {
            return;
        }
        state.phase = Phase::Ending;
        drop(state);
        if was == Phase::Starting {
            // It reads nothing while it loads code.
            self.is_condemned.store(true, SeqCst);
            return self.child.lock().kill();
        }
        let mut frame = Vec::new();
        frames::write::empty(&mut frame, InstanceId::ONLY, Frame::Unload);
        self.link.send(Way::Work, &frame);
        // One that somebody stopped could not.
        self.child.lock().signal(libc::SIGCONT);
        self.hub.after(grace, Due::Kill(self.id, "it did not end in time"));
    }

    /// Its model left service so long ago. A process that has worked for `grace` for requests that nobody waits for hangs, or is stopped: it would
    /// stay for ever, and its memory with it. One that still has requests of clients goes on with them.
    pub(crate) fn look_for_nobody(&self, grace: Duration, left: Duration, now: u64) {
        let mut state = self.state.lock();
        let works = state.batch.is_some() || state.slots.taken() > 0;
        if !works || !matches!(state.phase, Phase::Running { .. }) {
            state.for_nobody = None;
            return;
        }
        let requests = state.slots.pendings().count();
        let waiting = state.slots.pendings().filter(|pending| !pending.responder.is_cancelled()).count();
        if waiting > 0 {
            state.for_nobody = None;
            if left >= grace && !std::mem::replace(&mut state.told_of_clients, true) {
                drop(state);
                let seconds = left.as_secs_f64();
                log::warn!(
                    "{}: its model left service {seconds:.1} s ago, and the process still has requests that clients wait for: {waiting}",
                    self.label()
                );
            }
            return;
        }
        let batch = state.batches;
        let since = match state.for_nobody {
            Some((since, of)) if of == batch => since,
            _ => {
                state.for_nobody = Some((now, batch));
                now
            }
        };
        drop(state);
        if Duration::from_nanos(now.saturating_sub(since)) >= grace && !self.is_given_up.swap(true, SeqCst) {
            let seconds = grace.as_secs_f64();
            self.condemn(&format!(
                "its model left service, and it worked for {seconds} s (exit-grace-seconds, less when the server exits) for requests that nobody waits for: {requests}"
            ));
        }
    }

    /// Whether it has requests.
    pub(crate) fn works(&self) -> bool {
        let state = self.state.lock();
        matches!(state.phase, Phase::Running { .. }) && (state.batch.is_some() || state.slots.taken() > 0)
    }

    /// Whether it was killed for that.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(SeqCst)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().phase == Phase::Over
    }

    /// Whether its model wants to be asked if it is ready.
    pub(crate) fn asks_ready(&self) -> bool {
        self.state.lock().phase == Phase::Running { asks_ready: true }
    }

    /// Calls of other models that its code made before a time and that are not over; `None` where there are none.
    pub(crate) fn calls_made_before(&self, at: u64) -> Option<OpenCalls> {
        let calls = self.asks.calls_made_before(at);
        if calls.is_empty() {
            return None;
        }
        let is_decoupled = self.model.upgrade().is_none_or(|model| model.spec.decoupled);
        let mut state = self.state.lock();
        let State { slots, batch, .. } = &mut *state;
        let mut request_of = |key: Key| slots.pending(key).and_then(|pending| pending.responder.request());
        let batch = batch.as_ref().filter(|batch| batch.occupied.is_some());
        let members = batch.filter(|_| !is_decoupled).map_or(&[][..], |batch| &batch.members);
        let members = members.iter().filter_map(|&key| request_of(key)).collect();
        let id = batch.map(|batch| batch.id);
        let calls = calls.into_iter().map(|made| OpenCall {
            call: made.call,
            request: made.parent.and_then(&mut request_of),
            is_for_batch: id.is_some() && made.batch == id,
            since: made.since,
        });
        let calls = calls.collect();
        drop(state);
        Some(OpenCalls { instance: self.instance, batch: id, members, calls })
    }

    /// Memory of the process; 0 when the system does not say.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let pid = self.child.lock().pid;
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
        let pages = text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        pages.saturating_mul(4096)
    }

    /// A batch begins: the hub looks when it may have taken too long. One look at a time, however many batches there are.
    pub(crate) fn watch(&self, state: &mut State) {
        if let Some(most) = self.limits.execute_timeout
            && !std::mem::replace(&mut state.is_watched, true)
        {
            self.hub.after(most, Due::Execute(self.id));
        }
    }

    /// Its time to be heard of is over.
    pub(crate) fn check_contact(&self) {
        if self.is_there.load(Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        let started = if state.phase == Phase::Starting { state.started.take() } else { None };
        drop(state);
        if let Some(started) = started {
            let seconds = self.limits.start_timeout.as_secs_f64();
            self.condemn("it is not heard of");
            let text = format!("{} was started and not heard of for {seconds} s", self.label());
            started(Err(Error::unavailable(text).into()));
        }
    }

    pub(crate) fn check_batch(&self) {
        let Some(most) = self.limits.execute_timeout else { return };
        let mut state = self.state.lock();
        state.is_watched = false;
        let Some(since) = state.batch.as_ref().map(|b| b.since) else { return };
        let left = most.saturating_sub(Duration::from_nanos(now_ns().saturating_sub(since)));
        if !left.is_zero() {
            state.is_watched = true;
            drop(state);
            return self.hub.after(left, Due::Execute(self.id));
        }
        drop(state);
        log::error!("{}: a batch takes longer than {} ms", self.label(), most.as_millis());
        // Python's fault handler writes all stacks to the log, and lets it die.
        self.child.lock().signal(libc::SIGABRT);
        self.hub.after(ABORT_GRACE, Due::Kill(self.id, "its batch took too long"));
    }

    /// Asks the model whether it is ready. Questions that come before its answer share it.
    pub(crate) fn ask(&self, answer: ReadyAnswer) {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::Running { .. }) {
            drop(state);
            return answer(Err(self.not_healthy()));
        }
        if let Some(open) = state.questions.last_mut() {
            open.answers.push(answer);
            return;
        }
        state.asked += 1;
        let number = state.asked;
        state.questions.push(Question { number, since: now_ns(), answers: vec![answer] });
        drop(state);
        let mut frame = Vec::new();
        frames::write::question(&mut frame, InstanceId::ONLY, Frame::IsReady, number);
        self.link.send(Way::Side, &frame);
        self.hub.after(QUESTION_TIME, Due::Question(self.id));
    }

    fn answered(&self, number: u64, is_ready: bool) {
        let mut state = self.state.lock();
        // A late answer to one that was given up is news for those that ask now.
        let all = std::mem::take(&mut state.questions);
        drop(state);
        if all.iter().any(|q| number > q.number) {
            return self.condemn("it answers a question that it was not asked");
        }
        for answer in all.into_iter().flat_map(|q| q.answers) {
            let no = || Error::unavailable(format!("'{}' says that it is not ready", self.name));
            answer(if is_ready { Ok(()) } else { Err(no()) });
        }
    }

    pub(crate) fn check_questions(&self) {
        let late = now_ns().saturating_sub(u64::try_from(QUESTION_TIME.as_nanos()).unwrap_or(u64::MAX));
        let mut state = self.state.lock();
        let all = std::mem::take(&mut state.questions);
        let (old, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|q| q.since <= late);
        state.questions = rest;
        drop(state);
        for answer in old.into_iter().flat_map(|q| q.answers) {
            answer(Err(Error::unavailable(format!("'{}' did not say in time whether it is ready", self.name))));
        }
    }

    /// Sets or clears what a request sees of its cancellation.
    pub(crate) fn flag(&self, (slot, generation): Key, is_cancelled: bool) {
        let byte = ((generation & 127) << 1) as u8 | u8::from(is_cancelled);
        let flags: &dyn RegionMemory = &self.flags;
        // As long as there are slots.
        let _ = flags.fill(slot as usize, 1, byte);
    }

    /// A request is cancelled: its model can see that, and so are the calls made for it.
    pub(crate) fn cancelled(&self, key: Key) {
        let mut state = self.state.lock();
        if state.slots.has(key) {
            self.flag(key, true);
        }
        drop(state);
        self.asks.request_cancelled(key);
    }
}
