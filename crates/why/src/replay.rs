//! The requests of a history once more, through the real scheduler, with other settings.

use crate::Speed;
use crate::history::{History, speed};
use crate::load::Traffic;
use crate::ring::Arrived;
use crate::service::{Random, Service};
use scheduler::cores::{InUse, Plan};
use scheduler::profile::{FinishedRun, RunClass};
use scheduler::{Batch, Config, NextBatch, Scheduler, Waiting};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Cores that executions share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Threads of one execution that are ready to run, on average.
    pub each: f64,
    /// Cores that there are for all of them.
    pub cores: f64,
    /// Executions that ran at once when durations were measured.
    pub measured: f64,
    /// CPU time of a request outside of executions, in seconds.
    pub front: f64,
}

impl Share {
    /// Factor by which `runs` executions at once slow each other down, compared with the measurement.
    fn slower(&self, runs: u32) -> f64 {
        if self.each < EACH_MIN {
            return 1.0;
        }
        let of = |runs: f64| (runs * self.each / self.cores.max(0.01)).max(1.0);
        of(f64::from(runs)) / of(self.measured)
    }
}

/// Input of a replay.
pub struct Scene<'s> {
    /// Scheduling of the model.
    pub config: Config,
    /// Number of instances.
    pub instances: u32,
    /// Durations of its executions.
    pub service: &'s Service,
    /// How requests come.
    pub load: &'s Traffic,
    /// The requests.
    pub history: &'s History,
    /// Use of the cores.
    pub share: Share,
}

/// Executions that use less of a core wait for something else.
const EACH_MIN: f64 = 0.1;
/// Spread of what executions wait for cores, as a share of it.
const UNEVEN: f64 = 0.7;
/// Share of the cores that is left to executions, whatever the front end takes.
const LEFT_MIN: f64 = 0.25;
/// Requests of which a closed load is replayed at least: a history may be of seconds.
const REQUESTS_MIN: usize = 4000;
/// Share of the requests of a closed load before it is steady.
const WARM_UP: f64 = 0.1;
/// Executions of each size from which the scheduler has learned already.
const LEARNED: usize = 64;
/// First value of the random numbers.
const SEED: u64 = 88_172_645_463_325_252;

#[derive(Debug, Clone, Copy)]
struct ReplayedRequest {
    number: usize,
    request: Arrived,
}

impl Waiting for ReplayedRequest {
    fn rows(&self) -> u32 {
        u32::from(self.request.rows.max(1))
    }
    fn is_cancelled(&self) -> bool {
        false
    }
    fn fits_with(&self, first: &Self) -> bool {
        self.request.class == first.request.class || self.request.tokens > 0
    }
    fn class(&self) -> u64 {
        u64::from(self.request.class)
    }
    fn tokens(&self) -> u32 {
        u32::from(self.request.tokens)
    }
}

/// Kinds of events, in their order at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NextEvent {
    End(usize),
    Arrival,
    Wake,
}

struct ReplayedRun {
    batch: Batch<ReplayedRequest>,
    size: u32,
    ns: u64,
}

struct Replay<'s> {
    scene: &'s Scene<'s>,
    share: Share,
    scheduler: Scheduler<ReplayedRequest>,
    events: BinaryHeap<Reverse<(u64, NextEvent)>>,
    idle: u32,
    runs: Vec<Option<ReplayedRun>>,
    free: Vec<usize>,
    arrived: Vec<u64>,
    /// Time of the response and latency of each request that got one.
    answered: Vec<(u64, u64)>,
    random: Random,
    woken: u64,
}

impl Scene<'_> {
    /// Replays, and returns what clients would see. Always the same for the same scene.
    pub fn play(&self) -> Speed {
        let found = self.play_once(self.share);
        let front = self.share.front * found.rate;
        if self.share.each < EACH_MIN || front < 0.05 * self.share.cores {
            return found;
        }
        // The front end takes its part of the cores at that rate, which lowers the rate again.
        let left =
            |front: f64| Share { cores: (self.share.cores - front).max(LEFT_MIN * self.share.cores), ..self.share };
        let second = self.play_once(left(front));
        self.play_once(left(self.share.front * (found.rate + second.rate) / 2.0))
    }

    fn play_once(&self, share: Share) -> Speed {
        let mut config = self.config.clone();
        config.instances = self.instances;
        // A server that has served for long.
        config.delay_scheduler = 0;
        let mut replay = Replay {
            scene: self,
            share,
            scheduler: Scheduler::new(config),
            events: BinaryHeap::new(),
            idle: self.instances.max(1),
            runs: Vec::new(),
            free: Vec::new(),
            arrived: Vec::new(),
            answered: Vec::new(),
            random: Random(SEED),
            woken: u64::MAX,
        };
        replay.learn();
        replay.run();
        replay.speed()
    }

    fn sends(&self) -> usize {
        match self.load {
            Traffic::Open => self.history.requests.len(),
            Traffic::Closed { .. } => self.history.requests.len().max(REQUESTS_MIN),
        }
    }
}

