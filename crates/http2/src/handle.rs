//! What a caller holds of a call. Dropping all of it without an answer resets the stream.

use crate::collect::{Collect, Collected, Gone, NotCollected};
use crate::core::Core;
use crate::ends::Ends;
use crate::frame::Reason;
use crate::head::RequestHead;
use crate::hpack::Field;
use crate::later::go_on_later;
use bytes::{Buf, Bytes};
use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A request.
pub struct Request {
    /// Method, path, fields.
    pub head: Rc<RequestHead>,
    /// What comes behind them.
    pub body: Body,
    /// Whether there is no body.
    pub is_end: bool,
}

impl Request {
    pub(crate) fn new(head: Rc<RequestHead>, core: &Rc<RefCell<Core>>, key: u32, is_end: bool) -> (Self, Responder) {
        let shared = || Shared::Wire(core.clone(), key);
        (Self { head, body: Body(shared()), is_end }, Responder(shared()))
    }

    pub(crate) fn local(head: Rc<RequestHead>, ends: &Rc<RefCell<Ends>>) -> (Self, Responder) {
        let shared = || Shared::Local(ends.clone());
        (Self { head, body: Body(shared()), is_end: false }, Responder(shared()))
    }
}

/// Where a stream is.
enum Shared {
    /// Of a connection.
    Wire(Rc<RefCell<Core>>, u32),
    /// Of a peer in this thread.
    Local(Rc<RefCell<Ends>>),
}

/// Calls a method of the stream's owner.
macro_rules! ask {
    ($shared:expr, $method:ident($($argument:expr),*)) => {
        match &$shared {
            Shared::Wire(core, key) => core.borrow_mut().$method(*key, $($argument),*),
            Shared::Local(ends) => ends.borrow_mut().$method($($argument),*),
        }
    };
}

/// The body of a request.
pub struct Body(Shared);

impl Body {
    /// The next piece; `None` behind the last.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Reason>>> {
        ask!(self.0, poll_data(cx))
    }

    /// Collects the next bytes of the body into `target`: first those that are here, then the others as they are read. They count as
    /// released. To be followed by `poll_collected`, and by nothing else until that is ready.
    pub fn collect(&mut self, target: Box<dyn Collect>) {
        ask!(self.0, collect(target));
    }

    /// What was collected; `None` when the body ended before.
    ///
    /// # Errors
    /// See [`NotCollected`].
    pub fn poll_collected(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, NotCollected>>> {
        let collected = ask!(self.0, poll_collected(cx));
        match collected {
            Collected::Over(result) => Poll::Ready(result),
            Collected::Waits => Poll::Pending,
            Collected::HasMore => {
                go_on_later(cx);
                Poll::Pending
            }
        }
    }

    /// Whether the client may take its time before the next byte: between two messages of a stream of them, say. Else a body that
    /// is waited for and does not come is given up after `Times::body`.
    pub fn rest(&mut self, rests: bool) {
        if let Shared::Wire(core, key) = &self.0 {
            core.borrow_mut().rest(*key, rests);
        }
    }

    /// `n` bytes were used: the client may send as many more. What was not released when the body is dropped is given back to the
    /// connection then.
    pub fn release(&mut self, n: usize) {
        if let Shared::Wire(core, key) = &self.0 {
            core.borrow_mut().release(*key, n);
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        ask!(self.0, drop_body());
    }
}

/// The way back. What is sent goes out with the connection's next write.
pub struct Responder(Shared);

impl Responder {
    /// Sends the head of the response; with `ends` that is all of it.
    ///
    /// # Errors
    /// `Gone`, here and below, when the stream is over or this is not what comes next.
    pub fn send_head(&mut self, status: u16, fields: &[Field<'_>], ends: bool) -> Result<(), Gone> {
        ask!(self.0, send_head(status, fields, ends))
    }

    /// Sends a part of the body. It is queued as far as the client has no room for it: `capacity` says how much it has.
    pub fn send_data(&mut self, data: impl Buf, ends: bool) -> Result<(), Gone> {
        ask!(self.0, send_data(data, ends))
    }

    /// Sends trailers, which end the response.
    pub fn send_trailers(&mut self, fields: &[Field<'_>]) -> Result<(), Gone> {
        ask!(self.0, send_trailers(fields))
    }

    /// Bytes the client has room for and we would not have to queue for longer than the connection's turn.
    pub fn capacity(&self) -> usize {
        ask!(self.0, capacity())
    }

    /// Ready when `capacity` is not 0, with what it is; with `None` when the stream is over.
    pub fn poll_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        ask!(self.0, poll_capacity(cx))
    }

    /// Ready when no more than `most` bytes of the body wait for the client, with how many; with `None` when the stream is over. To be
    /// called by the task that calls `poll_capacity`.
    pub fn poll_queued(&mut self, most: usize, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        ask!(self.0, poll_queued(most, cx))
    }

    /// Ready when the client has reset the stream, or is gone. `poll_capacity` of the same handle must be called by the same task.
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<Reason> {
        ask!(self.0, poll_reset(cx))
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        ask!(self.0, drop_handle());
    }
}
