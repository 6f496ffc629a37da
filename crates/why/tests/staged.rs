//! Six staged faults and three healthy servers, in a simulated world whose truth is known: the first advice names the
//! fault, and the world with that change is as fast as predicted.

use scheduler::{Batch, Config, Dynamic, NextBatch, Scheduler, Waiting};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use why::{Advice, Arrived, Cores, Findings, History, Ring, Setup, Speed, Traffic, Usage, report};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Splitmix, another generator than that of the replay.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> u64 {
        (-mean * (1.0 - self.next()).ln()) as u64
    }
}

#[derive(Clone, Copy)]
enum Clients {
    /// Requests per second.
    Open(f64),
    /// Clients, and their mean pause in ns.
    Closed(u64, u64),
}

/// A server, as it really is.
#[derive(Clone)]
struct World {
    traffic: Clients,
    instances: u32,
    config: Config,
    /// Fixed cost, and cost of a row, of one execution alone with all threads on free cores, in ns.
    fixed: u64,
    per_row: u64,
    /// Relative spread of durations.
    spread: f64,
    /// Share of executions that hang, and for how long.
    hangs: (f64, u64),
    /// Cores that an execution keeps busy; 0 for one that waits for something else.
    threads: u32,
    cores: f64,
    /// Cores that other processes want.
    hog: f64,
    seconds: u64,
}

struct Sent {
    arrived: u64,
}

impl Waiting for Sent {
    fn rows(&self) -> u32 {
        1
    }
    fn is_cancelled(&self) -> bool {
        false
    }
    fn fits_with(&self, _: &Self) -> bool {
        true
    }
    fn class(&self) -> u64 {
        7
    }
}

struct Seen {
    history: History,
    speed: Speed,
    usage: Vec<Usage>,
    fastest: [u64; 16],
}

impl World {
    /// Duration of an execution, and the parts of it on a core and waiting for one, per thread.
    fn duration(&self, rows: u32, running: u32, dice: &mut Dice) -> (u64, u64, u64) {
        let alone = (self.fixed + self.per_row * u64::from(rows)) as f64 * (1.0 + self.spread * (dice.next() - 0.5));
        let hang = if dice.next() < self.hangs.0 { self.hangs.1 } else { 0 };
        if self.threads == 0 {
            return (alone as u64 + hang, 0, 0);
        }
        // Threads take a share of the cores, and wait at barriers for those that have none.
        let threads = f64::from(self.threads);
        let speedup = |threads: f64| 1.0 + 0.8 * (threads.min(self.cores) - 1.0);
        let wanted = f64::from(running) * threads + self.hog;
        let slower = (wanted / self.cores).max(1.0);
        let barriers = if slower > 1.0 && self.threads > 1 { 1.5 } else { 1.0 };
        let work = alone * speedup(self.cores) / speedup(threads);
        let took = work * slower * barriers;
        (took as u64 + hang, (took / slower) as u64, (took - took / slower) as u64)
    }

