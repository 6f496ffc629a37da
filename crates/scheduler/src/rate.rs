//! The rate limiter: executions that need resources run only while there are enough of them (S-35). Pure: no clock, no threads.
//!
//! Instances declare what an execution of theirs takes. The caller asks with [`RateLimiter::request`] before an instance executes,
//! calls [`RateLimiter::grant`] after every request, release and change of instances, starts the instances it is told, and calls
//! [`RateLimiter::release`] when they are done. Without `--rate-limit=execution_count` there is no limiter, and configurations mean
//! nothing (S-36).
//!
//! # Order
//! Who took least goes first, where an execution counts as much as the instance's priority: of two that always want to execute, one
//! of priority 2 gets half the executions of one of priority 1. Of equals, who asked first. Nobody is overtaken by an instance that
//! needs some of the same resources, even if those would do for it: else small ones could keep a large one waiting for ever. Who
//! needs nothing of what those before it wait for is not held up by them.
//!
//! Triton counts all executions since the load, so an instance that was idle, or is loaded last, goes first until it has caught up, be
//! it for a day. Here it begins where the others are: what was granted last of the resources it needs ([`Pool::floor`]). Between
//! instances that are loaded together and kept busy there is no difference.
//!
//! Invariants: what the instances that execute take never exceeds what there is (unless what there is shrank meanwhile: then nothing
//! of it is granted before it fits again); an instance waits only for what it lacks, or shares with one before it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// Resources that one instance may declare.
pub const RESOURCES_MAX: usize = 256;

/// `rate_limiter.resources` of an instance group: what an execution takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Name; case matters, and the empty name is one.
    pub name: String,
    /// One pool for the whole server instead of one for each device.
    pub global: bool,
    /// Units.
    pub count: u32,
}

/// An instance, as its configuration describes it.
#[derive(Debug, Clone, Default)]
pub struct Limited {
    /// Its device; instances on CPU have device 0.
    pub device: u32,
    /// 0 is treated as 1, the highest.
    pub priority: u32,
    /// What an execution takes. A resource named twice is not added up: the larger count holds.
    pub resources: Vec<Resource>,
}

/// `--rate-limit-resource`: how much of a resource there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Available {
    /// Name of the resource.
    pub name: String,
    /// Units.
    pub count: u32,
    /// The device it is on; `None` is each of them.
    pub device: Option<u32>,
}

/// Why the instances of a model cannot be registered: the load fails with this text, INVALID_ARG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// An execution would never get what it needs.
    Short {
        /// The resource.
        name: String,
        /// What there is of it.
        available: u32,
        /// What an execution takes.
        needed: u32,
    },
    /// The resource is one pool for some instances, and one for each device for others.
    GlobalAndPerDevice {
        /// The resource.
        name: String,
    },
    /// More than `RESOURCES_MAX`.
    TooMany {
        /// How many an instance declares.
        resources: usize,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { name, available, needed } => write!(
                f,
                "Resource count for \"{name}\" is limited to {available} which will prevent scheduling of one or more model instances, \
                 the minimum required count is {needed}"
            ),
            Self::GlobalAndPerDevice { name } => write!(
                f,
                "Resource \"{name}\" is present as both global and device-specific resource in the model configuration."
            ),
            Self::TooMany { resources } => write!(
                f,
                "an instance declares {resources} resources in its rate_limiter: at most {RESOURCES_MAX} are supported"
            ),
        }
    }
}

/// A registered instance. Never the same for two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(u64);

/// Where units come from: a name, and the device unless it is global.
type PoolName = (String, Option<u32>);

/// Units of one resource in one place.
#[derive(Debug)]
struct Pool {
    name: PoolName,
    /// Units there are, if `--rate-limit-resource` says so.
    given: Option<u32>,
    /// What instances declare, and how many of them. Never empty.
    declared: BTreeMap<u32, usize>,
    /// Units that executions have now.
    used: u64,
    /// Where the order stood when units were granted last: instances that ask begin there at least.
    floor: u64,
    /// The last call of `grant` in which an instance waited for it: those behind take nothing from it.
    awaited: u64,
}

impl Pool {
    /// Units there are: what is given, or what the instance that declares most of it needs.
    fn capacity(&self) -> u64 {
        self.given.or_else(|| self.declared.last_key_value().map(|(&most, _)| most)).map_or(0, u64::from)
    }
}

/// How much was taken, then which request: the order of those who wait.
type Place = (u64, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Waits(Place),
    Executes,
    /// As before, and it is to be forgotten at the end.
    Leaves,
}

#[derive(Debug)]
struct Instance {
    /// What it declares: pools, each once, and how much of each; 0 of some, which are not needed.
    declares: Vec<(usize, u32)>,
    priority: u32,
    /// Executions so far, times the priority; more if others were that far when it asked.
    taken: u64,
    state: State,
}

