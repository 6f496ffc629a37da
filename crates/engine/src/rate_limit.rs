//! The rate limiter as the engine asks it: before an instance of a version executes (S-35). Without `--rate-limit=execution_count`
//! there is none (S-36).
//!
//! An instance asks for its resources when a request waits for it. It takes a batch only when they were granted: meanwhile requests go on
//! gathering, and the policies of the queue still see them. If the resources are not free at once, the thread that later finds them free
//! tells the instance, and holds no lock of a version then.
//!
//! Locks: that of a version, then that of the limiter. Never the other way round.

use crate::statistics::ResourceUse;
use parking_lot::Mutex;
use scheduler::rate::{InstanceId, Limited, RateLimiter};
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use tensor::{Error, Result};

pub use scheduler::rate::Available;

/// The owner of instances that ask for resources.
pub(crate) trait Granted: Send + Sync {
    /// An instance that asked was granted its resources. Called without a lock.
    fn granted(&self, instance: u32);
}

/// The limiter of a server.
pub(crate) struct Resources(Mutex<State>);

struct State {
    limiter: RateLimiter,
    /// For each instance the version to tell when it is granted its resources, and the instance's number in that version.
    holders: HashMap<InstanceId, (Weak<dyn Granted>, u32)>,
    /// Instances that were granted their resources and were not told yet.
    ready: VecDeque<InstanceId>,
    /// Whether a thread is telling them.
    is_telling: bool,
}

impl State {
    /// Grants what can be granted. Returns whether `mine` was; the others are added to `ready`.
    fn grant(&mut self, mine: Option<InstanceId>) -> bool {
        let mut granted = Vec::new();
        self.limiter.grant(&mut granted);
        let others = granted.iter().copied().filter(|&id| Some(id) != mine);
        self.ready.extend(others);
        mine.is_some_and(|mine| granted.contains(&mine))
    }
}

impl Resources {
    /// What executions hold of each resource.
    pub(crate) fn usage(&self) -> Vec<ResourceUse> {
        let state = self.0.lock();
        let one = |(name, device, used, capacity): (&str, _, _, _)| ResourceUse {
            name: name.to_owned(),
            device,
            used,
            capacity,
        };
        state.limiter.usage().map(one).collect()
    }

    pub(crate) fn new(available: Vec<Available>) -> Arc<Self> {
        let limiter = RateLimiter::new(available);
        Arc::new(Self(Mutex::new(State {
            limiter,
            holders: HashMap::new(),
            ready: VecDeque::new(),
            is_telling: false,
        })))
    }

    /// Takes in the instances of a version.
    ///
    /// # Errors
    /// INVALID_ARG when an instance could never execute, or contradicts others about a resource.
    pub(crate) fn register(self: &Arc<Self>, instances: &[Limited]) -> Result<Registered> {
        let ids = self.0.lock().limiter.register(instances).map_err(|e| Error::invalid(e.to_string()))?;
        Ok(Registered { resources: self.clone(), ids })
    }

    /// Tells the instances in `ready` that they may execute, until none is left. No lock is held while an instance is told. If another
    /// thread is telling, that one tells these, too.
    fn tell(&self) {
        let mut state = self.0.lock();
        if std::mem::replace(&mut state.is_telling, true) {
            return;
        }
        while let Some(id) = state.ready.pop_front() {
            let Some((version, instance)) = state.holders.get(&id).cloned() else { continue };
            drop(state);
            // A version that is gone has given the resources back.
            let told = catch_unwind(AssertUnwindSafe(|| {
                if let Some(version) = version.upgrade() {
                    version.granted(instance);
                }
            }));
            // Go on after a panic: the other instances wait for this thread.
            if told.is_err() {
                log::error!(
                    "starting a request that waited for resources panicked; this is a defect of the server, please report it"
                );
            }
            state = self.0.lock();
        }
        state.is_telling = false;
    }
}

/// The instances of one version. When this is dropped, the limiter forgets them.
pub(crate) struct Registered {
    resources: Arc<Resources>,
    /// By the number of the instance.
    ids: Vec<InstanceId>,
}

impl Registered {
    /// Says which version is to be told when an instance is granted its resources.
    pub(crate) fn belongs_to(&self, version: Weak<dyn Granted>) {
        let holders = self.ids.iter().zip(0..).map(|(&id, instance)| (id, (version.clone(), instance)));
        self.resources.0.lock().holders.extend(holders);
    }

    /// Changes the state of an instance, and grants what can be granted then. Returns whether this instance was.
    fn with(&self, instance: u32, change: impl FnOnce(&mut RateLimiter, InstanceId)) -> bool {
        let Some(&id) = self.ids.get(instance as usize) else { return false };
        let mut state = self.resources.0.lock();
        change(&mut state.limiter, id);
        state.grant(Some(id))
    }

    /// Gives back the resources of the instances in `finished`, and asks for those of `instance`. False when it will be told later.
    pub(crate) fn ask(&self, instance: u32, finished: &mut SmallVec<[u32; 2]>) -> bool {
        self.with(instance, |limiter, id| {
            self.return_of(limiter, finished);
            limiter.request(id);
        })
    }

    /// Gives back the resources of instances whose executions are over.
    pub(crate) fn release(&self, finished: &mut SmallVec<[u32; 2]>) {
        if !finished.is_empty() {
            let mut state = self.resources.0.lock();
            self.return_of(&mut state.limiter, finished);
            state.grant(None);
        }
    }

    fn return_of(&self, limiter: &mut RateLimiter, finished: &mut SmallVec<[u32; 2]>) {
        for instance in finished.drain(..) {
            if let Some(&id) = self.ids.get(instance as usize) {
                limiter.release(id);
            }
        }
    }

    /// Gives back the resources of an instance that does not execute after all.
    pub(crate) fn forgo(&self, instance: u32) {
        self.with(instance, RateLimiter::forgo);
    }

    /// Takes back what an instance asked for. False when it was granted meanwhile and is about to be told.
    pub(crate) fn withdraw(&self, instance: u32) -> bool {
        let Some(&id) = self.ids.get(instance as usize) else { return false };
        let mut state = self.resources.0.lock();
        let withdrawn = state.limiter.withdraw(id);
        state.grant(None);
        withdrawn
    }

    /// The one of these instances that takes the next batch.
    pub(crate) fn first(&self, idle: &[u32]) -> Option<u32> {
        let state = self.resources.0.lock();
        let rank = |&&instance: &&u32| self.ids.get(instance as usize).and_then(|&id| state.limiter.rank(id));
        idle.iter().min_by_key(rank).copied()
    }

    /// To be called after each change that is made here, by a thread that holds no lock.
    pub(crate) fn tell(&self) {
        self.resources.tell();
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut state = self.resources.0.lock();
        for &id in &self.ids {
            // It may have been granted and never told: its version is gone.
            state.limiter.release(id);
            state.limiter.unregister(id);
            state.holders.remove(&id);
        }
        state.grant(None);
        drop(state);
        self.tell();
    }
}
