//! Readiness of versions whose model has to be asked (`RemoteModel::readiness`), which runs slow code of the user.
//!
//! Queries that arrive while the model is being asked share its answer. Each waits for [`READY_NS_MAX`] at most; then
//! the version is not ready. A model is not asked again before it has answered. No thread waits.

use crate::limits::READY_NS_MAX;
use crate::readiness_query::{ReadinessReply, ReadinessState, ReadinessWait};
use crate::version::ModelVersion;
use backend::{Readiness, now_ns};
use std::sync::Arc;

impl ModelVersion {
    /// Readiness as far as it is known without asking the model.
    pub(crate) fn is_ready_unasked(&self) -> bool {
        !self.serving.is_short()
            && self.served.remote().is_none_or(|remote| !matches!(remote.readiness(), Readiness::NotReady(_)))
    }

    /// True if all instances are there and the model reports that it is ready.
    pub(crate) fn readiness(&self) -> ReadinessState {
        if self.serving.is_short() {
            return ReadinessState::Known(false);
        }
        let Some((state, remote)) = self.serving.remote.as_ref().zip(self.served.remote()) else {
            return ReadinessState::Known(true);
        };
        let ask = match remote.readiness() {
            Readiness::Ready => return ReadinessState::Known(true),
            Readiness::NotReady(why) => {
                log::debug!("model '{}' is not ready: {why}", self.signature.model);
                return ReadinessState::Known(false);
            }
            Readiness::Ask(ask) => ask,
        };
        let until = now_ns().saturating_add(READY_NS_MAX);
        let mut current = state.query.lock();
        let (query, is_first) = match current.as_ref().filter(|query| !query.is_answered()) {
            Some(query) => (query.clone(), false),
            None => (current.insert(Arc::default()).clone(), true),
        };
        drop(current);
        let waiter = query.wait(until);
        let reply = is_first.then(|| ReadinessReply(query));
        // Without a timer thread there is no wait, nor do others wait for an answer that was never requested.
        if !self.shared.timer.arm(until, self.me.clone()) {
            return ReadinessState::Known(false);
        }
        if let Some(reply) = reply {
            let model = self.signature.model.clone();
            ask(Box::new(move |answer| {
                if let Err(why) = &answer {
                    log::debug!("model '{model}' is not ready: {}", why.message());
                }
                reply.0.complete(answer.is_ok());
            }));
        }
        ReadinessState::Queried(ReadinessWait(vec![waiter]))
    }
}
