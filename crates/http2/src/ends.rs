//! State shared by both ends of a stream without a connection: see `local`.

use crate::collect::{Collect, Collected, Gone, NotCollected, fill};
use crate::frame::Reason;
use crate::hpack::Field;
use crate::limits::TURN_BYTES;
use crate::pieces::Pieces;
use crate::wake::{register, wake};
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

/// Names in lower case, with values.
pub type Fields = Vec<(String, Vec<u8>)>;

/// A part of the response, as the peer receives it.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// Status and fields.
    Head(u16, Fields),
    /// A part of the body, of any size.
    Data(Bytes),
    /// End of the response, with its trailers, if any.
    End(Fields),
    /// The service reset the stream.
    Reset(Reason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    Nothing,
    Body,
    Done,
}

/// Both directions of a stream.
pub(crate) struct Ends {
    pub fixed: &'static [(&'static str, &'static str)],

    pub received: Pieces,
    /// Bytes in `received`.
    pub unread: usize,
    pub received_all: bool,
    /// False once the reader is gone; bytes pushed after that are dropped.
    pub has_body: bool,
    pub target: Option<Box<dyn Collect>>,
    pub body_waker: Option<Waker>,

    pub sending: Sending,
    pub sent: VecDeque<Sent>,
    /// Bytes in `sent`, and the limit at which the responder has no more capacity.
    pub queued: usize,
    pub room: usize,
    pub send_waker: Option<Waker>,

    /// Reset by the peer.
    pub reset: Option<Reason>,
    pub handles: u8,
    pub peer_waker: Option<Waker>,
}

impl Ends {
    pub fn new(fixed: &'static [(&'static str, &'static str)], room: usize) -> Self {
        Self {
            fixed,
            received: Pieces::default(),
            unread: 0,
            received_all: false,
            has_body: true,
            target: None,
            body_waker: None,
            sending: Sending::Nothing,
            sent: VecDeque::new(),
            queued: 0,
            room,
            send_waker: None,
            reset: None,
            handles: 2,
            peer_waker: None,
        }
    }

    pub fn clear_body(&mut self) {
        while self.received.pop().is_some() {}
        self.unread = 0;
    }

    pub fn clear_sent(&mut self) {
        self.sent.clear();
        self.queued = 0;
    }

    fn pop(&mut self) -> Option<Bytes> {
        let piece = self.received.pop()?;
        self.unread -= piece.len();
        wake(&mut self.peer_waker);
        Some(piece)
    }

