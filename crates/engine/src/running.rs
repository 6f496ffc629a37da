//! What changes while a version serves: its instances, its schedule, and what is counted of its requests.

use crate::inline::TurnPolicy;
use crate::instance_config::InstanceConfig;
use crate::later::Later;
use crate::schedule::{Removed, Schedule};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use tensor::Error;

/// State of a version that serves. Without instances, as of a graph, most of it stays unused.
pub(crate) struct RunningState {
    pub(crate) run: Mutex<Run>,
    /// Batches that run in other processes. `None` if the model runs in this one.
    pub(crate) later: Option<Later>,
    /// Instances by number, with what the configuration asks of each. Locked for the whole of a change, before any other lock.
    pub(crate) instances: Mutex<Vec<(u32, InstanceConfig)>>,
    /// Number of instances that are gone, as in `Run::gone`.
    pub(crate) gone: AtomicU32,
    /// Accepted requests that are not executing yet.
    pub(crate) pending: AtomicU64,
    /// Accepted requests without their last answer.
    pub(crate) inflight: AtomicU64,
    /// Requests that were cancelled so far.
    pub(crate) cancelled: AtomicU64,
    /// The timer thread has to take cancelled requests out of the queue.
    pub(crate) sweep_due: AtomicBool,
    /// Requests out of the queue that the timer thread still has to answer.
    pub(crate) removed: Mutex<Removed>,
    /// Another version serves in the place of this one.
    pub(crate) replaced: AtomicBool,
    /// No version of this number serves any more.
    pub(crate) retired: AtomicBool,
}

impl RunningState {
    pub(crate) fn new(run: Run, wanted: Vec<InstanceConfig>, later: Option<Later>) -> Self {
        Self {
            run: Mutex::new(run),
            later,
            instances: Mutex::new((0..).zip(wanted).collect()),
            gone: AtomicU32::new(0),
            pending: AtomicU64::new(0),
            inflight: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            sweep_due: AtomicBool::new(false),
            removed: Mutex::default(),
            replaced: AtomicBool::new(false),
            retired: AtomicBool::new(false),
        }
    }

    /// Accepted requests that are not over. If there is none: batches that are not over.
    pub(crate) fn inflight(&self) -> u64 {
        // Requests first: a batch is counted before the last of its requests ends.
        match self.inflight.load(Ordering::Acquire) {
            0 => self.later.as_ref().map_or(0, Later::occupied),
            requests => requests,
        }
    }

    pub(crate) fn count_cancelled(&self) {
        self.cancelled.fetch_add(1, Ordering::Relaxed);
    }

    /// Publishes how many instances are gone, after `run` changed.
    pub(crate) fn count_gone(&self, run: &Run) {
        self.gone.store(run.gone.len() as u32, Ordering::Release);
    }

    /// Whether an instance is gone.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.gone.load(Ordering::Acquire) > 0
    }

    /// Why an instance is gone, if one is.
    pub(crate) fn why_gone(&self) -> Option<String> {
        if !self.is_short() {
            return None;
        }
        self.run.lock().gone.last().map(|(_, why)| why.message().to_owned())
    }

    /// Instances left: the model is told once the lock of `run`, which is held now, is free.
    pub(crate) fn instances_left(&self, instances: &[u32]) {
        if let Some(later) = self.later.as_ref().filter(|_| !instances.is_empty()) {
            later.left(instances);
        }
    }
}

/// The schedule and the instances of a version, under one lock.
pub(crate) struct Run {
    pub(crate) schedule: Schedule,
    /// Numbers of idle instances, the one that stopped last on top: its caches are warm.
    pub(crate) idle: SmallVec<[u32; 8]>,
    /// Numbers of the instances that the configuration asks for; see `resize`.
    pub(crate) members: SmallVec<[u32; 8]>,
    /// Numbers of busy instances that do not become idle again: they are no members, or gone.
    pub(crate) leaving: SmallVec<[u32; 2]>,
    /// Numbers of instances that are no members and have sequences in progress. They take no others, and leave once these are over.
    pub(crate) draining: SmallVec<[u32; 2]>,
    /// Instances that are gone, and why; the one that went last behind the others. Neither idle nor asking.
    pub(crate) gone: Vec<(u32, Error)>,
    /// If executions are limited: instances that wait for their resources.
    pub(crate) asking: SmallVec<[u32; 8]>,
    /// If executions are limited: instances that have their resources and no batch yet.
    pub(crate) granted: SmallVec<[u32; 8]>,
    /// Instances whose executions are over and whose resources the limiter still counts: it gets them back together with what this version
    /// asks next, so that of all who want them the first in its order has them. Empty when no thread holds the lock.
    pub(crate) finished: SmallVec<[u32; 2]>,
    pub(crate) turn_policy: TurnPolicy,
    /// Time of the earliest timer that will call `wake`; 0 = none.
    pub(crate) armed: u64,
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

    /// Whether the instance is gone.
    pub(crate) fn is_gone(&self, instance: u32) -> bool {
        self.gone.iter().any(|(gone, _)| *gone == instance)
    }

    /// Error of every request while no instance is left.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<Error> {
        match self.gone.last() {
            Some((_, why)) if self.gone.len() >= self.members.len() => Some(why.clone()),
            _ => None,
        }
    }
}

/// Takes an idle instance: that one, if given.
pub(crate) fn take_idle(idle: &mut SmallVec<[u32; 8]>, which: Option<u32>) -> Option<u32> {
    match which {
        None => idle.pop(),
        Some(instance) => idle.iter().position(|i| *i == instance).map(|at| idle.remove(at)),
    }
}
