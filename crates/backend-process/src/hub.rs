//! The thread that watches all runners: their sockets, their ends, and timers.
//!
//! It passes each frame to its runner. Other threads do what takes long: copying large outputs, starting processes,
//! reading their output. Level-triggered: unread data is reported again.

use crate::sys::{Alarm, Epoll, Event, Interest};
use backend::now_ns;
use backend_remote::{Executor, Job, PANICKED, Way};
use memory::served::Served;
use parking_lot::{Mutex, RwLock};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Bytes per read from a socket.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// A runner as seen by the hub.
pub(crate) trait Watched: Send + Sync {
    /// A socket can be written.
    fn writable(&self, way: Way);
    /// A socket can be read.
    fn readable(self: Arc<Self>, way: Way, scratch: &mut [u8]);
    /// Another thread changed its state.
    fn check(self: Arc<Self>);
    fn ended(self: Arc<Self>);
    /// The hub has read a socket. Perhaps a reactor reads it from now on.
    fn offer_to_reactor(self: Arc<Self>, way: Way);
    /// Kills it; `why` is for the log only.
    fn fail(&self, why: &str);
}

/// Time, sequence number, job.
struct Timer(u64, u64, Job);

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Timer {}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

pub(crate) struct Hub {
    epoll: Epoll,
    alarm: Alarm,
    runners: RwLock<HashMap<u64, Arc<dyn Watched>>>,
    next: AtomicU64,
    timers: Mutex<BinaryHeap<Reverse<Timer>>>,
    checks: Mutex<Vec<u64>>,
    copier: Mutex<Sender<Job>>,
    starter: Mutex<Sender<Job>>,
}

/// Low part of a token, after the runner's id; the order of simultaneous events: the side before a batch's end.
const SIDE: u64 = 0;
const WORK: u64 = 1;
const PROCESS: u64 = 2;
const ALARM: u64 = 3;

fn token(id: u64, what: u64) -> u64 {
    (id << 2) | what
}

fn what(way: Way) -> u64 {
    match way {
        Way::Work => WORK,
        Way::Side => SIDE,
    }
}

