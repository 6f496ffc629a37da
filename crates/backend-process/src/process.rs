//! One process that runs an instance of a model: its sockets, what it says, and its end.
//!
//! What it says is handled under `inbound`, by the hub's thread, by a reactor, or by the one for large copies while `is_parked`: so its frames are handled one at a time, in
//! the order in which they came on a socket.

use crate::guardian::Guarded;
use crate::hub::{FAILED_OVER_IT, Hub, READ_BYTES};
use crate::link::Link;
use crate::sys::{self, Child};
use backend_remote::generated::Segment;
use backend_remote::{End, Executor, Next, Reading, Receiver, Transport, Way, frames};
use memory::Memfd;
use parking_lot::{Mutex, RwLock};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::RegionRef;

/// How long a process may live that closed its sockets.
const CLOSED_GRACE: Duration = Duration::from_millis(500);

pub(crate) struct Process {
    id: u64,
    me: Weak<Self>,
    hub: &'static Hub,
    pub(crate) link: Link,
    child: Mutex<Child>,
    /// Until the process is over.
    guarded: Mutex<Option<Guarded>>,
    /// What hears of it, until it is over.
    receiver: RwLock<Option<Arc<dyn Receiver>>>,
    inbound: Mutex<Inbound>,
    /// Another thread copies for it, and the hub looks away.
    is_parked: AtomicBool,
    /// It is over, and that is handled once it is no longer parked.
    is_over: AtomicBool,
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

/// A runner that the hub looks away from. Dropped, also by a panic, the hub goes on: not a reactor at once, which would get a descriptor of its own
/// each time and know of the last one's end only when something comes on the work socket.
struct Parked(Arc<Process>);

impl Drop for Parked {
    fn drop(&mut self) {
        let process = &self.0;
        if std::thread::panicking() {
            process.condemn(FAILED_OVER_IT);
        }
        // Before the process may be over: sockets of one that is are not to come back to the hub, which would hear of them for ever.
        let listens = process.link.listen(Way::Side).and_then(|()| process.link.listen(Way::Work));
        process.is_parked.store(false, SeqCst);
        if process.is_over.load(SeqCst) || listens.is_err() {
            process.hub.look_at(process.id);
        }
    }
}

impl Process {
    pub(crate) fn new(id: u64, hub: &'static Hub, link: Link, child: Child, guarded: Guarded) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            id,
            me: me.clone(),
            hub,
            link,
            child: Mutex::new(child),
            guarded: Mutex::new(Some(guarded)),
            receiver: RwLock::default(),
            inbound: Mutex::default(),
            is_parked: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        })
    }

    fn receiver(&self) -> Option<Arc<dyn Receiver>> {
        self.receiver.read().clone()
    }

    pub(crate) fn condemn(&self, why: &str) {
        if let Some(receiver) = self.receiver() {
            receiver.condemn(why);
        }
    }

    /// Whether a thread that serves others may read the work socket.
    pub(crate) fn is_brief(&self) -> bool {
        !self.is_parked.load(SeqCst) && self.receiver().is_some_and(|receiver| receiver.is_brief())
    }

    /// A socket can be read. Whether there may be more to read.
    pub(crate) fn readable(self: &Arc<Self>, way: Way, scratch: &mut [u8]) -> bool {
        if self.is_parked.load(SeqCst) {
            return false;
        }
        let mut inbound = self.inbound.lock();
        self.read_once(way, &mut inbound, scratch, false)
    }

    /// Reads once and handles the whole frames that are there. Whether there may be more to read.
    fn read_once(self: &Arc<Self>, way: Way, inbound: &mut Inbound, scratch: &mut [u8], may_copy: bool) -> bool {
        match sys::receive(self.link.socket(way).stream.as_fd(), scratch) {
            Ok(0) => {
                // It ends, most likely, and the kernel says so in a moment.
                self.link.ignore(way);
                let me = self.me.clone();
                let closed = move || me.upgrade().into_iter().for_each(|me| me.condemn("it closed a socket"));
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

    /// Handles frames: what came before and was not whole, and `came` behind it.
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
                Err(lie) => return receiver.condemn(lie.0),
                Ok(None) => break,
                Ok(Some(whole)) => whole,
            };
            match Arc::clone(&receiver).frame(way, &header, body, reading) {
                Err(lie) => return receiver.condemn(lie.0),
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

    /// Another thread goes on: with the frames that were read, then it is the hub's turn again.
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

    /// Something about it changed on another thread.
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
        // Not waited for while another thread copies. Nobody parks it once this is held.
        let inbound = (!self.is_parked.load(SeqCst)).then(|| self.inbound.lock());
        let Some(mut inbound) = inbound.filter(|_| !self.is_parked.load(SeqCst)) else {
            self.is_over.store(true, SeqCst);
            self.hub.ignore(self.child.lock().pidfd());
            // The copies may have come to their end without having seen that it is over.
            if !self.is_parked.load(SeqCst) {
                self.hub.look_at(self.id);
            }
            return;
        };
        let Some(ended) = self.child.lock().reap(false) else { return };
        // What it said before it ended counts.
        let mut scratch = vec![0; READ_BYTES];
        for way in [Way::Side, Way::Work] {
            let mut left = 64;
            while left > 0 && self.read_once(way, &mut inbound, &mut scratch, true) {
                left -= 1;
            }
        }
        drop(inbound);
        self.leave_hub();
        drop(self.guarded.lock().take());
        let receiver = self.receiver.write().take();
        if let Some(receiver) = receiver {
            receiver.over(&ended.to_string());
        }
    }

    fn leave_hub(&self) {
        self.hub.remove(self.id, self.child.lock().pidfd());
        self.link.ignore(Way::Side);
        self.link.ignore(Way::Work);
    }

    fn join_hub(self: Arc<Self>) -> io::Result<()> {
        self.hub.add(self.id, Arc::clone(&self) as _);
        self.link.listen(Way::Side)?;
        self.link.listen(Way::Work)?;
        self.hub.await_end(self.id, self.child.lock().pidfd())
    }
}

impl Transport for Process {
    fn send(&self, way: Way, frames: &[u8]) {
        self.link.send(way, frames, None);
    }

    fn on_frame(&self, receiver: Arc<dyn Receiver>) -> io::Result<()> {
        *self.receiver.write() = Some(receiver);
        let joined = self.me.upgrade().map_or(Ok(()), Self::join_hub);
        joined.inspect_err(|_| {
            self.leave_hub();
            *self.receiver.write() = None;
        })
    }

    fn end(&self, how: End) {
        let child = self.child.lock();
        match how {
            // One that somebody stopped could not end.
            End::Told => child.signal(libc::SIGCONT),
            // Python's fault handler writes all stacks to the log, and lets it die.
            End::Hung => child.signal(libc::SIGABRT),
            End::Killed => child.kill(),
        }
    }

    fn add_segment(&self, segment: Segment) -> Option<RegionRef> {
        let memory = Arc::new(Memfd::new(usize::try_from(segment.bytes).ok()?).ok()?);
        let mut frame = Vec::new();
        frames::write::segment(&mut frame, segment);
        self.link.send(Way::Side, &frame, Some(Arc::clone(&memory)));
        Some(memory)
    }

    fn resident_bytes(&self) -> u64 {
        let pid = self.child.lock().pid;
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
        let pages = text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        pages.saturating_mul(4096)
    }
}
