//! Properties of every schedule of sequences: a million random operations compared with a naive model.
//!
//! Each slot keeps a state, as an accumulator would: the last request that ran there. So the next run detects a state
//! that moved to another sequence, and a request that was overtaken or left out.
//!
//! The naive model knows the rules of acceptance, slots, idle time, timeouts and null rows, and predicts every step.
//! Each cancellation is reported to it at once. In half of the worlds cancellations come without a call, and instances
//! come and go; these have no prediction.

use crate::common::{Random, Request};
use crate::naive::Naive;
use scheduler::sequence::{
    Config, Head, NextRun, Origin, RemovalReason, Run, SequenceError, SequenceId, SequenceScheduler, Strategy,
};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

#[derive(PartialEq, Eq, Clone, Copy, Debug)]
enum Stage {
    Waiting,
    Running,
    Over,
}

/// A request, as the test knows it.
struct Known {
    cancelled: Rc<Cell<bool>>,
    /// Episode: from a START to the next one under the same id.
    episode: usize,
    /// Position in the episode.
    ordinal: usize,
    /// Time from which it has to expire in the backlog.
    expires: Option<u64>,
    /// The model returned it, so it has no flags any more.
    again: bool,
    start: bool,
    end: bool,
    stage: Stage,
}

/// Numbers that instances may have.
const INSTANCES_MAX: u32 = 4;

struct World {
    scheduler: SequenceScheduler<Request>,
    naive: Option<Naive>,
    config: Config,
    oldest: bool,
    /// Instances that should exist.
    members: Vec<u32>,
    /// Instances that end once they are not used.
    draining: Vec<u32>,
    /// Instances that end once they are not busy.
    leaving: Vec<u32>,
    idle: Vec<u32>,
    now: u64,
    wake: Option<u64>,
    known: Vec<Known>,
    /// Requests of each episode.
    episodes: Vec<Vec<usize>>,
    /// The episode that requests under an id continue.
    current: BTreeMap<u64, usize>,
    waiting: BTreeSet<usize>,
    /// By instance and slot: episode and position of the request that ran last.
    states: BTreeMap<(u32, u32), (usize, usize)>,
    /// The same for state kept in memory: a request takes it when it is handed out, and it ends with its sequence.
    kept: BTreeSet<(u32, u32)>,
    /// Origins of the requests of each instance.
    running: Vec<Vec<(Request, Origin)>>,
    /// Requests whose execution is over, but which are not.
    late: Vec<(Request, Origin)>,
    seen: Seen,
}

/// Counts of events in a simulation, so that it cannot pass by doing nothing.
#[derive(Default, Clone, Copy, Debug)]
struct Seen {
    runs: usize,
    rows: usize,
    nulls: usize,
    refused: usize,
    full: usize,
    conflicts: usize,
    waited: usize,
    cancelled: usize,
    expired: usize,
    again: usize,
    drained: usize,
}

impl World {
    fn new(config: Config, exact: bool) -> Self {
        let mut scheduler = SequenceScheduler::new(config.clone());
        scheduler.watch_forgotten();
        Self {
            scheduler,
            naive: exact.then(|| Naive::new(config.clone())),
            oldest: matches!(config.strategy, Strategy::Oldest { .. }),
            members: (0..config.instances).collect(),
            draining: vec![],
            leaving: vec![],
            idle: (0..config.instances).collect(),
            running: (0..INSTANCES_MAX).map(|_| vec![]).collect(),
            config,
            now: 0,
            wake: None,
            known: vec![],
            episodes: vec![],
            current: BTreeMap::new(),
            waiting: BTreeSet::new(),
            states: BTreeMap::new(),
            kept: BTreeSet::new(),
            late: vec![],
            seen: Seen::default(),
        }
    }

