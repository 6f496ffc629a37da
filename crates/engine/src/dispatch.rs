//! Start of waiting requests: the lock of a version, its instances, and the steps of its scheduler.
//!
//! Sinks are called outside the lock.

use crate::answer::{EngineResponse, Sink};
use crate::delivery_scope::DeliveryScope;
use crate::ensemble::Ensemble;
use crate::execution::Permit;
use crate::execution_cost::{ExecutionCost, InlineRun};
use crate::inline::waits_for_device;
use crate::limits::{QUEUE_SEARCHED_AT_ONCE_MAX, REMOVED_AT_ONCE_MAX};
use crate::mail::together;
use crate::pending::{Queued, Requests};
use crate::schedule::{Next, RemovalReason, Removed};
use crate::serving_state::{Dispatch, Followed, take_idle};
use crate::statistics::FailureReason;
use crate::ticket::{Acceptor, CancelledStage};
use crate::timer::Timed;
use crate::traced;
use crate::version::{Job, ModelVersion, Work};
use backend::{RunControl, now_ns};
use parking_lot::MutexGuard;
use scheduler::Cause;
use scheduler::cores::InUse;
use scheduler::profile::FinishedRun;
use scheduler::sequence::{Origin, SequenceError};
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tensor::Error;

/// A batch of cheap requests may take this many times as long on the reactor as one of them: less than one by one, and
/// above it the cost of waking a thread is small for each.
const TURN_COST: u64 = 2;

impl Dispatch {
    /// Learns from an execution. Returns for how long, in ns, the model stops running inline after too many overruns.
    #[inline]
    pub(crate) fn learn(&mut self, instance: u32, cost: &ExecutionCost) -> Option<u64> {
        if cost.duration > 0 {
            let ExecutionCost { class, kind, rows, tokens, plan, duration: duration_ns, .. } = *cost;
            self.schedule.profile_mut().observe(&FinishedRun { class, kind, rows, tokens, plan, duration_ns });
        }
        if let Some((inline, held)) = cost.inline {
            self.recent.ran_inline(cost.end, cost.duration);
            self.turn_policy.ran(cost.end);
            // A failed run held the thread as well.
            return self.schedule.profile_mut().ran_inline(held, inline.limit_ns, cost.end);
        }
        self.recent.ended(instance, cost.rows, cost.end, cost.duration);
        self.schedule.profile_mut().ran_on_pool(cost.end);
        None
    }
}

impl ModelVersion {
    /// Steps the scheduler until it has nothing to start, and passes batches to the pool.
    pub(crate) fn pump(&self, mut dispatch: MutexGuard<'_, Dispatch>, now: u64) {
        let removed = self.start_batches(&mut dispatch, now, None).1;
        drop(dispatch);
        self.unlocked(removed);
    }

    /// Ends a turn in which the reactor collected requests for this version.
    pub(crate) fn end_turn(&self) {
        let now = now_ns();
        let mut dispatch = self.serving.dispatch.lock();
        let Some(instance) = dispatch.idle.last().copied() else { return };
        let (requests, removed) = self.start_batches(&mut dispatch, now, Some(instance));
        dispatch.turn_policy.turn_of(requests.as_ref().map_or(0, SmallVec::len));
        let limit_ns = self.inline_limit(TURN_COST);
        // Requests that are cheap one by one may not be cheap together.
        let cheap = requests.as_ref().is_some_and(|all| {
            self.scheduling.may_inline
                && dispatch.schedule.profile().is_cheap(self.scheduling.kind_of(all), limit_ns)
                && !all.iter().any(|queued| waits_for_device(&queued.0.entry.request))
        });
        let inline = InlineRun { limit_ns, exact: dispatch.schedule.profile().needs_exact_time() };
        drop(dispatch);
        self.unlocked(removed);
        let Some(requests) = requests else { return };
        if !cheap {
            return self.submit(instance, requests);
        }
        let mut permit = Permit::new(self, instance);
        let cost = self.execute(instance, requests, &RunControl::alone(), Some(inline));
        if let Some(requests) = self.next(&mut permit, cost) {
            permit.pass_on();
            self.submit(instance, requests);
        }
    }

