//! Hands answers of a version out, and counts its accepted requests.

use crate::answer::Delivery;
use crate::version::ModelVersion;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use tensor::Error;

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
