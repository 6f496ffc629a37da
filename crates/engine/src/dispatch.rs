//! When waiting requests start, and where: the lock of a version, its instances, and what its schedule says.
//!
//! Sinks are called outside the lock.

use crate::answer::{Answer, Delivery};
use crate::batch_key::class_of_padded;
use crate::ensemble::Ensemble;
use crate::execution::{Inline, Job, Permit, Ran};
use crate::inline::{TurnPolicy, waits_for_device};
use crate::limits::{QUEUE_SEARCHED_AT_ONCE_MAX, REMOVED_AT_ONCE_MAX};
use crate::mail::together;
use crate::padding::Padding;
use crate::pending::{Queued, Requests};
use crate::pool::Work;
use crate::schedule::{Next, RemovalReason, Removed, Schedule};
use crate::statistics::FailureReason;
use crate::timer::Timed;
use crate::turn::InStretch;
use crate::version::ModelVersion;
use backend::{BatchEntry, RunControl, now_ns};
use parking_lot::MutexGuard;
use scheduler::Waiting;
use scheduler::profile::{Execution, RunClass};
use scheduler::sequence::Refusal;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use tensor::Error;

/// A batch of cheap requests may take this many times as long on the reactor as one of them: less than they would one by one,
/// and above it waking a thread costs little for each.
const TURN_COST: u64 = 2;

/// What changes while a version serves, under its lock.
pub(crate) struct Run {
    pub(crate) schedule: Schedule,
    /// Numbers of the instances that do nothing, the one that stopped last on top: its caches are warm.
    pub(crate) idle: SmallVec<[u32; 8]>,
    /// Numbers of those that there are to be; see `resize`.
    pub(crate) members: SmallVec<[u32; 8]>,
    /// Numbers of busy ones that are not to become idle: they are no members, or gone.
    pub(crate) leaving: SmallVec<[u32; 2]>,
    /// Numbers of those that are no members and have sequences in progress: they take no others, and leave once these are over.
    pub(crate) draining: SmallVec<[u32; 2]>,
    /// Those that are gone, and why; the one that went last behind the others. Neither idle nor asking.
    pub(crate) gone: Vec<(u32, Error)>,
    /// Where executions are limited: those that wait for their resources, and those that have them and no batch yet.
    pub(crate) asking: SmallVec<[u32; 8]>,
    pub(crate) granted: SmallVec<[u32; 8]>,
    /// Those whose executions are over and whose resources the limiter still counts: it gets them back together with what this version
    /// asks next, so that of all who want them the first in its order has them. Empty when nobody holds the lock.
    pub(crate) finished: SmallVec<[u32; 2]>,
    pub(crate) turn_policy: TurnPolicy,
    /// Time of the earliest timer that will call `wake`; 0 = none.
    armed: u64,
}

impl Run {
    pub(crate) fn new(schedule: Schedule, instances: u32) -> Self {
        Self {
            schedule,
            idle: (0..instances.max(1)).rev().collect(),
            members: (0..instances.max(1)).collect(),
            leaving: SmallVec::new(),
            draining: SmallVec::new(),
            gone: Vec::new(),
            asking: SmallVec::new(),
            granted: SmallVec::new(),
            finished: SmallVec::new(),
            turn_policy: TurnPolicy::default(),
            armed: 0,
        }
    }
}

