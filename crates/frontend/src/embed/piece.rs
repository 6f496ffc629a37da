//! Parts of a gRPC call that another server in the same process has received.

use crate::grpc::message::{PREFIX_BYTES, TENSOR_ALIGN};
use bytes::{BufMut, Bytes, BytesMut};

/// How a call ended.
#[derive(Debug, PartialEq, Eq)]
pub struct CallEnd {
    /// Status code of gRPC.
    pub code: u32,
    /// Status message, not percent-encoded.
    pub text: String,
    /// All other trailers.
    pub trailers: Vec<(String, String)>,
}

/// Part of a message of the client, or all of it.
#[derive(Debug, Default)]
pub struct Piece {
    pub(super) bytes: Bytes,
    /// The piece is a whole message, which is used without a copy.
    pub(super) is_whole: bool,
}

impl Piece {
    /// Copies the beginning of a message of `length` bytes, or all of it. The first tensor of a whole one is aligned.
    pub fn first(length: usize, bytes: &[u8]) -> Self {
        let at = protocol::grpc::raw_offset(bytes).unwrap_or(0);
        let mut framed = BytesMut::with_capacity(TENSOR_ALIGN + PREFIX_BYTES + bytes.len());
        let pad = framed.as_ptr().addr().wrapping_add(PREFIX_BYTES + at).wrapping_neg() % TENSOR_ALIGN;
        framed.put_bytes(0, pad);
        framed.put_u8(0);
        // A longer message exceeds every limit and is rejected for that.
        framed.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        framed.put_slice(bytes);
        Self { bytes: framed.freeze().slice(pad..), is_whole: bytes.len() == length }
    }

    /// Copies a further part of a message.
    pub fn further(bytes: &[u8]) -> Self {
        Self { bytes: Bytes::copy_from_slice(bytes), is_whole: false }
    }
}
