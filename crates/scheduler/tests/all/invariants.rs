//! Properties of every schedule: seeded simulation and property tests.

use crate::common::{Random, Request, default_scheduler, request};
use proptest::prelude::*;
use scheduler::{Cause, Config, Dynamic, NextBatch, Policy, RemovalReason, Scheduler, TimeoutAction};
use std::collections::BTreeMap;

/// A request, as the test knows it.
struct Known {
    request: Request,
    arrived: u64,
    /// Level, or 0.
    level: u32,
    /// True if it may be delayed: its order within the level is not kept.
    may_be_delayed: bool,
    /// Latest time at which it may still wait, if it must be rejected then.
    reject_at: Option<u64>,
    out: bool,
    /// True if it waits for an instance to become free.
    is_blocked: bool,
}

struct World {
    scheduler: Scheduler<Request>,
    config: Config,
    dynamic: Dynamic,
    known: Vec<Known>,
    /// Waiting requests of each level, by id.
    waiting: BTreeMap<usize, u32>,
    idle: u32,
    now: u64,
    wake: Option<u64>,
    runs: usize,
    dropped: usize,
}

impl World {
    fn new(config: Config) -> Self {
        let dynamic = config.dynamic.clone().unwrap_or_default();
        Self {
            scheduler: Scheduler::new(config.clone()),
            idle: config.instances,
            config,
            dynamic,
            known: vec![],
            waiting: BTreeMap::new(),
            now: 0,
            wake: None,
            runs: 0,
            dropped: 0,
        }
    }

    fn push(&mut self, rows: u32, shape: u64, priority: u64, timeout_us: u64) {
        let id = self.known.len();
        let request = request(id, rows, shape);
        let levels = self.dynamic.priority_levels;
        let level = match priority as u32 {
            _ if levels == 0 => 0,
            p if p >= 1 && p <= levels => p,
            _ => self.dynamic.default_priority_level,
        };
        let policy = self.dynamic.level_policies.get(&level).unwrap_or(&self.dynamic.default_policy);
        let mut timeout = policy.default_timeout_us;
        if policy.allow_timeout_override && timeout_us != 0 {
            timeout = timeout.min(timeout_us);
        }
        let in_level = self.waiting.values().filter(|&&l| l == level).count();
        match self.scheduler.push(self.now, priority, timeout_us, request.clone()) {
            Ok(()) => {
                assert!(policy.max_queue_size == 0 || in_level < policy.max_queue_size as usize, "S-05: one too many");
                let rejects = timeout != 0 && policy.timeout_action == TimeoutAction::Reject;
                self.known.push(Known {
                    request,
                    arrived: self.now,
                    level,
                    may_be_delayed: timeout != 0 && policy.timeout_action == TimeoutAction::Delay,
                    reject_at: rejects.then_some(self.now + timeout * 1000),
                    out: false,
                    is_blocked: false,
                });
                self.waiting.insert(id, level);
            }
            Err((_, back)) => {
                assert_eq!(back.id, id, "the request itself comes back");
                assert!(
                    policy.max_queue_size != 0 && in_level >= policy.max_queue_size as usize,
                    "S-05: refused too early"
                );
                // Ids are indices of `known`.
                self.known.push(Known {
                    request,
                    arrived: self.now,
                    level,
                    may_be_delayed: false,
                    reject_at: None,
                    out: true,
                    is_blocked: false,
                });
            }
        }
        self.look();
    }

    fn cancel(&mut self, id: usize, tell: bool) {
        self.known[id].request.cancelled.set(true);
        if tell {
            let mut dropped = vec![];
            self.scheduler.remove_cancelled(&mut dropped);
            self.take_dropped(dropped);
            assert!(
                self.waiting.keys().all(|&id| !self.known[id].request.cancelled.get()),
                "a cancelled request is left after removal"
            );
        }
        self.look();
    }

    fn leave(&mut self, id: usize) {
        assert!(!std::mem::replace(&mut self.known[id].out, true), "request {id} left twice");
        self.waiting.remove(&id);
    }

    fn take_dropped(&mut self, dropped: Vec<(RemovalReason, Request)>) {
        for (why, request) in dropped {
            self.dropped += 1;
            self.leave(request.id);
            match why {
                RemovalReason::Cancelled => assert!(request.cancelled.get(), "{} was not cancelled", request.id),
                RemovalReason::Expired => {
                    let at = self.known[request.id].reject_at.expect("S-06: it had no timeout");
                    assert!(at <= self.now, "request {} expired {} ns early", request.id, at - self.now);
                }
            }
        }
    }