    /// Starts every batch that can be started. The first one for the instance `mine` is returned to its thread instead.
    fn start_batches(&self, dispatch: &mut Dispatch, now: u64, mine: Option<u32>) -> (Option<Requests>, Removed) {
        if let Some(limited) = &self.scheduling.limited {
            return self.start_limited(limited, dispatch, now, mine);
        }
        let (mut kept, mut removed) = (None, Vec::new());
        while let Some((requests, which)) = self.step(dispatch, now, &mut removed) {
            match take_idle(&mut dispatch.idle, which) {
                Some(instance) if Some(instance) == mine && kept.is_none() => {
                    dispatch.begins(instance, now, requests.len());
                    kept = Some(requests);
                }
                Some(instance) => {
                    dispatch.begins(instance, now, requests.len());
                    self.submit(instance, requests);
                }
                None => {
                    // More batches than instances are our bug, but the batch needs its responses.
                    debug_assert!(false, "batch without an idle instance");
                    self.submit(0, requests);
                }
            }
        }
        if let Some((requests, instance)) = self.step_ahead(dispatch, now, &mut removed) {
            self.submit(instance, requests);
        }
        if !dispatch.draining.is_empty() {
            self.let_go(dispatch);
        }
        (kept, removed)
    }

    /// The batch to send to a busy instance, where it is prefetched.
    fn step_ahead(&self, dispatch: &mut Dispatch, now: u64, removed: &mut Removed) -> Option<(Requests, u32)> {
        let &Followed { instance, requests: running, .. } = dispatch.followed()?;
        let step = catch_unwind(AssertUnwindSafe(|| dispatch.schedule.step_ahead(now, running, removed)));
        let requests = step.ok().flatten()?;
        traced::begin(&requests, Cause::Prefetched);
        dispatch.recent.began(now, Cause::Prefetched, requests.iter().map(Queued::seen));
        dispatch.recent.on(instance);
        dispatch.followed.pop();
        Some((requests, instance))
    }

    /// The next batch to start, with its instance if the scheduler chose one. Otherwise sets a timer for the next step.
    pub(crate) fn step(
        &self,
        dispatch: &mut Dispatch,
        now: u64,
        removed: &mut Removed,
    ) -> Option<(Requests, Option<u32>)> {
        if let Some(cores) = self.scheduling.capabilities.cores {
            let in_use = self.in_use(dispatch, cores);
            dispatch.schedule.set_in_use(in_use);
        }
        let Dispatch { schedule, idle, granted, .. } = dispatch;
        let free = if self.scheduling.limited.is_some() { granted } else { idle };
        // If the scheduler panics, instances are kept; the requests that it had get a response when they are dropped.
        let step = catch_unwind(AssertUnwindSafe(|| schedule.step(now, free, removed)));
        let mut next = step.unwrap_or(Next::Idle);
        if let Some(sequencing) = &self.scheduling.sequencing {
            let handed_out = match &mut next {
                Next::Run(requests, ..) => requests.as_mut_slice(),
                Next::SleepUntil(_) | Next::Idle => &mut [],
            };
            if let Some(sequences) = dispatch.schedule.sequences_mut() {
                let forgotten = sequences.forgotten();
                sequencing.begin(&forgotten, handed_out.iter_mut().filter_map(|q| q.0.row.as_mut()));
                self.continues_with(sequences.alive());
            }
        }
        match next {
            Next::Run(requests, which, why) => {
                traced::begin(&requests, why);
                dispatch.recent.began(now, why, requests.iter().map(Queued::seen));
                self.batch_was_taken(dispatch);
                return Some((requests, which));
            }
            Next::SleepUntil(at) if dispatch.armed == 0 || at < dispatch.armed => {
                dispatch.armed = at;
                _ = self.shared.timer.arm(at, self.me.clone());
            }
            Next::SleepUntil(_) | Next::Idle => (),
        }
        self.ask_library(dispatch);
        None
    }

    /// Runs and requests on the cores of a model that divides them.
    fn in_use(&self, dispatch: &Dispatch, cores: u32) -> InUse {
        if self.serving.keeps_order() {
            return InUse { requests: 0, others: cores };
        }
        let requests = dispatch.begun.iter().fold(0u32, |sum, &(_, requests)| sum.saturating_add(requests));
        let own = cores.saturating_sub(u32::try_from(dispatch.idle.len()).unwrap_or(u32::MAX));
        InUse { requests, others: self.shared.computing.load(Ordering::Relaxed).saturating_sub(own) }
    }