    fn push(&mut self, id: u64, start: bool, end: bool, timeout_us: u64, shape: u64) {
        let number = self.known.len();
        let cancelled = Rc::default();
        let request =
            Request { id: number, rows: 1, shape, cancelled: Rc::clone(&cancelled), undecided: Rc::default() };
        let head = Head { id: SequenceId::Number(id), start, end, timeout_us };
        let expires = (timeout_us != 0).then(|| self.now + timeout_us * 1000);
        let was_alive = self.scheduler.alive();
        let got = self.scheduler.push(self.now, head.clone(), request).map_err(|(why, back)| {
            assert_eq!(back.id, number, "the request itself comes back");
            why
        });
        if let Some(naive) = &mut self.naive {
            assert_eq!(got, naive.push(self.now, &head, number, shape), "request {number} of {id}");
        }
        let start = start || id == 0;
        let mut known =
            Known { cancelled, episode: 0, ordinal: 0, expires, again: false, start, end, stage: Stage::Over };
        match got {
            Err(why) => {
                self.seen.refused += 1;
                self.seen.full += usize::from(matches!(why, SequenceError::TooMany { .. }));
                assert!(matches!(why, SequenceError::NotStarted(_)) != start, "{why:?}");
            }
            Ok(accepted) => {
                self.seen.conflicts += usize::from(accepted.conflict);
                self.seen.waited += usize::from(self.scheduler.backlog() > 0);
                let opened = self.scheduler.alive() > was_alive;
                assert!(!opened || self.scheduler.alive() <= self.config.sequences_max as usize, "one too many");
                known.stage = Stage::Waiting;
                if start {
                    known.episode = self.episodes.len();
                    self.episodes.push(vec![]);
                    if id != 0 {
                        self.current.insert(id, known.episode);
                    }
                } else {
                    known.episode = *self.current.get(&id).expect("it was started");
                }
                known.ordinal = self.episodes[known.episode].len();
                self.episodes[known.episode].push(number);
                self.waiting.insert(number);
            }
        }
        self.known.push(known);
        self.look();
    }

    fn cancel(&mut self, number: usize, tell: bool) {
        self.known[number].cancelled.set(true);
        if tell {
            let mut removed = vec![];
            self.scheduler.remove_cancelled(self.now, &mut removed);
            if let Some(naive) = &mut self.naive {
                naive.cancelled(self.now, number);
            }
            self.take_removed(removed);
            let left = self.waiting.iter().find(|&&n| self.known[n].cancelled.get());
            assert!(left.is_none(), "the cancelled request {left:?} is left");
        }
        self.look();
    }

    fn take_removed(&mut self, removed: Vec<(RemovalReason, Request)>) {
        for (why, request) in removed {
            let known = &mut self.known[request.id];
            assert_eq!(std::mem::replace(&mut known.stage, Stage::Over), Stage::Waiting, "request {}", request.id);
            let (episode, ordinal) = (known.episode, known.ordinal);
            self.waiting.remove(&request.id);
            let all = &self.episodes[episode];
            match why {
                RemovalReason::Cancelled => {
                    self.seen.cancelled += 1;
                    assert!(all.iter().any(|&n| self.known[n].cancelled.get()), "nobody gave {} up", request.id);
                }
                RemovalReason::Expired => {
                    self.seen.expired += 1;
                    assert!(!self.states.values().any(|&(e, _)| e == episode), "it had begun");
                    // It expires with the first request in the backlog with it, perhaps of an earlier START.
                    let late = self.known.iter().rev().take(200).any(|k| k.expires.is_some_and(|t| t <= self.now));
                    assert!(late, "nobody's time is over");
                }
            }
            // No later request of its sequence may be accepted or run.
            for &later in &all[ordinal..] {
                assert_ne!(self.known[later].stage, Stage::Running, "{later} runs without {}", request.id);
            }
            if let Some(naive) = &mut self.naive {
                naive.removed(request.id, why);
            }
        }
    }

