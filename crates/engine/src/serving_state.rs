//! Changing state of a serving version: instances, scheduler, and counts of requests.

use crate::inline::TurnPolicy;
use crate::instance_config::InstanceConfig;
use crate::remote_state::RemoteState;
use crate::schedule::{Removed, Schedule};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tensor::Error;
use why::Ring;

/// State of a serving version, mostly unused by a graph, which has no instances.
pub(crate) struct ServingState {
    pub(crate) dispatch: Mutex<Dispatch>,
    /// Batches that run in other processes. `None` if the model runs in this one.
    pub(crate) remote: Option<RemoteState>,
    /// Instances by number, with their configuration. Locked during a whole change, before any other lock.
    pub(crate) instances: Mutex<Vec<(u32, InstanceConfig)>>,
    /// Number of instances that are gone, as in `Dispatch::gone`.
    pub(crate) gone: AtomicU32,
    /// Accepted requests that are not executing yet.
    pub(crate) pending: AtomicU64,
    /// Accepted requests without a final response.
    pub(crate) inflight: AtomicU64,
    /// Requests that were cancelled so far.
    pub(crate) cancelled: AtomicU64,
    /// Set if the timer thread has to remove cancelled requests from the queue.
    pub(crate) sweep_due: AtomicBool,
    /// Removed requests to which the timer thread still has to respond.
    pub(crate) removed: Mutex<Removed>,
    /// Number of ensembles that rely on responses in the order of their calls, so that one run follows another.
    pub(crate) order_kept_for: Arc<AtomicU32>,
    /// Set when another version serves in its place.
    pub(crate) replaced: AtomicBool,
    /// Set when no version of this number serves any more.
    pub(crate) retired: AtomicBool,
}

impl ServingState {
    pub(crate) fn new(dispatch: Dispatch, wanted: Vec<InstanceConfig>, remote: Option<RemoteState>) -> Self {
        Self {
            dispatch: Mutex::new(dispatch),
            remote,
            instances: Mutex::new((0..).zip(wanted).collect()),
            gone: AtomicU32::new(0),
            pending: AtomicU64::new(0),
            inflight: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            sweep_due: AtomicBool::new(false),
            removed: Mutex::default(),
            order_kept_for: Arc::default(),
            replaced: AtomicBool::new(false),
            retired: AtomicBool::new(false),
        }
    }

    /// Accepted requests that are not over; if there are none, unfinished batches.
    pub(crate) fn inflight(&self) -> u64 {
        // Requests first: a batch is counted before the last of its requests ends.
        match self.inflight.load(Ordering::Acquire) {
            0 => self.remote.as_ref().map_or(0, RemoteState::occupied),
            requests => requests,
        }
    }

    /// True if one run has to follow another.
    pub(crate) fn keeps_order(&self) -> bool {
        self.order_kept_for.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn count_cancelled(&self) {
        self.cancelled.fetch_add(1, Ordering::Relaxed);
    }

    /// Publishes the number of gone instances after a change of `dispatch`.
    pub(crate) fn count_gone(&self, dispatch: &Dispatch) {
        self.gone.store(dispatch.gone.len() as u32, Ordering::Release);
    }

    /// True if an instance is gone.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.gone.load(Ordering::Acquire) > 0
    }

    /// Why an instance is gone, if any is.
    pub(crate) fn why_gone(&self) -> Option<String> {
        if !self.is_short() {
            return None;
        }
        self.dispatch.lock().gone.last().map(|(_, why)| why.message().to_owned())
    }

    /// Notifies the model of removed instances once the caller releases the lock of `dispatch`.
    pub(crate) fn instances_left(&self, instances: &[u32]) {
        if let Some(remote) = self.remote.as_ref().filter(|_| !instances.is_empty()) {
            remote.left(instances);
        }
    }
}

