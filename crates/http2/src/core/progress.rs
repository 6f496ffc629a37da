//! A view of what a connection waits for, for the owner of many connections.

use super::{Closing, Core, Fatal};
use crate::frame::Reason;
use crate::limits::STREAMS_PER_LOOK;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// Bodies and responses that only the client can continue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waits {
    /// Bodies that the client has not sent.
    pub bodies: usize,
    /// A body has not come to its end, even if the server reads a part of it now.
    pub is_body_open: bool,
    /// Responses that it leaves unread.
    pub responses: usize,
    /// Bytes that the connection has moved in both directions since its start.
    pub bytes: u64,
}

/// Follows a connection without keeping it.
#[derive(Clone)]
pub struct ConnectionProgress(Weak<RefCell<Core>>);

impl ConnectionProgress {
    pub(super) fn new(core: &Rc<RefCell<Core>>) -> Self {
        Self(Rc::downgrade(core))
    }

    /// Looks at the oldest [`STREAMS_PER_LOOK`] streams.
    pub fn waits(&self) -> Waits {
        self.0.upgrade().map(|core| core.borrow_mut().waits()).unwrap_or_default()
    }

    /// Ends the connection with a GOAWAY.
    pub fn end(&self, text: &'static str) {
        if let Some(core) = self.0.upgrade() {
            let mut core = core.borrow_mut();
            core.fail(Fatal(Reason::ENHANCE_YOUR_CALM, text));
            core.wake_driver();
        }
    }
}

impl Core {
    fn waits(&mut self) -> Waits {
        let is_unread = !self.writing.output.is_empty() && !self.holds_back();
        let bytes = self.reading.received_bytes + self.writing.output.written();
        let mut waits = Waits { bodies: 0, is_body_open: false, responses: usize::from(is_unread), bytes };
        if self.closing == Closing::Failed {
            return waits;
        }
        let windows = (self.receive_window, self.writing.send_window);
        let keys: Vec<u32> = self.streams.keys().take(STREAMS_PER_LOOK).collect();
        for key in keys {
            let Some(stream) = self.streams.get(key) else { continue };
            let (body, response) = stream.awaits_client(windows.0, windows.1);
            // The rest of a body whose call was answered keeps the connection as well.
            waits.bodies += usize::from(body || stream.body.lingers);
            waits.is_body_open |= stream.has_body && !stream.body.is_paused && !stream.body.received_all;
            waits.responses += usize::from(response);
        }
        waits
    }
}
