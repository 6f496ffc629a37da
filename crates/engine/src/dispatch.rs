//! When waiting requests start, and where: the lock of a version, its instances, and what its schedule says.
//!
//! Sinks are called outside the lock.

use crate::answer::{Answer, Delivery};
use crate::ensemble::Ensemble;
use crate::execution::Permit;
use crate::inline::waits_for_device;
use crate::limits::{QUEUE_SEARCHED_AT_ONCE_MAX, REMOVED_AT_ONCE_MAX};
use crate::mail::together;
use crate::pending::{Queued, Requests};
use crate::ran::{Inline, Ran};
use crate::running::{Run, take_idle};
use crate::schedule::{Next, RemovalReason, Removed};
use crate::statistics::FailureReason;
use crate::timer::Timed;
use crate::turn::InStretch;
use crate::version::ModelVersion;
use crate::work::{Job, Work};
use backend::{RunControl, now_ns};
use parking_lot::MutexGuard;
use scheduler::profile::FinishedRun;
use scheduler::sequence::SequenceError;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use tensor::Error;

/// A batch of cheap requests may take this many times as long on the reactor as one of them: less than they would one by one,
/// and above it waking a thread costs little for each.
const TURN_COST: u64 = 2;

impl Run {
    /// Learns from an execution. For how long, in ns, the model is kept from threads of the front end when this held one too long too often.
    #[inline]
    pub(crate) fn learn(&mut self, ran: &Ran) -> Option<u64> {
        if ran.duration > 0 {
            let Ran { class, kind, rows, padded_bytes, duration: duration_ns, .. } = *ran;
            self.schedule.profile_mut().observe(&FinishedRun { class, kind, rows, padded_bytes, duration_ns });
        }
        if let Some((inline, held)) = ran.inline {
            self.turn_policy.ran(ran.end);
            // A run that failed held the thread all the same.
            return self.schedule.profile_mut().ran_inline(held, inline.limit_ns, ran.end);
        }
        self.schedule.profile_mut().ran_on_pool(ran.end);
        None
    }
}

impl ModelVersion {
    /// Steps the schedule until it has nothing more to start; what it starts goes to the pool.
    pub(crate) fn pump(&self, mut run: MutexGuard<'_, Run>, now: u64) {
        let removed = self.start_batches(&mut run, now, None).1;
        drop(run);
        self.unlocked(removed);
    }

    /// The end of a turn of the reactor that collected requests for this version.
    pub(crate) fn end_turn(&self) {
        let now = now_ns();
        let mut run = self.running.run.lock();
        let Some(instance) = run.idle.last().copied() else { return };
        let (requests, removed) = self.start_batches(&mut run, now, Some(instance));
        run.turn_policy.turn_of(requests.as_ref().map_or(0, SmallVec::len));
        let limit_ns = self.inline_limit(TURN_COST);
        // What was cheap for each when it arrived may not be cheap for all of them together.
        let cheap = requests.as_ref().is_some_and(|all| {
            self.scheduling.may_inline
                && run.schedule.profile().is_cheap(self.scheduling.kind_of(all), limit_ns)
                && !all.iter().any(|queued| waits_for_device(&queued.0.entry.request))
        });
        let inline = Inline { limit_ns, exact: run.schedule.profile().needs_exact_time() };
        drop(run);
        self.unlocked(removed);
        let Some(requests) = requests else { return };
        if !cheap {
            return self.submit(instance, requests);
        }
        let mut permit = Permit::new(self, instance);
        let ran = self.execute(instance, requests, &RunControl::alone(), Some(inline));
        if let Some(requests) = self.next(&mut permit, ran) {
            permit.pass_on();
            self.submit(instance, requests);
        }
    }

    /// Starts every batch that can be started. The first one for `mine` is handed back instead, to the thread that holds it.
    fn start_batches(&self, run: &mut Run, now: u64, mine: Option<u32>) -> (Option<Requests>, Removed) {
        if let Some(limited) = &self.scheduling.limited {
            return self.start_limited(limited, run, now, mine);
        }
        let (mut kept, mut removed) = (None, Vec::new());
        while let Some((requests, which)) = self.step(run, now, &mut removed) {
            match take_idle(&mut run.idle, which) {
                Some(instance) if Some(instance) == mine && kept.is_none() => kept = Some(requests),
                Some(instance) => self.submit(instance, requests),
                None => {
                    // A scheduler that starts more than there are instances is our bug; the batch still has to be answered.
                    debug_assert!(false, "batch without an idle instance");
                    self.submit(0, requests);
                }
            }
        }
        if !run.draining.is_empty() {
            self.let_go(run);
        }
        (kept, removed)
    }

