//! Rate limiting of executions (S-35). Without `--rate-limit=execution_count` there is none (S-36).
//!
//! An instance requests its resources when a request waits for it, and takes a batch after they were granted: meanwhile
//! requests gather, and queue policies still apply. If the resources are not free at once, the thread that frees them
//! notifies the instance later, without holding a lock of a version.
//!
//! Locks: first that of a version, then that of the limiter.

use crate::statistics::ResourceUse;
use options::Available;
use parking_lot::Mutex;
use protocol::Signature;
use scheduler::rate::{InstanceId, Limited, RateLimiter};
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use tensor::{Error, Result};

/// The owner of instances that request resources.
pub(crate) trait Granted: Send + Sync {
    /// Called without a lock when an instance was granted its resources.
    fn granted(&self, instance: u32);
}

/// The rate limiter of a server.
pub(crate) struct Resources(Mutex<ResourcesState>);

/// The version to notify of a grant, the number of the instance in it, and the version's name.
type Holder = (Weak<dyn Granted>, u32, Arc<Signature>);

struct ResourcesState {
    limiter: RateLimiter,
    holders: HashMap<InstanceId, Holder>,
    /// Granted instances that were not notified yet.
    ready: VecDeque<InstanceId>,
    /// True while a thread notifies them.
    is_notifying: bool,
}

impl ResourcesState {
    /// Grants what can be granted. Returns true if `mine` was; the others are added to `ready`.
    fn grant(&mut self, mine: Option<InstanceId>) -> bool {
        let mut granted = Vec::new();
        self.limiter.grant(&mut granted);
        let others = granted.iter().copied().filter(|&id| Some(id) != mine);
        self.ready.extend(others);
        mine.is_some_and(|mine| granted.contains(&mine))
    }
}

impl Resources {
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
        Arc::new(Self(Mutex::new(ResourcesState {
            limiter,
            holders: HashMap::new(),
            ready: VecDeque::new(),
            is_notifying: false,
        })))
    }

    /// Registers the instances of a version.
    ///
    /// # Errors
    /// INVALID_ARG if an instance could never execute, or if a resource would be both global and per device.
    pub(crate) fn register(self: &Arc<Self>, instances: &[Limited]) -> Result<Registered> {
        let ids = self.0.lock().limiter.register(instances).map_err(|e| Error::invalid(e.to_string()))?;
        Ok(Registered { resources: self.clone(), ids })
    }

    /// Notifies the instances in `ready`, without a lock, until none is left, unless another thread does so already.
    fn notify_ready(&self) {
        let mut state = self.0.lock();
        if std::mem::replace(&mut state.is_notifying, true) {
            return;
        }
        while let Some(id) = state.ready.pop_front() {
            let Some((version, instance, _)) = state.holders.get(&id).cloned() else { continue };
            drop(state);
            // A version that ended has returned its resources.
            let result = catch_unwind(AssertUnwindSafe(|| {
                if let Some(version) = version.upgrade() {
                    version.granted(instance);
                }
            }));
            // Continue after a panic, because the other instances wait for this thread.
            if result.is_err() {
                log::error!(
                    "starting a request that waited for resources panicked; this is a defect of the server, please \
                     report it"
                );
            }
            state = self.0.lock();
        }
        state.is_notifying = false;
    }
}

/// The instances of one version; the limiter removes them when this is dropped.
pub(crate) struct Registered {
    resources: Arc<Resources>,
    ids: Vec<InstanceId>,
}

impl Registered {
    /// Sets the version to notify of grants.
    pub(crate) fn belongs_to(&self, version: Weak<dyn Granted>, signature: &Arc<Signature>) {
        let holder = |instance| (version.clone(), instance, signature.clone());
        let holders = self.ids.iter().zip(0..).map(|(&id, instance)| (id, holder(instance)));
        self.resources.0.lock().holders.extend(holders);
    }

    /// Changes an instance, and grants what can be granted then. Returns true if this instance was.
    fn with(&self, instance: u32, change: impl FnOnce(&mut RateLimiter, InstanceId)) -> bool {
        let Some(&id) = self.ids.get(instance as usize) else { return false };
        let mut state = self.resources.0.lock();
        change(&mut state.limiter, id);
        state.grant(Some(id))
    }

    /// Returns the resources of `finished`, and requests those of `instance`. False if it will be notified later.
    pub(crate) fn ask(&self, instance: u32, finished: &mut SmallVec<[u32; 2]>) -> bool {
        self.with(instance, |limiter, id| {
            self.return_of(limiter, finished);
            limiter.request(id);
        })
    }

    /// Returns the resources of finished executions.
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

    /// Returns the resources of an instance that does not execute.
    pub(crate) fn forgo(&self, instance: u32) {
        self.with(instance, RateLimiter::forgo);
    }

    /// Cancels a request for resources. Returns false if it was granted and its version is about to be notified.
    pub(crate) fn withdraw(&self, instance: u32) -> bool {
        let Some(&id) = self.ids.get(instance as usize) else { return false };
        let mut state = self.resources.0.lock();
        let withdrawn = state.limiter.withdraw(id);
        state.grant(None);
        withdrawn
    }

    /// The instance that takes the next batch.
    pub(crate) fn first(&self, idle: &[u32]) -> Option<u32> {
        let state = self.resources.0.lock();
        let rank = |&&instance: &&u32| self.ids.get(instance as usize).and_then(|&id| state.limiter.rank(id));
        idle.iter().min_by_key(rank).copied()
    }

    /// The version that executes with resources that this instance needs.
    pub(crate) fn holder(&self, instance: u32) -> Option<Arc<Signature>> {
        let id = *self.ids.get(instance as usize)?;
        let state = self.resources.0.lock();
        state.holders.get(&state.limiter.holder(id)?).map(|(.., signature)| signature.clone())
    }

    /// Called after each of these changes, without a lock.
    pub(crate) fn notify_ready(&self) {
        self.resources.notify_ready();
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut state = self.resources.0.lock();
        for &id in &self.ids {
            // It may have been granted without notice, because its version ended.
            state.limiter.release(id);
            state.limiter.unregister(id);
            state.holders.remove(&id);
        }
        state.grant(None);
        drop(state);
        self.notify_ready();
    }
}