impl Instance {
    /// What an execution takes.
    fn needs(&self) -> impl Iterator<Item = (usize, u64)> {
        self.declares.iter().filter(|(_, count)| *count > 0).map(|&(pool, count)| (pool, u64::from(count)))
    }
}

/// All instances of a server that has `--rate-limit=execution_count`.
#[derive(Debug, Default)]
pub struct RateLimiter {
    /// Empty: there is as much of each resource as the instance that declares most of it needs.
    available: Vec<Available>,
    instances: HashMap<InstanceId, Instance>,
    /// Those that nobody declares any more are gone, and their places are used again.
    pools: Vec<Option<Pool>>,
    /// Places in `pools`.
    names: BTreeMap<PoolName, usize>,
    free: Vec<usize>,
    waiting: BTreeSet<(Place, InstanceId)>,
    /// Those who asked and need nothing.
    unlimited: Vec<InstanceId>,
    registered: u64,
    requests: u64,
    grants: u64,
}

impl RateLimiter {
    /// A limiter with these resources. When any are given, of others there are none; when none are, there is as much of each as the
    /// instance that declares most of it needs.
    pub fn new(available: Vec<Available>) -> Self {
        Self { available, ..Self::default() }
    }

    /// Adds the instances of a model, all or none of them. The ids are in their order.
    ///
    /// # Errors
    /// An instance could never execute, or contradicts others about a resource.
    pub fn register(&mut self, instances: &[Limited]) -> Result<Vec<InstanceId>, Refused> {
        let declared: Vec<BTreeMap<PoolName, u32>> = instances.iter().map(declared_by).collect::<Result<_, _>>()?;
        // Of one name the global pool comes first.
        let all: BTreeSet<&PoolName> = declared.iter().flat_map(BTreeMap::keys).chain(self.names.keys()).collect();
        for ((name, device), next) in all.iter().zip(all.iter().skip(1)) {
            if *name == next.0 && device.is_none() {
                return Err(Refused::GlobalAndPerDevice { name: name.clone() });
            }
        }
        if !self.available.is_empty() {
            for (pool, &needed) in declared.iter().flatten() {
                let available = given(&self.available, pool);
                if needed > available {
                    return Err(Refused::Short { name: pool.0.clone(), available, needed });
                }
            }
        }
        Ok(instances.iter().zip(declared).map(|(limited, declared)| self.add(limited.priority, declared)).collect())
    }

    fn add(&mut self, priority: u32, declared: BTreeMap<PoolName, u32>) -> InstanceId {
        self.registered += 1;
        let id = InstanceId(self.registered);
        let declares = declared.into_iter().map(|(name, count)| (self.declare(name, count), count)).collect();
        self.instances.insert(id, Instance { declares, priority: priority.max(1), taken: 0, state: State::Idle });
        id
    }

    /// Declares a pool, which is made if there is none. Its place.
    fn declare(&mut self, name: PoolName, count: u32) -> usize {
        let at = match self.names.get(&name) {
            Some(&at) => at,
            None => {
                let given = (!self.available.is_empty()).then(|| given(&self.available, &name));
                let at = self.free.pop().unwrap_or(self.pools.len());
                self.names.insert(name.clone(), at);
                let pool = Some(Pool { name, given, declared: BTreeMap::new(), used: 0, floor: 0, awaited: 0 });
                match self.pools.get_mut(at) {
                    Some(place) => *place = pool,
                    None => self.pools.push(pool),
                }
                at
            }
        };
        if let Some(pool) = self.pools.get_mut(at).and_then(Option::as_mut) {
            *pool.declared.entry(count).or_default() += 1;
        }
        at
    }

    /// Forgets an instance: at the end of its execution, if it executes.
    pub fn unregister(&mut self, id: InstanceId) {
        self.withdraw(id);
        match self.instances.get_mut(&id) {
            Some(instance) if instance.state == State::Executes => instance.state = State::Leaves,
            Some(instance) if instance.state == State::Idle => self.remove(id),
            _ => (),
        }
    }

    fn remove(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.remove(&id) else { return };
        for (at, count) in instance.declares {
            let Some(place) = self.pools.get_mut(at) else { continue };
            let Some(pool) = place else { continue };
            if let Some(instances) = pool.declared.get_mut(&count) {
                *instances -= 1;
                if *instances == 0 {
                    pool.declared.remove(&count);
                }
            }
            if pool.declared.is_empty() {
                self.names.remove(&pool.name);
                *place = None;
                self.free.push(at);
            }
        }
    }