    /// What may start now, if anything, and on which instance if that matters. Otherwise a timer is set for when to look again.
    pub(crate) fn step(&self, run: &mut Run, now: u64, removed: &mut Removed) -> Option<(Requests, Option<u32>)> {
        let Run { schedule, idle, granted, .. } = run;
        let free = if self.scheduling.limited.is_some() { granted } else { idle };
        // A schedule that panics loses its step, not the instances; the requests it held are answered when they are dropped.
        let step = catch_unwind(AssertUnwindSafe(|| schedule.step(now, free, removed)));
        let mut next = step.unwrap_or(Next::Idle);
        if let Some(sequencing) = &self.scheduling.sequencing {
            let handed_out = match &mut next {
                Next::Run(requests, _) => requests.as_mut_slice(),
                Next::SleepUntil(_) | Next::Idle => &mut [],
            };
            if let Some(sequences) = run.schedule.sequences_mut() {
                let forgotten = sequences.forgotten();
                sequencing.begin(&forgotten, handed_out.iter_mut().filter_map(|q| q.0.row.as_mut()));
                self.continues_with(sequences.alive());
            }
        }
        match next {
            Next::Run(requests, which) => return Some((requests, which)),
            Next::SleepUntil(at) if run.armed == 0 || at < run.armed => {
                run.armed = at;
                _ = self.shared.timer.arm(at, self.me.clone());
            }
            Next::SleepUntil(_) | Next::Idle => (),
        }
        None
    }

    /// An instance does nothing any more. To be followed by `start_batches`, in the same hold of the lock.
    pub(crate) fn rests(&self, run: &mut Run, instance: u32) {
        if self.scheduling.limited.is_some() {
            run.finished.push(instance);
        }
        if run.give_back(instance) {
            self.running.instances_left(&[instance]);
        }
    }

    /// Has the pool run a batch, with the permit of `instance`; of a model that answers later, the caller, in `unlocked`.
    pub(crate) fn submit(&self, instance: u32, requests: Requests) {
        if let Some(later) = &self.running.later {
            return later.leave(instance, requests);
        }
        // `me` upgrades: a caller holds an `Arc` to call anything on `self`.
        if let Some(version) = self.me.upgrade() {
            self.shared.pool.submit(Work::Batch(Job { version, instance, requests }));
        }
    }

    /// After an execution: the instance takes the next batch, or becomes idle.
    pub(crate) fn next(&self, permit: &mut Permit<'_>, ran: Ran) -> Option<Requests> {
        let now = ran.end;
        let mut run = self.running.run.lock();
        let overran = run.learn(&ran);
        self.rests(&mut run, permit.instance);
        permit.held = false;
        // After a request that ran alone, as most do where none waits.
        let (mine, removed) = if run.schedule.is_still() && self.scheduling.limited.is_none() {
            (None, Vec::new())
        } else {
            self.start_batches(&mut run, now, Some(permit.instance))
        };
        permit.held = mine.is_some();
        drop(run);
        if let Some(rest_ns) = overran {
            log::warn!(
                "model '{}' version {} held a thread of the front end for longer than a request may; its requests run on worker threads for {:.0} s",
                self.signature.model,
                self.signature.version,
                rest_ns as f64 / 1e9
            );
        }
        self.unlocked(removed);
        mine
    }

    /// A timer armed for `at` fired.
    fn woken(&self, at: u64) {
        self.answer_removed();
        if let Some(later) = &self.running.later {
            later.wake_asking();
        }
        let is_sweep = self.running.sweep_due.swap(false, Ordering::AcqRel);
        if is_sweep && let Some(ensemble) = self.graph() {
            return self.sweep_line(ensemble);
        }
        let mut removed = Vec::new();
        let mut run = self.running.run.lock();
        if run.armed == at {
            run.armed = 0;
        }
        let now = now_ns();
        if is_sweep {
            run.schedule.remove_cancelled(now, &mut removed);
        }
        self.pump(run, now);
        self.unlocked(removed);
    }

