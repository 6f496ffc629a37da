//! The rate limiter: executions that need resources run only while there are enough of them (S-35). Pure: no clock.
//!
//! Instances declare what one of their executions takes. The caller calls [`RateLimiter::request`] before an instance
//! executes and [`RateLimiter::grant`] after every request, release and change of instances, starts the granted
//! instances, and calls [`RateLimiter::release`] when they are done. Without `--rate-limit=execution_count` there is no
//! limiter, and these parts of a configuration have no effect (S-36).
//!
//! # Order
//! The instance that took least goes first. An execution counts as much as the instance's priority: of two that always
//! want to execute, one of priority 2 gets half the executions of one of priority 1. Among equals, such as instances
//! that never executed, the lower priority number goes first, then the earlier request. An instance never overtakes one
//! that needs some of the same resources, even if those would suffice for it, or small ones could starve a large one.
//! An instance that needs none of the resources that earlier ones wait for is not delayed by them.
//!
//! Triton counts all executions since the load, so an instance that was idle, or is loaded last, goes first until it
//! has caught up, which may take a day. Here it starts from the last grant of the resources it needs
//! (`ResourcePool::floor`). There is no difference between instances that are loaded together and kept busy.
//!
//! Invariants: executing instances never take more than the capacity (after the capacity shrank, nothing is granted
//! until they fit again); an instance waits only for resources that are short or shared with an earlier one.

use options::Available;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// Maximum number of resources that one instance may declare.
pub const RESOURCES_MAX: usize = 256;

/// `rate_limiter.resources` of an instance group: a resource that an execution takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Case-sensitive name; may be empty.
    pub name: String,
    /// True for one pool for the whole server, false for one per device.
    pub global: bool,
    /// Units.
    pub count: u32,
}

/// Configuration of an instance.
#[derive(Debug, Clone, Default)]
pub struct Limited {
    /// Device of the instance; instances on CPU have device 0.
    pub device: u32,
    /// 0 is treated as 1, the highest.
    pub priority: u32,
    /// Resources that an execution takes. The counts of a resource named twice are not added: the larger one applies.
    pub resources: Vec<Resource>,
}

