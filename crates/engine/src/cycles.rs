//! Models that call one another, until the instances of some of them wait for one another and none would ever come free: one of their calls fails.
//! (B-SEC-07)
//!
//! A call waits for the instance that runs it, or for one that comes free. The batch that made the call keeps its own instance as long. So instances
//! wait for one another where each instance of some models has a batch that waits for a call to these models. That is looked for about once a
//! second, among calls that are older than [`MODEL_CYCLE_WAIT_NS_MAX`], and only while models call models: a call itself costs nothing more.
//!
//! A queue that is only slow never makes a call fail: one instance that is idle, or has a batch that waits for no call, may serve the next in the
//! queue, and then nothing is found. What a look finds is not of one moment, so it counts only if the next look finds it as well: what
//! waits in both has waited all the time between them.
//!
//! What is left out, because it is not known to wait for ever: calls that a process makes beside its batches, and calls that an ensemble has not
//! started. Sequences wait for one instance, and limited models for resources: there an instance that waits for its own model is enough.

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

/// Time between two looks while models call models.
const LOOK_NS: u64 = 1_000_000_000;
/// The same, after a look that found instances that wait for one another.
const LOOK_AGAIN_NS: u64 = 100_000_000;
/// Calls that one look takes in. Of more, the rest is taken for work that goes on.
const WAITS_MAX: usize = 65_536;
/// Models that an error names.
const NAMES_MAX: usize = 8;

/// The batch that keeps an instance busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct BatchId {
    /// The load of its version.
    load: u64,
    instance: u32,
    number: u64,
}

/// A request that was called by a model and is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Wait {
    called: RequestId,
    /// The load of the version that was called.
    at: u64,
    /// It waits there for an instance; else it runs.
    is_queued: bool,
    /// The request that needs its answer.
    request: Option<RequestId>,
    /// The batch that needs its answer.
    batch: Option<BatchId>,
    /// When the call was made.
    since: u64,
}

/// The instances of a version.
#[derive(Debug, Default)]
struct Instances {
    serving: Vec<u32>,
    /// A request may wait for one of them, or for something else, while others are idle.
    is_choosy: bool,
}

/// What one look found.
#[derive(Default)]
struct Look {
    waits: Vec<Wait>,
    /// Requests that are answered when their batch is over.
    members: HashMap<RequestId, BatchId>,
    versions: HashMap<u64, Instances>,
}

/// Where to go on from a wait: one of those that keep it waiting.
#[derive(Default)]
struct Paths {
    of_request: HashMap<RequestId, usize>,
    of_batch: HashMap<BatchId, usize>,
    of_version: HashMap<u64, usize>,
}