    fn look(&mut self) {
        if let Some(naive) = &mut self.naive {
            naive.tick(self.now);
        }
        loop {
            let mut removed = vec![];
            let step = self.scheduler.step(self.now, &self.idle, &mut removed);
            self.forget();
            self.take_removed(removed);
            match step {
                NextRun::Run(run) => self.run(run),
                NextRun::SleepUntil(at) => {
                    assert!(at > self.now, "would spin");
                    self.wake = Some(at);
                    break;
                }
                NextRun::Idle => {
                    self.wake = None;
                    break;
                }
            }
        }
        self.let_go();
        assert_eq!(self.scheduler.len(), self.waiting.len(), "len");
        if let Some(naive) = &mut self.naive {
            naive.nothing_to_do(self.now, &self.idle);
            assert_eq!(
                (self.scheduler.alive(), self.scheduler.backlog(), self.scheduler.len()),
                (naive.alive(), naive.backlog(), naive.len()),
                "alive, backlog, len"
            );
            let next = naive.next_time();
            assert!(
                next.is_none_or(|t| self.wake.is_some_and(|w| w <= t)),
                "at {} look at {next:?}, not {:?}",
                self.now,
                self.wake
            );
        }
    }

    /// Drops the state of forgotten sequences.
    fn forget(&mut self) {
        for slot in self.scheduler.forgotten() {
            self.kept.remove(&(slot.instance, slot.slot));
        }
    }

    fn run(&mut self, run: Run<Request>) {
        self.seen.runs += 1;
        assert!(self.idle.contains(&run.instance), "run on a busy instance");
        self.idle.retain(|i| *i != run.instance);
        assert!(run.rows.iter().any(|r| r.request.is_some()), "an empty batch");
        assert!(run.rows.len() <= self.config.max_batch_size.max(1) as usize, "too many rows");
        if let Some(naive) = &mut self.naive {
            let rows: Vec<_> = run.rows.iter().map(|r| (r.slot, r.request.as_ref().map(|r| r.item.id))).collect();
            naive.ran(self.now, run.instance, &rows);
        }
        let mut shape = None;
        for (at, row) in run.rows.into_iter().enumerate() {
            assert!(self.oldest || row.slot as usize == at, "direct: row i is slot i");
            let Some(request) = row.request else {
                assert!(!self.oldest, "oldest: no null rows");
                self.seen.nulls += 1;
                continue;
            };
            self.seen.rows += 1;
            let number = request.item.id;
            let slot = (run.instance, row.slot);
            assert_eq!(*shape.get_or_insert(request.item.shape), request.item.shape, "shapes mixed");
            assert_eq!((request.origin.slot().instance, request.origin.slot().slot), slot);
            let known = &mut self.known[number];
            assert_eq!(std::mem::replace(&mut known.stage, Stage::Running), Stage::Waiting, "request {number}");
            assert!(!known.cancelled.get(), "{number} was given up");
            assert_eq!((request.start, request.end), (known.start && !known.again, known.end && !known.again), "flags");
            self.waiting.remove(&number);
            let here = (known.episode, known.ordinal);
            // State of the slot: fresh, or left by the previous request, or by this one if it was returned.
            if request.start {
                assert_eq!(here.1, 0);
            } else {
                let before = self.states.get(&slot).copied().expect("a state");
                let expected = if known.again { here } else { (here.0, here.1.wrapping_sub(1)) };
                assert_eq!(before, expected, "the state of slot {slot:?} is another one's");
                assert!(self.kept.contains(&slot), "the state of slot {slot:?} was given back too early");
            }
            self.kept.insert(slot);
            self.states.insert(slot, here);
            if self.oldest {
                let inside = self.running.iter().flatten().chain(&self.late);
                assert!(inside.into_iter().all(|(_, o)| o.slot() != request.origin.slot()), "two of a slot inside");
            }
            self.running[run.instance as usize].push((request.item, request.origin));
        }
    }

    /// Frees the instance. Some of its requests are over, some return, some are over later.
    fn finish(&mut self, instance: u32, random: &mut Random) {
        let is_there = [&self.members, &self.draining, &self.leaving].iter().any(|all| all.contains(&instance));
        if self.idle.contains(&instance) || !is_there {
            return;
        }
        for (request, origin) in std::mem::take(&mut self.running[instance as usize]) {
            if random.one_in(6) {
                self.late.push((request, origin));
            } else {
                self.end(request, origin, random);
            }
        }
        if self.leaving.contains(&instance) {
            self.leaving.retain(|leaving| *leaving != instance);
        } else {
            self.idle.push(instance);
            self.idle.sort_unstable();
        }
        self.look();
    }

