//! The thread that listens to all runners: their sockets, their deaths, and the clock.
//!
//! It reads a frame, hands it to its runner, and goes on; what takes long (copies of large outputs, starting a process, reading what it prints) is done by other threads.
//! Level-triggered: what is not read now is reported again.

use crate::sys::{Alarm, Epoll, Event, Interest};
use backend::now_ns;
use backend_remote::{Executor, Job, Way};
use parking_lot::{Mutex, RwLock};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Why a runner is killed whose frames brought a thread of ours down.
pub(crate) const FAILED_OVER_IT: &str = "the host failed over what it said";
/// What is read from a socket at a time.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// A runner as the hub hears of it.
pub(crate) trait Watched: Send + Sync {
    /// A socket takes more.
    fn writable(&self, way: Way);
    /// A socket can be read.
    fn readable(self: Arc<Self>, way: Way, scratch: &mut [u8]);
    /// Something about it changed on another thread.
    fn look(self: Arc<Self>);
    /// The process is over.
    fn over(self: Arc<Self>);
    /// A reactor may read the work socket in the place of the hub.
    fn offer(self: Arc<Self>);
    /// Kills it. Why is for the log only.
    fn condemn(&self, why: &str);
}

/// When, in which order, and what.
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
    looks: Mutex<Vec<u64>>,
    copier: Mutex<Sender<Job>>,
    starter: Mutex<Sender<Job>>,
}

/// What a token says besides the runner. In the order in which events of one moment are handled: what was said on the side comes before the end of a batch.
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
    /// The one of this process; started when first asked for.
    pub(crate) fn get() -> io::Result<&'static Self> {
        static HUB: OnceLock<Option<Hub>> = OnceLock::new();
        static THREAD: OnceLock<bool> = OnceLock::new();
        let hub = HUB.get_or_init(|| Self::new().inspect_err(|e| log::error!("no host for processes: {e}")).ok());
        let hub = hub.as_ref().ok_or_else(|| io::Error::other("no host for processes"))?;
        let runs = THREAD.get_or_init(|| {
            backend::poll::when_offered(|| hub.runners.read().values().for_each(|runner| Arc::clone(runner).offer()));
            thread("nereid-runners", || hub.run())
        });
        if *runs { Ok(hub) } else { Err(io::Error::other("no thread for processes")) }
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
            looks: Mutex::default(),
            copier: Mutex::new(worker("nereid-copies", || {})?),
            // Processes die with the thread that started them: it is never to end. They have its scheduler slices, too: beside others that
            // compute, short ones brought 6,400 requests/s of a Python model in the place of 5,200 (8 at a time, two cores).
            starter: Mutex::new(worker("nereid-starts", memory::thread::request_short_slices)?),
        })
    }

    /// A name for a runner that is about to be.
    pub(crate) fn name(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Knows a runner from now on.
    pub(crate) fn add(&self, id: u64, runner: Arc<dyn Watched>) {
        self.runners.write().insert(id, runner);
    }

    /// Waits for the end of a runner's process. After its sockets are listened to: a runner that is over is not known any more.
    pub(crate) fn await_end(&self, id: u64, process: BorrowedFd<'_>) -> io::Result<()> {
        self.epoll.add(process, token(id, PROCESS), Interest::Read)
    }

    pub(crate) fn remove(&self, id: u64, process: BorrowedFd<'_>) {
        self.epoll.remove(process);
        self.runners.write().remove(&id);
    }

    /// Does not hear of a process's end any more, until it is looked at.
    pub(crate) fn ignore(&self, fd: BorrowedFd<'_>) {
        self.epoll.remove(fd);
    }

    pub(crate) fn listen(&self, id: u64, way: Way, fd: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
        self.epoll.add(fd, token(id, what(way)), interest)
    }

    pub(crate) fn interest(&self, id: u64, way: Way, fd: BorrowedFd<'_>, interest: Interest) {
        // One that the hub does not listen to at the moment is told when it does again.
        let _ = self.epoll.modify(fd, token(id, what(way)), interest);
    }

    /// Has the hub look at how a runner is.
    pub(crate) fn look_at(&self, id: u64) {
        self.looks.lock().push(id);
        self.alarm.ring();
    }

    /// Whether there are processes.
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
            self.epoll.wait(&mut events, self.patience());
            events.sort_by_key(|event| event.token & 3);
            for event in &events {
                let guarded = catch_unwind(AssertUnwindSafe(|| self.handle(*event, &mut scratch)));
                if guarded.is_err() {
                    log::error!("a panic while a runner was listened to; please report it");
                    if let Some(runner) = self.runner(event.token >> 2) {
                        runner.condemn(FAILED_OVER_IT);
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
            let looks = std::mem::take(&mut *self.looks.lock());
            for runner in looks.into_iter().filter_map(|id| self.runner(id)) {
                runner.look();
            }
            return;
        }
        let Some(runner) = self.runner(id) else { return };
        let way = match event.token & 3 {
            PROCESS => return runner.over(),
            WORK => Way::Work,
            _ => Way::Side,
        };
        if event.writable {
            runner.writable(way);
        }
        if event.readable {
            Arc::clone(&runner).readable(way, scratch);
            if way == Way::Work {
                runner.offer();
            }
        }
    }

    /// Milliseconds until something is due.
    fn patience(&self) -> i32 {
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

    /// The thread never ends: processes die with the thread that started them.
    fn start(&self, job: Job) {
        let _ = self.starter.lock().send(job);
    }
}

/// A thread that does one job after another, for ever, after it was `prepared`.
fn worker(name: &str, prepared: fn()) -> io::Result<Sender<Job>> {
    let (send, jobs): (Sender<Job>, Receiver<Job>) = channel();
    let work = move || {
        prepared();
        for job in jobs {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                log::error!("a panic while a runner was served; please report it");
            }
        }
    };
    memory::serving::spawn(name, work)?;
    Ok(send)
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> bool {
    memory::serving::spawn(name, run).is_ok()
}
