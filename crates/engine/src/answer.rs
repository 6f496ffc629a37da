//! What a request is answered with, and where its answers go.

use crate::version::ModelVersion;
use protocol::InferResponse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tensor::{Error, Result};

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

impl ModelVersion {
    /// Hands out an answer, or keeps it until it is its turn. `place` is that of its request, where the model preserves order.
    /// False when more answers are kept than may be: the request must be given up.
    pub(crate) fn deliver(&self, place: u64, delivery: Delivery) -> bool {
        match &self.scheduling.line {
            None => {
                self.put(delivery);
                true
            }
            Some(line) => line.give(place, delivery, |d| self.put(d)),
        }
    }

    /// Calls a sink. One that panics must not cost the other requests of its batch their answers.
    pub(crate) fn put(&self, Delivery { sink, answer }: Delivery) {
        let is_final = answer.is_final;
        // The sink is dropped in there, too.
        if catch_unwind(AssertUnwindSafe(move || sink.put(answer))).is_err() {
            log::error!("the receiver of an answer of model '{}' panicked", self.signature.model);
        }
        if is_final {
            self.left(1);
        }
    }

    /// What a request is told whose handling panicked.
    pub(crate) fn defect(&self) -> Error {
        Error::internal(format!(
            "the server panicked while it handled a request for model '{}'; this is a defect, please report it with the log",
            self.signature.model
        ))
    }

    /// Counts accepted requests.
    pub(crate) fn joined(&self, requests: u64) {
        self.running.inflight.fetch_add(requests, Ordering::AcqRel);
        self.shared.inflight.fetch_add(requests, Ordering::AcqRel);
    }

    /// Counts requests that are over.
    pub(crate) fn left(&self, requests: u64) {
        self.running.inflight.fetch_sub(requests, Ordering::AcqRel);
        self.shared.inflight.fetch_sub(requests, Ordering::AcqRel);
    }
}