    fn run(&self, seed: u64) -> Seen {
        let mut dice = Dice(seed);
        let mut ring = Ring::new(Default::default());
        let mut scheduler = Scheduler::new(Config { instances: self.instances, ..self.config.clone() });
        let mut idle: Vec<u32> = (0..self.instances).rev().collect();
        // Events: 0 = an arrival, 1 = the timer, 2 + n = the end of a batch.
        let mut events = BinaryHeap::<Reverse<(u64, usize)>>::new();
        let mut batches: Vec<Option<(Batch<Sent>, u32, u64)>> = Vec::new();
        let begin = 10 * S;
        let end = begin + self.seconds * S;
        match self.traffic {
            Clients::Open(_) => events.push(Reverse((begin, 0))),
            Clients::Closed(clients, _) => (0..clients).for_each(|i| events.push(Reverse((begin + i, 0)))),
        }
        let (mut cpu, mut delay, mut busy, mut latencies) = (0u64, 0u64, 0u64, Vec::new());
        let (mut last, mut first) = (begin, begin);
        while let Some(Reverse((now, event))) = events.pop() {
            match event {
                0 => {
                    if now < end {
                        scheduler.push(now, 0, 0, Sent { arrived: now }).ok().expect("no limit");
                    }
                    if let (Clients::Open(rate), true) = (self.traffic, now < end) {
                        events.push(Reverse((now + dice.exponential(1e9 / rate).max(1), 0)));
                    }
                }
                1 => {}
                n => {
                    let (batch, instance, ns) = batches[n - 2].take().expect("ends once");
                    ring.ended(instance, batch.len() as u32, now, ns);
                    scheduler.observe(7, batch.len() as u32, ns);
                    idle.push(instance);
                    for sent in batch {
                        if sent.arrived > begin + self.seconds * S / 10 {
                            latencies.push(now - sent.arrived);
                            last = now;
                        } else {
                            first = now;
                        }
                        if let Clients::Closed(_, pause) = self.traffic {
                            events.push(Reverse((now + 20_000 + dice.exponential(pause as f64), 0)));
                        }
                    }
                }
            }
            loop {
                match scheduler.step(now, idle.len() as u32, &mut Vec::new()) {
                    NextBatch::Run { batch, why } => {
                        let instance = idle.pop().expect("idle");
                        let seen =
                            |sent: &Sent| Arrived { arrived: sent.arrived, rows: 1, class: 7, ..Default::default() };
                        ring.began(now, why, batch.iter().map(seen));
                        ring.on(instance);
                        let running = self.instances - idle.len() as u32;
                        let (ns, on, off) = self.duration(batch.len() as u32, running, &mut dice);
                        busy += ns;
                        cpu += on * u64::from(self.threads);
                        delay += off * u64::from(self.threads);
                        batches.push(Some((batch, instance, ns)));
                        events.push(Reverse((now + ns, batches.len() + 1)));
                    }
                    NextBatch::SleepUntil(at) => {
                        events.push(Reverse((at, 1)));
                        break;
                    }
                    NextBatch::Idle => break,
                }
            }
        }
        latencies.sort_unstable();
        let us = |share: f64| latencies[(latencies.len() as f64 * share) as usize] as f64 / 1e3;
        let rate = latencies.len() as f64 / ((last - first) as f64 / 1e9);
        let seconds = (last - begin) as f64 / 1e9;
        let usage = vec![
            Usage { at: begin, ..Usage::default() },
            Usage {
                at: last,
                cpu_ns: cpu,
                busy_ns: busy,
                delay_ns: delay,
                own_ns: cpu,
                machine_ns: cpu
                    + ((self.cores - cpu as f64 / 1e9 / seconds).max(0.0).min(self.hog) * seconds * 1e9) as u64,
                throttled_ns: 0,
            },
        ];
        let history = History::new(&ring.snapshot(), 0, last);
        Seen { history, speed: Speed { rate, p50_us: us(0.5), p99_us: us(0.99) }, usage, fastest: ring.fastest() }
    }

    fn setup(&self, seen: &Seen, seed: u64) -> Setup {
        let mut fastest = seen.fastest;
        if self.threads > 0 && self.hog == 0.0 {
            // The first request came alone.
            fastest[0] = self.duration(1, 1, &mut Dice(seed)).0;
        }
        Setup {
            config: self.config.clone(),
            instances: self.instances,
            is_replayed: true,
            threads: Some(self.threads).filter(|threads| *threads > 0),
            fastest,
            learned: None,
            usage: seen.usage.clone(),
            allowed: self.cores,
            cores: self.cores,
        }
    }

    fn explain(&self, seed: u64) -> (Findings, Speed) {
        let seen = self.run(seed);
        (report(&seen.history, &self.setup(&seen, seed), None), seen.speed)
    }
}

fn config(max_batch_size: u32, dynamic: Option<Dynamic>) -> Config {
    Config {
        max_batch_size,
        dynamic,
        instances: 1,
        strict_delay: false,
        delay_scheduler: 0,
        tokens_max: None,
        cores: None,
    }
}

