//! Deadlocks of models that call one another: if their instances wait for one another, one call fails (B-SEC-07).
//!
//! A call waits for an idle instance, and the batch that made the call keeps its own instance meanwhile. So instances
//! wait for one another if each instance of some models has a batch that waits for a call to these models. A check runs
//! about once a second, only while models call models, and only over calls older than [`MODEL_CYCLE_WAIT_NS_MAX`];
//! calls themselves cost nothing more.
//!
//! A slow queue never makes a call fail: if one instance is idle, or has a batch without an open call, nothing is
//! found. A wait only counts if two consecutive checks find it, because one check does not see a single moment.
//!
//! Not covered, because they may end: calls that a process makes outside its batches, and calls that an ensemble has
//! not started. Sequences wait for one instance, limited models for resources: one waiting for itself is enough.

use crate::directory::Directory;
use crate::limits::{MODEL_CALLS_DEPTH_MAX, MODEL_CYCLE_WAIT_NS_MAX};
use crate::ticket::{Stage, Ticket, TicketState};
use crate::timer::{Timed, Timer};
use crate::version::ModelVersion;
use backend::{OpenCalls, RequestId, now_ns};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use tensor::Error;

/// Time between two checks while models call models.
const LOOK_NS: u64 = 1_000_000_000;
/// Time to the next check after one that found instances that wait for one another.
const LOOK_AGAIN_NS: u64 = 100_000_000;
/// Maximum number of calls in one check. Further calls are assumed to make progress.
const WAITS_MAX: usize = 65_536;
/// Maximum number of models named by an error.
const NAMES_MAX: usize = 8;

/// A batch that keeps an instance busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct BatchId {
    /// Load of its version.
    load: u64,
    instance: u32,
    number: u64,
}

/// An open call of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Wait {
    called: RequestId,
    /// Load of the called version.
    at: u64,
    /// True if it waits for an instance, false if it runs.
    is_queued: bool,
    /// The request that needs its response.
    request: Option<RequestId>,
    /// The batch that needs its response.
    batch: Option<BatchId>,
    since: u64,
}

/// The instances of a version.
#[derive(Debug, Default)]
struct ServingInstances {
    serving: Vec<u32>,
    /// True if a request may wait for one of them, or for something else, while others are idle.
    is_choosy: bool,
}

/// Result of one check.
#[derive(Default)]
struct Look {
    waits: Vec<Wait>,
    /// Requests that get their response when their batch ends.
    members: HashMap<RequestId, BatchId>,
    versions: HashMap<u64, ServingInstances>,
}

/// Next wait to follow from a request, batch or version.
#[derive(Default)]
struct Paths {
    of_request: HashMap<RequestId, usize>,
    of_batch: HashMap<BatchId, usize>,
    of_version: HashMap<u64, usize>,
}

impl Look {
    /// Keeps the waits that nothing but each other could end.
    fn keep_stuck(&self, waits: &mut Vec<Wait>) {
        loop {
            let requests: HashSet<_> = waits.iter().filter_map(|wait| wait.request).collect();
            let batches: HashSet<_> = waits.iter().filter_map(|wait| wait.batch).collect();
            let held: HashSet<_> = batches.iter().map(|batch| (batch.load, batch.instance)).collect();
            let is_full = |(load, it): &(&u64, &ServingInstances)| {
                !it.serving.is_empty() && it.serving.iter().all(|&instance| held.contains(&(**load, instance)))
            };
            let full: HashSet<_> = self.versions.iter().filter(is_full).map(|(&load, _)| load).collect();
            let callers = Paths::to_callers(waits);
            let is_stuck = |wait: &Wait| match wait.is_queued {
                true => full.contains(&wait.at) || (self.is_choosy(wait.at) && self.is_own(wait, waits, &callers)),
                false => {
                    requests.contains(&wait.called)
                        || self.members.get(&wait.called).is_some_and(|batch| batches.contains(batch))
                }
            };
            let stuck: Vec<_> = waits.iter().copied().filter(is_stuck).collect();
            let is_done = stuck.len() == waits.len();
            *waits = stuck;
            if is_done {
                return;
            }
        }
    }

