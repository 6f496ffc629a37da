//! Calls of a connection of gRPC, and news of their requests.

use crate::messages::{PREFIX_BYTES, message_bytes, stream_response};
use crate::plan::{AnyError, Responses};
use bytes::Bytes;
use std::time::Instant;

/// A request on its way.
pub struct Asked {
    /// Which request of the ring.
    pub entry: usize,
    pub due: Instant,
    pub sent: Instant,
    /// When the last of several responses came.
    pub last: Option<Instant>,
}

/// A call. One of a stream stays open and has one request after the other.
pub struct ClientCall {
    pub stream: u32,
    /// `None`: an open stream that waits for its next request.
    pub asked: Option<Asked>,
    /// Part of the message that waits for windows.
    pub unsent: Bytes,
    /// Bytes that the server lets us send on this stream.
    pub window: i64,
    /// Body of the response, where somebody looks at it; of a stream what is incomplete.
    pub answer: Vec<u8>,
    /// Bytes of the answer, and those that were not given back to the window of an open stream.
    pub received: u64,
    pub owed: u32,
    /// `:status`, unless it is 200.
    pub http_status: String,
    /// Empty for success, or what the server said instead.
    pub status: Option<String>,
}

impl ClientCall {
    /// A call without a request, whose server takes so many bytes.
    pub fn new(stream: u32, window: i64) -> Self {
        Self {
            stream,
            asked: None,
            unsent: Bytes::new(),
            window,
            answer: Vec::new(),
            received: 0,
            owed: 0,
            http_status: String::new(),
            status: None,
        }
    }

    /// The request and why it failed, for a call that the server ended.
    pub fn failure(self) -> Option<(Asked, String)> {
        let text = match self.status {
            Some(status) if !status.is_empty() => status,
            Some(_) => "the stream ended before its request".to_owned(),
            None if self.http_status.is_empty() => "a response without grpc-status".to_owned(),
            None => format!("a response with HTTP status {} and without grpc-status", self.http_status),
        };
        Some((self.asked?, text))
    }

    /// Takes whole messages off the body of a stream.
    pub fn responses(&mut self, responses: Responses, told: &mut impl FnMut(News<'_>)) -> Result<(), AnyError> {
        let mut at = 0;
        while let Some(length) = message_bytes(&self.answer[at..])?
            && let Some(message) = self.answer.get(at + PREFIX_BYTES..at + PREFIX_BYTES + length)
        {
            at += PREFIX_BYTES + length;
            let asked = self.asked.as_mut().ok_or("a response to no request")?;
            let response = stream_response(message)?;
            if !response.error.is_empty() {
                return Err(response.error.into());
            }
            if response.is_response {
                told(News::Response { due: asked.due, last: asked.last.replace(Instant::now()) });
            }
            if responses == Responses::One || response.is_final {
                told(News::Done { due: asked.due, entry: asked.entry, answer: message });
                self.asked = None;
            }
        }
        self.answer.drain(..at);
        Ok(())
    }
}

/// News of a request.
pub enum News<'a> {
    /// One of several responses.
    Response {
        due: Instant,
        last: Option<Instant>,
    },
    /// The last response. Its body, if it is kept.
    Done {
        due: Instant,
        entry: usize,
        answer: &'a [u8],
    },
    Failed {
        due: Instant,
        text: &'a str,
    },
}
