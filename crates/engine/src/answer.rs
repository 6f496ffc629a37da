//! What a request is answered with, and where its answers go.

use protocol::InferResponse;
use std::sync::Arc;
use tensor::Result;

/// One answer of a request.
#[derive(Debug)]
pub struct Answer {
    /// A response or an error; `None` for the end of a decoupled model's request that comes without either. An error need not be
    /// the end.
    pub response: Option<Result<Box<InferResponse>>>,
    /// Nothing follows.
    pub is_final: bool,
}

impl Answer {
    /// The only answer of a request.
    pub fn only(result: Result<Box<InferResponse>>) -> Self {
        Self { response: Some(result), is_final: true }
    }
}

/// Takes the answers of one request, from whichever thread has them.
///
/// `put` is called in the order of the answers, one call at a time, and never after the final one. It must not block: the thread
/// serves other requests, too. A sink whose reader falls behind gives its request up, with
/// [`Ticket::overrun`](crate::Ticket::overrun); what is enough, in bytes or time, is its owner's decision.
pub trait Sink: Send + Sync {
    /// Takes an answer.
    fn put(&self, answer: Answer);
}

impl<F: Fn(Answer) + Send + Sync> Sink for F {
    fn put(&self, answer: Answer) {
        self(answer);
    }
}

/// An answer on its way out.
pub(crate) struct Delivery {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) answer: Answer,
}

impl Delivery {
    /// Bytes of the tensors it carries.
    pub(crate) fn bytes(&self) -> usize {
        let Some(Ok(response)) = &self.answer.response else { return 0 };
        response.outputs.iter().map(|output| output.data.len()).sum()
    }
}