    /// The instance has something to execute. It waits until `grant` names it; if it waits or executes already, it goes on with that.
    pub fn request(&mut self, id: InstanceId) {
        let Some(rank) = self.rank(id) else { return };
        let Some(instance) = self.instances.get_mut(&id).filter(|i| i.state == State::Idle) else { return };
        self.requests += 1;
        let place = (rank, self.requests);
        instance.state = State::Waits(place);
        if instance.needs().next().is_none() {
            self.unlimited.push(id);
        } else {
            self.waiting.insert((place, id));
        }
    }

    /// The instance has nothing to execute any more. False, and nothing is done, if it was granted already or did not ask.
    pub fn withdraw(&mut self, id: InstanceId) -> bool {
        if let Some(instance) = self.instances.get_mut(&id)
            && let State::Waits(place) = instance.state
        {
            instance.state = State::Idle;
            self.waiting.remove(&(place, id));
            self.unlimited.retain(|&other| other != id);
            return true;
        }
        false
    }

    /// An instance that was granted has nothing to execute after all: as `release`, and it counts as no execution.
    pub fn forgo(&mut self, id: InstanceId) {
        if let Some(instance) = self.instances.get_mut(&id).filter(|i| i.state == State::Executes) {
            instance.taken = instance.taken.saturating_sub(u64::from(instance.priority));
            self.release(id);
        }
    }

    /// Where an instance would stand if it asked now: of several idle instances of a model the one with the least takes the next
    /// batch. `None` when it is not registered.
    pub fn rank(&self, id: InstanceId) -> Option<u64> {
        let instance = self.instances.get(&id)?;
        let floors = instance.needs().filter_map(|(at, _)| self.pools.get(at)?.as_ref()).map(|pool| pool.floor);
        Some(floors.fold(instance.taken, u64::max))
    }

    /// Adds the instances that execute from now on to `granted`, in their order.
    pub fn grant(&mut self, granted: &mut Vec<InstanceId>) {
        self.grants += 1;
        let (pools, this_time) = (&mut self.pools, self.grants);
        for id in self.unlimited.drain(..) {
            if let Some(instance) = self.instances.get_mut(&id) {
                instance.state = State::Executes;
                granted.push(id);
            }
        }
        let mut not_awaited = self.names.len();
        let mut started = Vec::new();
        for &(place, id) in &self.waiting {
            if not_awaited == 0 {
                break;
            }
            let Some(instance) = self.instances.get_mut(&id) else { continue };
            let fits = |(at, count): (usize, u64)| {
                let pool = pools.get(at).and_then(Option::as_ref);
                pool.is_some_and(|p| p.awaited != this_time && p.used + count <= p.capacity())
            };
            let granted_now = instance.needs().all(fits);
            for (at, count) in instance.needs() {
                let Some(pool) = pools.get_mut(at).and_then(Option::as_mut) else { continue };
                if granted_now {
                    pool.used += count;
                    pool.floor = pool.floor.max(place.0);
                } else if pool.awaited != this_time {
                    pool.awaited = this_time;
                    not_awaited -= 1;
                }
            }
            if granted_now {
                instance.taken = place.0.saturating_add(u64::from(instance.priority));
                instance.state = State::Executes;
                started.push((place, id));
            }
        }
        for one in started {
            self.waiting.remove(&one);
            granted.push(one.1);
        }
    }

    /// The execution of an instance that was granted is over.
    pub fn release(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let leaves = instance.state == State::Leaves;
        if !leaves && instance.state != State::Executes {
            return;
        }
        instance.state = State::Idle;
        for (at, count) in instance.needs() {
            if let Some(pool) = self.pools.get_mut(at).and_then(Option::as_mut) {
                pool.used = pool.used.saturating_sub(count);
            }
        }
        if leaves {
            self.remove(id);
        }
    }

    /// What is granted and what there is of each resource, for metrics: name, device unless it is global, units.
    pub fn usage(&self) -> impl Iterator<Item = (&str, Option<u32>, u64, u64)> {
        self.pools.iter().flatten().map(|p| (p.name.0.as_str(), p.name.1, p.used, p.capacity()))
    }
}

/// What an instance declares, by pool.
fn declared_by(limited: &Limited) -> Result<BTreeMap<PoolName, u32>, Refused> {
    if limited.resources.len() > RESOURCES_MAX {
        return Err(Refused::TooMany { resources: limited.resources.len() });
    }
    let mut declared = BTreeMap::new();
    for Resource { name, global, count } in &limited.resources {
        let device = (!global).then_some(limited.device);
        let most: &mut u32 = declared.entry((name.clone(), device)).or_default();
        *most = (*most).max(*count);
    }
    Ok(declared)
}

/// What `--rate-limit-resource` says there is: for a device the larger of what it says of it and of each, for a global resource the
/// largest.
fn given(available: &[Available], (name, device): &PoolName) -> u32 {
    let here = |a: &&Available| a.name == *name && (device.is_none() || a.device.is_none() || a.device == *device);
    available.iter().filter(here).map(|a| a.count).max().unwrap_or(0)
}