/// The scheduler and instances of a version, under one lock.
pub(crate) struct Dispatch {
    pub(crate) schedule: Schedule,
    /// Numbers of idle instances; the one used last, whose caches are warm, is last.
    pub(crate) idle: SmallVec<[u32; 8]>,
    /// Busy instances of a dynamic batcher that may be sent another batch, to be prefetched.
    pub(crate) followed: SmallVec<[Followed; 1]>,
    /// Numbers of the configured instances; see `resize`.
    pub(crate) members: SmallVec<[u32; 8]>,
    /// Numbers of busy instances that will not become idle: they are gone, or no longer configured.
    pub(crate) leaving: SmallVec<[u32; 2]>,
    /// Instances that are no longer configured but have sequences. They get no others, and are removed after them.
    pub(crate) draining: SmallVec<[u32; 2]>,
    /// Gone instances with reasons, in the order in which they went; neither idle nor asking.
    pub(crate) gone: Vec<(u32, Error)>,
    /// Gone instances that are expected back at once.
    pub(crate) paused: SmallVec<[u32; 2]>,
    /// With limited executions: instances that wait for their resources.
    pub(crate) asking: SmallVec<[u32; 8]>,
    /// With limited executions: instances that have their resources and no batch yet.
    pub(crate) granted: SmallVec<[u32; 8]>,
    /// Instances whose resources the limiter still counts although their execution is over. They are returned together
    /// with the next request of this version, so that the limiter's order decides. Empty while the lock is free.
    pub(crate) finished: SmallVec<[u32; 2]>,
    pub(crate) turn_policy: TurnPolicy,
    /// Time of the earliest armed timer; 0 = none.
    pub(crate) armed: u64,
    /// Start of the execution of each instance on a thread of the pool, by number, and its number of requests; 0
    /// requests: none. A run on a reactor takes microseconds, and a model in another process knows its own.
    pub(crate) begun: Vec<(u64, u32)>,
    /// Requests and executions of the last minutes.
    pub(crate) recent: Ring,
}

impl Dispatch {
    pub(crate) fn new(schedule: Schedule, instances: u32, recent: Ring) -> Self {
        Self {
            schedule,
            idle: (0..instances.max(1)).rev().collect(),
            followed: SmallVec::new(),
            members: (0..instances.max(1)).collect(),
            leaving: SmallVec::new(),
            draining: SmallVec::new(),
            gone: Vec::new(),
            paused: SmallVec::new(),
            asking: SmallVec::new(),
            granted: SmallVec::new(),
            finished: SmallVec::new(),
            turn_policy: TurnPolicy::default(),
            armed: 0,
            begun: Vec::new(),
            recent,
        }
    }

    /// Notes the start of an execution that is not on a reactor.
    pub(crate) fn begins(&mut self, instance: u32, now: u64, requests: usize) {
        let at = instance as usize;
        if at >= self.begun.len() {
            self.begun.resize(at + 1, (0, 0));
        }
        if let Some(begun) = self.begun.get_mut(at) {
            *begun = (now, requests as u32);
        }
        self.recent.on(instance);
    }

    pub(crate) fn is_gone(&self, instance: u32) -> bool {
        self.gone.iter().any(|(gone, _)| *gone == instance)
    }

    /// Error of all requests while no instance is left, and none is expected back at once.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<Error> {
        match self.gone.last() {
            Some((_, why)) if self.gone.len() >= self.members.len() && self.paused.is_empty() => Some(why.clone()),
            _ => None,
        }
    }

    /// A busy instance that may be sent another batch, if none is idle.
    pub(crate) fn followed(&self) -> Option<&Followed> {
        self.followed.last().filter(|followed| self.idle.is_empty() && !self.leaving.contains(&followed.instance))
    }

    /// Called when a batch ends whose instance was offered: it is sent no other one. False if it was sent one.
    pub(crate) fn is_followed_no_more(&mut self, offer: u64) -> bool {
        let at = self.followed.iter().position(|followed| followed.offer == offer);
        at.map(|at| self.followed.remove(at)).is_some()
    }

    /// Returns true if the instance was expected back at once.
    pub(crate) fn end_pause(&mut self, instance: u32) -> bool {
        let at = self.paused.iter().position(|paused| *paused == instance);
        at.map(|at| self.paused.remove(at)).is_some()
    }
}

/// A busy instance that may be sent another batch.
pub(crate) struct Followed {
    pub(crate) instance: u32,
    pub(crate) offer: u64,
    /// Number of requests of the batch that it runs.
    pub(crate) requests: usize,
}

/// Takes an idle instance: `which`, if given.
pub(crate) fn take_idle(idle: &mut SmallVec<[u32; 8]>, which: Option<u32>) -> Option<u32> {
    match which {
        None => idle.pop(),
        Some(instance) => idle.iter().position(|i| *i == instance).map(|at| idle.remove(at)),
    }
}
