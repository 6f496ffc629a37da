//! Hands batches on to models in other processes: `execute` hands a batch on, and the instance stays busy until the
//! backend frees it ([`backend::Occupied`]), from whichever thread.
//!
//! What an execution of other models does when `execute` returns happens when the instance is freed: its cost is learned, the
//! instance rests, and the next batch starts. Where handing a batch on takes microseconds, that is done by the thread that brings the
//! request or frees the instance; otherwise by one of the pool, which does not stay with the batch.
//!
//! The schedule says what starts under the lock of the version. It is left in `Later::starts` and started by the thread that held the
//! lock, once that is free. A backend that frees an instance inside `execute` would have the next batch start inside, too, and so on:
//! on one thread the starts stand in line instead.
//!
//! Instances that left (`resize`) are left there, too: the model is told without the lock.

use crate::execution::Permit;
use crate::later::Later;
use crate::limits::STARTS_NS_MAX;
use crate::mail::together;
use crate::pending::Requests;
use crate::ran::Ran;
use crate::rest::{Rest, Then};
use crate::streaming::Execution;
use crate::version::ModelVersion;
use crate::work::{Job, Work};
use backend::{Batch, BatchEntry, Marks, Occupancy, Occupied, RunControl, now_ns};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::{Data, Location};

/// What the backend holds.
struct OccupiedInstance {
    rest: Arc<Rest>,
    execution: Arc<Execution>,
    control: Arc<RunControl>,
}

impl Occupancy for OccupiedInstance {
    fn free(self: Box<Self>, marks: Option<Marks>) {
        self.control.over();
        if let Some(marks) = marks {
            let duration = marks.outputs_ready.saturating_sub(self.execution.start).max(1);
            self.rest.duration.store(duration, Ordering::Relaxed);
            self.execution.set_marks(marks);
        }
    }
}

thread_local! {
    /// Batches that wait for one that this thread starts.
    static STARTING: RefCell<Option<VecDeque<Job>>> = const { RefCell::new(None) };
}

/// The batches that this thread starts. What is left of them when it panics goes to the pool.
struct Starting;

impl Drop for Starting {
    fn drop(&mut self) {
        let left = STARTING.try_with(|line| line.take()).ok().flatten().unwrap_or_default();
        left.into_iter().for_each(Job::submit);
    }
}

impl Job {
    fn submit(self) {
        let pool = self.version.shared.pool.clone();
        pool.submit(Work::Batch(self));
    }

    /// Whether it takes microseconds to hand the batch on.
    fn starts_at_once(&self) -> bool {
        let inputs = self.requests.iter().flat_map(|q| &q.0.entry.request.inputs);
        // What lies on a device takes as long as that likes.
        let bytes = |data: &Data| if let Location::Device(_) = data.location() { usize::MAX } else { data.len() };
        let bytes = inputs.map(|i| bytes(&i.data)).fold(0, usize::saturating_add);
        self.version.scheduling.capabilities.starts_at_once_bytes.is_some_and(|most| bytes <= most)
    }

    /// Starts the batch on this thread, which may serve others, if that takes microseconds; else on one of the pool.
    fn start_anywhere(self) {
        if self.starts_at_once() { self.start_in_line(STARTS_NS_MAX) } else { self.submit() }
    }

    /// Starts the batch on this thread, of the pool.
    pub(crate) fn start_here(self) {
        if self.starts_at_once() { self.start_in_line(u64::MAX) } else { self.start() }
    }

    /// Starts the batch, and those that its start makes start; what is left after so many nanoseconds goes to the pool.
    fn start_in_line(self, longest_ns: u64) {
        let mut mine = Some(self);
        let is_first = STARTING.try_with(|line| match &mut *line.borrow_mut() {
            Some(line) => {
                line.extend(mine.take());
                false
            }
            none => {
                *none = Some(VecDeque::new());
                true
            }
        });
        // A thread that ends has no line any more.
        let Some(job) = mine else { return };
        if is_first.is_err() {
            return job.submit();
        }
        let _line = Starting;
        let until = now_ns().saturating_add(longest_ns);
        let mut next = Some(job);
        while let Some(job) = next {
            if now_ns() > until || !job.starts_at_once() {
                job.submit()
            } else {
                job.start()
            }
            next = STARTING.with_borrow_mut(|line| line.as_mut().and_then(VecDeque::pop_front));
        }
    }

