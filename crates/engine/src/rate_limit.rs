//! The rate limiter as the engine asks it: before an instance of a version executes (S-35). Without `--rate-limit=execution_count`
//! there is none (S-36).
//!
//! An instance asks for its resources when a request waits for it. It takes a batch only when they were granted: meanwhile requests go on
//! gathering, and the policies of the queue still see them. If the resources are not free at once, the thread that later finds them free
//! tells the instance, and holds no lock of a version then.
//!
//! Locks: that of a version, then that of the limiter. Never the other way round.

use crate::pending::Requests;
use crate::running::{Run, take_idle};
use crate::schedule::Removed;
use crate::statistics::ResourceUse;
use crate::version::ModelVersion;
use backend::now_ns;
use parking_lot::Mutex;
use scheduler::rate::{InstanceId, Limited, RateLimiter};
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use tensor::{Error, Result};

pub use scheduler::rate::Available;

/// The limiter of a server.
pub(crate) struct Resources(Mutex<State>);

struct State {
    limiter: RateLimiter,
    /// For each instance the version to tell when it is granted its resources, and the instance's number in that version.
    holders: HashMap<InstanceId, (Weak<ModelVersion>, u32)>,
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
                    version.is_granted(instance);
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
    pub(crate) fn belongs_to(&self, version: &Weak<ModelVersion>) {
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
    fn ask(&self, instance: u32, finished: &mut SmallVec<[u32; 2]>) -> bool {
        self.with(instance, |limiter, id| {
            self.return_of(limiter, finished);
            limiter.request(id);
        })
    }

    /// Gives back the resources of instances whose executions are over.
    fn release(&self, finished: &mut SmallVec<[u32; 2]>) {
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
    fn forgo(&self, instance: u32) {
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
    fn first(&self, idle: &[u32]) -> Option<u32> {
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

impl ModelVersion {
    /// As `start_batches`, for instances that have to ask the limiter.
    pub(crate) fn start_limited(
        &self,
        limited: &Registered,
        run: &mut Run,
        now: u64,
        mine: Option<u32>,
    ) -> (Option<Requests>, Removed) {
        let started = match self.scheduling.sequencing {
            Some(_) => self.start_limited_sequences(limited, run, now, mine),
            None => self.start_limited_requests(limited, run, now, mine),
        };
        // Unless an instance asked, which gives them back.
        limited.release(&mut run.finished);
        started
    }

    fn start_limited_requests(
        &self,
        limited: &Registered,
        run: &mut Run,
        now: u64,
        mine: Option<u32>,
    ) -> (Option<Requests>, Removed) {
        let (mut kept, mut removed) = (None, Vec::new());
        loop {
            self.ask(limited, run);
            let Some((requests, which)) = self.step(run, now, &mut removed) else { break };
            match take_idle(&mut run.granted, which) {
                Some(instance) if Some(instance) == mine && kept.is_none() => kept = Some(requests),
                instance => self.submit(instance.unwrap_or(0), requests),
            }
        }
        // The schedule gives no batch now. The resources go back, so that other versions do not wait for this one.
        if !run.granted.is_empty() {
            let (idle, asking) = (&mut run.idle, &mut run.asking);
            asking.retain(|instance| {
                let withdrawn = limited.withdraw(*instance);
                if withdrawn {
                    idle.push(*instance);
                }
                !withdrawn
            });
            for instance in run.granted.drain(..) {
                limited.forgo(instance);
                idle.push(instance);
            }
        }
        (kept, removed)
    }

    /// The same for sequences. Each is bound to one instance, so an instance asks only when requests of its own sequences wait.
    fn start_limited_sequences(
        &self,
        limited: &Registered,
        run: &mut Run,
        now: u64,
        mine: Option<u32>,
    ) -> (Option<Requests>, Removed) {
        let (mut kept, mut removed) = (None, Vec::new());
        let mut granted = std::mem::take(&mut run.granted);
        // This step forgets idle sequences and takes out cancelled requests: neither needs an instance.
        let none = self.step(run, now, &mut removed);
        debug_assert!(none.is_none(), "a batch without an instance");
        let Run { asking, idle, schedule, .. } = run;
        asking.retain(|instance| {
            let stays = schedule.has_work(*instance) == Some(true) || !limited.withdraw(*instance);
            if !stays {
                idle.push(*instance);
            }
            stays
        });
        // Instances for which requests wait, of which none can run now.
        let mut waiting: SmallVec<[u32; 8]> = SmallVec::new();
        loop {
            let instance = match granted.pop() {
                Some(instance) => instance,
                None => {
                    let ready = |i: &u32| run.schedule.has_work(*i) == Some(true) && !waiting.contains(i);
                    let ready: SmallVec<[u32; 8]> = run.idle.iter().copied().filter(ready).collect();
                    let Some(instance) = limited.first(&ready) else { break };
                    run.idle.retain(|idle| *idle != instance);
                    if !limited.ask(instance, &mut run.finished) {
                        run.asking.push(instance);
                        continue;
                    }
                    instance
                }
            };
            run.granted.push(instance);
            match self.step(run, now, &mut removed) {
                Some((requests, _)) => {
                    run.granted.clear();
                    if Some(instance) == mine && kept.is_none() {
                        kept = Some(requests);
                    } else {
                        self.submit(instance, requests);
                    }
                }
                None => {
                    run.granted.clear();
                    limited.forgo(instance);
                    run.idle.push(instance);
                    waiting.push(instance);
                }
            }
        }
        (kept, removed)
    }

    /// Asks for one instance after the other, until one is granted or as many have asked as there are requests.
    fn ask(&self, limited: &Registered, run: &mut Run) {
        while run.granted.is_empty() && run.asking.len() < run.schedule.len() {
            let Some(instance) = limited.first(&run.idle) else { return };
            run.idle.retain(|idle| *idle != instance);
            if limited.ask(instance, &mut run.finished) {
                run.granted.push(instance);
            } else {
                run.asking.push(instance);
            }
        }
    }

    /// To be called when an instance that asked was granted its resources.
    fn is_granted(&self, instance: u32) {
        let mut run = self.running.run.lock();
        run.asking.retain(|asking| *asking != instance);
        match &self.scheduling.limited {
            // The instance was removed before it was told.
            Some(limited) if run.is_gone(instance) => limited.forgo(instance),
            _ => run.granted.push(instance),
        }
        self.pump(run, now_ns());
    }
}