/// Why the instances of a model cannot be registered. The load fails with this text and INVALID_ARG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegisterError {
    /// An execution would never get enough of a resource.
    Short {
        /// Name of the resource.
        name: String,
        /// Units available.
        available: u32,
        /// Units that an execution takes.
        needed: u32,
    },
    /// The resource is global for some instances, and per device for others.
    GlobalAndPerDevice {
        /// Name of the resource.
        name: String,
    },
    /// More than `RESOURCES_MAX`.
    TooMany {
        /// Number of resources that an instance declares.
        resources: usize,
    },
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { name, available, needed } => write!(
                f,
                "Resource count for \"{name}\" is limited to {available} which will prevent scheduling of one or more \
                 model instances, the minimum required count is {needed}"
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

/// Unique id of a registered instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(u64);

/// Name of a pool: the resource, and the device unless it is global.
type PoolName = (String, Option<u32>);

/// Units of one resource, of the server or on one device.
#[derive(Debug)]
struct ResourcePool {
    name: PoolName,
    /// Units given by `--rate-limit-resource`, if any are.
    given: Option<u32>,
    /// Counts declared by instances, with the number of instances that declare each. Never empty.
    declared: BTreeMap<u32, usize>,
    /// Units taken by executions.
    used: u64,
    /// Highest rank granted so far: later requests rank at least here.
    floor: u64,
    /// The last call of `grant` in which an instance waited for this pool: instances behind it take nothing from it.
    awaited: u64,
}

impl ResourcePool {
    /// Units that exist: as given, or the largest declared count.
    fn capacity(&self) -> u64 {
        self.given.or_else(|| self.declared.last_key_value().map(|(&most, _)| most)).map_or(0, u64::from)
    }
}

/// Order of waiting instances: how much was taken, the priority, then the number of the request.
type Rank = ((u64, u32), u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GrantState {
    Idle,
    Waits(Rank),
    Executes,
    /// Executes, and is removed afterwards.
    ExecutesLast,
}

#[derive(Debug)]
struct RateInstance {
    /// Declared pools, each once, with units. A pool with 0 units is declared but not needed.
    declares: Vec<(usize, u32)>,
    priority: u32,
    /// Executions so far, times the priority; raised to the floor of its pools when it requests.
    taken: u64,
    state: GrantState,
}

impl RateInstance {
    /// Pools and units that an execution takes.
    fn needs(&self) -> impl Iterator<Item = (usize, u64)> {
        self.declares.iter().filter(|(_, count)| *count > 0).map(|&(pool, count)| (pool, u64::from(count)))
    }
}

/// The rate limiter of a server with `--rate-limit=execution_count`.
#[derive(Debug, Default)]
pub struct RateLimiter {
    /// If empty, the capacity of each resource is the largest declared count.
    available: Vec<Available>,
    instances: HashMap<InstanceId, RateInstance>,
    /// Pools that no instance declares are `None`, and their indices are reused.
    pools: Vec<Option<ResourcePool>>,
    /// Indices in `pools`.
    names: BTreeMap<PoolName, usize>,
    free: Vec<usize>,
    waiting: BTreeSet<(Rank, InstanceId)>,
    /// Waiting instances that need no resources.
    unlimited: Vec<InstanceId>,
    registered: u64,
    requests: u64,
    grants: u64,
}

impl RateLimiter {
    /// Creates a limiter with these resources. If any are given, others have a capacity of 0; if none are, the capacity
    /// of each resource is the largest declared count.
    pub fn new(available: Vec<Available>) -> Self {
        Self { available, ..Self::default() }
    }

    /// Registers the instances of a model, all or none of them. The ids are in the same order.
    ///
    /// # Errors
    /// An instance could never execute, or a resource would be both global and per device.
    pub fn register(&mut self, instances: &[Limited]) -> Result<Vec<InstanceId>, RegisterError> {
        let declared: Vec<BTreeMap<PoolName, u32>> = instances.iter().map(declared_by).collect::<Result<_, _>>()?;
        // The global pool sorts first among those of one name.
        let all: BTreeSet<&PoolName> = declared.iter().flat_map(BTreeMap::keys).chain(self.names.keys()).collect();
        for ((name, device), next) in all.iter().zip(all.iter().skip(1)) {
            if *name == next.0 && device.is_none() {
                return Err(RegisterError::GlobalAndPerDevice { name: name.clone() });
            }
        }
        if !self.available.is_empty() {
            for (pool, &needed) in declared.iter().flatten() {
                let available = given(&self.available, pool);
                if needed > available {
                    return Err(RegisterError::Short { name: pool.0.clone(), available, needed });
                }
            }
        }
        Ok(instances.iter().zip(declared).map(|(limited, declared)| self.add(limited.priority, declared)).collect())
    }

    fn add(&mut self, priority: u32, declared: BTreeMap<PoolName, u32>) -> InstanceId {
        self.registered += 1;
        let id = InstanceId(self.registered);
        let declares = declared.into_iter().map(|(name, count)| (self.declare(name, count), count)).collect();
        self.instances
            .insert(id, RateInstance { declares, priority: priority.max(1), taken: 0, state: GrantState::Idle });
        id
    }

    /// Declares a pool, creates it if necessary, and returns its index.
    fn declare(&mut self, name: PoolName, count: u32) -> usize {
        let at = match self.names.get(&name) {
            Some(&at) => at,
            None => {
                let given = (!self.available.is_empty()).then(|| given(&self.available, &name));
                let at = self.free.pop().unwrap_or(self.pools.len());
                self.names.insert(name.clone(), at);
                let pool = Some(ResourcePool { name, given, declared: BTreeMap::new(), used: 0, floor: 0, awaited: 0 });
                match self.pools.get_mut(at) {
                    Some(entry) => *entry = pool,
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

    /// Removes an instance; if it executes, at the end of its execution.
    pub fn unregister(&mut self, id: InstanceId) {
        self.withdraw(id);
        match self.instances.get_mut(&id) {
            Some(instance) if instance.state == GrantState::Executes => instance.state = GrantState::ExecutesLast,
            Some(instance) if instance.state == GrantState::Idle => self.remove(id),
            _ => (),
        }
    }

    fn remove(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.remove(&id) else { return };
        for (at, count) in instance.declares {
            let Some(entry) = self.pools.get_mut(at) else { continue };
            let Some(pool) = entry else { continue };
            if let Some(instances) = pool.declared.get_mut(&count) {
                *instances -= 1;
                if *instances == 0 {
                    pool.declared.remove(&count);
                }
            }
            if pool.declared.is_empty() {
                self.names.remove(&pool.name);
                *entry = None;
                self.free.push(at);
            }
        }
    }

    /// Requests an execution. The instance waits until `grant` names it. No effect if it waits or executes already.
    pub fn request(&mut self, id: InstanceId) {
        let Some(taken) = self.rank(id) else { return };
        let Some(instance) = self.instances.get_mut(&id).filter(|i| i.state == GrantState::Idle) else { return };
        self.requests += 1;
        let rank = (taken, self.requests);
        instance.state = GrantState::Waits(rank);
        if instance.needs().next().is_none() {
            self.unlimited.push(id);
        } else {
            self.waiting.insert((rank, id));
        }
    }

    /// Cancels a request. Returns false, without effect, if it was granted already or never made.
    pub fn withdraw(&mut self, id: InstanceId) -> bool {
        if let Some(instance) = self.instances.get_mut(&id)
            && let GrantState::Waits(rank) = instance.state
        {
            instance.state = GrantState::Idle;
            self.waiting.remove(&(rank, id));
            self.unlimited.retain(|&other| other != id);
            return true;
        }
        false
    }

    /// Returns a grant without having executed: like `release`, but not counted as an execution.
    pub fn forgo(&mut self, id: InstanceId) {
        if let Some(instance) = self.instances.get_mut(&id).filter(|i| i.state == GrantState::Executes) {
            instance.taken = instance.taken.saturating_sub(u64::from(instance.priority));
            self.release(id);
        }
    }

    /// The rank of an instance if it requested now. Of several idle instances of a model the lowest takes the next
    /// batch. `None` if it is not registered.
    pub fn rank(&self, id: InstanceId) -> Option<(u64, u32)> {
        let instance = self.instances.get(&id)?;
        let floors = instance.needs().filter_map(|(at, _)| self.pools.get(at)?.as_ref()).map(|pool| pool.floor);
        Some((floors.fold(instance.taken, u64::max), instance.priority))
    }

    /// An instance that executes with resources that this one needs.
    pub fn holder(&self, id: InstanceId) -> Option<InstanceId> {
        let needs = |pool: usize| self.instances.get(&id).is_some_and(|i| i.needs().any(|(at, _)| at == pool));
        let executes = |i: &RateInstance| matches!(i.state, GrantState::Executes | GrantState::ExecutesLast);
        let mut holders = self.instances.iter().filter(|(_, i)| executes(i) && i.needs().any(|(at, _)| needs(at)));
        holders.next().map(|(&id, _)| id)
    }

    /// Appends the instances that execute from now on to `granted`, in their order.
    pub fn grant(&mut self, granted: &mut Vec<InstanceId>) {
        self.grants += 1;
        let (pools, this_time) = (&mut self.pools, self.grants);
        for id in self.unlimited.drain(..) {
            if let Some(instance) = self.instances.get_mut(&id) {
                instance.state = GrantState::Executes;
                granted.push(id);
            }
        }
        let mut not_awaited = self.names.len();
        let mut started = Vec::new();
        for &(rank, id) in &self.waiting {
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
                    pool.floor = pool.floor.max(rank.0.0);
                } else if pool.awaited != this_time {
                    pool.awaited = this_time;
                    not_awaited -= 1;
                }
            }
            if granted_now {
                instance.taken = rank.0.0.saturating_add(u64::from(instance.priority));
                instance.state = GrantState::Executes;
                started.push((rank, id));
            }
        }
        for one in started {
            self.waiting.remove(&one);
            granted.push(one.1);
        }
    }

    /// Ends the execution of a granted instance.
    pub fn release(&mut self, id: InstanceId) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let is_last = instance.state == GrantState::ExecutesLast;
        if !is_last && instance.state != GrantState::Executes {
            return;
        }
        instance.state = GrantState::Idle;
        for (at, count) in instance.needs() {
            if let Some(pool) = self.pools.get_mut(at).and_then(Option::as_mut) {
                pool.used = pool.used.saturating_sub(count);
            }
        }
        if is_last {
            self.remove(id);
        }
    }

    /// Taken units and capacity of each resource, for metrics: name, device (`None` if global), units taken, capacity.
    pub fn usage(&self) -> impl Iterator<Item = (&str, Option<u32>, u64, u64)> {
        self.pools.iter().flatten().map(|p| (p.name.0.as_str(), p.name.1, p.used, p.capacity()))
    }
}

/// Declared units of an instance, by pool.
fn declared_by(limited: &Limited) -> Result<BTreeMap<PoolName, u32>, RegisterError> {
    if limited.resources.len() > RESOURCES_MAX {
        return Err(RegisterError::TooMany { resources: limited.resources.len() });
    }
    let mut declared = BTreeMap::new();
    for Resource { name, global, count } in &limited.resources {
        let device = (!global).then_some(limited.device);
        let most: &mut u32 = declared.entry((name.clone(), device)).or_default();
        *most = (*most).max(*count);
    }
    Ok(declared)
}

/// Capacity given by `--rate-limit-resource`: for a device the larger of its own value and that for all devices, for a
/// global resource the largest value.
fn given(available: &[Available], (name, device): &PoolName) -> u32 {
    let here = |a: &&Available| a.name == *name && (device.is_none() || a.device.is_none() || a.device == *device);
    available.iter().filter(here).map(|a| a.count).max().unwrap_or(0)
}
