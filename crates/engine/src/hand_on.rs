//! Batches of models in other processes: `execute` passes the batch on, and the instance stays busy until the backend
//! frees it ([`backend::Occupied`]) on any thread.
//!
//! When the instance is freed, its cost is learned, the instance becomes idle, and the next batch starts; for other
//! models this happens when `execute` returns. If passing a batch on takes microseconds, the thread that brings the
//! request or frees the instance does it; otherwise a pool thread, which does not wait for the batch.
//!
//! Batches are chosen under the lock of the version, left in `RemoteState::starts`, and started by the thread that held
//! the lock, after it is free. A backend may free an instance inside `execute`, which would start the next batch there,
//! and so on; so the starts of one thread are queued instead.
//!
//! Instances that were removed (`resize`) are left there, too, because the model is notified without the lock.

use crate::execution::Permit;
use crate::execution_cost::ExecutionCost;
use crate::held_instance::{HeldInstance, ReturnTo};
use crate::limits::STARTS_NS_MAX;
use crate::mail::together;
use crate::pending::Requests;
use crate::remote_state::RemoteState;
use crate::serving_state::Followed;
use crate::times::Execution;
use crate::version::{Job, ModelVersion, Work};
use backend::{Batch, BatchEntry, InstanceOffer, Marks, Occupancy, Occupied, RunControl, gather, now_ns};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of the next offer of a busy instance to another batch.
static OFFERS: AtomicU64 = AtomicU64::new(1);

/// An instance that the backend occupies.
struct OccupiedInstance {
    held: Holding,
    execution: Arc<Execution>,
    control: Arc<RunControl>,
    requests: u64,
    /// Number of its requests that count as pending, while the batch is prefetched.
    pending: AtomicU64,
}

/// Whether the instance waits for the end of the batch.
enum Holding {
    Held(Arc<HeldInstance>),
    /// The instance may have the next batch already.
    Offered(UnfinishedBatch, ExecutionCost),
}

impl Occupancy for OccupiedInstance {
    fn free(self: Box<Self>, marks: Option<Marks>) {
        self.control.over();
        self.no_longer_waits();
        let Some(marks) = marks else { return };
        let duration = marks.outputs_ready.saturating_sub(self.execution.start()).max(1);
        self.execution.set_marks(marks);
        match &self.held {
            Holding::Held(held) => held.duration.store(duration, Ordering::Relaxed),
            Holding::Offered(UnfinishedBatch(version), cost) => {
                version
                    .serving
                    .dispatch
                    .lock()
                    .learn(self.execution.instance, &ExecutionCost { duration, end: now_ns(), ..*cost });
            }
        }
    }