    fn is_choosy(&self, load: u64) -> bool {
        self.versions.get(&load).is_some_and(|it| it.is_choosy)
    }

    /// True if a batch of the version that it waits for needs its response, directly or through other calls.
    fn is_own(&self, wait: &Wait, waits: &[Wait], callers: &HashMap<RequestId, usize>) -> bool {
        let mut next = Some(wait);
        // Calls are nested to a limited depth, so this ends.
        for _ in 0..=MODEL_CALLS_DEPTH_MAX {
            let Some(wait_above) = next else { return false };
            if wait_above.batch.is_some_and(|batch| batch.load == wait.at) {
                return true;
            }
            next = wait_above.request.and_then(|request| waits.get(*callers.get(&request)?));
        }
        false
    }

    /// Chooses which of the stuck waits fail so that all others go on, each with the versions whose instances wait for
    /// one another. The youngest call of each cycle fails, with all calls that its batch waits for.
    fn victims(&self, mut waits: Vec<Wait>) -> Vec<(Vec<Wait>, Vec<u64>)> {
        let mut victims = Vec::new();
        while let Some(circle) = self.circle(&waits) {
            let Some(last) = circle.iter().filter(|wait| wait.is_queued).max_by_key(|wait| wait.since) else { break };
            let is_beside = |wait: &Wait| match last.batch {
                Some(_) => wait.batch == last.batch,
                None => wait.request.is_some() && wait.request == last.request || wait.called == last.called,
            };
            let (beside, rest): (Vec<_>, Vec<_>) = waits.into_iter().partition(is_beside);
            let mut versions: Vec<u64> = circle.iter().filter(|wait| wait.is_queued).map(|wait| wait.at).collect();
            versions.sort_unstable();
            versions.dedup();
            victims.push((beside.into_iter().filter(|wait| wait.is_queued).collect(), versions));
            waits = rest;
            self.keep_stuck(&mut waits);
        }
        victims
    }

    /// A cycle of waits, each of which blocks the one before it.
    fn circle(&self, waits: &[Wait]) -> Option<Vec<Wait>> {
        let paths = Paths::of(waits);
        let mut places = HashMap::new();
        let mut way: Vec<Wait> = Vec::new();
        let mut next = waits.iter().position(|wait| wait.is_queued)?;
        loop {
            if let Some(&first) = places.get(&next) {
                return Some(way.split_off(first));
            }
            places.insert(next, way.len());
            let wait = *waits.get(next)?;
            way.push(wait);
            next = match wait.is_queued {
                true => *paths.of_version.get(&wait.at)?,
                false => {
                    let of_batch = || paths.of_batch.get(self.members.get(&wait.called)?);
                    *paths.of_request.get(&wait.called).or_else(of_batch)?
                }
            };
        }
    }
}

impl Paths {
    fn of(waits: &[Wait]) -> Self {
        let mut paths = Self::default();
        for (at, wait) in waits.iter().enumerate() {
            if let Some(request) = wait.request {
                paths.of_request.insert(request, at);
            }
            if let Some(batch) = wait.batch {
                paths.of_batch.insert(batch, at);
                paths.of_version.insert(batch.load, at);
            }
        }
        paths
    }

    /// Index of the wait of each called request.
    fn to_callers(waits: &[Wait]) -> HashMap<RequestId, usize> {
        waits.iter().enumerate().map(|(at, wait)| (wait.called, at)).collect()
    }
}

/// Periodic check for instances that wait for one another.
pub(crate) struct Cycles {
    directory: Weak<Directory>,
    timer: Arc<Timer>,
    is_armed: AtomicBool,
    /// Waits found stuck by the last check. The tickets are kept so that their ids are not reused.
    last: Mutex<HashMap<Wait, Arc<TicketState>>>,
    me: Weak<Self>,
}