impl Replay<'_> {
    fn learn(&mut self) {
        let class = self.scene.history.requests.first().map_or(0, |answered| answered.request.class);
        for (size, all) in self.scene.service.sizes() {
            for at in 0..LEARNED {
                self.observe(class, size, size, all[at % all.len()]);
            }
        }
    }

    fn observe(&mut self, class: u16, rows: u32, size: u32, duration_ns: u64) {
        let (class, tokens) = (u64::from(class), if self.scene.config.tokens_max.is_some() { size } else { 0 });
        let kind = RunClass::new(class, rows, 0);
        let ran = FinishedRun { class, kind, rows, tokens: tokens.into(), duration_ns, plan: Plan::None };
        self.scheduler.profile_mut().observe(&ran);
    }

    fn run(&mut self) {
        let requests = &self.scene.history.requests;
        let Some(first) = requests.first() else { return };
        let begin = first.request.arrived;
        match self.scene.load {
            Traffic::Open => {
                let arrivals =
                    requests.iter().map(|answered| Reverse((answered.request.arrived - begin, NextEvent::Arrival)));
                self.events = arrivals.collect();
            }
            Traffic::Closed { clients, .. } => {
                (0..*clients as u64).for_each(|client| self.events.push(Reverse((client, NextEvent::Arrival))));
            }
        }
        while let Some(Reverse((now, event))) = self.events.pop() {
            match event {
                NextEvent::Arrival => self.arrive(now),
                NextEvent::End(run) => self.end(run, now),
                NextEvent::Wake => self.woken = u64::MAX,
            }
            self.pump(now);
        }
    }

    fn arrive(&mut self, now: u64) {
        let number = self.arrived.len();
        let requests = &self.scene.history.requests;
        if number >= self.scene.sends() {
            return;
        }
        let request = requests[number % requests.len()].request;
        self.arrived.push(now);
        let pushed = self.scheduler.push(now, request.priority.into(), 0, ReplayedRequest { number, request });
        if pushed.is_err() {
            self.send_next(now);
        }
    }

    /// Lets the client whose request is over send the next one.
    fn send_next(&mut self, now: u64) {
        if let Traffic::Closed { pauses, .. } = self.scene.load {
            let pause = pauses.get(self.random.below(pauses.len())).copied().unwrap_or(0);
            // A queue that rejects everything would never get anywhere else.
            self.events.push(Reverse((now + pause.max(1), NextEvent::Arrival)));
        }
    }

    fn pump(&mut self, now: u64) {
        let mut dropped = Vec::new();
        loop {
            if self.scheduler.shares_cores() {
                let requests = self.runs.iter().flatten().map(|run| run.batch.len() as u32).sum();
                self.scheduler.set_in_use(InUse { requests, others: 0 });
            }
            match self.scheduler.step(now, self.idle, &mut dropped) {
                NextBatch::Run { batch, .. } => self.begin(batch, now),
                NextBatch::SleepUntil(at) => {
                    if at < self.woken {
                        self.woken = at;
                        self.events.push(Reverse((at, NextEvent::Wake)));
                    }
                    break;
                }
                NextBatch::Idle => break,
            }
        }
        dropped.iter().for_each(|_| self.send_next(now));
    }

    fn begin(&mut self, batch: Batch<ReplayedRequest>, now: u64) {
        self.idle -= 1;
        let rows = batch.iter().map(Waiting::rows).sum();
        let longest = batch.iter().map(Waiting::tokens).max().unwrap_or(0);
        let size = if longest > 0 { longest * batch.len() as u32 } else { rows };
        let running = self.scene.instances.max(1) - self.idle;
        let drawn = self.scene.service.draw(size, &mut self.random) as f64;
        let slower = self.share.slower(running);
        // The cores are not divided evenly: a run that comes at a bad moment waits for whole slices of others.
        let uneven = if slower > 1.0 { (slower - 1.0) * (self.random.below(1000) as f64 / 500.0 - 1.0) } else { 0.0 };
        let ns = (drawn * (slower + UNEVEN * uneven)).max(1.0) as u64;
        let run = self.free.pop().unwrap_or(self.runs.len());
        if run == self.runs.len() {
            self.runs.push(None);
        }
        self.runs[run] = Some(ReplayedRun { batch, size, ns });
        self.events.push(Reverse((now + ns, NextEvent::End(run))));
    }

    fn end(&mut self, run: usize, now: u64) {
        let Some(ReplayedRun { batch, size, ns }) = self.runs.get_mut(run).and_then(Option::take) else { return };
        self.free.push(run);
        self.idle += 1;
        let rows = batch.iter().map(Waiting::rows).sum();
        self.observe(batch.first().map_or(0, |sent| sent.request.class), rows, size, ns);
        for sent in batch {
            let arrived = self.arrived.get(sent.number).copied().unwrap_or(now);
            self.answered.push((now, now - arrived));
            self.send_next(now);
        }
    }

    fn speed(self) -> Speed {
        let skip = match self.scene.load {
            Traffic::Open => 0,
            Traffic::Closed { .. } => (self.answered.len() as f64 * WARM_UP) as usize,
        };
        let steady = self.answered.get(skip..).unwrap_or_default();
        let begin = match skip.checked_sub(1) {
            Some(last) => self.answered.get(last).map_or(0, |answered| answered.0),
            None => self.arrived.first().copied().unwrap_or(0),
        };
        let seconds = steady.last().map_or(0, |last| last.0 - begin) as f64 / 1e9;
        speed(steady.iter().map(|answered| (answered.1, 1)).collect(), steady.len() as f64 / seconds.max(1e-6))
    }
}