    fn look(&mut self) {
        loop {
            let mut dropped = vec![];
            let still = self.scheduler.is_still();
            let step = self.scheduler.step(self.now, self.idle, &mut dropped);
            assert!(
                !still || (matches!(step, NextBatch::Idle) && dropped.is_empty()),
                "a step was not needed and did something"
            );
            self.take_dropped(dropped);
            match step {
                NextBatch::Run { batch, why } => self.run(&batch, why),
                NextBatch::SleepUntil(at) => {
                    assert!(at > self.now, "would spin");
                    self.wake = Some(at);
                    break;
                }
                NextBatch::Idle => {
                    self.wake = None;
                    break;
                }
            }
        }
        assert_eq!(self.scheduler.len(), self.waiting.len(), "len");
        self.check_waiting();
        for &id in self.waiting.keys() {
            self.known[id].is_blocked = self.idle == 0;
        }
    }

    fn run(&mut self, batch: &[Request], why: Cause) {
        self.runs += 1;
        self.check_cause(batch, why);
        assert!(self.idle > 0, "run without an instance");
        self.idle -= 1;
        let first = batch.first().expect("never empty");
        let rows: u32 = batch.iter().map(|r| r.rows).sum();
        let max = if self.config.dynamic.is_some() { self.config.max_batch_size.max(1) } else { 0 };
        assert!(batch.len() == 1 || rows <= max, "{rows} rows in a batch of at most {max}");
        for request in batch {
            assert_eq!(request.shape, first.shape, "S-12: shapes mixed");
            assert!(!request.cancelled.get(), "S-41: a cancelled request runs");
            assert!(self.known[request.id].reject_at.is_none_or(|at| at > self.now), "S-06: an expired request runs");
            self.leave(request.id);
        }
        // FIFO: no request of a higher level was overtaken, and none of the same level that cannot have been delayed.
        for request in batch {
            let level = self.known[request.id].level;
            for (&id, &other) in self.waiting.iter().take(64) {
                let known = &self.known[id];
                let same = other == level && id < request.id && !known.may_be_delayed;
                assert!(!same || known.request.cancelled.get(), "{} overtook {id}", request.id);
            }
        }
    }

    /// Checks the cause of a batch against what its requests waited for.
    fn check_cause(&self, batch: &[Request], why: Cause) {
        let any = |is: &dyn Fn(&Known) -> bool| batch.iter().any(|request| is(&self.known[request.id]));
        assert_eq!(any(&|k| k.is_blocked), why == Cause::InstanceFreed, "{why:?}");
        let delay = self.dynamic.max_queue_delay_us * 1000;
        let is_possible = match why {
            Cause::InstanceFreed => true,
            Cause::IdleInstance => delay == 0 || self.idle > 1 || self.config.max_batch_size <= 1,
            Cause::DelayElapsed => any(&|k| self.now >= k.arrived + delay),
            _ => delay > 0,
        };
        assert!(is_possible, "{why:?} after {delay} ns");
    }

    /// Checks the waiting requests after the scheduler's steps.
    fn check_waiting(&self) {
        for &id in self.waiting.keys() {
            let known = &self.known[id];
            if known.reject_at.is_some_and(|at| at <= self.now) {
                panic!("S-08: request {id} should have been rejected");
            }
            if let Some(at) = known.reject_at {
                assert!(self.wake.is_some_and(|wake| wake <= at), "S-08: nobody will look at request {id}'s deadline");
            }
        }
        let wanted = self.waiting.keys().map(|&id| &self.known[id]).filter(|k| !k.request.cancelled.get());
        let Some(oldest) = wanted.map(|k| k.arrived).min().filter(|_| self.idle > 0) else { return };
        // With an idle instance requests only wait within the delay, and only until a time that keeps it.
        let delay = self.dynamic.max_queue_delay_us * 1000;
        assert!(delay != 0, "an idle instance sits beside {} requests", self.waiting.len());
        assert!(self.now < oldest + delay, "the delay is over");
        assert!(self.wake.is_some_and(|w| w <= oldest + delay), "nobody will look when the delay is over");
    }

    /// Advances the time, with a step at each wake-up time.
    fn advance(&mut self, to: u64) {
        while let Some(wake) = self.wake.filter(|&w| w <= to) {
            self.now = wake;
            self.look();
        }
        self.now = to;
    }

    fn complete(&mut self) {
        if self.idle < self.config.instances {
            self.idle += 1;
            self.look();
        }
    }

    /// Drains the scheduler and checks that every request left once.
    fn finish(mut self) {
        while !self.waiting.is_empty() && self.idle < self.config.instances {
            self.advance(self.now + 1_000_000);
            self.complete();
        }
        let mut left = vec![];
        self.scheduler.drain_all(&mut left);
        left.iter().for_each(|r| self.leave(r.id));
        assert!(self.known.iter().all(|k| k.out), "requests lost");
        assert!(self.scheduler.is_empty());
    }
}

fn random_policy(random: &mut Random) -> Policy {
    Policy {
        timeout_action: if random.one_in(2) { TimeoutAction::Reject } else { TimeoutAction::Delay },
        default_timeout_us: [0, 0, 50, 400][random.below(4) as usize],
        allow_timeout_override: random.one_in(2),
        max_queue_size: [0, 0, 3, 20][random.below(4) as usize],
    }
}

