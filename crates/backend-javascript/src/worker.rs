//! The transport to a worker thread of Node.
//!
//! The main thread of JavaScript makes the worker, because only it can ([`Threads::start`]). The worker then calls
//! [`attach`], and frames pass directly between the worker's thread and the threads that submit batches: the main
//! thread is involved in the start and the end only. Both channels keep one order, that of the calls.

use backend_process::{NOTE_DELAY, Printer, RunnerLimits, Shared, after, shared};
use backend_remote::generated::{Frame, Place, Segment};
use backend_remote::{Connection, End, Next, PANICKED, Reading, Receiver, Start, Transport, Way, frames};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Instant;
use tensor::{Base, Name, RegionRef};

/// Maximum bytes of frames that a worker has not taken yet.
const UNREAD_BYTES_MAX: usize = 64 << 20;

/// The start of a worker.
#[derive(Debug, Clone)]
pub struct WorkerSpec {
    /// Number that the worker attaches with.
    pub id: u32,
    /// The model, as the server knows it.
    pub model: Name,
    /// Name of its instance, for the log.
    pub name: String,
    /// Limit of the JavaScript heap.
    pub heap_bytes_max: Option<u64>,
    /// The model's file has no canonical path: Node must keep the paths of modules as they are.
    pub preserves_links: bool,
}

/// The main thread of JavaScript, which makes and ends workers. No call blocks.
pub trait Threads: Send + Sync {
    /// Makes a worker, which calls [`attach`]. Its end is reported by [`ended`].
    ///
    /// # Errors
    /// The server is ending, or too many starts wait.
    fn start(&self, spec: WorkerSpec) -> io::Result<()>;
    /// Ends a worker, also one in an endless loop.
    fn terminate(&self, id: u32);
    /// Writes the stack of a worker to the log, then ends it if `ends`.
    fn write_stack(&self, id: u32, ends: bool);
}

/// The queue of frames of a worker's event loop.
pub trait Inbox: Send + Sync {
    /// Appends whole frames. Frames for a worker that has ended are dropped.
    fn deliver(&self, frames: Vec<u8>);
    /// Bytes that the worker has not taken yet.
    fn waiting_bytes(&self) -> usize;
}

/// The workers of all servers of the process: Node numbers threads of a process.
struct Workers {
    /// By number, from their start to their end.
    running: Mutex<BTreeMap<u32, Arc<Worker>>>,
    ended: Condvar,
    next: AtomicU32,
}

static WORKERS: Workers =
    Workers { running: Mutex::new(BTreeMap::new()), ended: Condvar::new(), next: AtomicU32::new(1) };

/// A worker thread that runs an instance.
pub struct Worker {
    id: u32,
    model: Name,
    /// Name of its instance.
    name: String,
    threads: Arc<dyn Threads>,
    inbound: Mutex<Inbound>,
    /// Receives the frames of the worker until its end.
    receiver: RwLock<Option<Arc<dyn Receiver>>>,
    memory: RwLock<WorkerMemory>,
    /// Standard output and error output.
    printers: [Mutex<WorkerOutput>; 2],
    /// True until the model is imported and initialized.
    is_starting: AtomicBool,
    /// The main thread was asked to end it.
    is_terminated: AtomicBool,
}

struct WorkerOutput {
    printer: Printer,
    /// A note of dropped output is due.
    is_timed: bool,
}

/// Frames for the worker.
enum Inbound {
    /// Frames that were sent before the worker attached.
    Starting(Vec<Vec<u8>>),
    Attached(Arc<dyn Inbox>),
    /// Being ended, because it does not take its frames.
    Killed,
    /// Over, with this predicate for the log.
    Ended(String),
}

#[derive(Default)]
struct WorkerMemory {
    requests: Vec<RegionRef>,
    responses: Vec<RegionRef>,
    flags: Option<RegionRef>,
}

/// Connects the worker with this number; `None` if it was ended meanwhile. Called once, on the worker's thread.
pub fn attach(id: u32, inbox: Arc<dyn Inbox>) -> Option<Arc<Worker>> {
    let worker = WORKERS.running.lock().get(&id).cloned()?;
    let mut inbound = worker.inbound.lock();
    let Inbound::Starting(early) = &mut *inbound else { return None };
    for frames in std::mem::take(early) {
        inbox.deliver(frames);
    }
    *inbound = Inbound::Attached(inbox);
    drop(inbound);
    Some(worker)
}

