//! The interface of a connection's state for its driver.

use super::stall::Look;
use super::{ALIVE, Closing, ConnectionProgress, Core, Read};
use crate::frame::{Reason, kind};
use crate::handle::{Request, StreamWriter};
use crate::options::Options;
use bytes::BytesMut;
use std::cell::RefCell;
use std::io::IoSliceMut;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The server's side of one connection, without I/O.
pub struct Machine {
    pub(crate) core: Rc<RefCell<Core>>,
}

impl Machine {
    /// A new connection.
    pub fn new(options: Options) -> Self {
        Self { core: Rc::new(RefCell::new(Core::new(options))) }
    }

    /// Takes whole frames, and available parts of DATA frames, from the front of `bytes`. The rest is the beginning of
    /// a frame, must not be read (see `may_read`), or is for the next turn (see `has_rest`).
    pub fn receive(&mut self, bytes: &mut BytesMut, now: Instant) {
        self.core.borrow_mut().receive(bytes, now);
    }

    /// Reads directly into the body that is being received, if its target has room; see `Body::collect`. Otherwise
    /// returns `None` and reads nothing. `rest` is what `receive` left over.
    pub fn read_direct(
        &mut self,
        rest: &mut BytesMut,
        now: Instant,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Poll<std::io::Result<usize>>,
    ) -> Option<Poll<std::io::Result<Read>>> {
        self.core.borrow_mut().read_direct(rest, now, read)
    }

    /// Bytes still missing until `receive` can make progress, as far as known: for the size of a read.
    pub fn bytes_missing(&self) -> usize {
        self.core.borrow().reading.data.as_ref().map_or(0, |d| d.left)
    }

    /// True if `receive` must be called again, in another turn, before the next read: the turn ended among many frames.
    pub fn has_rest(&self) -> bool {
        let core = self.core.borrow();
        core.reading.has_rest && core.closing != Closing::Failed
    }

    /// True if calls wait to be accepted.
    pub fn has_calls(&self) -> bool {
        !self.core.borrow().calls.accepted.is_empty()
    }

    /// Returns the next call.
    pub fn accept(&mut self) -> Option<(Request, StreamWriter)> {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        loop {
            let key = core.calls.accepted.pop_front()?;
            let Some(stream) = core.streams.get(key) else { continue };
            // Entries of the queue count as handles, so a slot is not used again before it was seen here.
            if !stream.on_wire {
                core.drop_body(key);
                continue;
            }
            let Some(head) = stream.head.take() else { continue };
            stream.handles += 1;
            let is_end = stream.body.received_all;
            return Some(Request::new(head, &self.core, key, is_end));
        }
    }

    /// True if `receive` may get more bytes: not while the client leaves our output unread, and not at the end.
    pub fn may_read(&self) -> bool {
        self.core.borrow().may_read()
    }

    /// True if the connection ends once everything is written.
    pub fn is_finished(&self) -> bool {
        self.core.borrow().is_finished()
    }

    /// True if the connection ends because of an error of the client.
    pub fn is_failed(&self) -> bool {
        self.core.borrow().closing == Closing::Failed
    }

    /// Moves output to the end of `to`. For callers without vectored writes: it copies.
    pub fn transmit(&mut self, to: &mut Vec<u8>) {
        let mut core = self.core.borrow_mut();
        loop {
            core.pump();
            if core.writing.output.is_empty() {
                return;
            }
            let mut slices = [std::io::IoSlice::new(&[]); 16];
            let n = core.writing.output.slices(&mut slices);
            let mut bytes = 0;
            for slice in slices.iter().take(n) {
                to.extend_from_slice(slice);
                bytes += slice.len();
            }
            core.writing.output.advance(bytes);
        }
    }

    /// True if the client does not speak HTTP/2.
    pub fn is_stray(&self) -> bool {
        self.core.borrow().handshake.is_stray
    }

    /// Asks the client to make no more calls. The connection ends with those in progress.
    pub fn drain(&mut self) {
        self.core.borrow_mut().drain();
    }

    /// Tells the client that no further call is served. The connection ends with those that came.
    pub fn drain_now(&mut self) {
        let mut core = self.core.borrow_mut();
        if matches!(core.closing, Closing::No | Closing::Announced) {
            let last = core.calls.last_id;
            core.drain_after(last);
            core.wake_driver();
        }
    }

    /// Pings the client; returns false if a ping is unanswered, or none is allowed before other output.
    pub fn ping(&mut self) -> bool {
        let mut core = self.core.borrow_mut();
        let max = core.options.pings.sent_without_data_max;
        if core.pings.pending || !core.handshake.settled || (max > 0 && core.pings.without_data >= max) {
            return false;
        }
        core.pings.pending = true;
        core.pings.without_data += 1;
        core.writing.put_frame(kind::PING, 0, 0, &ALIVE);
        core.wake_driver();
        true
    }

    /// Returns true if the client has answered a ping since the last call.
    pub fn take_pong(&mut self) -> bool {
        std::mem::take(&mut self.core.borrow_mut().pings.answered)
    }

    /// Time until `look` has to be called; `None` while no timeout runs.
    pub fn look_after(&self) -> Option<Duration> {
        self.core.borrow().look_after()
    }

    /// Ends what has exceeded its timeout; returns false if the connection must close because no output is taken.
    pub fn look(&mut self, now: Instant) -> bool {
        self.core.borrow_mut().look(now) == Look::Continue
    }

    /// True if the client still sends the body of an answered call.
    pub fn is_lingering(&self) -> bool {
        self.core.borrow().streams.lingering() > 0
    }

    /// Ends every stream, because the client is gone.
    pub fn abandon(&mut self) {
        self.core.borrow_mut().abandon(Reason::CANCEL);
    }

    /// A view of what the connection waits for.
    pub fn progress(&self) -> ConnectionProgress {
        ConnectionProgress::new(&self.core)
    }

    /// Number of open streams.
    pub fn streams(&self) -> usize {
        self.core.borrow().streams.len()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.abandon();
    }
}