    /// Takes cancelled requests out of the queue and answers them; where many wait, soon, together with others that are given up
    /// meanwhile: to look for thousands one by one would take seconds.
    pub(crate) fn sweep_cancelled(&self) {
        // The usual case of thousands that leave together: without a lock.
        if self.running.sweep_due.load(Ordering::Relaxed) && self.sweep_soon() {
            return;
        }
        if let Some(ensemble) = self.graph() {
            if ensemble.waiting() <= QUEUE_SEARCHED_AT_ONCE_MAX || !self.sweep_soon() {
                self.sweep_line(ensemble);
            }
            return;
        }
        let mut removed = Vec::new();
        let mut run = self.running.run.lock();
        if run.schedule.len() > QUEUE_SEARCHED_AT_ONCE_MAX {
            drop(run);
            if self.sweep_soon() {
                return;
            }
            run = self.running.run.lock();
        }
        let now = now_ns();
        run.schedule.remove_cancelled(now, &mut removed);
        self.pump(run, now);
        self.unlocked(removed);
    }

    /// Has the thread of the timer sweep. False when it cannot.
    fn sweep_soon(&self) -> bool {
        // A thread that finds it set leaves its request to that sweep: the flag is taken back before that looks at tickets.
        self.running.sweep_due.swap(true, Ordering::AcqRel) || self.shared.timer.arm(now_ns(), self.me.clone())
    }

    fn sweep_line(&self, ensemble: &Ensemble) {
        if ensemble.sweep_cancelled(REMOVED_AT_ONCE_MAX) && !self.sweep_soon() {
            ensemble.sweep_cancelled(usize::MAX);
        }
    }

    /// Answers some of those that were left to the thread of the timer, and has it come back for the others.
    fn answer_removed(&self) {
        let some: Removed = {
            let mut all = self.running.removed.lock();
            if all.is_empty() {
                return;
            }
            let at = all.len().saturating_sub(REMOVED_AT_ONCE_MAX);
            all.drain(at..).collect()
        };
        let is_last = some.len() < REMOVED_AT_ONCE_MAX;
        together(|| self.answer_all(some));
        if !is_last && !self.shared.timer.arm(now_ns(), self.me.clone()) {
            let rest = std::mem::take(&mut *self.running.removed.lock());
            self.answer_all(rest);
        }
    }

    /// What is left to do without the lock: batches to start, answers of requests that do not run, and other versions' instances that may.
    pub(crate) fn unlocked(&self, removed: Removed) {
        if self.scheduling.acts_unlocked {
            if let Some(later) = &self.running.later {
                self.start_left(later);
            }
            if let Some(limited) = &self.scheduling.limited {
                limited.tell();
            }
        }
        if removed.len() > REMOVED_AT_ONCE_MAX {
            self.running.removed.lock().extend(removed);
            return self.answer_removed();
        }
        self.answer_all(removed);
    }

    fn answer_all(&self, removed: Removed) {
        if removed.is_empty() {
            return;
        }
        // Some may be steps of ensembles, which go on.
        let _stretch = InStretch::begin();
        let now = now_ns();
        self.running.pending.fetch_sub(removed.len() as u64, Ordering::Relaxed);
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
                streaming.end(Some(Err(error)));
                continue;
            }
            let error = p.ticket.settle().unwrap_or(error);
            self.statistics.failed(p.accepted, now, reason);
            if let Some(trace) = p.entry.request.trace.take() {
                trace.ended(now, Some(&error));
            }
            if let Some(sink) = p.sink.take() {
                self.deliver(p.place, Delivery { sink, answer: Answer::only(Err(error)) });
            }
        }
    }

    /// What an inline run of `times` requests' worth may take.
    pub(crate) fn inline_limit(&self, times: u64) -> u64 {
        times * self.shared.options.inline_cost_max_ns
    }
}

impl Timed for ModelVersion {
    fn wake(&self, at: u64) {
        self.woken(at);
    }
}
