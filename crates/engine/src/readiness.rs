//! Whether a version can be used, where only its model knows (`RemoteModel::readiness`): code of a user is asked, which may take its time.
//!
//! Queries that come while the model is being asked share its answer. Each waits for [`READY_NS_MAX`] at most; then the version is not
//! ready. A model that does not answer is not asked again before it does. No thread waits.

use crate::limits::READY_NS_MAX;
use crate::ready::{Asking, ReadinessReply, Ready};
use crate::version::ModelVersion;
use backend::{Readiness, now_ns};
use std::sync::Arc;

impl ModelVersion {
    /// Whether it can be used, as far as that is known without asking its model.
    pub(crate) fn is_ready_unasked(&self) -> bool {
        !self.running.is_short()
            && self.served.remote().is_none_or(|remote| !matches!(remote.readiness(), Readiness::NotReady(_)))
    }

    /// Whether it can be used: all instances are there, and its model says so.
    pub(crate) fn readiness(&self) -> Ready {
        if self.running.is_short() {
            return Ready::Known(false);
        }
        let Some((later, remote)) = self.running.later.as_ref().zip(self.served.remote()) else {
            return Ready::Known(true);
        };
        let ask = match remote.readiness() {
            Readiness::Ready => return Ready::Known(true),
            Readiness::NotReady(why) => {
                log::debug!("model '{}' is not ready: {why}", self.signature.model);
                return Ready::Known(false);
            }
            Readiness::Ask(ask) => ask,
        };
        let until = now_ns().saturating_add(READY_NS_MAX);
        let mut current = later.asked.lock();
        let (asked, is_first) = match current.as_ref().filter(|asked| !asked.is_answered()) {
            Some(asked) => (asked.clone(), false),
            None => (current.insert(Arc::default()).clone(), true),
        };
        drop(current);
        let waiter = asked.wait(until);
        let owed = is_first.then(|| ReadinessReply(asked));
        // Where no thread would wake it, it does not wait; and neither do others for an answer that nobody was asked for.
        if !self.shared.timer.arm(until, self.me.clone()) {
            return Ready::Known(false);
        }
        if let Some(answer) = owed {
            let model = self.signature.model.clone();
            ask(Box::new(move |said| {
                if let Err(why) = &said {
                    log::debug!("model '{model}' is not ready: {}", why.message());
                }
                answer.0.answer(said.is_ok());
            }));
        }
        Ready::Asked(Asking(vec![waiter]))
    }
}