    /// Returns an instance. Call `start_batches` next, under the same lock.
    pub(crate) fn rests(&self, dispatch: &mut Dispatch, instance: u32) {
        if self.scheduling.limited.is_some() {
            dispatch.finished.push(instance);
        }
        if dispatch.give_back(instance) {
            self.serving.instances_left(&[instance]);
        }
    }

    /// Passes a batch and its instance to the pool, or, for a model that responds later, to the caller of `unlocked`.
    pub(crate) fn submit(&self, instance: u32, requests: Requests) {
        if let Some(remote) = &self.serving.remote {
            return remote.leave(instance, requests);
        }
        // `me` upgrades, because the caller has an `Arc` of `self`.
        if let Some(version) = self.me.upgrade() {
            self.shared.pool.submit(Work::Batch(Job { version, instance, requests }));
        }
    }

    /// Ends an execution: the instance takes the next batch, or becomes idle.
    pub(crate) fn next(&self, permit: &mut Permit<'_>, cost: ExecutionCost) -> Option<Requests> {
        let now = cost.end;
        let mut dispatch = self.serving.dispatch.lock();
        let overran = dispatch.learn(permit.instance, &cost);
        self.rests(&mut dispatch, permit.instance);
        permit.held = false;
        // The usual case: a request ran alone, and none waits.
        let (mine, removed) = if dispatch.schedule.is_still() && self.scheduling.limited.is_none() {
            (None, Vec::new())
        } else {
            self.start_batches(&mut dispatch, now, Some(permit.instance))
        };
        permit.held = mine.is_some();
        drop(dispatch);
        if let Some(rest_ns) = overran {
            log::warn!(
                "model '{}' version {} held a thread of the front end for longer than a request may; its requests run \
                 on worker threads for {:.0} s",
                self.signature.model,
                self.signature.version,
                rest_ns as f64 / 1e9
            );
        }
        self.unlocked(removed);
        mine
    }

    /// Called when the timer fires.
    fn woken(&self, at: u64) {
        self.answer_removed();
        if let Some(remote) = &self.serving.remote {
            remote.wake_asking();
        }
        let is_sweep = self.serving.sweep_due.swap(false, Ordering::AcqRel);
        if is_sweep && let Some(ensemble) = self.graph() {
            return self.sweep_line(ensemble);
        }
        let mut removed = Vec::new();
        let mut dispatch = self.serving.dispatch.lock();
        if dispatch.armed == at {
            dispatch.armed = 0;
        }
        let now = now_ns();
        if is_sweep {
            dispatch.schedule.remove_cancelled(now, &mut removed);
        }
        self.pump(dispatch, now);
        self.unlocked(removed);
    }

    /// Removes cancelled requests from the queue and responds to them. If many wait, the timer thread does it soon,
    /// together with later cancellations: one search per request would take seconds for thousands of them.
    pub(crate) fn sweep_cancelled(&self) {
        // The usual case when thousands are cancelled together: without a lock.
        if self.serving.sweep_due.load(Ordering::Relaxed) && self.sweep_soon() {
            return;
        }
        if let Some(ensemble) = self.graph() {
            if ensemble.waiting() <= QUEUE_SEARCHED_AT_ONCE_MAX || !self.sweep_soon() {
                self.sweep_line(ensemble);
            }
            return;
        }
        let mut removed = Vec::new();
        let mut dispatch = self.serving.dispatch.lock();
        if dispatch.schedule.len() > QUEUE_SEARCHED_AT_ONCE_MAX {
            drop(dispatch);
            if self.sweep_soon() {
                return;
            }
            dispatch = self.serving.dispatch.lock();
        }
        let now = now_ns();
        dispatch.schedule.remove_cancelled(now, &mut removed);
        self.pump(dispatch, now);
        self.unlocked(removed);
    }

    /// Lets the timer thread sweep. Returns false if it cannot.
    fn sweep_soon(&self) -> bool {
        // If the flag is set already, that sweep covers this request: it resets the flag before it looks at tickets.
        self.serving.sweep_due.swap(true, Ordering::AcqRel) || self.shared.timer.arm(now_ns(), self.me.clone())
    }

