//! Responses of a request, and the sink that receives them.

use protocol::InferResponse;
use std::sync::Arc;
use tensor::Result;

/// One response of a request.
#[derive(Debug)]
pub struct EngineResponse {
    /// `None` ends a request of a decoupled model without a last response. An error need not be the end.
    pub response: Option<Result<Box<InferResponse>>>,
    /// True if nothing follows.
    pub is_final: bool,
}

impl EngineResponse {
    /// The only response of a request.
    pub fn only(result: Result<Box<InferResponse>>) -> Self {
        Self { response: Some(result), is_final: true }
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

/// A response and its receiver.
pub(crate) struct Delivery {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) answer: EngineResponse,
}

impl Delivery {
    /// Bytes of its tensors.
    pub(crate) fn bytes(&self) -> usize {
        let Some(Ok(response)) = &self.answer.response else { return 0 };
        response.outputs.iter().map(|output| output.data.len()).sum()
    }
}