    pub fn poll_data(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Bytes, Reason>>> {
        if let Some(reason) = self.reset {
            return Poll::Ready(Some(Err(reason)));
        }
        if let Some(piece) = self.pop() {
            return Poll::Ready(Some(Ok(piece)));
        }
        if self.received_all {
            return Poll::Ready(None);
        }
        register(&mut self.body_waker, cx);
        Poll::Pending
    }

    pub fn collect(&mut self, target: Box<dyn Collect>) {
        self.target = Some(target);
    }

    /// Moves a bounded part of the received bytes into the target; returns true if more are left for another turn.
    fn feed(&mut self) -> bool {
        let Some(mut target) = self.target.take() else { return false };
        let (mut taken, mut is_full) = (0, false);
        while !is_full
            && target.missing() > 0
            && taken < TURN_BYTES
            && let Some(mut piece) = self.pop()
        {
            let n = fill(&mut *target, &mut piece, TURN_BYTES - taken);
            taken += n;
            if !piece.is_empty() {
                self.unread += piece.len();
                self.received.unpop(piece);
            }
            is_full = n == 0;
        }
        let has_more = taken > 0 && target.missing() > 0 && !self.received.is_empty();
        self.target = Some(target);
        has_more
    }

    pub fn poll_collected(&mut self, cx: &mut Context<'_>) -> Collected {
        if let Some(reason) = self.reset {
            self.target = None;
            return Collected::Done(Some(Err(NotCollected::Ended(reason))));
        }
        if let Some(target) = &mut self.target
            && target.missing() > 0
            && target.spare().is_empty()
            && target.poll_room(cx) == Poll::Ready(false)
        {
            let missing = target.missing();
            self.target = None;
            return Collected::Done(Some(Err(NotCollected::NoRoom { missing })));
        }
        let has_more = self.feed();
        let is_end = self.received_all && self.received.is_empty();
        match self.target.take() {
            Some(target) if target.missing() > 0 && !is_end => {
                self.target = Some(target);
                register(&mut self.body_waker, cx);
                if has_more { Collected::HasMore } else { Collected::Waiting }
            }
            Some(target) if target.missing() > 0 => Collected::Done(None),
            target => Collected::Done(target.map(|target| Ok(target.into_bytes()))),
        }
    }

    fn owned(&self, fields: &[Field<'_>]) -> Fields {
        let of = |field: &Field<'_>| match *field {
            Field::Literal(name, value) => (name.to_owned(), value.to_vec()),
            Field::Fixed(n) => {
                let (name, value) = self.fixed.get(usize::from(n)).copied().unwrap_or_default();
                (name.to_owned(), value.as_bytes().to_vec())
            }
        };
        fields.iter().map(of).collect()
    }

    fn put(&mut self, sent: Sent) {
        self.sent.push_back(sent);
        wake(&mut self.peer_waker);
    }

    fn may_send(&self, sending: Sending) -> Result<(), Gone> {
        if self.reset.is_none() && self.sending == sending { Ok(()) } else { Err(Gone) }
    }

    fn end(&mut self, fields: Fields) {
        self.sending = Sending::Done;
        self.put(Sent::End(fields));
    }

    pub fn send_head(&mut self, status: u16, fields: &[Field<'_>], ends: bool) -> Result<(), Gone> {
        self.may_send(Sending::Nothing)?;
        self.sending = Sending::Body;
        let fields = self.owned(fields);
        self.put(Sent::Head(status, fields));
        if ends {
            self.end(Fields::new());
        }
        Ok(())
    }

    pub fn send_data(&mut self, mut data: impl Buf, ends: bool) -> Result<(), Gone> {
        self.may_send(Sending::Body)?;
        while data.has_remaining() {
            let part = data.chunk().len();
            self.queued += part;
            let part = data.copy_to_bytes(part);
            self.put(Sent::Data(part));
        }
        if ends {
            self.end(Fields::new());
        }
        Ok(())
    }

    pub fn send_trailers(&mut self, fields: &[Field<'_>]) -> Result<(), Gone> {
        self.may_send(Sending::Body)?;
        let fields = self.owned(fields);
        self.end(fields);
        Ok(())
    }

    pub fn capacity(&self) -> usize {
        if self.reset.is_some() { 0 } else { self.room.saturating_sub(self.queued) }
    }

    pub fn poll_capacity(&mut self, cx: &Context<'_>) -> Poll<Option<usize>> {
        match self.capacity() {
            _ if self.reset.is_some() || self.sending == Sending::Done => Poll::Ready(None),
            0 => {
                register(&mut self.send_waker, cx);
                Poll::Pending
            }
            room => Poll::Ready(Some(room)),
        }
    }

    pub fn poll_queued(&mut self, most: usize, cx: &Context<'_>) -> Poll<Option<usize>> {
        if self.reset.is_some() {
            return Poll::Ready(None);
        }
        if self.queued <= most {
            return Poll::Ready(Some(self.queued));
        }
        register(&mut self.send_waker, cx);
        Poll::Pending
    }

    pub fn poll_reset(&mut self, cx: &Context<'_>) -> Poll<Reason> {
        if let Some(reason) = self.reset {
            return Poll::Ready(reason);
        }
        register(&mut self.send_waker, cx);
        Poll::Pending
    }

    pub fn drop_body(&mut self) {
        self.has_body = false;
        self.target = None;
        self.clear_body();
        wake(&mut self.peer_waker);
        self.drop_handle();
    }

    pub fn drop_handle(&mut self) {
        self.handles = self.handles.saturating_sub(1);
        if self.handles == 0 && self.sending != Sending::Done {
            self.sending = Sending::Done;
            self.put(Sent::Reset(Reason::CANCEL));
        }
    }
}
