//! The body of a request after it was read.

use bytes::Bytes;
use tensor::RegionRef;

/// A whole body, and what its connection can do with the response.
pub struct RequestBody {
    /// All of it, or only the JSON head of an inference.
    pub bytes: Bytes,
    /// The binary part behind the head, in memory of the model's process.
    pub tail: Option<RegionRef>,
    /// The connection can send outputs from regions ([`protocol::InferRequest::sends_regions`]).
    pub sends_regions: bool,
}

impl RequestBody {
    pub fn len(&self) -> usize {
        self.bytes.len() + self.tail.as_ref().map_or(0, |tail| tail.len())
    }
}

impl From<Bytes> for RequestBody {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, tail: None, sends_regions: false }
    }
}
