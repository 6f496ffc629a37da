//! What drives a connection sees of it.

use super::still::Look;
use super::{ALIVE, Closing, Core, Read};
use crate::frame::{Reason, kind};
use crate::handle::{Request, Responder};
use crate::options::Options;
use bytes::BytesMut;
use std::cell::RefCell;
use std::io::IoSliceMut;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// A server's side of one connection, without I/O.
pub struct Machine {
    pub(crate) core: Rc<RefCell<Core>>,
}

impl Machine {
    /// A connection that begins.
    pub fn new(options: Options) -> Self {
        Self { core: Rc::new(RefCell::new(Core::new(options))) }
    }

    /// Takes whole frames, and of DATA frames what is there, from the front of `bytes`. What is left is the beginning of a frame, or
    /// was not wanted (see `may_read`), or is for the next turn (see `has_rest`).
    pub fn receive(&mut self, bytes: &mut BytesMut, now: Instant) {
        self.core.borrow_mut().receive(bytes, now);
    }

    /// Reads into the body that is being received, where that has room for it; see `Body::collect`. Else `None`, and nothing was
    /// read. `rest` is what `receive` left over.
    pub fn read_direct(
        &mut self,
        rest: &mut BytesMut,
        now: Instant,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Poll<std::io::Result<usize>>,
    ) -> Option<Poll<std::io::Result<Read>>> {
        self.core.borrow_mut().read_direct(rest, now, read)
    }

    /// How many bytes are missing until `receive` can do something, as far as is known: for the size of a read.
    pub fn wanted(&self) -> usize {
        self.core.borrow().reading.data.as_ref().map_or(0, |d| d.left)
    }

    /// Whether `receive` is to be called again, in another turn, before more is read: it had many frames, and the turn was over.
    pub fn has_rest(&self) -> bool {
        let core = self.core.borrow();
        core.reading.has_rest && core.closing != Closing::Failed
    }

    /// Whether calls came that were not taken.
    pub fn has_calls(&self) -> bool {
        !self.core.borrow().calls.accepted.is_empty()
    }

    /// A call that came.
    pub fn accept(&mut self) -> Option<(Request, Responder)> {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        loop {
            let key = core.calls.accepted.pop_front()?;
            let Some(stream) = core.streams.get(key) else { continue };
            // The places in the queue are handles too: a slot is not used again before it was seen here.
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

    /// Whether more bytes should be given to `receive`: not while the client leaves our output where it is, and not at the end.
    pub fn may_read(&self) -> bool {
        self.core.borrow().may_read()
    }

    /// Whether the connection is over once everything is written.
    pub fn is_finished(&self) -> bool {
        self.core.borrow().is_finished()
    }

    /// Whether it ends because of something the client did.
    pub fn is_failed(&self) -> bool {
        self.core.borrow().closing == Closing::Failed
    }

    /// Moves what may be sent to the end of `to`. For callers without vectored writes: it copies.
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

    /// Whether the client does not speak HTTP/2.
    pub fn is_stray(&self) -> bool {
        self.core.borrow().handshake.is_stray
    }

    /// Asks the client to make no more calls. The connection is over when those under way are.
    pub fn leave(&mut self) {
        self.core.borrow_mut().leave();
    }

    /// Tells the client that no further call is served. The connection is over when those that came are.
    pub fn leave_now(&mut self) {
        let mut core = self.core.borrow_mut();
        if matches!(core.closing, Closing::No | Closing::Asked) {
            let last = core.calls.last_id;
            core.leave_after(last);
            core.wake_driver();
        }
    }

    /// Asks the client whether it is there; false when it is being asked, or may not be again before something else is sent.
    pub fn ping(&mut self) -> bool {
        let mut core = self.core.borrow_mut();
        let max = core.options.pings.sent_without_data_max;
        if core.pings.asked || !core.handshake.settled || (max > 0 && core.pings.without_data >= max) {
            return false;
        }
        core.pings.asked = true;
        core.pings.without_data += 1;
        core.writing.put_frame(kind::PING, 0, 0, &ALIVE);
        core.wake_driver();
        true
    }

    /// Whether the client has answered a ping since this was last asked.
    pub fn take_pong(&mut self) -> bool {
        std::mem::take(&mut self.core.borrow_mut().pings.answered)
    }

    /// How long until `look` has to be called; `None` while a client may be silent.
    pub fn look_after(&self) -> Option<Duration> {
        self.core.borrow().look_after()
    }

    /// Gives up what has been waited for too long; false when the connection is to be closed at once, as the client takes
    /// nothing of what is written.
    pub fn look(&mut self, now: Instant) -> bool {
        self.core.borrow_mut().look(now) == Look::GoOn
    }

    /// Whether calls were answered of which the client still sends the body.
    pub fn is_lingering(&self) -> bool {
        self.core.borrow().streams.lingering() > 0
    }

    /// Ends every stream: the client is gone.
    pub fn abandon(&mut self) {
        self.core.borrow_mut().abandon(Reason::CANCEL);
    }

    /// Streams the client has open.
    pub fn streams(&self) -> usize {
        self.core.borrow().streams.len()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.abandon();
    }
}