/// An idle instance, that one if it matters.
pub(crate) fn take_idle(idle: &mut SmallVec<[u32; 8]>, which: Option<u32>) -> Option<u32> {
    match which {
        None => idle.pop(),
        Some(instance) => idle.iter().position(|i| *i == instance).map(|at| idle.remove(at)),
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
        let mut run = self.run.lock();
        let Some(instance) = run.idle.last().copied() else { return };
        let (requests, removed) = self.start_batches(&mut run, now, Some(instance));
        run.turn_policy.turn_of(requests.as_ref().map_or(0, SmallVec::len));
        let limit_ns = self.inline_limit(TURN_COST);
        // What was cheap for each when it arrived may not be cheap for all of them together.
        let cheap = requests.as_ref().is_some_and(|all| {
            self.may_inline
                && run.schedule.profile().is_cheap(self.kind_of(all), limit_ns)
                && !all.iter().any(|queued| waits_for_device(&queued.0.entry.request))
        });
        let inline = Inline { limit_ns, exact: run.schedule.profile().is_doubted() };
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
        if let Some(limited) = &self.limited {
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
        let free = if self.limited.is_some() { granted } else { idle };
        // A schedule that panics loses its step, not the instances; the requests it held are answered when they are dropped.
        let step = catch_unwind(AssertUnwindSafe(|| schedule.step(now, free, removed)));
        let mut next = step.unwrap_or(Next::Idle);
        if let Some(sequencing) = &self.sequencing {
            let handed_out = match &mut next {
                Next::Run(requests, _) => requests.as_mut_slice(),
                Next::SleepUntil(_) | Next::Idle => &mut [],
            };
            let forgotten = run.schedule.forgotten();
            sequencing.begin(&forgotten, handed_out.iter_mut().filter_map(|q| q.0.row.as_mut()));
            self.continues_with(run.schedule.alive());
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
        if self.limited.is_some() {
            run.finished.push(instance);
        }
        if run.give_back(instance) {
            self.instances_left(&[instance]);
        }
    }

    /// Has the pool run a batch, with the permit of `instance`; of a model that answers later, the caller, in `unlocked`.
    pub(crate) fn submit(&self, instance: u32, requests: Requests) {
        if let Some(later) = &self.later {
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
        let mut run = self.run.lock();
        let overran = self.learn(&mut run, &ran);
        self.rests(&mut run, permit.instance);
        permit.held = false;
        // After a request that ran alone, as most do where none waits.
        let (mine, removed) = if run.schedule.is_still() && self.limited.is_none() {
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

    /// Learns from an execution. For how long, in ns, the model is kept from threads of the front end when this held one too long too often.
    #[inline]
    pub(crate) fn learn(&self, run: &mut Run, ran: &Ran) -> Option<u64> {
        if ran.duration > 0 {
            let Ran { class, kind, rows, padded_bytes, duration: duration_ns, .. } = *ran;
            run.schedule.profile_mut().observe(&Execution { class, kind, rows, padded_bytes, duration_ns });
        }
        if let Some((inline, held)) = ran.inline {
            run.turn_policy.ran(ran.end);
            // A run that failed held the thread all the same.
            return run.schedule.profile_mut().ran_inline(held, inline.limit_ns, ran.end);
        }
        run.schedule.profile_mut().ran_elsewhere(ran.end);
        None
    }

    /// A timer armed for `at` fired.
    fn woken(&self, at: u64) {
        self.answer_removed();
        if let Some(later) = &self.later {
            later.wake_asking();
        }
        let is_sweep = self.sweep_due.swap(false, Ordering::AcqRel);
        if is_sweep && let Some(ensemble) = self.graph() {
            return self.sweep_line(ensemble);
        }
        let mut removed = Vec::new();
        let mut run = self.run.lock();
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
        if self.sweep_due.load(Ordering::Relaxed) && self.sweep_soon() {
            return;
        }
        if let Some(ensemble) = self.graph() {
            if ensemble.waiting() <= QUEUE_SEARCHED_AT_ONCE_MAX || !self.sweep_soon() {
                self.sweep_line(ensemble);
            }
            return;
        }
        let mut removed = Vec::new();
        let mut run = self.run.lock();
        if run.schedule.len() > QUEUE_SEARCHED_AT_ONCE_MAX {
            drop(run);
            if self.sweep_soon() {
                return;
            }
            run = self.run.lock();
        }
        let now = now_ns();
        run.schedule.remove_cancelled(now, &mut removed);
        self.pump(run, now);
        self.unlocked(removed);
    }

    /// Has the thread of the timer sweep. False when it cannot.
    fn sweep_soon(&self) -> bool {
        // A thread that finds it set leaves its request to that sweep: the flag is taken back before that looks at tickets.
        self.sweep_due.swap(true, Ordering::AcqRel) || self.shared.timer.arm(now_ns(), self.me.clone())
    }

    fn sweep_line(&self, ensemble: &Ensemble) {
        if ensemble.sweep_cancelled(REMOVED_AT_ONCE_MAX) && !self.sweep_soon() {
            ensemble.sweep_cancelled(usize::MAX);
        }
    }

    /// Answers some of those that were left to the thread of the timer, and has it come back for the others.
    fn answer_removed(&self) {
        let some: Removed = {
            let mut all = self.removed.lock();
            if all.is_empty() {
                return;
            }
            let at = all.len().saturating_sub(REMOVED_AT_ONCE_MAX);
            all.drain(at..).collect()
        };
        let is_last = some.len() < REMOVED_AT_ONCE_MAX;
        together(|| self.answer_all(some));
        if !is_last && !self.shared.timer.arm(now_ns(), self.me.clone()) {
            let rest = std::mem::take(&mut *self.removed.lock());
            self.answer_all(rest);
        }
    }

    /// What is left to do without the lock: batches to start, answers of requests that do not run, and other versions' instances that may.
    pub(crate) fn unlocked(&self, removed: Removed) {
        if self.has_to_tell {
            if let Some(later) = &self.later {
                self.start_left(later);
            }
            if let Some(limited) = &self.limited {
                limited.tell();
            }
        }
        if removed.len() > REMOVED_AT_ONCE_MAX {
            self.removed.lock().extend(removed);
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
        self.pending.fetch_sub(removed.len() as u64, Ordering::Relaxed);
        for (why, Queued(mut p)) in removed {
            p.waits = false;
            let (reason, error) = match why {
                RemovalReason::Expired => (FailureReason::Rejected, Error::unavailable("Request timeout expired")),
                RemovalReason::SequenceExpired => {
                    (FailureReason::Rejected, scheduler::sequence::RemovalReason::Expired.error())
                }
                RemovalReason::Gone(why) => (FailureReason::Backend, why),
                RemovalReason::Stopped => (FailureReason::Rejected, Refusal::Drained.error(&self.signature.model)),
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

    /// The class of a batch's cost.
    pub(crate) fn kind_of(&self, requests: &Requests) -> RunClass {
        let rows = requests.iter().map(Waiting::rows).fold(0, u32::saturating_add);
        let bytes = self.bytes_of(requests.iter().map(|q| &q.0.entry));
        RunClass::new(self.class_of(requests), rows, bytes)
    }

    /// The class of a batch: that of its requests, which are alike but for what is padded.
    pub(crate) fn class_of(&self, requests: &Requests) -> u64 {
        let Some(first) = requests.first() else { return 0 };
        match &self.padding {
            Some(_) if requests.len() > 1 => {
                Padding::longest(requests).map_or(first.class(), |longest| class_of_padded(&first.0.key, &longest))
            }
            _ => first.class(),
        }
    }

    /// Bytes of the requests' inputs; 0 where they follow from shapes.
    pub(crate) fn bytes_of<'e>(&self, entries: impl Iterator<Item = &'e BatchEntry>) -> u64 {
        if !self.sized {
            return 0;
        }
        entries.flat_map(|e| &e.request.inputs).map(|i| i.data.len() as u64).sum()
    }
}

impl Timed for ModelVersion {
    fn wake(&self, at: u64) {
        self.woken(at);
    }
}
