//! The two sockets of one runner.
//!
//! All methods may be called from any thread and none blocks: the hub's thread writes what a socket does not accept.

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

/// Unsent bytes for a runner that does not read, besides the frame that is being sent.
const UNSENT_BYTES_MAX: usize = 64 << 20;

pub(crate) struct Link {
    /// Id of the runner for the hub.
    id: u64,
    hub: &'static Hub,
    work: Socket,
    side: Socket,
    /// The runner does not read, or has closed the socket.
    is_broken: AtomicBool,
}

/// Bytes of frames that may wait for the end of a turn; with more, they are sent at once.
const HELD_BYTES_MAX: usize = 64 << 10;

/// A socket and its unsent bytes.
pub(crate) struct Socket {
    pub(crate) stream: UnixStream,
    unsent: Mutex<UnsentFrames>,
    /// Reader of the socket: incremented with each change, odd while a poller reads. Changed under `unsent`'s lock.
    reader: AtomicU64,
}

#[derive(Default)]
struct UnsentFrames {
    /// Frames that a reactor sends at the end of its turn, or any thread together with its own.
    held: Vec<u8>,
    parts: VecDeque<(Vec<u8>, Option<Arc<Memfd>>)>,
    /// Sent bytes of the first part.
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
        let socket = |stream| Socket { stream, unsent: Mutex::default(), reader: AtomicU64::new(0) };
        Ok(Self { id, hub: Hub::get()?, work: socket(work), side: socket(side), is_broken: AtomicBool::new(false) })
    }

    /// True if the runner must be killed because it does not read.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    /// Ends both sockets in both directions.
    pub(crate) fn shut_down(&self) {
        for socket in [&self.work, &self.side] {
            let _ = socket.stream.shutdown(std::net::Shutdown::Both);
        }
    }

    pub(crate) fn socket(&self, way: Way) -> &Socket {
        match way {
            Way::Work => &self.work,
            Way::Side => &self.side,
        }
    }

    /// Sends frames, the first byte with a segment's descriptor. Frames of a call stay together; calls keep their
    /// order.
    pub(crate) fn send(&self, way: Way, frames: &[u8], segment: Option<Arc<Memfd>>) {
        let mut unsent = self.socket(way).unsent.lock();
        if unsent.held.is_empty() || segment.is_some() {
            self.write_held(way, &mut unsent);
            return self.write(way, &mut unsent, frames, segment);
        }
        unsent.held.extend_from_slice(frames);
        self.write_held(way, &mut unsent);
    }

    /// Holds frames of the work socket until `send_held`. True if there were none, so that the caller has to call it.
    pub(crate) fn hold(&self, frames: &[u8]) -> bool {
        let mut unsent = self.work.unsent.lock();
        let is_first = unsent.held.is_empty();
        unsent.held.extend_from_slice(frames);
        if unsent.held.len() > HELD_BYTES_MAX {
            self.write_held(Way::Work, &mut unsent);
            return false;
        }
        is_first
    }

    /// Sends the frames that `hold` left.
    pub(crate) fn send_held(&self) {
        self.write_held(Way::Work, &mut self.work.unsent.lock());
    }

    fn write_held(&self, way: Way, unsent: &mut UnsentFrames) {
        let mut held = std::mem::take(&mut unsent.held);
        if !held.is_empty() {
            self.write(way, unsent, &held, None);
            held.clear();
            unsent.held = held;
        }
    }

    fn write(&self, way: Way, unsent: &mut UnsentFrames, frames: &[u8], segment: Option<Arc<Memfd>>) {
        let socket = self.socket(way);
        let mut sent = 0;
        if unsent.parts.is_empty() {
            match sys::send(socket.stream.as_fd(), frames, segment.as_ref().map(|s| s.as_fd())) {
                Ok(n) if n == frames.len() => return,
                Ok(n) => sent = n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                // The socket is closed, which the hub notices.
                Err(_) => return,
            }
        } else if unsent.bytes > UNSENT_BYTES_MAX {
            self.is_broken.store(true, Relaxed);
            self.hub.request_check(self.id);
            return;
        }
        let is_first = unsent.parts.is_empty();
        if is_first {
            unsent.sent = sent;
        }
        unsent.bytes += frames.len();
        // A descriptor that was sent with the first byte is not sent again.
        unsent.parts.push_back((frames.to_vec(), segment.filter(|_| sent == 0)));
        if is_first {
            if socket.is_watched() {
                let _ = self.hub.listen(self.id, way, socket.stream.as_fd(), Interest::Write);
            } else {
                self.hub.interest(self.id, way, socket.stream.as_fd(), Interest::ReadWrite);
            }
        }
    }

    /// Writes unsent bytes; the hub calls it when the socket can be written.
    pub(crate) fn flush(&self, way: Way) {
        let socket = self.socket(way);
        let mut unsent = socket.unsent.lock();
        while let Some((part, segment)) = unsent.parts.front() {
            let rest = part.get(unsent.sent..).unwrap_or_default();
            let segment = segment.as_ref().filter(|_| unsent.sent == 0);
            match sys::send(socket.stream.as_fd(), rest, segment.map(|s| s.as_fd())) {
                Ok(n) if n == rest.len() => {
                    unsent.bytes -= part.len();
                    unsent.parts.pop_front();
                    unsent.sent = 0;
                }
                Ok(n) => unsent.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    *unsent = UnsentFrames::default();
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

    /// Has a poller read a socket; the hub then only writes. Returns the poller's turn, valid while
    /// [`is_read_by`](Self::is_read_by) is true; `None` if there is one already.
    pub(crate) fn pass_to_reactor(&self, way: Way) -> Option<u64> {
        let socket = self.socket(way);
        let unsent = socket.unsent.lock();
        if socket.is_watched() {
            return None;
        }
        let turn = socket.reader.fetch_add(1, Relaxed) + 1;
        if unsent.parts.is_empty() {
            self.hub.ignore(socket.stream.as_fd());
        } else {
            self.hub.interest(self.id, way, socket.stream.as_fd(), Interest::Write);
        }
        Some(turn)
    }

    /// True if the poller with this turn reads the socket.
    pub(crate) fn is_read_by(&self, way: Way, turn: u64) -> bool {
        self.socket(way).reader.load(Relaxed) == turn
    }

    /// Has the hub read a socket again, if the poller with this turn still does, or any poller without a turn.
    pub(crate) fn take_back(&self, way: Way, turn: Option<u64>) {
        // Under the lock: the socket of a process that ends meanwhile has no reader.
        let socket = self.socket(way);
        let unsent = socket.unsent.lock();
        if turn.map_or(socket.is_watched(), |turn| self.is_read_by(way, turn)) {
            // An error has no effect: the end of the process is noticed anyway.
            let _ = self.listen_again(way, &unsent);
        }
    }

    /// Has the hub watch a socket.
    pub(crate) fn listen(&self, way: Way) -> io::Result<()> {
        // Under the lock: bytes that are left unsent later find the socket watched.
        let unsent = self.socket(way).unsent.lock();
        self.listen_again(way, &unsent)
    }

    fn listen_again(&self, way: Way, unsent: &UnsentFrames) -> io::Result<()> {
        let socket = self.socket(way);
        if socket.is_watched() {
            socket.reader.fetch_add(1, Relaxed);
            self.hub.ignore(socket.stream.as_fd());
        }
        let interest = if unsent.parts.is_empty() { Interest::Read } else { Interest::ReadWrite };
        self.hub.listen(self.id, way, socket.stream.as_fd(), interest)
    }

    /// Stops the hub and a poller from watching a socket.
    pub(crate) fn ignore(&self, way: Way) {
        let socket = self.socket(way);
        let _waiting = socket.unsent.lock();
        if socket.is_watched() {
            socket.reader.fetch_add(1, Relaxed);
        }
        self.hub.ignore(socket.stream.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn held_frames_keep_their_place_and_are_few() {
        let [(work, mut theirs), (side, _side)] = [(); 2].map(|()| UnixStream::pair().unwrap());
        theirs.set_nonblocking(true).unwrap();
        let link = Link::new(1, work, side).unwrap();
        let mut come = || {
            let mut bytes = vec![0; 2 * HELD_BYTES_MAX];
            let n = theirs.read(&mut bytes).unwrap_or(0);
            bytes.truncate(n);
            bytes
        };
        assert!(link.hold(b"a") && !link.hold(b"b"), "the first one has to be sent by its caller");
        assert_eq!(come(), b"");
        link.send(Way::Work, b"c", None);
        assert_eq!(come(), b"abc", "another frame does not overtake them");
        link.send_held();
        assert_eq!(come(), b"", "they are sent once");
        assert!(link.hold(b"d"));
        link.send_held();
        assert_eq!(come(), b"d");
        assert!(!link.hold(&vec![7; HELD_BYTES_MAX + 1]), "too many bytes are sent at once");
        assert_eq!(come().len(), HELD_BYTES_MAX + 1);
        assert!(link.hold(b"e"));
    }
}
