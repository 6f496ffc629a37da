//! Length-prefixed messages over an HTTP/2 stream: flag, four bytes of length, message.

use super::status::{Status, code};
use crate::assemble::Assembler;
use crate::encoding::{Encoding, compress, decompress};
use crate::limits::BODY_BYTES_MAX;
use crate::rope::Rope;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http2::Body;
use prost::Message;
use std::task::{Context, Poll};

const PREFIX_BYTES: usize = 5;

/// Reads messages from a stream.
pub struct Messages {
    body: Body,
    encoding: Encoding,
    /// Received and not yet used.
    chunk: Bytes,
    /// Bytes received of which the client was not told that there is room for as many more.
    unreleased: usize,
    state: State,
    /// The client may be silent between two messages.
    is_stream: bool,
}

enum State {
    /// Collecting a prefix that did not come in one piece.
    Prefix([u8; PREFIX_BYTES], usize),
    Message {
        compressed: bool,
        body: Assembler,
    },
    /// Nothing more is read.
    Ended,
}

impl Messages {
    /// Messages of a request whose `grpc-encoding` was `encoding`. Those of a stream come when they come; the one of a unary call
    /// has to, like the rest of any message that has begun.
    pub fn new(body: Body, encoding: Encoding, is_stream: bool) -> Self {
        let state = State::Prefix([0; PREFIX_BYTES], 0);
        Self { body, encoding, chunk: Bytes::new(), unreleased: 0, state, is_stream }
    }

    /// The next message; `None` once the client has said that there are no more.
    ///
    /// # Errors
    /// CANCELLED when the client is gone, RESOURCE_EXHAUSTED for a message that is too large, INTERNAL for broken framing.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        loop {
            match &mut self.state {
                State::Ended => return Poll::Ready(Ok(None)),
                State::Prefix(prefix, at) => {
                    let n = self.chunk.len().min(PREFIX_BYTES - *at);
                    if let Some(to) = prefix.get_mut(*at..*at + n) {
                        self.chunk.copy_to_slice(to);
                    }
                    *at += n;
                    if *at == PREFIX_BYTES {
                        let [flag, length @ ..] = *prefix;
                        let length = u32::from_be_bytes(length);
                        if flag > 1 {
                            return self.fail(Status::new(code::INTERNAL, "malformed message prefix"));
                        }
                        if u64::from(length) > BODY_BYTES_MAX {
                            let text = format!("Received message larger than max ({length} vs. {BODY_BYTES_MAX})");
                            return self.fail(Status::new(code::RESOURCE_EXHAUSTED, text));
                        }
                        let (compressed, length) = (flag == 1, length as usize);
                        if self.chunk.len() >= length {
                            // The usual small message: used where it is.
                            let message = self.chunk.split_to(length);
                            self.state = State::Prefix([0; PREFIX_BYTES], 0);
                            return Poll::Ready(self.unpack(message, compressed).map(Some));
                        }
                        match Assembler::new(length) {
                            Ok(body) => self.state = State::Message { compressed, body },
                            Err(e) => return self.fail(Status::new(code::RESOURCE_EXHAUSTED, e.message())),
                        }
                        continue;
                    }
                }
                State::Message { compressed, body } => {
                    let taken = body.push(&self.chunk);
                    self.chunk.advance(taken);
                    if self.chunk.is_empty() {
                        // Even an empty slice would keep the buffer that the next read is to go into.
                        self.chunk = Bytes::new();
                    }
                    if body.missing() == 0 {
                        let compressed = *compressed;
                        let done = std::mem::replace(&mut self.state, State::Prefix([0; PREFIX_BYTES], 0));
                        let State::Message { body, .. } = done else { continue };
                        return Poll::Ready(self.unpack(body.into_bytes(), compressed).map(Some));
                    }
                }
            }
            // Given back as soon as more is wanted: what bounds memory is the length of a message, not the window. Not before,
            // because the usual request is one chunk, and what is left at the end of a call is given back with it.
            if self.unreleased > 0 {
                self.body.release(std::mem::take(&mut self.unreleased));
            }
            let Poll::Ready(data) = self.body.poll_data(cx) else {
                self.body.rest(self.is_stream && matches!(self.state, State::Prefix(_, 0)));
                return Poll::Pending;
            };
            match data {
                Some(Ok(chunk)) => {
                    self.unreleased = chunk.len();
                    self.chunk = chunk;
                }
                Some(Err(_)) => return self.fail(Status::new(code::CANCELLED, "CANCELLED")),
                None => {
                    let whole = matches!(self.state, State::Prefix(_, 0));
                    self.state = State::Ended;
                    return Poll::Ready(if whole {
                        Ok(None)
                    } else {
                        Err(Status::new(code::INTERNAL, "the request ended inside a message"))
                    });
                }
            }
        }
    }

    fn fail(&mut self, status: Status) -> Poll<Result<Option<Bytes>, Status>> {
        self.state = State::Ended;
        Poll::Ready(Err(status))
    }

    fn unpack(&self, message: Bytes, compressed: bool) -> Result<Bytes, Status> {
        match (compressed, self.encoding) {
            (false, _) => Ok(message),
            (true, Encoding::Identity) => {
                Err(Status::new(code::INTERNAL, "compressed message without a grpc-encoding that says how"))
            }
            (true, _) => decompress(&message, BODY_BYTES_MAX).map_err(|e| Status::new(code::INTERNAL, e.message())),
        }
    }
}

/// A message ready to be sent, its prefix included.
pub fn frame(message: &impl Message) -> Rope {
    let length = message.encoded_len();
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + length);
    out.put_u8(0);
    out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // There is room: it was reserved above.
    let _ = message.encode(&mut out);
    out.freeze().into()
}

/// An inference response, packed when both sides want that.
pub fn frame_encoded(encoded: protocol::grpc::Encoded, encoding: Encoding, level: u32) -> Rope {
    if encoding == Encoding::Identity {
        return Rope::new(encoded.into_frame().into_iter());
    }
    let pieces = encoded.into_message();
    let Some(packed) = compress(pieces.iter().map(|p| &p[..]), encoding, level) else {
        let length = pieces.iter().map(Bytes::len).sum();
        return Rope::new(std::iter::once(prefix(0, length)).chain(pieces));
    };
    Rope::new([prefix(1, packed.len()), packed].into_iter())
}

fn prefix(flag: u8, length: usize) -> Bytes {
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    Bytes::copy_from_slice(&[flag, a, b, c, d])
}
