//! The two sockets of one runner.
//!
//! Anything here may be called from any thread, and nothing blocks: what a socket does not take at once waits in its buffer, and the hub's thread writes it when it can.

use crate::hub::Hub;
use crate::sys::{self, Interest};
use backend_remote::Way;
use memory::Memfd;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Bytes that may wait for a runner that does not read, besides the frame that is being sent.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// One runner's sockets.
pub(crate) struct Link {
    /// Which runner, for the hub.
    id: u64,
    hub: &'static Hub,
    work: Socket,
    side: Socket,
    /// It does not read what it is sent, or is gone.
    is_broken: AtomicBool,
}

/// A socket and what it has not taken yet.
pub(crate) struct Socket {
    pub(crate) stream: UnixStream,
    waiting: Mutex<Waiting>,
    /// Who reads it: raised with each change, odd while a [`backend::poll::Poller`] does. Changed under the lock of `waiting`.
    reader: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    parts: VecDeque<(Vec<u8>, Option<Arc<Memfd>>)>,
    /// Bytes of the first part that were sent.
    sent: usize,
    bytes: usize,
}

impl Socket {
    fn is_watched(&self) -> bool {
        self.reader.load(Relaxed) % 2 == 1
    }
}

impl Link {
    pub(crate) fn new(id: u64, work: UnixStream, side: UnixStream) -> io::Result<Self> {
        work.set_nonblocking(true)?;
        side.set_nonblocking(true)?;
        let socket = |stream| Socket { stream, waiting: Mutex::default(), reader: AtomicU64::new(0) };
        Ok(Self { id, hub: Hub::get()?, work: socket(work), side: socket(side), is_broken: AtomicBool::new(false) })
    }

    /// Whether the runner is to be killed, since it does not read.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    pub(crate) fn socket(&self, way: Way) -> &Socket {
        match way {
            Way::Work => &self.work,
            Way::Side => &self.side,
        }
    }

    /// Sends frames, the first byte with the descriptor of a segment. Those of one call stay together, and calls for one socket in their order.
    pub(crate) fn send(&self, way: Way, frames: &[u8], segment: Option<Arc<Memfd>>) {
        let socket = self.socket(way);
        let mut waiting = socket.waiting.lock();
        let mut sent = 0;
        if waiting.parts.is_empty() {
            match sys::send(socket.stream.as_fd(), frames, segment.as_ref().map(|s| s.as_fd())) {
                Ok(n) if n == frames.len() => return,
                Ok(n) => sent = n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // It is gone, and the hub hears of that.
                Err(_) => return,
            }
        } else if waiting.bytes > WAITING_BYTES_MAX {
            self.is_broken.store(true, Relaxed);
            self.hub.look_at(self.id);
            return;
        }
        let is_first = waiting.parts.is_empty();
        if is_first {
            waiting.sent = sent;
        }
        waiting.bytes += frames.len();
        // A descriptor that went with the first byte is not sent again.
        waiting.parts.push_back((frames.to_vec(), segment.filter(|_| sent == 0)));
        if is_first {
            if socket.is_watched() {
                let _ = self.hub.listen(self.id, way, socket.stream.as_fd(), Interest::Write);
            } else {
                self.hub.interest(self.id, way, socket.stream.as_fd(), Interest::ReadWrite);
            }
        }
    }

    /// Writes what waits; called by the hub when the socket takes more.
    pub(crate) fn flush(&self, way: Way) {
        let socket = self.socket(way);
        let mut waiting = socket.waiting.lock();
        while let Some((part, segment)) = waiting.parts.front() {
            let rest = part.get(waiting.sent..).unwrap_or_default();
            let segment = segment.as_ref().filter(|_| waiting.sent == 0);
            match sys::send(socket.stream.as_fd(), rest, segment.map(|s| s.as_fd())) {
                Ok(n) if n == rest.len() => {
                    waiting.bytes -= part.len();
                    waiting.parts.pop_front();
                    waiting.sent = 0;
                }
                Ok(n) => waiting.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    *waiting = Waiting::default();
                    break;
                }
            }
        }
        if socket.is_watched() {
            self.hub.ignore(socket.stream.as_fd());
        } else {
            self.hub.interest(self.id, way, socket.stream.as_fd(), Interest::Read);
        }
    }

    /// Has a poller read the work socket in the place of the hub, which only writes what waits. The turn it has: it is its own as long as
    /// [`is_read_by`](Self::is_read_by) says so. `None`: one has it already.
    pub(crate) fn pass_on(&self) -> Option<u64> {
        let socket = &self.work;
        let waiting = socket.waiting.lock();
        if socket.is_watched() {
            return None;
        }
        let turn = socket.reader.fetch_add(1, Relaxed) + 1;
        if waiting.parts.is_empty() {
            self.hub.ignore(socket.stream.as_fd());
        } else {
            self.hub.interest(self.id, Way::Work, socket.stream.as_fd(), Interest::Write);
        }
        Some(turn)
    }

    /// Whether the poller with this turn reads the work socket.
    pub(crate) fn is_read_by(&self, turn: u64) -> bool {
        self.work.reader.load(Relaxed) == turn
    }

    /// Has the hub read the work socket again, if the poller with this turn still does.
    pub(crate) fn take_back(&self, turn: u64) {
        // Under the lock: a process that is over meanwhile has its socket read by nobody.
        let waiting = self.work.waiting.lock();
        if self.is_read_by(turn) {
            // Whatever it fails for: the end of the process is seen all the same.
            let _ = self.listen_again(Way::Work, &waiting);
        }
    }

    /// Has the hub listen to a socket.
    pub(crate) fn listen(&self, way: Way) -> io::Result<()> {
        // Under the lock: what begins to wait later finds the socket there.
        let waiting = self.socket(way).waiting.lock();
        self.listen_again(way, &waiting)
    }

    fn listen_again(&self, way: Way, waiting: &Waiting) -> io::Result<()> {
        let socket = self.socket(way);
        if socket.is_watched() {
            socket.reader.fetch_add(1, Relaxed);
            self.hub.ignore(socket.stream.as_fd());
        }
        let interest = if waiting.parts.is_empty() { Interest::Read } else { Interest::ReadWrite };
        self.hub.listen(self.id, way, socket.stream.as_fd(), interest)
    }

    /// Has the hub look away, and a poller.
    pub(crate) fn ignore(&self, way: Way) {
        let socket = self.socket(way);
        let _waiting = socket.waiting.lock();
        if socket.is_watched() {
            socket.reader.fetch_add(1, Relaxed);
        }
        self.hub.ignore(socket.stream.as_fd());
    }
}
