//! A connection to a process that runs an instance of a model: its sockets, its frames, and its end. Most processes
//! have one connection; that of a library has one for each instance of its models.
//!
//! Frames are handled under `inbound`, one at a time, by the hub, a reactor, or while `is_parked` the copying thread.

use crate::handle::ProcessHandle;
use crate::hub::{Hub, READ_BYTES};
use crate::link::Link;
use crate::side_rate::SideRate;
use crate::sys;
use backend_remote::generated::Segment;
use backend_remote::{End, Executor, Next, PANICKED, Reading, Receiver, Transport, Way, frames};
use memory::Memfd;
use parking_lot::{Mutex, RwLock};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::RegionRef;

/// Time for a process to end after it closed a socket.
const CLOSED_GRACE: Duration = Duration::from_millis(500);

pub(crate) struct Process {
    id: u64,
    me: Weak<Self>,
    hub: &'static Hub,
    pub(crate) link: Link,
    process: Arc<ProcessHandle>,
    /// Readable once the process has ended.
    pidfd: OwnedFd,
    /// The process has other connections, and goes on without this one.
    is_shared: bool,
    /// Receives its frames until it has ended.
    receiver: RwLock<Option<Arc<dyn Receiver>>>,
    inbound: Mutex<Inbound>,
    /// How often the hub reads the side socket.
    pub(crate) side_rate: Mutex<SideRate>,
    /// Another thread copies for it, and the hub does not watch it.
    is_parked: AtomicBool,
    /// The process has ended, which is handled once it is no longer parked.
    has_ended: AtomicBool,
    /// A process with other connections has closed this one.
    has_closed: AtomicBool,
    /// The process counts this connection.
    is_counted: AtomicBool,
}

#[derive(Default)]
struct Inbound {
    work: Vec<u8>,
    side: Vec<u8>,
    /// Buffer for the side socket while a frame of the work socket is handled.
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

/// Sends the frames that the link of a process holds, when it is dropped.
struct HeldFrames(Weak<Process>);

impl Drop for HeldFrames {
    fn drop(&mut self) {
        if let Some(process) = self.0.upgrade() {
            process.link.send_held();
        }
    }
}

/// A runner that the hub does not watch. When it is dropped, also by a panic, the hub watches again: not a reactor,
/// which would need a new descriptor each time and see the old one's end only with the next frame.
struct Parked(Arc<Process>);

impl Drop for Parked {
    fn drop(&mut self) {
        let process = &self.0;
        if std::thread::panicking() {
            process.fail(PANICKED);
        }
        // Before `ended` may run: the hub would report the sockets of an ended process for ever.
        let listens = process.link.listen(Way::Side).and_then(|()| process.link.listen(Way::Work));
        process.is_parked.store(false, SeqCst);
        if process.has_ended.load(SeqCst) || process.has_closed.load(SeqCst) || listens.is_err() {
            process.hub.request_check(process.id);
        }
    }
}

impl Process {
    pub(crate) fn new(
        id: u64,
        hub: &'static Hub,
        link: Link,
        process: Arc<ProcessHandle>,
        is_shared: bool,
    ) -> io::Result<Arc<Self>> {
        let pidfd = process.pidfd()?;
        process.connect();
        Ok(Arc::new_cyclic(|me| Self {
            id,
            me: me.clone(),
            hub,
            link,
            process,
            pidfd,
            is_shared,
            receiver: RwLock::default(),
            inbound: Mutex::default(),
            side_rate: Mutex::default(),
            is_parked: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            has_closed: AtomicBool::new(false),
            is_counted: AtomicBool::new(true),
        }))
    }

    fn receiver(&self) -> Option<Arc<dyn Receiver>> {
        self.receiver.read().clone()
    }

    pub(crate) fn fail(&self, why: &str) {
        if let Some(receiver) = self.receiver() {
            receiver.condemn(why);
        }
    }

    /// True if a serving thread may read the work socket.
    pub(crate) fn is_brief(&self) -> bool {
        !self.is_parked.load(SeqCst) && self.receiver().is_some_and(|receiver| receiver.is_brief())
    }

    /// True if responses come on the side socket.
    pub(crate) fn answers_on_side(&self) -> bool {
        self.receiver().is_some_and(|receiver| receiver.answers_on_side())
    }