/// Reports the end of a worker's thread; `how` is a predicate for the log (`exited with code 1`).
pub fn ended(id: u32, how: &str) {
    let worker = WORKERS.running.lock().remove(&id);
    WORKERS.ended.notify_all();
    let Some(worker) = worker else { return };
    *worker.inbound.lock() = Inbound::Ended(how.to_owned());
    worker.printers.iter().for_each(|output| output.lock().printer.end());
    worker.report_end(how);
}

/// Waits, after a server's models were dropped, for its workers to end; at `until`, ends those that are left. Other
/// servers of the process keep theirs. Returns false if some had to be ended.
pub fn wait_for_ends(threads: &Arc<dyn Threads>, until: Instant) -> bool {
    let mut workers = WORKERS.running.lock();
    loop {
        let mut own = workers.values().filter(|worker| Arc::ptr_eq(&worker.threads, threads)).peekable();
        if own.peek().is_none() {
            return true;
        }
        if Instant::now() >= until {
            own.for_each(|worker| worker.terminate());
            return false;
        }
        WORKERS.ended.wait_until(&mut workers, until);
    }
}

/// Ends the workers of a server that are starting, those of `model` or all: code that is imported may never end. Their
/// loads fail.
pub fn end_starting(threads: &Arc<dyn Threads>, model: Option<&str>) {
    let is_meant = |worker: &&Arc<Worker>| {
        Arc::ptr_eq(&worker.threads, threads)
            && worker.is_starting.load(Relaxed)
            && model.is_none_or(|model| worker.model.as_str() == model)
    };
    WORKERS.running.lock().values().filter(is_meant).for_each(|worker| worker.terminate());
}

impl Worker {
    /// Handles frames that the worker sends. Called on its thread, so that only its own instance waits for copies. A
    /// panic in the engine costs the worker, not the process.
    pub fn receive(&self, way: Way, bytes: &[u8]) {
        let Some(receiver) = self.receiver.read().clone() else { return };
        let handled = catch_unwind(AssertUnwindSafe(|| self.handle(&receiver, way, bytes)));
        if handled.is_err() {
            receiver.condemn(PANICKED);
        }
    }

    fn handle(&self, receiver: &Arc<dyn Receiver>, way: Way, bytes: &[u8]) {
        if let Some(version) = frames::other_version(bytes).filter(|_| way == Way::Work) {
            return receiver.other_version(version);
        }
        // Frames of both channels come in the order in which they were sent.
        let reading = Reading { may_copy: true, side_is_read: true };
        let mut rest = bytes;
        while !rest.is_empty() {
            let (header, body, behind) = match frames::split(rest) {
                Ok(Some(whole)) => whole,
                Ok(None) => return receiver.condemn("it sent a part of a frame"),
                Err(error) => return receiver.condemn(error.0),
            };
            if Frame::from_number(header.frame.into()) == Some(Frame::Ready) {
                self.is_starting.store(false, Relaxed);
            }
            match Arc::clone(receiver).frame(way, &header, body, reading) {
                Ok(Next::Go) => rest = behind,
                Ok(Next::Copy | Next::ReadSide) => return receiver.condemn("its frame could not be read"),
                Err(error) => return receiver.condemn(error.0),
            }
        }
    }

    /// Reports the end to the receiver, once.
    fn report_end(&self, how: &str) {
        let receiver = self.receiver.write().take();
        if let Some(receiver) = receiver {
            // A panic in here would end the process.
            let _ = catch_unwind(AssertUnwindSafe(|| receiver.over(how)));
        }
    }

    /// Logs what the model prints.
    pub fn print(self: &Arc<Self>, is_error: bool, bytes: &[u8]) {
        let mut output = self.printers[usize::from(is_error)].lock();
        if output.printer.add(bytes) && !std::mem::replace(&mut output.is_timed, true) {
            self.note_later(is_error);
        }
    }

    /// Logs later how much output was dropped: the model may print nothing more.
    fn note_later(self: &Arc<Self>, is_error: bool) {
        let worker = Arc::downgrade(self);
        let note = move || {
            let Some(worker) = worker.upgrade() else { return };
            let mut output = worker.printers[usize::from(is_error)].lock();
            output.is_timed = output.printer.note();
            if output.is_timed {
                worker.note_later(is_error);
            }
        };
        after(NOTE_DELAY, Box::new(note));
    }

    /// Has the main thread end it. Only the first call does: a worker that goes on breaking the protocol until its end
    /// must not fill the queue of the main thread.
    fn terminate(&self) {
        if !self.is_terminated.swap(true, Relaxed) {
            self.threads.terminate(self.id);
        }
    }

