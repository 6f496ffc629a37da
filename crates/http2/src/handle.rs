//! Handles of a call. Dropping all of them without a response resets the stream.

use crate::collect::{Collect, Collected, Gone, NotCollected};
use crate::core::Core;
use crate::ends::Ends;
use crate::frame::Reason;
use crate::head::RequestHead;
use crate::hpack::Field;
use crate::yielding::yield_turn;
use bytes::{Buf, Bytes};
use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A received request.
pub struct Request {
    /// Method, path, fields.
    pub head: Rc<RequestHead>,
    /// Body; empty if `is_end`.
    pub body: Body,
    /// True if there is no body.
    pub is_end: bool,
}

impl Request {
    pub(crate) fn new(head: Rc<RequestHead>, core: &Rc<RefCell<Core>>, key: u32, is_end: bool) -> (Self, StreamWriter) {
        let shared = || StreamRef::Wire(core.clone(), key);
        (Self { head, body: Body(shared()), is_end }, StreamWriter(shared()))
    }

    pub(crate) fn local(head: Rc<RequestHead>, ends: &Rc<RefCell<Ends>>) -> (Self, StreamWriter) {
        let shared = || StreamRef::Local(ends.clone());
        (Self { head, body: Body(shared()), is_end: false }, StreamWriter(shared()))
    }
}

/// Owner of a stream.
enum StreamRef {
    /// A connection, with the stream's key.
    Wire(Rc<RefCell<Core>>, u32),
    /// A peer in this thread.
    Local(Rc<RefCell<Ends>>),
}

/// Calls a method of the stream's owner.
macro_rules! on_stream {
    ($shared:expr, $method:ident($($argument:expr),*)) => {
        match &$shared {
            StreamRef::Wire(core, key) => core.borrow_mut().$method(*key, $($argument),*),
            StreamRef::Local(ends) => ends.borrow_mut().$method($($argument),*),
        }
    };
}

/// Handle of a request's body.
pub struct Body(StreamRef);

impl Body {
    /// Returns the next piece; `None` after the last.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Reason>>> {
        on_stream!(self.0, poll_data(cx))
    }

    /// Collects the next bytes of the body into `target`: first those that are here, then others as they are read. They
    /// count as released. Until `poll_collected` is ready, no other method may be called.
    pub fn collect(&mut self, target: Box<dyn Collect>) {
        on_stream!(self.0, collect(target));
    }

    /// Returns the collected bytes; `None` if the body ended before.
    pub fn poll_collected(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, NotCollected>>> {
        let collected = on_stream!(self.0, poll_collected(cx));
        match collected {
            Collected::Done(result) => Poll::Ready(result),
            Collected::Waiting => Poll::Pending,
            Collected::HasMore => {
                yield_turn(cx);
                Poll::Pending
            }
        }
    }

    /// Suspends the timeout of the body, for example between two messages. Otherwise a stream whose body is waited for
    /// is reset after `Times::body`.
    pub fn pause(&mut self, is_paused: bool) {
        if let StreamRef::Wire(core, key) = &self.0 {
            core.borrow_mut().pause(*key, is_paused);
        }
    }

    /// Releases `n` used bytes: the client may send as many more. When the body is dropped, unreleased bytes are
    /// returned to the connection.
    pub fn release(&mut self, n: usize) {
        if let StreamRef::Wire(core, key) = &self.0 {
            core.borrow_mut().release(*key, n);
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        on_stream!(self.0, drop_body());
    }
}

/// Sends the response, with the connection's next write.
pub struct StreamWriter(StreamRef);

impl StreamWriter {
    /// Sends the head of the response; `ends` ends the response as well.
    ///
    /// # Errors
    /// `Gone`, here and below, if the stream is over or this part is out of order.
    pub fn send_head(&mut self, status: u16, fields: &[Field<'_>], ends: bool) -> Result<(), Gone> {
        on_stream!(self.0, send_head(status, fields, ends))
    }

    /// Sends a part of the body. Bytes beyond `capacity` are queued.
    pub fn send_data(&mut self, data: impl Buf, ends: bool) -> Result<(), Gone> {
        on_stream!(self.0, send_data(data, ends))
    }

    /// Sends trailers, which end the response.
    pub fn send_trailers(&mut self, fields: &[Field<'_>]) -> Result<(), Gone> {
        on_stream!(self.0, send_trailers(fields))
    }

    /// Bytes that can be sent without being queued beyond the connection's turn.
    pub fn capacity(&self) -> usize {
        on_stream!(self.0, capacity())
    }

    /// Ready with `capacity` once it is not 0; `None` if the stream is over.
    pub fn poll_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        on_stream!(self.0, poll_capacity(cx))
    }

    /// Ready with the number of queued bytes once it is at most `most`; `None` if the stream is over. Call it from the
    /// task that calls `poll_capacity`.
    pub fn poll_queued(&mut self, most: usize, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        on_stream!(self.0, poll_queued(most, cx))
    }

    /// Ready when the client has reset the stream or is gone. Call it from the task that calls `poll_capacity`.
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<Reason> {
        on_stream!(self.0, poll_reset(cx))
    }
}

impl Drop for StreamWriter {
    fn drop(&mut self) {
        on_stream!(self.0, drop_handle());
    }
}