impl Hub {
    /// The hub of this process, started by the first call.
    pub(crate) fn get() -> io::Result<&'static Self> {
        static HUB: Served<Option<Hub>> = Served::new();
        let make = || Self::new().inspect_err(|e| log::error!("no host for processes: {e}")).ok();
        let start = |hub: &'static Option<Self>| {
            let Some(hub) = hub else { return true };
            backend::poll::when_offered(|| {
                hub.runners.read().values().for_each(|runner| Arc::clone(runner).offer_to_reactor(Way::Work))
            });
            thread("nereid-runners", || hub.run())
        };
        let hub = HUB.get(make, start).ok_or_else(|| io::Error::other("no thread for processes"))?;
        hub.as_ref().ok_or_else(|| io::Error::other("no host for processes"))
    }

    fn new() -> io::Result<Self> {
        let (epoll, alarm) = (Epoll::new()?, Alarm::new()?);
        epoll.add(alarm.fd(), token(0, ALARM), Interest::Read)?;
        Ok(Self {
            epoll,
            alarm,
            runners: RwLock::default(),
            next: AtomicU64::new(1),
            timers: Mutex::default(),
            checks: Mutex::default(),
            copier: Mutex::new(worker("nereid-copies", || {})?),
            // The kernel kills processes with the thread that started them, so this one never ends. They inherit its
            // slice: with short ones a busy machine served 6,400 requests/s of a Python model, else 5,200 (8 at a time,
            // two cores).
            starter: Mutex::new(worker("nereid-starts", memory::thread::request_short_slices)?),
        })
    }

    /// A new id for a runner.
    pub(crate) fn name(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    pub(crate) fn add(&self, id: u64, runner: Arc<dyn Watched>) {
        self.runners.write().insert(id, runner);
    }

    /// Watches for the end of a runner's process. Call it after `listen`: the runner is removed at its end.
    pub(crate) fn await_end(&self, id: u64, process: BorrowedFd<'_>) -> io::Result<()> {
        self.epoll.add(process, token(id, PROCESS), Interest::Read)
    }

    pub(crate) fn remove(&self, id: u64, process: BorrowedFd<'_>) {
        self.epoll.remove(process);
        self.runners.write().remove(&id);
    }

    /// Stops watching for the end of a process, until `request_check`.
    pub(crate) fn ignore(&self, fd: BorrowedFd<'_>) {
        self.epoll.remove(fd);
    }

    pub(crate) fn listen(&self, id: u64, way: Way, fd: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        self.epoll.add(fd, token(id, what(way)), interest)
    }

    pub(crate) fn interest(&self, id: u64, way: Way, fd: BorrowedFd<'_>, interest: Interest) {
        // A socket that is not watched at the moment gets its interest when it is watched again.
        let _ = self.epoll.modify(fd, token(id, what(way)), interest);
    }

    /// Has the hub's thread call `check` of a runner.
    pub(crate) fn request_check(&self, id: u64) {
        self.checks.lock().push(id);
        self.alarm.ring();
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.runners.read().is_empty()
    }

    fn runner(&self, id: u64) -> Option<Arc<dyn Watched>> {
        self.runners.read().get(&id).cloned()
    }

    fn run(&self) {
        memory::thread::request_short_slices();
        let mut events: Vec<Event> = Vec::with_capacity(64);
        let mut scratch = vec![0; READ_BYTES];
        loop {
            self.epoll.wait(&mut events, self.wait_ms());
            events.sort_by_key(|event| event.token & 3);
            for event in &events {
                let guarded = catch_unwind(AssertUnwindSafe(|| self.handle(*event, &mut scratch)));
                if guarded.is_err() {
                    log::error!("a panic while handling frames of a runner; please report it");
                    if let Some(runner) = self.runner(event.token >> 2) {
                        runner.fail(PANICKED);
                    }
                }
            }
            let _ = catch_unwind(AssertUnwindSafe(|| self.clock()));
        }
    }

    fn handle(&self, event: Event, scratch: &mut [u8]) {
        let id = event.token >> 2;
        if event.token & 3 == ALARM {
            self.alarm.silence();
            let checks = std::mem::take(&mut *self.checks.lock());
            for runner in checks.into_iter().filter_map(|id| self.runner(id)) {
                runner.check();
            }
            return;
        }
        let Some(runner) = self.runner(id) else { return };
        let way = match event.token & 3 {
            PROCESS => return runner.ended(),
            WORK => Way::Work,
            _ => Way::Side,
        };
        if event.writable {
            runner.writable(way);
        }
        if event.readable {
            Arc::clone(&runner).readable(way, scratch);
            runner.offer_to_reactor(way);
        }
    }

    /// Milliseconds until the next timer.
    fn wait_ms(&self) -> i32 {
        let timers = self.timers.lock();
        let Some(first) = timers.peek() else { return -1 };
        let left = first.0.0.saturating_sub(now_ns()).div_ceil(1_000_000);
        i32::try_from(left).unwrap_or(i32::MAX)
    }

    fn clock(&self) {
        loop {
            let mut timers = self.timers.lock();
            if timers.peek().is_none_or(|first| first.0.0 > now_ns()) {
                return;
            }
            let Some(Reverse(Timer(_, _, due))) = timers.pop() else { return };
            drop(timers);
            due();
        }
    }
}

impl Executor for &'static Hub {
    fn after(&self, delay: Duration, due: Job) {
        let at = now_ns().saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX));
        let order = self.next.fetch_add(1, Relaxed);
        let mut timers = self.timers.lock();
        let is_first = timers.peek().is_none_or(|first| at < first.0.0);
        timers.push(Reverse(Timer(at, order, due)));
        drop(timers);
        if is_first {
            self.alarm.ring();
        }
    }

    fn copy(&self, job: Job) {
        let _ = self.copier.lock().send(job);
    }

    /// The thread never ends: the kernel kills processes with the thread that started them.
    fn start(&self, job: Job) {
        let _ = self.starter.lock().send(job);
    }
}

/// A thread that runs `prepared`, then one job after another.
fn worker(name: &str, prepared: fn()) -> io::Result<Sender<Job>> {
    let (send, jobs): (Sender<Job>, Receiver<Job>) = channel();
    let work = move || {
        prepared();
        for job in jobs {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                log::error!("a panic while serving a runner; please report it");
            }
        }
    };
    memory::serving::spawn(name, work)?;
    Ok(send)
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> bool {
    memory::serving::spawn(name, run).is_ok()
}