impl Look {
    /// Leaves those waits that none of the others, and nothing else, will end.
    fn keep_stuck(&self, waits: &mut Vec<Wait>) {
        loop {
            let requests: HashSet<_> = waits.iter().filter_map(|wait| wait.request).collect();
            let batches: HashSet<_> = waits.iter().filter_map(|wait| wait.batch).collect();
            let held: HashSet<_> = batches.iter().map(|batch| (batch.load, batch.instance)).collect();
            let is_full = |(load, it): &(&u64, &Instances)| {
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

    /// Whether a batch of the version that it waits for needs its answer, by way of whichever others.
    fn is_own(&self, wait: &Wait, waits: &[Wait], callers: &HashMap<RequestId, usize>) -> bool {
        let mut next = Some(wait);
        // A call is made for a request, which was called by another one, and so on: that ends.
        for _ in 0..=MODEL_CALLS_DEPTH_MAX {
            let Some(wait_above) = next else { return false };
            if wait_above.batch.is_some_and(|batch| batch.load == wait.at) {
                return true;
            }
            next = wait_above.request.and_then(|request| waits.get(*callers.get(&request)?));
        }
        false
    }

    /// Those of these waits, which are stuck, that are to fail so that all the others go on; each with the versions whose instances wait for one
    /// another, which its own batch is one of. Of such a circle the youngest call fails, with all others that its batch waits for.
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

    /// Waits of which each keeps the one before it waiting, and the first one the last.
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

    /// Which wait a called request is of.
    fn to_callers(waits: &[Wait]) -> HashMap<RequestId, usize> {
        waits.iter().enumerate().map(|(at, wait)| (wait.called, at)).collect()
    }
}

/// Looks for instances that wait for one another, while models call models.
pub(crate) struct Cycles {
    directory: Weak<Directory>,
    timer: Arc<Timer>,
    is_armed: AtomicBool,
    /// What the last look found stuck. Its tickets are kept, so that no other request gets the id of one of them.
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

    /// A model called another one, which did not answer at once.
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

    /// Looks once. Whether something is stuck.
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
                    Ticket { state: ticket.clone() }.expire(waits_for_itself(name(&wait.at), &names));
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
        // After `is_armed`: a call that this does not see arms it.
        if directory.calls_open() {
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
        "a call waited for {seconds} s for an instance of model '{model}', and no instance would ever come free: instances wait for calls to one \
         another, of these models: {list}. Configure more instances (instance_group), or do not let them call one another in a circle"
    ))
}

/// Calls that are looked at, and what is needed to end them.
#[derive(Default)]
struct Seen {
    look: Look,
    tickets: HashMap<RequestId, Arc<TicketState>>,
    versions: HashMap<u64, Arc<ModelVersion>>,
}

impl Seen {
    fn look(&mut self, directory: &Directory, before: u64) {
        let mut line = directory.callers();
        self.versions.extend(line.iter().map(|version| (version.identity.load, version.clone())));
        while let Some(version) = line.pop() {
            for calls in version.served.remote().map(|remote| remote.calls_made_before(before)).unwrap_or_default() {
                self.take(&version, calls, &mut line);
            }
        }
        let instances = |version: &ModelVersion| {
            let run = version.running.run.lock();
            let serving = run.members.iter().copied().filter(|&instance| !run.is_gone(instance)).collect();
            Instances {
                serving,
                is_choosy: version.scheduling.sequencing.is_some() || version.scheduling.limited.is_some(),
            }
        };
        let called: HashSet<u64> = self.look.waits.iter().map(|wait| wait.at).collect();
        let called = called.iter().filter_map(|load| Some((*load, instances(self.versions.get(load)?))));
        self.look.versions = called.collect();
    }

    /// Takes in what one instance waits for. Versions that are seen for the first time, because they were replaced, are put in line.
    fn take(&mut self, version: &ModelVersion, calls: OpenCalls, line: &mut Vec<Arc<ModelVersion>>) {
        let OpenCalls { instance, batch, members, calls } = calls;
        let batch = batch.map(|number| BatchId { load: version.identity.load, instance, number });
        if let Some(batch) = batch {
            self.look.members.extend(members.into_iter().map(|request| (request, batch)));
        }
        for open in calls {
            let Some(group) = Ticket::of_call(&*open.call) else { continue };
            for ticket in group.state.called() {
                let (Some(stage), Some(at)) = (ticket.stage(), ticket.version()) else { continue };
                // Those that an ensemble calls are what keeps it waiting.
                if at.graph().is_some() || self.look.waits.len() >= WAITS_MAX {
                    continue;
                }
                let wait = Wait {
                    called: ticket.id(),
                    at: at.identity.load,
                    is_queued: stage == Stage::Queued,
                    request: open.request,
                    batch: batch.filter(|_| open.is_for_batch),
                    since: open.since,
                };
                self.look.waits.push(wait);
                self.tickets.insert(wait.called, ticket);
                if self.versions.insert(at.identity.load, at.clone()).is_none() {
                    line.push(at);
                }
            }
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    /// What runs and waits, in words: `a0 calls b` is the batch of instance 0 of model `a`, which waits for an instance of `b`; `a0 runs b1` waits
    /// for a request that the batch of `b1` has; `r a0 calls b` is a request that no instance has any more, which `a0` waits for.
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
            look.versions.insert(load(&name), Instances { serving: (0..*count).collect(), is_choosy });
        }
        look
    }

    /// Who fails, by the instances whose calls do, and which models the error names.
    fn fails(instances: &[(char, u32)], text: &str) -> Vec<String> {
        let look = look(instances, text);
        let mut stuck = look.waits.clone();
        look.keep_stuck(&mut stuck);
        let name = |load: u64| char::from(load as u8);
        let told = look.victims(stuck).into_iter().map(|(waits, circle)| {
            let of = |wait: &Wait| match wait.batch {
                Some(batch) => format!("{}{}", name(batch.load), batch.instance),
                None => "free".into(),
            };
            let mut victims: Vec<String> = waits.iter().map(of).collect();
            victims.dedup();
            format!("{} of {}", victims.join("+"), circle.into_iter().map(name).collect::<String>())
        });
        told.collect()
    }

    #[test]
    fn b_sec_07_one_of_two_that_wait_for_one_another_fails() {
        assert_eq!(fails(&[('a', 1), ('b', 1)], "a0 calls b\n b0 calls a"), ["b0 of ab"], "the later one");
        assert_eq!(fails(&[('a', 1)], "a0 calls a"), ["a0 of a"]);
        assert_eq!(fails(&[('a', 1), ('b', 1), ('c', 1)], "a0 calls b\n b0 calls c\n c0 calls a"), ["c0 of abc"]);
        let many = "a0 calls b\n a1 calls b\n b0 calls a\n b1 calls a\n b2 calls a";
        assert_eq!(fails(&[('a', 2), ('b', 3)], many), ["b2 of ab"], "one is enough");
    }

    #[test]
    fn b_sec_07_nobody_fails_while_an_instance_may_come_free() {
        // An instance that is idle, or runs something that waits for no call.
        assert!(fails(&[('a', 1), ('b', 2)], "a0 calls b\n b0 calls a").is_empty());
        assert!(fails(&[('a', 2), ('b', 1)], "a0 calls b\n b0 calls a").is_empty());
        // A queue that is long.
        let long: String = (0..50).map(|n| format!("c{} calls a\n", n % 5)).collect();
        assert!(fails(&[('a', 1), ('c', 5)], &long).is_empty());
        // A chain whose end runs.
        assert!(fails(&[('a', 1), ('b', 1), ('c', 1), ('d', 1)], "a0 calls b\n b0 calls c\n c0 calls d").is_empty());
        assert!(fails(&[('a', 1), ('b', 1), ('c', 1)], "a0 calls b\n b0 runs c0\n c0 calls d").is_empty());
        // A model without instances refuses its requests itself.
        assert!(fails(&[('a', 0)], "a0 calls a").is_empty());
    }

    #[test]
    fn b_sec_07_who_waits_for_a_circle_and_is_not_in_it_goes_on() {
        let behind = "a0 calls b\n b0 calls a\n c0 calls a\n d0 calls c";
        assert_eq!(fails(&[('a', 1), ('b', 1), ('c', 1), ('d', 1)], behind), ["b0 of ab"]);
        // Two circles that know nothing of one another.
        let two = "a0 calls b\n b0 calls a\n c0 calls d\n d0 calls c";
        let mut told = fails(&[('a', 1), ('b', 1), ('c', 1), ('d', 1)], two);
        told.sort();
        assert_eq!(told, ["b0 of ab", "d0 of cd"]);
    }

    #[test]
    fn b_sec_07_circles_go_by_way_of_requests_that_run() {
        // `c` runs the request of `a0`, and calls `b`, whose batch calls `a`.
        let by_way = "a0 runs c0\n c0 calls b\n b0 calls a";
        assert_eq!(fails(&[('a', 1), ('b', 1), ('c', 3)], by_way), ["b0 of ab"]);
        // A request of a decoupled model, which has no instance any more.
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