impl Cycles {
    pub(crate) fn new(directory: Weak<Directory>, timer: Arc<Timer>) -> Arc<Self> {
        let new = |me: &Weak<Self>| Self {
            directory,
            timer,
            is_armed: AtomicBool::new(false),
            last: Mutex::default(),
            me: me.clone(),
        };
        Arc::new_cyclic(new)
    }

    /// Called for every call between models that did not finish at once.
    #[inline]
    pub(crate) fn called(&self) {
        if !self.is_armed.load(Ordering::Relaxed) {
            self.arm(LOOK_NS);
        }
    }

    fn arm(&self, after_ns: u64) {
        if !self.is_armed.swap(true, Ordering::AcqRel) {
            let is_armed = self.timer.arm(now_ns().saturating_add(after_ns), self.me.clone());
            self.is_armed.store(is_armed, Ordering::Release);
        }
    }

    /// Runs one check; returns whether something is stuck.
    fn look(&self, directory: &Directory) -> bool {
        let mut seen = Seen::default();
        seen.look(directory, now_ns().saturating_sub(MODEL_CYCLE_WAIT_NS_MAX));
        let Seen { look, mut tickets, versions } = seen;
        let mut stuck = look.waits.clone();
        look.keep_stuck(&mut stuck);
        let is_stuck = !stuck.is_empty();
        let found = stuck.iter().filter_map(|wait| Some((*wait, tickets.remove(&wait.called)?))).collect();
        let last = std::mem::replace(&mut *self.last.lock(), found);
        stuck.retain(|wait| last.contains_key(wait));
        look.keep_stuck(&mut stuck);
        for (victims, circle) in look.victims(stuck) {
            let name = |load: &u64| versions.get(load).map_or("", |version| version.signature.model.as_str());
            let names: Vec<&str> = circle.iter().map(name).collect();
            for wait in victims {
                if let Some(ticket) = last.get(&wait) {
                    Ticket::new(ticket.clone()).expire(waits_for_itself(name(&wait.at), &names));
                }
            }
        }
        is_stuck
    }
}

impl Timed for Cycles {
    fn wake(&self, _: u64) {
        self.is_armed.store(false, Ordering::Release);
        let Some(directory) = self.directory.upgrade() else { return };
        let is_stuck = self.look(&directory);
        // After `is_armed` was reset: a call that this does not see arms the timer.
        if directory.alive().values().any(|version| version.calls_open() > 0) {
            self.arm(if is_stuck { LOOK_AGAIN_NS } else { LOOK_NS });
        }
    }
}

#[cold]
fn waits_for_itself(model: &str, names: &[&str]) -> Error {
    let seconds = MODEL_CYCLE_WAIT_NS_MAX / 1_000_000_000;
    let mut list: Vec<String> = names.iter().take(NAMES_MAX).map(|name| format!("'{name}'")).collect();
    if names.len() > NAMES_MAX {
        list.push(format!("{} more", names.len() - NAMES_MAX));
    }
    let list = list.join(", ");
    Error::unavailable(format!(
        "a call waited for {seconds} s for an instance of model '{model}', and no instance would ever come free: \
         instances wait for calls to one \
         another, of these models: {list}. Configure more instances (instance_group), or do not let them call one \
         another in a circle"
    ))
    .by_model()
}

/// Calls seen by a check, and what is needed to end them.
#[derive(Default)]
struct Seen {
    look: Look,
    tickets: HashMap<RequestId, Arc<TicketState>>,
    versions: HashMap<u64, Arc<ModelVersion>>,
}