fn random_config(random: &mut Random) -> Config {
    let max = [0, 1, 4, 8, 8, 32][random.below(6) as usize];
    let preferred: &[&[u32]] = &[&[], &[], &[4], &[4, 8], &[2, 3], &[max]];
    let levels = if random.one_in(3) { 1 + random.below(4) as u32 } else { 0 };
    let plain = random.one_in(3);
    let mut level_policies = BTreeMap::new();
    for level in 1..=levels {
        if random.one_in(2) {
            level_policies.insert(level, random_policy(random));
        }
    }
    let dynamic = Dynamic {
        preferred: preferred[random.below(6) as usize].to_vec(),
        max_queue_delay_us: [0, 0, 20, 200][random.below(4) as usize],
        preserve_ordering: false,
        priority_levels: levels,
        default_priority_level: if levels == 0 { 0 } else { 1 + random.below(u64::from(levels)) as u32 },
        default_policy: if plain { Policy::default() } else { random_policy(random) },
        level_policies,
    };
    Config {
        max_batch_size: max,
        dynamic: (!random.one_in(8)).then_some(dynamic),
        instances: 1 + random.below(3) as u32,
        strict_delay: random.one_in(3),
        delay_scheduler: 0,
        tokens_max: None,
        cores: None,
    }
}

/// Simulates this many events; returns the number of executions and of dropped requests.
fn simulate(seed: u64, events: u32) -> (usize, usize) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    for _ in 0..8 {
        random.below(2);
    }
    let mut world = World::new(random_config(&mut random));
    let (shapes, gap, service) = (1 + random.below(3), 1 + random.below(40_000), 1 + random.below(4));
    for _ in 0..events {
        let pause = if random.one_in(4) { 0 } else { random.below(gap) };
        world.advance(world.now + pause);
        match random.below(6 + service) {
            0..=4 if world.waiting.len() < 200 => {
                let largest = if random.one_in(10) { 10 } else { 3 };
                let rows = 1 + random.below(largest) as u32;
                let shape = if random.one_in(4) { random.below(shapes) } else { 0 };
                let (priority, timeout) = (random.below(6), [0, 10, 100, 1000][random.below(4) as usize]);
                world.push(rows, shape, priority, timeout);
            }
            5 if random.one_in(2) => {
                let id = world.waiting.keys().nth(random.below(200) as usize).copied();
                if let Some(id) = id {
                    world.cancel(id, random.one_in(2));
                }
            }
            5 => world.look(),
            _ => {
                let rows = 1 + random.below(8) as u32;
                world.scheduler.observe(random.below(shapes), rows, 20_000 + 500 * u64::from(rows));
                world.complete();
            }
        }
    }
    let seen = (world.runs, world.dropped);
    world.finish();
    seen
}

#[test]
fn every_request_leaves_once_and_instances_only_idle_with_a_reason() {
    let (mut runs, mut dropped) = (0, 0);
    for seed in 0..300 {
        // The seed is enough to replay a failure.
        let seen = std::panic::catch_unwind(|| simulate(seed, 500)).unwrap_or_else(|_| panic!("seed {seed}"));
        runs += seen.0;
        dropped += seen.1;
    }
    assert!(runs > 10_000 && dropped > 1_000, "the simulation does not exercise much: {runs} runs, {dropped} drops");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_schedule_keeps_the_invariants(
        max in 0u32..10,
        preferred in prop::collection::vec(1u32..10, 0..3),
        delay in prop::sample::select(vec![0u64, 7, 100]),
        strict in any::<bool>(),
        instances in 1u32..3,
        levels in 0u32..3,
        action in any::<bool>(),
        timeout in prop::sample::select(vec![0u64, 30]),
        events in prop::collection::vec((0u64..20_000, 0u8..8, 1u32..5, 0u64..2, 0u64..40), 1..80),
    ) {
        let policy = Policy {
            timeout_action: if action { TimeoutAction::Reject } else { TimeoutAction::Delay },
            default_timeout_us: timeout,
            allow_timeout_override: true,
            max_queue_size: 0,
        };
        let dynamic = Dynamic {
            preferred,
            max_queue_delay_us: delay,
            priority_levels: levels,
            default_priority_level: levels,
            default_policy: policy,
            ..Dynamic::default()
        };
        let (max_batch_size, dynamic, strict_delay) = (max, Some(dynamic), strict);
        let config = Config { dynamic, instances, strict_delay, ..default_scheduler(max_batch_size) };
        let mut world = World::new(config);
        for (pause, what, rows, shape, extra) in events {
            world.advance(world.now + pause);
            match what {
                0..=4 => world.push(rows, shape, extra % 4, extra),
                5 => {
                    let id = world.waiting.keys().nth(extra as usize % 4).copied();
                    if let Some(id) = id {
                        world.cancel(id, extra % 2 == 0);
                    }
                }
                _ => world.complete(),
            }
        }
        world.finish();
    }
}