fn world(traffic: Clients) -> World {
    World {
        traffic,
        instances: 1,
        config: config(0, None),
        fixed: 10 * MS,
        per_row: 0,
        spread: 0.2,
        hangs: (0.0, 0),
        threads: 0,
        cores: 4.0,
        hog: 0.0,
        seconds: 30,
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Checks the first advice and its prediction for several seeds.
fn check(what: &str, world: &World, change: &str, apply: impl Fn(&mut World, &Advice)) {
    for seed in 1..=8 {
        let (report, measured) = world.explain(seed);
        let names: Vec<_> = report.advice.iter().map(|a| (a.change, a.from, a.to, a.expected)).collect();
        let first = report
            .advice
            .first()
            .unwrap_or_else(|| panic!("{what}, seed {seed}: no advice; {measured:?} {:?}", report.cores));
        assert_eq!(first.change, change, "{what}, seed {seed}: {measured:?}, {names:?}, {:?}", report.cores);
        let mut changed = world.clone();
        apply(&mut changed, first);
        let after: Vec<Speed> = (0..5).map(|run| changed.run(1000 * seed + run).speed).collect();
        let rate = median(after.iter().map(|speed| speed.rate).collect());
        let p99 = median(after.iter().map(|speed| speed.p99_us).collect());
        let near = |predicted: f64, truth: f64| (predicted / truth - 1.0).abs() < 0.25;
        assert!(
            near(first.expected.rate, rate) && near(first.expected.p99_us, p99),
            "{what}, seed {seed}: {measured:?}, predicted {:?} to {:?}, and it was {rate:.0}/s, p99 {p99:.0} µs",
            first.from,
            (first.to, first.expected),
        );
    }
}

#[test]
fn one_instance_too_few() {
    for traffic in [Clients::Open(92.0), Clients::Open(150.0), Clients::Closed(2, 0), Clients::Closed(8, 5 * MS)] {
        check("instances", &world(traffic), "instances", |world, advice| world.instances = advice.to.unwrap() as u32);
    }
}

#[test]
fn queue_delay_too_long() {
    for (traffic, strict_delay) in
        [(Clients::Open(60.0), true), (Clients::Closed(3, 0), true), (Clients::Open(20.0), true)]
    {
        let dynamic = Dynamic { max_queue_delay_us: 80_000, ..Dynamic::default() };
        let config = Config { strict_delay, ..config(16, Some(dynamic)) };
        let world = World { config, fixed: 4 * MS, per_row: MS / 4, ..world(traffic) };
        check("delay", &world, "delay", |world, advice| {
            world.config.dynamic.as_mut().unwrap().max_queue_delay_us = advice.to.unwrap();
        });
    }
}

#[test]
fn batch_too_small() {
    // Its one core is busy, so that further instances gain nothing.
    for traffic in [Clients::Open(230.0), Clients::Closed(16, 10 * MS)] {
        let config = config(2, Some(Dynamic::default()));
        let world = World { config, fixed: 8 * MS, per_row: MS / 2, threads: 1, cores: 1.0, ..world(traffic) };
        check("batch", &world, "batch size", |world, advice| {
            world.config.max_batch_size = advice.to.unwrap() as u32;
        });
    }
}

#[test]
fn threads_that_fight() {
    for traffic in [Clients::Closed(4, 0), Clients::Closed(8, MS)] {
        let world = World { instances: 4, threads: 4, fixed: 3 * MS, ..world(traffic) };
        check("threads", &world, "threads", |world, advice| world.threads = advice.to.unwrap() as u32);
    }
}

#[test]
fn cores_that_another_model_uses_say_nothing_about_this_one() {
    let world = World { instances: 4, threads: 4, fixed: 3 * MS, ..world(Clients::Closed(4, 0)) };
    let seen = world.run(1);
    let mut setup = world.setup(&seen, 1);
    setup.usage.last_mut().expect("two readings").busy_ns *= 3;
    let changes: Vec<_> = report(&seen.history, &setup, None).advice.iter().map(|advice| advice.change).collect();
    assert!(!changes.contains(&"threads"), "{changes:?}");
}

#[test]
fn threads_without_bound_are_advised_fewer() {
    let world = World { instances: 4, threads: 4, fixed: 3 * MS, ..world(Clients::Closed(4, 0)) };
    let seen = world.run(1);
    let setup = Setup { threads: Some(u32::MAX), ..world.setup(&seen, 1) };
    let change = why::Change {
        instances: Some(u32::MAX),
        delay_us: Some(u64::MAX),
        max_batch_size: Some(u32::MAX),
        threads: Some(u32::MAX),
    };
    let report = report(&seen.history, &setup, Some(&change));
    assert!(report.simulated.is_some());
    let threads = report.advice.iter().find(|advice| advice.change == "threads").expect("they fight");
    assert!(threads.text.contains("4 instances of 4294967295 threads need 17179869180 cores"), "{}", threads.text);
}

#[test]
fn a_hog_beside_it() {
    for traffic in [Clients::Closed(2, 0), Clients::Open(70.0)] {
        let world =
            World { instances: 2, threads: 1, cores: 2.0, hog: 2.0, fixed: 10 * MS, seconds: 120, ..world(traffic) };
        check("hog", &world, "neighbour", |world, _| world.hog = 0.0);
    }
}

#[test]
fn a_quota_on_a_machine_that_others_use() {
    // Half a core of forty, on which others use most and the server waits only for its quota.
    let world = World { threads: 1, ..world(Clients::Closed(2, 0)) };
    let seen = world.run(1);
    let mut setup = Setup { allowed: 40.0, cores: 0.5, ..world.setup(&seen, 1) };
    let last = setup.usage.last_mut().expect("two readings");
    let ns = last.at - 10 * S;
    (last.cpu_ns, last.own_ns, last.delay_ns, last.throttled_ns) = (ns / 2, ns / 2, ns / 2, ns / 2);
    last.machine_ns = 30 * ns;
    let found = report(&seen.history, &setup, None);
    let all: Vec<_> = found.advice.iter().map(|advice| (advice.change, advice.expected.rate)).collect();
    assert_eq!(all[0].0, "cpu quota", "{all:?}, {:?}", found.cores);
    assert!((all[0].1 / found.advice[0].now.rate / 2.0 - 1.0).abs() < 0.25, "twice the rate: {all:?}");
    assert!(all.iter().all(|(change, _)| *change != "neighbour"), "{all:?}");
}

#[test]
fn a_model_that_sometimes_hangs() {
    for traffic in [Clients::Open(40.0), Clients::Closed(2, 10 * MS)] {
        let world = World { instances: 2, hangs: (0.02, 700 * MS), fixed: 5 * MS, ..world(traffic) };
        check("hang", &world, "hang", |world, _| world.hangs.0 = 0.0);
    }
}

#[test]
fn a_model_that_hangs_now() {
    let world = World { instances: 2, fixed: 5 * MS, ..world(Clients::Open(40.0)) };
    let seen = world.run(1);
    let setup = world.setup(&seen, 1);
    for (open_ns, hangs) in [(90 * MS, false), (900 * MS, false), (3 * S, true)] {
        let history = History { open_ns, ..seen.history.clone() };
        let advice = report(&history, &setup, None).advice;
        assert_eq!(advice.first().map(|advice| advice.change), hangs.then_some("hang"), "{open_ns}");
        let text = advice.first().map_or("", |advice| &advice.text);
        assert!(!hangs || text.contains("took up to 3.0 s, one of which still runs, and half"), "{text}");
    }
}

#[test]
fn healthy_servers_get_no_advice() {
    let busy = World { threads: 1, cores: 1.0, ..world(Clients::Closed(1, 0)) };
    let light = World { instances: 4, ..world(Clients::Open(60.0)) };
    let dynamic = config(32, Some(Dynamic::default()));
    let batches = World { config: dynamic, threads: 1, cores: 1.0, per_row: MS, ..world(Clients::Closed(8, 30 * MS)) };
    for (what, world) in [("busy", busy), ("light", light), ("batches", batches)] {
        for seed in 1..=8 {
            let (report, measured) = world.explain(seed);
            assert_eq!(report.advice, [], "{what}, seed {seed}: {measured:?}");
        }
    }
}

#[test]
fn the_kind_of_load_is_found() {
    for seed in 1..=8 {
        for (traffic, clients) in [
            (Clients::Open(60.0), 0),
            (Clients::Open(150.0), 0),
            (Clients::Closed(8, 0), 8),
            (Clients::Closed(16, 5 * MS), 16),
        ] {
            let (report, _) = world(traffic).explain(seed);
            match report.load {
                Traffic::Open => assert_eq!(clients, 0, "seed {seed}"),
                Traffic::Closed { clients: found, .. } => assert_eq!(found, clients, "seed {seed}"),
            }
        }
    }
}

#[test]
fn cores_are_divided_between_readings() {
    let before = Usage { at: S, cpu_ns: 5, ..Usage::default() };
    let after =
        Usage { at: 3 * S, cpu_ns: 5 + S, delay_ns: S, machine_ns: 4 * S, own_ns: S, busy_ns: S, throttled_ns: 0 };
    let cores = Cores::between(&before, &after, 2.0);
    assert_eq!((cores.used, cores.waiting, cores.others, cores.seconds), (0.5, 0.5, 1.5, 2.0));
}