    /// Hands the batch to the backend.
    fn start(self) {
        let Job { version, instance, requests } = self;
        let mut permit = Permit::new(&version, instance);
        let control = Arc::new(RunControl::new(requests.len() as u32));
        for q in &requests {
            q.0.ticket.running(&control);
        }
        version.execute_later(&mut permit, requests, &control, Then::Serve);
    }
}

impl ModelVersion {
    /// Starts what the schedule said under the lock, which is free now.
    pub(crate) fn start_left(&self, later: &Later) {
        // `me` upgrades: a caller holds an `Arc` to call anything on `self`.
        let Some(me) = self.me.upgrade() else { return };
        loop {
            let mut starts = later.starts.lock();
            if !starts.left.is_empty() {
                let left = std::mem::take(&mut starts.left);
                drop(starts);
                left.into_iter().for_each(|instance| self.notify_remote(|remote| remote.instance_left(instance)));
                continue;
            }
            let Some((instance, requests)) = starts.batches.pop_front() else { return };
            drop(starts);
            Job { version: me.clone(), instance, requests }.start_anywhere();
        }
    }

    /// Hands a batch to the backend. Its instance, that of `permit`, rests when the backend frees it, and its requests end then or
    /// before or after.
    pub(crate) fn execute_later(
        self: &Arc<Self>,
        permit: &mut Permit<'_>,
        mut requests: Requests,
        control: &Arc<RunControl>,
        then: Then,
    ) {
        let instance = permit.instance;
        let (execution, ran) = self.execution_of(instance, &requests);
        if let Some(later) = &self.running.later {
            later.occupied.fetch_add(1, Ordering::AcqRel);
        }
        self.shared.occupied.fetch_add(1, Ordering::AcqRel);
        let rest = Rest { version: self.clone(), instance, ran, duration: AtomicU64::new(0), then };
        permit.pass_on();
        let rest = Arc::new(rest);
        let waits_for_requests = self.scheduling.sequencing.is_some() && !self.signature.decoupled;
        let of_requests = waits_for_requests.then(|| rest.clone());
        let held = OccupiedInstance { rest, execution: execution.clone(), control: control.clone() };
        let occupied = Occupied::new(Box::new(held));
        let mut entries = self.entries_with_responders(&mut requests, &execution, of_requests.as_ref());
        drop((requests, of_requests));
        let mut batch = Batch { requests: &mut entries, occupied: Some(occupied) };
        let ran = self.hand_over(instance, &mut batch, control);
        let left = batch.occupied.take();
        match (ran, &left) {
            // A backend that took it may not have looked at the clock.
            (Some(marks), None) => execution.set_handed_on(marks.inputs_ready.max(execution.start)),
            (Some(marks), Some(_)) => execution.set_marks(marks),
            (None, _) => {}
        }
        self.finish_left_alone(entries);
        // What the backend did not take is over.
        if let (Some(occupied), Some(marks)) = (left, ran) {
            occupied.free(marks);
        }
    }

    /// Ends the requests whose responders the backend left alone, with their results.
    pub(crate) fn finish_left_alone(&self, entries: impl IntoIterator<Item = BatchEntry>) {
        together(|| {
            for mut entry in entries {
                let Some(responder) = entry.responder.take() else { continue };
                let result = entry.result.take().unwrap_or_else(|| Err(self.no_answer()));
                responder.finish(Some(result));
            }
        });
    }

    /// The batch of an instance is over.
    pub(crate) fn freed(&self, instance: u32, ran: Ran) {
        let mut run = self.running.run.lock();
        run.learn(&ran);
        self.rests(&mut run, instance);
        self.pump(run, ran.end);
    }
}