    /// Segments of responses, from 0 on; `None` beyond the last.
    pub fn response_segment(&self, segment: usize) -> Option<RegionRef> {
        self.memory.read().responses.get(segment).cloned()
    }

    /// A segment of requests if it has these bytes.
    pub fn request_block(&self, segment: usize, offset: usize, bytes: usize) -> Option<RegionRef> {
        let region = self.memory.read().requests.get(segment).cloned()?;
        offset.checked_add(bytes).filter(|end| *end <= region.len())?;
        matches!(region.base(), Base::Host(_)).then_some(region)
    }

    /// One byte per request slot: whether its request is cancelled.
    pub fn flags(&self) -> Option<RegionRef> {
        self.memory.read().flags.clone()
    }
}

impl Transport for Worker {
    fn send(&self, _: Way, frames: &[u8]) {
        let mut inbound = self.inbound.lock();
        match &mut *inbound {
            Inbound::Starting(early) => early.push(frames.to_vec()),
            Inbound::Attached(inbox) if inbox.waiting_bytes() <= UNREAD_BYTES_MAX => {
                inbox.deliver(frames.to_vec());
            }
            Inbound::Attached(_) => {
                log::error!("{}: the worker thread does not take what it is sent, and is ended", self.name);
                *inbound = Inbound::Killed;
                self.terminate();
            }
            Inbound::Killed | Inbound::Ended(_) => {}
        }
    }

    fn on_frame(&self, receiver: Arc<dyn Receiver>) -> io::Result<()> {
        let inbound = self.inbound.lock();
        // Under the lock: either `ended` finds the receiver, or the end is found here, before any frame.
        *self.receiver.write() = Some(receiver);
        let Inbound::Ended(how) = &*inbound else { return Ok(()) };
        let how = how.clone();
        drop(inbound);
        self.report_end(&how);
        Ok(())
    }

    fn end(&self, how: End) {
        match how {
            // UNLOAD has told the worker to end itself.
            End::Requested => {}
            End::Hung => self.threads.write_stack(self.id, true),
            End::Killed => self.terminate(),
        }
    }

    fn write_stack(&self, _: bool) -> bool {
        self.threads.write_stack(self.id, false);
        true
    }

    fn add_segment(&self, segment: Segment) -> Option<RegionRef> {
        let memory = backend_process::segment(segment.bytes).ok()?;
        let place = Place::from_number(segment.place.into());
        let mut known = self.memory.write();
        let list = if place == Some(Place::Request) { &mut known.requests } else { &mut known.responses };
        list.push(memory.clone());
        drop(known);
        let mut frame = Vec::new();
        frames::write::segment(&mut frame, segment);
        self.send(Way::Side, &frame);
        Some(memory)
    }

    fn resident_bytes(&self) -> u64 {
        0
    }
}

/// Starts the workers of an instance.
pub(crate) struct Starter {
    pub(crate) threads: Arc<dyn Threads>,
    pub(crate) spec: WorkerSpec,
    pub(crate) limits: RunnerLimits,
}

impl Start for Starter {
    fn start(&self) -> io::Result<Connection> {
        let id = WORKERS.next.fetch_add(1, Relaxed);
        let Shared { segments, flags } = shared(&self.limits)?;
        let memory = WorkerMemory {
            requests: segments.iter().map(|segments| segments.requests.clone()).collect(),
            responses: segments.iter().map(|segments| segments.responses.clone()).collect(),
            flags: flags.clone(),
        };
        let worker = Arc::new(Worker {
            id,
            model: self.spec.model.clone(),
            name: self.spec.name.clone(),
            threads: Arc::clone(&self.threads),
            inbound: Mutex::new(Inbound::Starting(Vec::new())),
            receiver: RwLock::default(),
            memory: RwLock::new(memory),
            printers: [false, true].map(|is_error| {
                let printer = Printer::new(&self.spec.name, is_error, self.limits.output_bytes_per_second);
                Mutex::new(WorkerOutput { printer, is_timed: false })
            }),
            is_starting: AtomicBool::new(true),
            is_terminated: AtomicBool::new(false),
        });
        WORKERS.running.lock().insert(id, Arc::clone(&worker));
        self.threads.start(WorkerSpec { id, ..self.spec.clone() }).inspect_err(|_| {
            WORKERS.running.lock().remove(&id);
        })?;
        Ok(Connection { transport: worker, segments, flags })
    }
}
