//! Responses of a request, and the sink that receives them.

use protocol::InferResponse;
use tensor::Result;

/// One response of a request, from the thread that makes it to the one that sends it. It waits in up to two lines: that
/// of a version that preserves the order of its requests, and the inbox of its reader.
#[derive(Debug)]
pub struct EngineResponse {
    /// `None` ends a request of a decoupled model without a last response. An error need not be the end.
    pub response: Option<Result<Box<InferResponse>>>,
    /// True if nothing follows.
    pub is_final: bool,
    /// Position of its request in the line of the version.
    pub place: u64,
    /// Key of its request in the inbox.
    pub key: u32,
    /// When it entered the inbox, in ns.
    pub came_ns: u64,
    /// Bytes it counts for while it waits.
    pub bytes: usize,
}

impl EngineResponse {
    /// The only response of a request.
    #[inline]
    pub fn only(result: Result<Box<InferResponse>>) -> Self {
        Self::last(Some(result))
    }

    /// The end of a request, with or without a response.
    #[inline]
    pub fn last(response: Option<Result<Box<InferResponse>>>) -> Self {
        Self { response, is_final: true, place: 0, key: 0, came_ns: 0, bytes: 0 }
    }

    /// A response that others follow.
    #[inline]
    pub fn more(result: Result<Box<InferResponse>>) -> Self {
        Self { response: Some(result), is_final: false, place: 0, key: 0, came_ns: 0, bytes: 0 }
    }

    /// The response of the request at this position.
    #[inline]
    pub(crate) fn at(mut self, place: u64) -> Self {
        self.place = place;
        self
    }

    /// Bytes of its tensors, including those in a region of the client, or of its error text.
    pub fn content_bytes(&self) -> usize {
        match &self.response {
            Some(Ok(response)) => response.outputs.iter().map(|output| output.data.len()).sum(),
            Some(Err(error)) => error.message().len(),
            None => 0,
        }
    }
}

/// Receives the responses of one request, on any thread.
///
/// Calls of `put` follow the order of the responses, one at a time, and none follows the final one. `put` must not
/// block, because its thread serves other requests, too. A sink whose reader is too slow cancels its request with
/// [`Ticket::overrun`](crate::Ticket::overrun); the owner decides how many bytes, or how long, is too slow.
pub trait Sink: Send + Sync {
    /// Receives a response.
    fn put(&self, answer: EngineResponse);
}

impl<F: Fn(EngineResponse) + Send + Sync> Sink for F {
    fn put(&self, answer: EngineResponse) {
        self(answer);
    }
}