impl Seen {
    fn look(&mut self, directory: &Directory, before: u64) {
        self.versions = directory.alive();
        let callers: Vec<_> = self.versions.values().filter(|version| version.calls_open() > 0).cloned().collect();
        for version in callers {
            for calls in version.served.remote().map(|remote| remote.calls_made_before(before)).unwrap_or_default() {
                self.take(version.identity.load, calls);
            }
        }
        let instances = |version: &ModelVersion| {
            let dispatch = version.serving.dispatch.lock();
            let serving = dispatch.members.iter().copied().filter(|&instance| !dispatch.is_gone(instance)).collect();
            ServingInstances {
                serving,
                is_choosy: version.scheduling.sequencing.is_some() || version.scheduling.limited.is_some(),
            }
        };
        let called: HashSet<u64> = self.look.waits.iter().map(|wait| wait.at).collect();
        let called = called.iter().filter_map(|load| Some((*load, instances(self.versions.get(load)?))));
        self.look.versions = called.collect();
    }

    /// Adds the open calls of one instance of the version with this load.
    fn take(&mut self, load: u64, calls: OpenCalls) {
        let OpenCalls { instance, batch, members, calls } = calls;
        let batch = batch.map(|number| BatchId { load, instance, number });
        if let Some(batch) = batch {
            self.look.members.extend(members.into_iter().map(|request| (request, batch)));
        }
        for open in calls {
            let Some(group) = Ticket::of_call(&*open.call) else { continue };
            for ticket in group.state.called() {
                let (Some(stage), Some(at)) = (ticket.stage(), ticket.version().map(|at| at.load())) else { continue };
                // Calls of an ensemble are followed through the calls of its steps.
                let is_model = self.versions.get(&at).is_some_and(|version| version.graph().is_none());
                if !is_model || self.look.waits.len() >= WAITS_MAX {
                    continue;
                }
                let wait = Wait {
                    called: ticket.id(),
                    at,
                    is_queued: stage == Stage::Queued,
                    request: open.request,
                    batch: batch.filter(|_| open.is_for_batch),
                    since: open.since,
                };
                self.look.waits.push(wait);
                self.tickets.insert(wait.called, ticket);
            }
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    /// Parses a situation: `a0 calls b` is the batch of instance 0 of `a` that waits for an instance of `b`; in `a0
    /// runs b1` it waits for a request in the batch of `b1`; in `r a0 calls b` for a request without an instance.
    fn look(instances: &[(char, u32)], text: &str) -> Look {
        let load = |name: &str| u64::from(name.as_bytes()[0]);
        let batch =
            |name: &str| BatchId { load: load(name), instance: u32::from(name.as_bytes()[1] - b'0'), number: 7 };
        let mut look = Look::default();
        for (since, line) in (1000..).zip(text.lines().map(str::trim).filter(|line| !line.is_empty())) {
            let words: Vec<&str> = line.split(' ').collect();
            let [who, does, whom] = words[..] else { panic!("{line}") };
            let is_free = who.starts_with("free");
            let (called, at, is_queued) = match does {
                "calls" => (RequestId(since as usize), load(whom), true),
                "runs" if whom.starts_with("free") => (RequestId(load(&whom[4..]) as usize), 0, false),
                _ => (RequestId(since as usize), load(whom), false),
            };
            let request = if is_free { Some(RequestId(load(&who[4..]) as usize)) } else { None };
            let own = (!is_free).then(|| batch(who));
            if does == "runs" && !whom.starts_with("free") {
                look.members.insert(called, batch(whom));
            }
            look.waits.push(Wait { called, at, is_queued, request, batch: own, since });
        }
        for (name, count) in instances {
            let name = name.to_string();
            let is_choosy = name == "s";
            look.versions.insert(load(&name), ServingInstances { serving: (0..*count).collect(), is_choosy });
        }
        look
    }

    /// Which instances' calls fail, and which models the error names.
    fn fails(instances: &[(char, u32)], text: &str) -> Vec<String> {
        let look = look(instances, text);
        let mut stuck = look.waits.clone();
        look.keep_stuck(&mut stuck);
        let name = |load: u64| char::from(load as u8);
        let failed = look.victims(stuck).into_iter().map(|(waits, circle)| {
            let of = |wait: &Wait| match wait.batch {
                Some(batch) => format!("{}{}", name(batch.load), batch.instance),
                None => "free".into(),
            };
            let mut victims: Vec<String> = waits.iter().map(of).collect();
            victims.dedup();
            format!("{} of {}", victims.join("+"), circle.into_iter().map(name).collect::<String>())
        });
        failed.collect()
    }

    #[test]
    fn b_sec_07_one_of_two_calls_in_a_deadlock_fails() {
        assert_eq!(fails(&[('a', 1), ('b', 1)], "a0 calls b\n b0 calls a"), ["b0 of ab"], "the later one");
        assert_eq!(fails(&[('a', 1)], "a0 calls a"), ["a0 of a"]);
        assert_eq!(fails(&[('a', 1), ('b', 1), ('c', 1)], "a0 calls b\n b0 calls c\n c0 calls a"), ["c0 of abc"]);
        let many = "a0 calls b\n a1 calls b\n b0 calls a\n b1 calls a\n b2 calls a";
        assert_eq!(fails(&[('a', 2), ('b', 3)], many), ["b2 of ab"], "one is enough");
    }

    #[test]
    fn b_sec_07_no_call_fails_while_an_instance_may_become_idle() {
        // An instance that is idle, or runs a batch without calls.
        assert!(fails(&[('a', 1), ('b', 2)], "a0 calls b\n b0 calls a").is_empty());
        assert!(fails(&[('a', 2), ('b', 1)], "a0 calls b\n b0 calls a").is_empty());
        // A long queue.
        let long: String = (0..50).map(|n| format!("c{} calls a\n", n % 5)).collect();
        assert!(fails(&[('a', 1), ('c', 5)], &long).is_empty());
        // A chain whose end runs.
        assert!(fails(&[('a', 1), ('b', 1), ('c', 1), ('d', 1)], "a0 calls b\n b0 calls c\n c0 calls d").is_empty());
        assert!(fails(&[('a', 1), ('b', 1), ('c', 1)], "a0 calls b\n b0 runs c0\n c0 calls d").is_empty());
        // A model without instances rejects its requests itself.
        assert!(fails(&[('a', 0)], "a0 calls a").is_empty());
    }

    #[test]
    fn b_sec_07_calls_outside_the_cycle_continue() {
        let behind = "a0 calls b\n b0 calls a\n c0 calls a\n d0 calls c";
        assert_eq!(fails(&[('a', 1), ('b', 1), ('c', 1), ('d', 1)], behind), ["b0 of ab"]);
        // Two independent cycles.
        let two = "a0 calls b\n b0 calls a\n c0 calls d\n d0 calls c";
        let mut failed = fails(&[('a', 1), ('b', 1), ('c', 1), ('d', 1)], two);
        failed.sort();
        assert_eq!(failed, ["b0 of ab", "d0 of cd"]);
    }

    #[test]
    fn b_sec_07_cycles_may_include_running_requests() {
        // `c` runs the request of `a0`, and calls `b`, whose batch calls `a`.
        let by_way = "a0 runs c0\n c0 calls b\n b0 calls a";
        assert_eq!(fails(&[('a', 1), ('b', 1), ('c', 3)], by_way), ["b0 of ab"]);
        // A request of a decoupled model that has no instance any more.
        let free = "a0 runs freer\n freer calls a";
        assert_eq!(fails(&[('a', 1)], free), ["free of a"]);
        assert!(fails(&[('a', 2)], free).is_empty());
    }

    #[test]
    fn b_sec_07_all_calls_of_a_batch_fail_together() {
        let many = "b0 calls a\n a0 calls b\n a0 calls c\n a0 calls b";
        assert_eq!(fails(&[('a', 1), ('b', 1), ('c', 1)], many), ["a0 of ab"], "that to c may be answered");
    }

    #[test]
    fn b_sec_07_a_sequence_that_waits_for_its_own_instance_fails_beside_idle_ones() {
        assert_eq!(fails(&[('s', 2)], "s0 calls s"), ["s0 of s"]);
        assert!(fails(&[('s', 2), ('a', 1)], "a0 calls s").is_empty());
    }
}
