//! The end of a runner that the server asks for.

use super::Runner;
use crate::frames::{self, InstanceId};
use crate::generated::Frame;
use crate::lifecycle::{Before, Lifecycle};
use crate::transport::{End, Way};
use std::time::Duration;

impl Runner {
    /// Asks the runner to end, and kills it after the grace period.
    pub(crate) fn end(&self, grace: Duration) {
        let mut state = self.state.lock();
        let was = state.lifecycle;
        if was.is_stopping() || was == Lifecycle::Ended {
            return;
        }
        if !matches!(was, Lifecycle::Ready { .. }) && !self.transport.is_shared() {
            // The runner reads no frames while it loads code.
            state.lifecycle = Lifecycle::Killed(Before::Stopping);
            drop(state);
            return self.transport.end(End::Killed);
        }
        state.lifecycle = Lifecycle::Stopping;
        drop(state);
        let mut frame = Vec::new();
        frames::write::empty(&mut frame, InstanceId::ONLY, Frame::Unload);
        self.transport.send(Way::Work, &frame);
        self.transport.end(End::Told);
        self.later(grace, |runner| runner.overdue("it did not end in time"));
    }

    /// Kills a runner that should have ended. A process that serves others goes on: what is late may be one model's
    /// load or the end of it, and the runner ends when that does. The end of a library ends its process in any case.
    pub(super) fn overdue(&self, why: &str) {
        if !self.transport.is_shared() {
            return self.condemn(why);
        }
        let lifecycle = self.state.lock().lifecycle;
        if lifecycle != Lifecycle::Ended && !lifecycle.is_killed() {
            let noun = self.kind.noun();
            log::warn!("{}: the {noun} is left in its process, which may serve others: {why}", self.label());
        }
    }
}
