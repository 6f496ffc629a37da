//! The end of a runner that the server asks for or enforces.

use super::{Runner, RunnerState};
use crate::frames::{self, InstanceId};
use crate::generated::Frame;
use crate::lifecycle::{Before, Lifecycle};
use crate::slots::RunnerRequest;
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
        self.transport.end(End::Requested);
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

    /// Checks a runner whose model left service `left` ago. Kills a runner that worked for `grace` without a waiting
    /// client: it hangs or is stopped, and would keep its memory for ever. Requests of clients may finish.
    pub(crate) fn check_abandoned(&self, grace: Duration, left: Duration, now: u64) {
        let mut state = self.state.lock();
        if !state.has_requests() || !matches!(state.lifecycle, Lifecycle::Ready { .. }) {
            state.abandoned = None;
            return;
        }
        let requests = state.slots.pendings().count();
        // A prefetched batch keeps no runner that hangs.
        let RunnerState { in_flight, slots, .. } = &mut *state;
        let waits = |pending: &RunnerRequest| !pending.responder.is_cancelled();
        let prefetched = in_flight.prefetched().flat_map(|batch| &batch.members);
        let prefetched = prefetched.filter(|&&key| slots.pending(key).is_some_and(|pending| waits(pending))).count();
        let waiting = slots.pendings().filter(|pending| waits(pending)).count() - prefetched;
        if waiting > 0 {
            state.abandoned = None;
            if left >= grace && !std::mem::replace(&mut state.has_warned_of_clients, true) {
                drop(state);
                let seconds = left.as_secs_f64();
                log::warn!(
                    "{}: its model was unloaded {seconds:.1} s ago, and the {} still has requests of waiting clients: \
                     {waiting}",
                    self.label(),
                    self.kind.noun()
                );
            }
            return;
        }
        let batch = state.in_flight.last_id;
        let since = match state.abandoned {
            Some((since, of)) if of == batch => since,
            _ => {
                state.abandoned = Some((now, batch));
                now
            }
        };
        if Duration::from_nanos(now.saturating_sub(since)) < grace {
            return;
        }
        state.lifecycle = Lifecycle::Killed(Before::Abandoned);
        drop(state);
        let seconds = grace.as_secs_f64();
        log::error!(
            "{}: the {} is killed: its model was unloaded, and it worked for {seconds} s (exit-grace-seconds, less \
             when the server exits) on cancelled requests: {requests}",
            self.label(),
            self.kind.noun()
        );
        self.transport.end(End::Killed);
    }
}
