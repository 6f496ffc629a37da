//! A stream without a connection: its other end is a [`Peer`] in the same thread instead of a socket.
//!
//! [`Body`](crate::Body) and [`StreamWriter`](crate::StreamWriter) behave as those of a connection, so the service
//! cannot tell the difference. There are no frames and no header compression. The peer does the flow control: it polls
//! how much is unread before it pushes more, and what it does not take reduces the responder's capacity.
//!
//! There are no timeouts here: the driver of a peer ends one that sends or takes nothing.

use crate::ends::{Ends, Sending, Sent};
use crate::frame::Reason;
use crate::handle::Request;
use crate::head::{Builder, RequestHead};
use crate::wake::{register, wake};
use bytes::Bytes;
use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The stream's other end. Dropping it resets a stream that is not over.
pub struct Peer(Rc<RefCell<Ends>>);

/// The fields are not those of a request, or exceed the allowed size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadFields;

impl Peer {
    /// Begins a stream with a POST of `path`. Its fields may take `head_bytes_max` as HTTP/2 counts them; up to `room`
    /// bytes of the response may wait to be taken. `Field::Fixed` is an index into `fixed`.
    ///
    /// # Errors
    /// [`BadFields`].
    pub fn begin<'a>(
        path: &str,
        fields: impl Iterator<Item = (&'a str, &'a [u8])>,
        head_bytes_max: usize,
        fixed: &'static [(&'static str, &'static str)],
        room: usize,
    ) -> Result<(Self, Request, crate::StreamWriter), BadFields> {
        let mut builder = Builder::new(head_bytes_max);
        let pseudo = [(":method", "POST"), (":scheme", "http"), (":path", path)];
        pseudo.iter().for_each(|(name, value)| builder.field(name.as_bytes(), value.as_bytes()));
        fields.for_each(|(name, value)| builder.field(name.as_bytes(), value));
        builder.check().map_err(|_| BadFields)?;
        let head: Rc<RequestHead> = Rc::new(builder.into_head());
        let ends = Rc::new(RefCell::new(Ends::new(fixed, room)));
        let (request, respond) = Request::local(head, &ends);
        Ok((Self(ends), request, respond))
    }

    /// Sends bytes of the body. Has no effect once the service has dropped the body.
    pub fn push(&self, piece: Bytes) {
        let mut ends = self.0.borrow_mut();
        if ends.has_body && ends.reset.is_none() && !ends.received_all && !piece.is_empty() {
            ends.unread += piece.len();
            ends.received.push(piece);
            wake(&mut ends.body_waker);
        }
    }

    /// Ends the body.
    pub fn end(&self) {
        let mut ends = self.0.borrow_mut();
        ends.received_all = true;
        wake(&mut ends.body_waker);
    }

    /// Ends the stream early.
    pub fn reset(&self, reason: Reason) {
        let mut ends = self.0.borrow_mut();
        if ends.sending != Sending::Done {
            ends.reset.get_or_insert(reason);
            ends.clear_body();
            ends.clear_sent();
            wake(&mut ends.body_waker);
            wake(&mut ends.send_waker);
        }
    }

    /// Ready when at most `most` pushed bytes are unread.
    pub fn poll_read(&self, most: usize, cx: &Context<'_>) -> Poll<()> {
        let mut ends = self.0.borrow_mut();
        if ends.unread <= most {
            return Poll::Ready(());
        }
        register(&mut ends.peer_waker, cx);
        Poll::Pending
    }

    /// Returns the next part of the response; `None` after `End` and `Reset`, and once this end has reset the stream.
    pub fn poll_sent(&self, cx: &Context<'_>) -> Poll<Option<Sent>> {
        let mut ends = self.0.borrow_mut();
        if let Some(sent) = ends.sent.pop_front() {
            if let Sent::Data(data) = &sent {
                ends.queued -= data.len();
                wake(&mut ends.send_waker);
            }
            return Poll::Ready(Some(sent));
        }
        if ends.sending == Sending::Done || ends.reset.is_some() {
            return Poll::Ready(None);
        }
        register(&mut ends.peer_waker, cx);
        Poll::Pending
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.reset(Reason::CANCEL);
        self.0.borrow_mut().clear_sent();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::{Collect, Gone};
    use crate::hpack::Field;
    use crate::limits::TURN_BYTES;
    use bytes::BytesMut;
    use std::task::Waker;

    const FIXED: &[(&str, &str)] = &[("content-type", "application/grpc")];

    fn begin() -> (Peer, Request, crate::StreamWriter) {
        let fields = [("x-a", &b"1"[..])];
        Peer::begin("/s/M", fields.into_iter(), 1024, FIXED, 10).ok().unwrap()
    }

    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    #[test]
    fn each_end_receives_in_order() {
        let (peer, request, mut respond) = begin();
        assert_eq!(
            (request.head.method(), request.head.path(), request.head.get("x-a")),
            (&b"POST"[..], &b"/s/M"[..], Some(&b"1"[..]))
        );
        let mut body = request.body;
        assert!(body.poll_data(&mut cx()).is_pending());
        peer.push("ab".into());
        peer.push("c".into());
        peer.end();
        peer.push("behind the end".into());
        assert!(peer.poll_read(2, &cx()).is_pending(), "three bytes are not read");
        assert_eq!(body.poll_data(&mut cx()), Poll::Ready(Some(Ok("ab".into()))));
        assert!(peer.poll_read(2, &cx()).is_ready());
        assert_eq!(body.poll_data(&mut cx()), Poll::Ready(Some(Ok("c".into()))));
        assert_eq!(body.poll_data(&mut cx()), Poll::Ready(None));
        assert!(peer.poll_sent(&cx()).is_pending());
        respond.send_head(200, &[Field::Fixed(0)], false).unwrap();
        respond.send_data(&b"data"[..], false).unwrap();
        respond.send_trailers(&[Field::Literal("grpc-status", b"0")]).unwrap();
        assert_eq!(respond.send_data(&b"late"[..], false), Err(Gone));
        let fixed = vec![("content-type".to_owned(), b"application/grpc".to_vec())];
        let end = vec![("grpc-status".to_owned(), b"0".to_vec())];
        for sent in [Sent::Head(200, fixed), Sent::Data("data".into()), Sent::End(end)] {
            assert_eq!(peer.poll_sent(&cx()), Poll::Ready(Some(sent)));
        }
        assert_eq!(peer.poll_sent(&cx()), Poll::Ready(None));
    }

    #[test]
    fn a_peer_that_takes_nothing_leaves_no_capacity() {
        let (peer, _request, mut respond) = begin();
        respond.send_head(200, &[], false).unwrap();
        respond.send_data(&b"0123456789"[..], false).unwrap();
        assert_eq!(respond.capacity(), 0);
        assert!(respond.poll_capacity(&mut cx()).is_pending());
        assert!(respond.poll_queued(9, &mut cx()).is_pending());
        assert!(matches!(peer.poll_sent(&cx()), Poll::Ready(Some(Sent::Head(..)))));
        assert!(matches!(peer.poll_sent(&cx()), Poll::Ready(Some(Sent::Data(_)))));
        assert_eq!(respond.poll_capacity(&mut cx()), Poll::Ready(Some(10)));
    }

    #[test]
    fn when_one_end_is_dropped_the_other_sees_a_reset() {
        let (peer, mut request, mut respond) = begin();
        respond.send_head(200, &[], false).unwrap();
        peer.push("unread".into());
        drop(peer);
        assert_eq!(respond.poll_reset(&mut cx()), Poll::Ready(Reason::CANCEL));
        assert_eq!(respond.poll_capacity(&mut cx()), Poll::Ready(None));
        assert_eq!(respond.send_data(&b"x"[..], false), Err(Gone));
        assert_eq!(request.body.poll_data(&mut cx()), Poll::Ready(Some(Err(Reason::CANCEL))));

        let (peer, request, respond) = begin();
        drop(request);
        peer.push("for no reader".into());
        assert!(peer.poll_read(0, &cx()).is_ready());
        drop(respond);
        assert_eq!(peer.poll_sent(&cx()), Poll::Ready(Some(Sent::Reset(Reason::CANCEL))));
        assert_eq!(peer.poll_sent(&cx()), Poll::Ready(None));
    }

    #[test]
    fn fields_that_a_connection_rejects_begin_no_stream() {
        let long = [b'v'; 1024];
        for (name, value) in
            [("X-Upper", &b"1"[..]), ("connection", b"close"), ("", b""), ("a", b"\n"), (":path", b"/"), ("a", &long)]
        {
            assert!(Peer::begin("/s/M", [(name, value)].into_iter(), 1024, FIXED, 1).is_err(), "{name}");
        }
        assert!(Peer::begin("no path", [].into_iter(), 1024, FIXED, 1).is_err());
    }

    struct Target(BytesMut, usize);

    impl Collect for Target {
        fn spare(&mut self) -> &mut [u8] {
            let end = self.0.len();
            &mut self.0[self.1..end]
        }
        fn filled(&mut self, n: usize) {
            self.1 += n;
        }
        fn missing(&self) -> usize {
            self.0.len() - self.1
        }
        fn into_bytes(self: Box<Self>) -> Bytes {
            self.0.freeze()
        }
    }

    #[tokio::test]
    async fn a_part_of_the_body_is_collected_over_as_many_turns_as_it_needs() {
        let (peer, request, _respond) = begin();
        let mut body = request.body;
        let all: Vec<u8> = (0..3 * TURN_BYTES).map(|n| (n % 251) as u8).collect();
        all.chunks(100_000).for_each(|part| peer.push(Bytes::copy_from_slice(part)));
        peer.push("next".into());
        body.collect(Box::new(Target(BytesMut::zeroed(all.len()), 0)));
        let collected = std::future::poll_fn(|cx| body.poll_collected(cx)).await;
        assert_eq!(collected.unwrap().unwrap(), all);
        assert_eq!(body.poll_data(&mut cx()), Poll::Ready(Some(Ok("next".into()))));
        body.collect(Box::new(Target(BytesMut::zeroed(4), 0)));
        peer.push("abc".into());
        assert!(body.poll_collected(&mut cx()).is_pending());
        peer.end();
        assert_eq!(body.poll_collected(&mut cx()), Poll::Ready(None), "it ended before");
    }
}