    /// Reads a socket. Returns true if there may be more to read.
    pub(crate) fn readable(self: &Arc<Self>, way: Way, scratch: &mut [u8]) -> bool {
        if self.is_parked.load(SeqCst) {
            return false;
        }
        let mut inbound = self.inbound.lock();
        self.read_once(way, &mut inbound, scratch, false)
    }

    /// Reads once and handles whole frames. Returns true if there may be more to read.
    fn read_once(self: &Arc<Self>, way: Way, inbound: &mut Inbound, scratch: &mut [u8], may_copy: bool) -> bool {
        match sys::receive(self.link.socket(way).stream.as_fd(), scratch) {
            Ok(0) => {
                // The process is probably ending, which the kernel will report.
                self.link.ignore(way);
                if self.may_close() {
                    self.close();
                    return false;
                }
                let me = self.me.clone();
                let closed = move || me.upgrade().into_iter().for_each(|me| me.closed_a_socket());
                self.hub.after(CLOSED_GRACE, Box::new(closed));
                false
            }
            Ok(n) => {
                self.take(way, inbound, scratch.get(..n).unwrap_or_default(), may_copy);
                n == scratch.len()
            }
            Err(e) => e.kind() == io::ErrorKind::Interrupted,
        }
    }

    /// True if the process may go on without this connection.
    fn may_close(&self) -> bool {
        self.process.is_embedder() || self.is_shared && self.receiver().is_some_and(|receiver| receiver.may_close())
    }

    /// Has the hub handle the end of the connection.
    fn close(&self) {
        self.has_closed.store(true, SeqCst);
        self.hub.request_check(self.id);
    }

    /// Kills a process that closed a socket, unless it may go on without this connection.
    fn closed_a_socket(self: &Arc<Self>) {
        if self.may_close() {
            self.has_closed.store(true, SeqCst);
            self.check();
        } else {
            self.fail("it closed a socket");
        }
    }