    /// Adds or removes an instance.
    fn resize(&mut self, instance: u32) {
        if self.members.contains(&instance) {
            if self.members.len() > 1 {
                self.members.retain(|member| *member != instance);
                self.scheduler.retire(instance);
                self.draining.push(instance);
            }
        } else if !self.leaving.contains(&instance) {
            self.scheduler.add(self.now, instance);
            self.members.push(instance);
            // An instance that was about to end stays.
            if self.draining.contains(&instance) {
                self.draining.retain(|draining| *draining != instance);
            } else {
                self.idle.push(instance);
                self.idle.sort_unstable();
            }
        }
        self.look();
    }

    fn let_go(&mut self) {
        for instance in std::mem::take(&mut self.draining) {
            if self.scheduler.is_used(instance) {
                self.seen.drained += 1;
                self.draining.push(instance);
                continue;
            }
            self.scheduler.remove(instance);
            if self.idle.contains(&instance) {
                self.idle.retain(|idle| *idle != instance);
            } else {
                self.leaving.push(instance);
            }
        }
    }

    fn end_late(&mut self, random: &mut Random) {
        if !self.late.is_empty() {
            let at = random.below(self.late.len() as u64) as usize;
            let (request, origin) = self.late.swap_remove(at);
            self.end(request, origin, random);
            self.look();
        }
    }

    fn end(&mut self, request: Request, origin: Origin, random: &mut Random) {
        let number = request.id;
        let slot = (origin.slot().instance, origin.slot().slot);
        let known = &mut self.known[number];
        assert_eq!(known.stage, Stage::Running);
        // Cancellations are reported to the naive model at once, except of running requests.
        let returns = self.config.iterative && random.one_in(3) && !(self.naive.is_some() && known.cancelled.get());
        if returns {
            self.seen.again += 1;
            known.again = true;
            known.stage = Stage::Waiting;
            self.waiting.insert(number);
            assert!(self.scheduler.again(self.now, origin, request).is_ok());
        } else {
            known.stage = Stage::Over;
            // State is dropped with the request that ends a sequence, unless it is another one's by now.
            let ends = known.end && !known.again;
            if ends && self.states.get(&slot) == Some(&(known.episode, known.ordinal)) {
                self.kept.remove(&slot);
            }
            self.scheduler.released(self.now, origin);
        }
        if let Some(naive) = &mut self.naive {
            naive.ended(self.now, slot, number, returns);
        }
    }

    /// Advances the time, with a step at each wake-up time.
    fn advance(&mut self, to: u64) {
        while let Some(wake) = self.wake.filter(|&w| w <= to) {
            self.now = wake;
            self.look();
        }
        self.now = to;
    }

    /// Ends everything and checks that all slots are free.
    fn close(mut self, random: &mut Random) -> Seen {
        let mut rounds = 0;
        let is_busy =
            |world: &Self| world.idle.len() != world.members.len() || world.draining.len() + world.leaving.len() > 0;
        while self.scheduler.alive() > 0 || is_busy(&self) || !self.late.is_empty() {
            rounds += 1;
            assert!(rounds < 10_000, "{} sequences never end", self.scheduler.alive());
            (0..INSTANCES_MAX).for_each(|i| self.finish(i, random));
            self.end_late(random);
            self.advance(self.now + 1_000_000);
        }
        assert!(self.waiting.is_empty() && self.scheduler.is_empty() && self.scheduler.backlog() == 0);
        assert!(self.known.iter().all(|k| k.stage == Stage::Over), "a request is lost");
        self.forget();
        assert_eq!(self.kept, BTreeSet::new(), "states are kept of sequences that are over");
        let slots = (self.config.slots_per_instance() * self.members.len() as u32).min(self.config.sequences_max);
        (0..slots).for_each(|n| self.push(1000 + u64::from(n), true, false, 0, 0));
        assert_eq!((self.scheduler.alive(), self.scheduler.backlog()), (slots as usize, 0), "a slot is lost");
        let mut left = vec![];
        self.scheduler.drain(&mut left);
        assert_eq!(left.len(), self.waiting.len());
        assert!(left.iter().all(|r| self.waiting.contains(&r.id)));
        self.seen
    }
}

