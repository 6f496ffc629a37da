//! The thread that listens to all runners: their sockets, their deaths, and the clock.
//!
//! It reads a frame, hands it to its runner, and goes on; what takes long (copies of large outputs, starting a process, reading what it prints) is done by other threads.
//! Level-triggered: what is not read now is reported again.

use crate::link::Way;
use crate::model::{Model, Place};
use crate::reader::pass_on;
use crate::runner::{FAILED_OVER_IT, Runner};
use crate::sys::{Alarm, Epoll, Event, Interest};
use backend::now_ns;
use parking_lot::{Mutex, RwLock};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// What is read from a socket at a time.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// What is done at a time, unless it was forgotten.
pub(crate) enum Due {
    /// The process is to be gone by now.
    Kill(u64, &'static str),
    /// It is to have been heard of.
    Contact(u64),
    /// Its batch may have taken too long.
    Execute(u64),
    /// A question may have waited too long.
    Question(u64),
    /// An instance is started again.
    Restart(Weak<Model>, Arc<Place>),
    /// Processes of instances that left are to end once their requests are over.
    Left(Weak<Model>),
    /// Processes of a model that left service may work for nobody.
    Leaving(Weak<Model>),
}

struct Timer(u64, u64, Due);

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

type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct Hub {
    epoll: Epoll,
    alarm: Alarm,
    runners: RwLock<HashMap<u64, Arc<Runner>>>,
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
            backend::poll::when_offered(|| hub.runners.read().values().for_each(pass_on));
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
            starter: Mutex::new(worker("nereid-starts", memory::thread::be_prompt)?),
        })
    }

    /// A name for a runner that is about to be.
    pub(crate) fn name(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Listens to a runner until its process is over. Where that fails it does not know the runner.
    pub(crate) fn add(&self, runner: &Arc<Runner>) -> io::Result<()> {
        self.runners.write().insert(runner.id, Arc::clone(runner));
        let listens = runner.link.listen(Way::Side).and_then(|()| runner.link.listen(Way::Work));
        let token = token(runner.id, PROCESS);
        let all = listens.and_then(|()| self.epoll.add(runner.child.lock().pidfd(), token, Interest::Read));
        all.inspect_err(|_| self.remove(runner))
    }

    pub(crate) fn remove(&self, runner: &Runner) {
        self.epoll.remove(runner.child.lock().pidfd());
        runner.link.ignore(Way::Side);
        runner.link.ignore(Way::Work);
        self.runners.write().remove(&runner.id);
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

    /// Does something later.
    pub(crate) fn after(&self, delay: Duration, due: Due) {
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

    /// Does something on the thread for large copies.
    pub(crate) fn copy(&self, job: impl FnOnce() + Send + 'static) {
        let _ = self.copier.lock().send(Box::new(job));
    }

    /// Does something on the thread that starts processes.
    pub(crate) fn start(&self, job: impl FnOnce() + Send + 'static) {
        let _ = self.starter.lock().send(Box::new(job));
    }

    /// Whether there are processes.
    pub(crate) fn is_busy(&self) -> bool {
        !self.runners.read().is_empty()
    }

    fn runner(&self, id: u64) -> Option<Arc<Runner>> {
        self.runners.read().get(&id).cloned()
    }

    fn run(&self) {
        memory::thread::be_prompt();
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
            runner.link.flush(way);
        }
        if event.readable {
            runner.readable(way, scratch);
            if way == Way::Work {
                pass_on(&runner);
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
            match due {
                Due::Kill(id, why) => self.runner(id).into_iter().for_each(|r| r.condemn(why)),
                Due::Contact(id) => self.runner(id).into_iter().for_each(|r| r.check_contact()),
                Due::Execute(id) => self.runner(id).into_iter().for_each(|r| r.check_batch()),
                Due::Question(id) => self.runner(id).into_iter().for_each(|r| r.check_questions()),
                Due::Leaving(model) => {
                    if let Some(model) = model.upgrade() {
                        model.look_at_leaving();
                    }
                }
                Due::Left(model) => {
                    if let Some(model) = model.upgrade() {
                        model.look_at_left();
                    }
                }
                Due::Restart(model, place) => {
                    if let Some(model) = model.upgrade() {
                        self.start(move || model.launch(&place));
                    }
                }
            }
        }
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