    /// Handles frames: earlier bytes of an incomplete one, followed by `came`.
    fn take(self: &Arc<Self>, way: Way, inbound: &mut Inbound, came: &[u8], may_copy: bool) {
        let Some(receiver) = self.receiver() else { return };
        let mut before = std::mem::take(inbound.of(way));
        let is_split = !before.is_empty();
        if is_split {
            before.extend_from_slice(came);
        }
        let all = if is_split { &before[..] } else { came };
        let mut rest = all;
        if let Some(version) = frames::other_version(rest).filter(|_| way == Way::Work) {
            return receiver.other_version(version);
        }
        let mut parks = false;
        let mut reading = Reading { may_copy, side_is_read: false };
        loop {
            let (header, body, behind) = match frames::split(rest) {
                Err(error) => return receiver.condemn(error.0),
                Ok(None) => break,
                Ok(Some(whole)) => whole,
            };
            match Arc::clone(&receiver).frame(way, &header, body, reading) {
                Err(error) => return receiver.condemn(error.0),
                Ok(Next::Go) => {
                    rest = behind;
                    reading.side_is_read = false;
                }
                Ok(Next::ReadSide) => {
                    self.read_side(inbound);
                    reading.side_is_read = true;
                }
                Ok(Next::Copy) => {
                    parks = true;
                    break;
                }
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

    /// Continues on the thread for large copies with the frames that were read, then returns to the hub.
    fn park(self: &Arc<Self>) {
        self.is_parked.store(true, SeqCst);
        self.link.ignore(Way::Side);
        self.link.ignore(Way::Work);
        let parked = Parked(Arc::clone(self));
        self.hub.copy(Box::new(move || {
            let process = &parked.0;
            let mut inbound = process.inbound.lock();
            for way in [Way::Side, Way::Work] {
                process.take(way, &mut inbound, &[], true);
            }
        }));
    }

    /// Handles the frames that are on the side socket now.
    fn read_side(self: &Arc<Self>, inbound: &mut Inbound) {
        let mut spare = std::mem::take(&mut inbound.spare);
        spare.resize(READ_BYTES / 4, 0);
        // An endless stream of frames must not hold the hub.
        let mut left = 256;
        while left > 0 && self.read_once(Way::Side, inbound, &mut spare, true) {
            left -= 1;
        }
        inbound.spare = spare;
    }

    /// Handles a change from another thread.
    pub(crate) fn check(self: &Arc<Self>) {
        if self.link.is_broken() {
            self.fail("it does not read its messages");
        }
        if self.has_ended.load(SeqCst) || self.has_closed.load(SeqCst) {
            self.ended();
        }
    }

    /// Handles the end of the process, or of a connection that it may close.
    pub(crate) fn ended(self: &Arc<Self>) {
        // Does not wait for a thread that copies. Parking needs this lock.
        let inbound = (!self.is_parked.load(SeqCst)).then(|| self.inbound.lock());
        let Some(mut inbound) = inbound.filter(|_| !self.is_parked.load(SeqCst)) else {
            self.has_ended.store(true, SeqCst);
            self.hub.ignore(self.pidfd.as_fd());
            // The copies may have ended without noticing the end.
            if !self.is_parked.load(SeqCst) {
                self.hub.request_check(self.id);
            }
            return;
        };
        let how = match self.process.ended() {
            Some(ended) => ended.to_string(),
            None if self.has_closed.load(SeqCst) => "closed its connection".to_owned(),
            None => return,
        };
        // Frames sent before the end are handled.
        let mut scratch = vec![0; READ_BYTES];
        for way in [Way::Side, Way::Work] {
            let mut left = 64;
            while left > 0 && self.read_once(way, &mut inbound, &mut scratch, true) {
                left -= 1;
            }
        }
        drop(inbound);
        self.unregister();
        self.disconnect();
        let receiver = self.receiver.write().take();
        if let Some(receiver) = receiver {
            receiver.over(&how);
        }
    }

    fn disconnect(&self) {
        if self.is_counted.swap(false, SeqCst) {
            self.process.disconnect();
        }
    }

    fn unregister(&self) {
        self.hub.remove(self.id, self.pidfd.as_fd());
        self.link.ignore(Way::Side);
        self.link.ignore(Way::Work);
    }

    fn register(self: Arc<Self>) -> io::Result<()> {
        self.hub.add(self.id, Arc::clone(&self) as _);
        self.link.listen(Way::Side)?;
        self.link.listen(Way::Work)?;
        self.hub.await_end(self.id, self.pidfd.as_fd())
    }
}

impl Transport for Process {
    fn send(&self, way: Way, frames: &[u8]) {
        self.link.send(way, frames, None);
    }

    fn send_soon(&self, frames: &[u8]) {
        if self.link.hold(frames) {
            backend::poll::keep_for_turn(Box::new(HeldFrames(self.me.clone())));
        }
    }

    fn on_frame(&self, receiver: Arc<dyn Receiver>) -> io::Result<()> {
        *self.receiver.write() = Some(receiver);
        let joined = self.me.upgrade().map_or(Ok(()), Self::register);
        joined.inspect_err(|_| {
            self.unregister();
            *self.receiver.write() = None;
        })
    }

    fn end(&self, how: End) {
        match how {
            End::Requested if self.process.is_embedder() => {}
            // Its connection ends, and the program goes on.
            End::Hung | End::Killed if self.process.is_embedder() => {
                self.link.shut_down();
                self.close();
            }
            // A stopped process could not end.
            End::Requested => self.process.signal(libc::SIGCONT),
            // Python's fault handler writes all stacks to the log, then the process dies.
            End::Hung => self.process.signal(libc::SIGABRT),
            End::Killed => self.process.kill(),
        }
    }

    fn write_stack(&self, is_python: bool) -> bool {
        // The Python runtime has a handler of this signal. Other processes have none.
        if is_python {
            self.process.signal(libc::SIGUSR2);
        }
        is_python
    }

    fn add_segment(&self, segment: Segment) -> Option<RegionRef> {
        let memory = Arc::new(Memfd::new(usize::try_from(segment.bytes).ok()?).ok()?);
        let mut frame = Vec::new();
        frames::write::segment(&mut frame, segment);
        self.link.send(Way::Side, &frame, Some(Arc::clone(&memory)));
        Some(memory)
    }

    fn resident_bytes(&self) -> u64 {
        self.process.resident_bytes_per_connection()
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.disconnect();
    }
}