fn random_config(random: &mut Random) -> Config {
    let max_queue_delay_us = random.of(&[0, 0, 50]);
    let strategy = if random.one_in(2) {
        Strategy::Direct { max_queue_delay_us, minimum_slot_utilization: random.of(&[0.0, 0.5, 1.0]) }
    } else {
        let preferred = random.of(&[vec![], vec![2]]);
        Strategy::Oldest { max_candidate_sequences: random.below(5) as u32, preferred, max_queue_delay_us }
    };
    Config {
        max_batch_size: random.below(5) as u32,
        instances: 1 + random.below(3) as u32,
        strategy,
        idle_us: random.of(&[20, 100, 1000]),
        iterative: random.one_in(3),
        sequences_max: random.of(&[3, 8, 1000]),
        strict_delay: random.one_in(3),
        delay_scheduler: 0,
        backlog_delay_scheduler: 0,
    }
}

fn simulate(seed: u64, operations: u32) -> Seen {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    (0..8).for_each(|_| _ = random.below(2));
    let exact = seed.is_multiple_of(2);
    let mut world = World::new(random_config(&mut random), exact);
    let (ids, gap, busy) = (2 + random.below(12), 1 + random.below(20_000), 1 + random.below(4));
    for _ in 0..operations {
        let pause = if random.one_in(4) { 0 } else { random.below(gap) };
        world.advance(world.now + pause);
        if !exact && random.one_in(20) {
            world.resize(random.below(u64::from(INSTANCES_MAX)) as u32);
        }
        match random.below(7 + busy) {
            0..=4 if world.waiting.len() < 60 => {
                let id = if world.config.iterative && random.one_in(3) { 0 } else { 1 + random.below(ids) };
                let timeout_us = if random.one_in(6) { 1 + random.below(100) } else { 0 };
                let shape = u64::from(random.one_in(8));
                world.push(id, random.one_in(3), random.one_in(4), timeout_us, shape);
            }
            5 if random.one_in(3) => {
                let number = world.waiting.iter().nth(random.below(60) as usize).copied();
                if let Some(number) = number {
                    world.cancel(number, exact || random.one_in(2));
                }
            }
            5 => world.end_late(&mut random),
            _ => {
                let numbers = if exact { world.config.instances } else { INSTANCES_MAX };
                let instance = random.below(u64::from(numbers)) as u32;
                world.finish(instance, &mut random);
            }
        }
    }
    world.close(&mut random)
}

#[test]
fn a_million_operations_lose_no_state_request_or_slot() {
    let mut all = Seen::default();
    for seed in 0..500 {
        // The seed is enough to replay a failure.
        let seen = std::panic::catch_unwind(|| simulate(seed, 2000)).unwrap_or_else(|_| panic!("seed {seed}"));
        all.runs += seen.runs;
        all.rows += seen.rows;
        all.nulls += seen.nulls;
        all.refused += seen.refused;
        all.full += seen.full;
        all.conflicts += seen.conflicts;
        all.waited += seen.waited;
        all.cancelled += seen.cancelled;
        all.expired += seen.expired;
        all.again += seen.again;
        all.drained += seen.drained;
    }
    let least = [
        all.runs,
        all.rows,
        all.nulls,
        all.refused,
        all.full,
        all.conflicts,
        all.waited,
        all.cancelled,
        all.expired,
        all.again,
        all.drained,
    ];
    assert!(least.iter().all(|&n| n > 1000), "the simulation does not exercise much: {all:?}");
}