    fn offer(&mut self) -> Option<InstanceOffer> {
        let Holding::Held(held) = &self.held else { return None };
        // A warmup counts the instances that are done.
        if !matches!(held.return_to, ReturnTo::Service) {
            return None;
        }
        if held.version.scheduling.has_batcher() {
            let offer = OFFERS.fetch_add(1, Ordering::Relaxed);
            let is_first = held.offer.compare_exchange(0, offer, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            let requests = self.requests as usize;
            return is_first.then(|| InstanceOffer(Box::new(MayBeFollowed { held: held.clone(), requests })));
        }
        let unfinished = UnfinishedBatch::new(held.version.clone());
        let offered = Holding::Offered(unfinished, held.cost);
        let Holding::Held(held) = std::mem::replace(&mut self.held, offered) else { return None };
        Some(InstanceOffer(Box::new(held)))
    }

    fn waits(&self) {
        self.control.set_prefetched(true);
        self.pending.store(self.requests, Ordering::Relaxed);
        self.version().serving.pending.fetch_add(self.requests, Ordering::Relaxed);
    }

    fn leaves(&self) {
        let one_less = |pending: u64| pending.checked_sub(1);
        if self.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            self.version().serving.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn begins(&self, at: u64) {
        self.no_longer_waits();
        self.execution.begins(at);
    }
}

impl OccupiedInstance {
    fn no_longer_waits(&self) {
        if self.control.is_prefetched() {
            self.control.set_prefetched(false);
            self.version().serving.pending.fetch_sub(self.pending.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn version(&self) -> &ModelVersion {
        match &self.held {
            Holding::Held(held) => &held.version,
            Holding::Offered(UnfinishedBatch(version), _) => version,
        }
    }
}

/// Counts a batch whose instance was offered to the next batch, until it ends.
struct UnfinishedBatch(Arc<ModelVersion>);

impl UnfinishedBatch {
    fn new(version: Arc<ModelVersion>) -> Self {
        version.batch_begins();
        Self(version)
    }
}

impl Drop for UnfinishedBatch {
    fn drop(&mut self) {
        self.0.batch_ended();
    }
}

/// Offers the instance of a batch to the batcher, which decides when the next batch would not grow any more.
struct MayBeFollowed {
    held: Arc<HeldInstance>,
    requests: usize,
}

impl Drop for MayBeFollowed {
    fn drop(&mut self) {
        let HeldInstance { version, instance, .. } = &*self.held;
        let mut dispatch = version.serving.dispatch.lock();
        let offer = self.held.offer.load(Ordering::Relaxed);
        dispatch.followed.push(Followed { instance: *instance, offer, requests: self.requests });
        version.pump(dispatch, now_ns());
    }
}

thread_local! {
    /// Batches queued behind the start that this thread is making.
    static STARTING: RefCell<Option<VecDeque<Job>>> = const { RefCell::new(None) };
}

/// Guard of this thread's queue of starts. If a start panics, the remaining batches go to the pool.
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

    /// True if passing the batch on takes microseconds.
    fn starts_at_once(&self) -> bool {
        let inputs = self.requests.iter().flat_map(|q| &q.0.entry.request.inputs);
        let bytes = inputs
            .map(|input| gather::bytes_to_hand_on(input, self.version.served.remote()))
            .fold(0, usize::saturating_add);
        self.version.scheduling.capabilities.starts_at_once_bytes.is_some_and(|most| bytes <= most)
    }

    /// Starts the batch on this thread, which may serve others, if that takes microseconds; otherwise on a pool thread.
    fn start_anywhere(self) {
        if self.starts_at_once() { self.start_in_line(STARTS_NS_MAX) } else { self.submit() }
    }

    /// Starts the batch on this thread of the pool.
    pub(crate) fn start_here(self) {
        if self.starts_at_once() { self.start_in_line(u64::MAX) } else { self.start() }
    }

    /// Starts the batch, and those that follow from it; after `longest_ns` the rest goes to the pool.
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
        // An ending thread has no queue.
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

    /// Passes the batch to the backend.
    fn start(self) {
        let Job { version, instance, requests } = self;
        let mut permit = Permit::new(&version, instance);
        let control = Arc::new(RunControl::new(requests.len() as u32));
        for q in &requests {
            q.0.ticket.running(&control);
        }
        version.execute_remotely(&mut permit, requests, &control, ReturnTo::Service);
    }
}

impl ModelVersion {
    /// Starts the batches that were chosen under the lock.
    pub(crate) fn start_left(&self, remote: &RemoteState) {
        // `me` upgrades, because the caller has an `Arc` of `self`.
        let Some(me) = self.me.upgrade() else { return };
        loop {
            let mut starts = remote.starts.lock();
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

    /// Passes a batch to the backend. The instance is busy until the backend frees it; requests end at any time.
    pub(crate) fn execute_remotely(
        self: &Arc<Self>,
        permit: &mut Permit<'_>,
        mut requests: Requests,
        control: &Arc<RunControl>,
        return_to: ReturnTo,
    ) {
        let instance = permit.instance;
        let (execution, cost) = self.execution_of(instance, &requests);
        self.batch_begins();
        let (duration, offer) = (AtomicU64::new(0), AtomicU64::new(0));
        let held = HeldInstance { version: self.clone(), instance, cost, duration, return_to, offer };
        permit.pass_on();
        let held = Arc::new(held);
        let waits_for_requests = self.scheduling.sequencing.is_some() && !self.signature.decoupled;
        let of_requests = waits_for_requests.then(|| held.clone() as Arc<dyn Send + Sync>);
        let occupied = OccupiedInstance {
            held: Holding::Held(held),
            execution: execution.clone(),
            control: control.clone(),
            requests: requests.len() as u64,
            pending: AtomicU64::new(0),
        };
        let occupied = Occupied::new(Box::new(occupied));
        let mut entries = self.entries_with_responders(&mut requests, &execution, of_requests.as_ref());
        drop((requests, of_requests));
        let mut batch = Batch { requests: &mut entries, occupied: Some(occupied) };
        let marks = self.hand_over(instance, &mut batch, control);
        let left = batch.occupied.take();
        match (marks, &left) {
            // A backend that took the batch may not have read the clock.
            (Some(marks), None) => execution.set_handed_on(marks.inputs_ready.max(execution.start())),
            (Some(marks), Some(_)) => execution.set_marks(marks),
            (None, _) => {}
        }
        self.finish_left_alone(entries);
        // The backend did not take the instance, so the execution is over.
        if let (Some(occupied), Some(marks)) = (left, marks) {
            occupied.free(marks);
        }
    }

    /// Ends the requests whose responders the backend did not take, with their results.
    pub(crate) fn finish_left_alone(&self, entries: impl IntoIterator<Item = BatchEntry>) {
        together(|| {
            for mut entry in entries {
                let Some(responder) = entry.responder.take() else { continue };
                let result = entry.result.take().unwrap_or_else(|| Err(self.no_answer()));
                responder.finish(Some(result));
            }
        });
    }

    /// Counts a batch in another process. `batch_ended` follows.
    fn batch_begins(&self) {
        if let Some(remote) = &self.serving.remote {
            remote.occupied.fetch_add(1, Ordering::AcqRel);
        }
        self.shared.occupied.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn batch_ended(&self) {
        if let Some(remote) = &self.serving.remote {
            remote.occupied.fetch_sub(1, Ordering::AcqRel);
        }
        self.shared.occupied.fetch_sub(1, Ordering::AcqRel);
    }

    /// Called when the batch of an instance is over.
    pub(crate) fn freed(&self, batch: &HeldInstance, cost: ExecutionCost) {
        let mut dispatch = self.serving.dispatch.lock();
        dispatch.learn(batch.instance, &cost);
        // Otherwise the batch behind it has the instance.
        let offer = batch.offer.load(Ordering::Relaxed);
        if offer == 0 || dispatch.is_followed_no_more(offer) {
            self.rests(&mut dispatch, batch.instance);
        }
        self.pump(dispatch, cost.end);
    }
}
