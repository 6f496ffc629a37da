//! Cost of the scheduler by the number of waiting requests: `cargo bench -p nereid-scheduler --bench step [-- TEXT]`.
//!
//! Requests that a step returns are pushed again, so the queue keeps its length. Requests are made beforehand, because
//! making and dropping them is not the scheduler's cost.

use criterion::{BenchmarkId, Criterion, Throughput};
use scheduler::{Config, Dynamic, NextBatch, Policy, Scheduler, Waiting};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const DEPTHS: [usize; 3] = [1, 32, 1024];
const MAX_BATCH_SIZE: u32 = 64;

/// Like the engine's: behind a count, and cancelled by another thread.
struct Request(Arc<AtomicBool>);

impl Waiting for Request {
    fn rows(&self) -> u32 {
        1
    }
    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
    fn fits_with(&self, _first: &Self) -> bool {
        true
    }
    fn class(&self) -> u64 {
        1
    }
}

fn config(dynamic: Option<Dynamic>) -> Config {
    Config {
        max_batch_size: MAX_BATCH_SIZE,
        dynamic,
        instances: 1,
        strict_delay: false,
        delay_scheduler: 0,
        tokens_max: None,
        cores: None,
    }
}

/// Three levels with timeouts that are not reached here.
fn levels() -> Dynamic {
    let default_policy = Policy { default_timeout_us: 1_000_000_000_000, max_queue_size: 1000, ..Policy::default() };
    Dynamic { priority_levels: 3, default_priority_level: 2, default_policy, ..Dynamic::default() }
}

fn delayed(max_queue_delay_us: u64) -> Dynamic {
    Dynamic { max_queue_delay_us, ..Dynamic::default() }
}

/// Duration of a batch, for which batching pays.
fn duration_ns(rows: u32) -> u64 {
    50_000 + 500 * u64::from(rows)
}

/// A scheduler that has learned costs, with `depth` requests of all priorities, one per 100 ns.
struct Filled {
    scheduler: Scheduler<Request>,
    now: u64,
    priority: u64,
    dropped: Vec<(scheduler::RemovalReason, Request)>,
}

impl Filled {
    fn new(config: Config, depth: usize) -> Self {
        let mut scheduler = Scheduler::new(config);
        // Enough executions for every size to be used.
        for rows in (1..=MAX_BATCH_SIZE).cycle().take(64 * MAX_BATCH_SIZE as usize) {
            scheduler.observe(1, rows, duration_ns(rows));
        }
        let mut filled = Self { scheduler, now: 0, priority: 0, dropped: Vec::new() };
        for _ in 0..depth {
            filled.push(Request(Arc::default()));
        }
        filled
    }

    fn push(&mut self, request: Request) {
        self.now += 100;
        self.priority = (self.priority + 1) % 4;
        assert!(self.scheduler.push(self.now, self.priority, 0, request).is_ok(), "a level is full");
    }

    fn step(&mut self, idle: u32) -> NextBatch<Request> {
        let step = self.scheduler.step(self.now, idle, &mut self.dropped);
        debug_assert!(self.dropped.is_empty());
        step
    }

    /// Steps, learns from what runs, and queues it again; returns the number of requests.
    fn turn(&mut self) -> usize {
        loop {
            match self.step(1) {
                NextBatch::Run { batch, .. } => {
                    let requests = batch.len();
                    self.scheduler.observe(1, requests as u32, duration_ns(requests as u32));
                    batch.into_iter().for_each(|r| self.push(r));
                    return requests;
                }
                NextBatch::SleepUntil(at) => self.now = at,
                NextBatch::Idle => panic!("an idle instance, and {} requests stay", self.scheduler.len()),
            }
        }
    }

    /// Repeats turns until the scheduler waits for more requests.
    fn until_it_waits(mut self) -> Self {
        for _ in 0..10_000 {
            match self.step(1) {
                NextBatch::SleepUntil(_) => return self,
                NextBatch::Run { batch, .. } => batch.into_iter().for_each(|r| self.push(r)),
                NextBatch::Idle => break,
            }
        }
        panic!("it never waits");
    }
}

/// An instance becomes idle: a step, learning, and the pushes that refill the queue. Time per request.
fn turn(c: &mut Criterion) {
    let strict = Config { strict_delay: true, ..config(Some(Dynamic::default())) };
    let kinds = [
        ("default scheduler", config(None)),
        ("dynamic", config(Some(Dynamic::default()))),
        ("dynamic with a delay of 0.5 ms", config(Some(delayed(500)))),
        ("dynamic with levels and time-outs", config(Some(levels()))),
        ("strict", strict),
    ];
    let mut group = c.benchmark_group("scheduler turn");
    for (name, config) in kinds {
        for depth in DEPTHS {
            let mut filled = Filled::new(config.clone(), depth);
            let rows = if config.dynamic.is_some() { depth.min(MAX_BATCH_SIZE as usize) } else { 1 };
            // Waits and other sizes are tried mostly at first, before the measurement.
            let usual = (0..4096).filter(|_| filled.turn() == rows).count();
            assert!(usual > 3800, "{name} with {depth} queued: {usual} of 4096 batches had {rows} rows");
            group.throughput(Throughput::Elements(rows as u64));
            group.bench_function(BenchmarkId::new(name, depth), |b| b.iter(|| filled.turn()));
        }
    }
    group.finish();
}

/// All instances are busy: a step that finds nothing to do, as after every push under load.
fn busy(c: &mut Criterion) {
    let mut group = c.benchmark_group("scheduler step, all instances busy");
    for (name, dynamic) in [("dynamic", Dynamic::default()), ("dynamic with levels and time-outs", levels())] {
        for depth in DEPTHS {
            let mut filled = Filled::new(config(Some(dynamic.clone())), depth);
            assert!(!matches!(filled.step(0), NextBatch::Run { .. }), "it ran without an instance");
            group.bench_function(BenchmarkId::new(name, depth), |b| b.iter(|| black_box(filled.step(0))));
        }
    }
    group.finish();
}

/// An instance is idle and waiting pays: a step before the wake-up time, with less than one batch queued.
fn waiting(c: &mut Criterion) {
    let mut group = c.benchmark_group("scheduler step, waiting for more");
    let strict = Config { strict_delay: true, ..config(Some(delayed(500))) };
    for (name, config) in [("dynamic", config(Some(delayed(500)))), ("strict", strict)] {
        for depth in [1, 32] {
            let mut filled = Filled::new(config.clone(), depth).until_it_waits();
            group.bench_function(BenchmarkId::new(name, depth), |b| b.iter(|| black_box(filled.step(1))));
            assert!(matches!(filled.step(1), NextBatch::SleepUntil(_)), "it waits no more");
        }
    }
    group.finish();
}

/// Learning costs and predicting them.
fn cost(c: &mut Criterion) {
    let mut group = c.benchmark_group("scheduler, learned cost");
    let mut scheduler = Filled::new(config(None), 0).scheduler;
    let mut rows = (1..=8).cycle();
    group.bench_function("observe", |b| b.iter(|| scheduler.observe(1, rows.next().unwrap_or(1), 50_000)));
    assert!(scheduler.profile().predict(1, 4).is_some(), "nothing was learned");
    group.bench_function("predict", |b| b.iter(|| scheduler.profile().predict(1, rows.next().unwrap_or(1))));
    group.finish();
}

fn main() {
    let mut c = Criterion::default().without_plots().configure_from_args();
    turn(&mut c);
    busy(&mut c);
    waiting(&mut c);
    cost(&mut c);
}
