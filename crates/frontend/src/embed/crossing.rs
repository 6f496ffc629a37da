//! Inputs and answers of the requests of another server in this process.

use super::piece::{CallEnd, Piece};
use bytes::Bytes;
use std::sync::Arc;
use tensor::Result;

/// The answer to a call.
#[derive(Debug)]
pub enum EmbedEvent {
    /// The caller should read the body and pass it to [`Embedded::body`](super::Embedded::body).
    ReadBody {
        /// Maximum size. A longer body should not be read to its end.
        bytes_max: u64,
    },
    /// The HTTP reply. With `more`, events follow its body: [`Embedded::next`](super::Embedded::next).
    Reply {
        /// HTTP status.
        status: u16,
        /// Header fields, without those of the connection and `Content-Length`.
        fields: Vec<(String, String)>,
        /// Body in parts. A HEAD request gets that of the GET.
        body: Vec<Bytes>,
        /// Events follow.
        more: bool,
        /// The reply has a `Content-Length`; otherwise it is sent in chunks.
        sized: bool,
    },
    /// Server-sent events.
    Events {
        /// Encoded events.
        body: Bytes,
        /// No events follow.
        done: bool,
    },
    /// Part of the response to a gRPC call. Unless the call ended, [`Embedded::next`](super::Embedded::next) returns
    /// the next one.
    Call {
        /// The response begins with this part.
        begun: bool,
        /// Complete messages.
        messages: Vec<Vec<u8>>,
        /// `None` = another part follows.
        end: Option<CallEnd>,
    },
    /// A piece of a message was taken, and there is room for another.
    Taken,
}

/// Callback that receives the number of a call and its result.
pub type Settle = Arc<dyn Fn(u32, Result<EmbedEvent>) + Send + Sync>;

/// Input for a request that has begun. The numbers are those of the calls to answer.
pub(super) enum EmbedInput {
    /// The body, or the length of one that is too long.
    Body(u32, Result<Bytes, u64>),
    Next(u32),
    /// Piece of a message; `ends` marks the last piece.
    Piece {
        call: u32,
        piece: Option<Piece>,
        ends: bool,
    },
    Cancel,
}