    fn sweep_line(&self, ensemble: &Ensemble) {
        if ensemble.sweep_cancelled(REMOVED_AT_ONCE_MAX) && !self.sweep_soon() {
            ensemble.sweep_cancelled(usize::MAX);
        }
    }

    /// Responds to some of the requests left to the timer thread, and wakes it again for the others.
    fn answer_removed(&self) {
        let some: Removed = {
            let mut all = self.serving.removed.lock();
            if all.is_empty() {
                return;
            }
            let at = all.len().saturating_sub(REMOVED_AT_ONCE_MAX);
            all.drain(at..).collect()
        };
        let is_last = some.len() < REMOVED_AT_ONCE_MAX;
        together(|| self.answer_all(some));
        if !is_last && !self.shared.timer.arm(now_ns(), self.me.clone()) {
            let rest = std::mem::take(&mut *self.serving.removed.lock());
            self.answer_all(rest);
        }
    }

    /// Does the rest without the lock: starts batches, responds to removed requests, notifies other instances.
    pub(crate) fn unlocked(&self, removed: Removed) {
        if self.scheduling.acts_unlocked {
            if let Some(remote) = &self.serving.remote {
                self.start_left(remote);
            }
            if let Some(limited) = &self.scheduling.limited {
                limited.notify_ready();
            }
        }
        if removed.len() > REMOVED_AT_ONCE_MAX {
            self.serving.removed.lock().extend(removed);
            return self.answer_removed();
        }
        self.answer_all(removed);
    }

    fn answer_all(&self, removed: Removed) {
        if removed.is_empty() {
            return;
        }
        // Some may be steps of ensembles, whose flows continue.
        let _scope = DeliveryScope::begin();
        let now = now_ns();
        self.serving.pending.fetch_sub(removed.len() as u64, Ordering::Relaxed);
        for (why, Queued(mut p)) in removed {
            p.waits = false;
            let (reason, error) = match why {
                RemovalReason::Expired => (FailureReason::Rejected, Error::unavailable("Request timeout expired")),
                RemovalReason::SequenceExpired => {
                    (FailureReason::Rejected, scheduler::sequence::RemovalReason::Expired.error())
                }
                RemovalReason::Gone(why) => (FailureReason::Backend, why),
                RemovalReason::Stopped => {
                    (FailureReason::Rejected, SequenceError::Drained.error(&self.signature.model))
                }
                RemovalReason::Cancelled => (FailureReason::Cancelled, Error::cancelled("")),
            };
            if let Some(streaming) = p.streaming.take() {
                streaming.finish(Some(Err(error)));
                continue;
            }
            let error = p.ticket.settle().unwrap_or(error);
            // The request of a text is counted where it ends.
            if p.text.is_some() {
                if let Some(sink) = p.sink.take() {
                    sink.put(EngineResponse::only(Err(error)));
                }
                continue;
            }
            self.statistics.failed(p.accepted, now, reason);
            if let Some(trace) = p.entry.request.trace.take() {
                trace.ended(now, Some(&error));
            }
            if let Some(sink) = p.sink.take() {
                self.deliver(sink, EngineResponse::only(Err(error)).at(p.place));
            }
        }
    }

    /// Limit of an inline run of `times` requests, in ns.
    pub(crate) fn inline_limit(&self, times: u64) -> u64 {
        times * self.shared.options.inline_cost_max_ns
    }
}

impl Acceptor for ModelVersion {
    fn load(&self) -> u64 {
        self.identity.load
    }

    fn cancelled(&self, stage: CancelledStage) {
        self.serving.count_cancelled();
        if stage == CancelledStage::Queued {
            self.sweep_cancelled();
        }
    }

    fn dropped(&self, waits: bool, row: Option<Origin>) -> Error {
        if waits {
            self.serving.pending.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(row) = row {
            self.release_row(row);
        }
        self.defect()
    }

    fn deliver(&self, sink: Arc<dyn Sink>, answer: EngineResponse) {
        self.deliver(sink, answer);
    }
}

impl Timed for ModelVersion {
    fn wake(&self, at: u64) {
        self.woken(at);
    }
}
