//! Delivery of a version's responses, and the count of its accepted requests.

use crate::answer::{EngineResponse, Sink};
use crate::version::ModelVersion;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tensor::Error;

impl ModelVersion {
    /// Delivers a response, or keeps it until its turn if the model preserves order.
    /// Returns false if too many responses are kept: the request must be cancelled.
    pub(crate) fn deliver(&self, sink: Arc<dyn Sink>, answer: EngineResponse) -> bool {
        match &self.scheduling.line {
            None => {
                self.put(sink, answer);
                true
            }
            Some(line) => line.give(sink, answer, |sink, answer| self.put(sink, answer)),
        }
    }

    /// Calls a sink. If it panics, other requests of the batch still get their responses.
    pub(crate) fn put(&self, sink: Arc<dyn Sink>, answer: EngineResponse) {
        let is_final = answer.is_final;
        // The sink is dropped inside, too.
        if catch_unwind(AssertUnwindSafe(move || sink.put(answer))).is_err() {
            log::error!("the receiver of a response of model '{}' panicked", self.signature.model);
        }
        if is_final {
            self.left(1);
        }
    }

    /// The error of a request whose handling panicked.
    pub(crate) fn defect(&self) -> Error {
        Error::internal(format!(
            "the server panicked while it handled a request for model '{}'; this is a defect, please report it with \
             the log",
            self.signature.model
        ))
    }

    /// Counts accepted requests.
    pub(crate) fn joined(&self, requests: u64) {
        self.serving.inflight.fetch_add(requests, Ordering::AcqRel);
        self.shared.inflight.fetch_add(requests, Ordering::AcqRel);
    }

    /// Counts finished requests.
    pub(crate) fn left(&self, requests: u64) {
        self.serving.inflight.fetch_sub(requests, Ordering::AcqRel);
        self.shared.inflight.fetch_sub(requests, Ordering::AcqRel);
    }
}
