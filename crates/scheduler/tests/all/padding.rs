//! Batches of requests of different lengths: seeded simulation of random traffic, and the total cost of batches.

use crate::common::Random;
use scheduler::padding::{BATCH_BYTES_MAX, PaddedTensor, Padding, ROW_BYTES_FREE, ROW_RATIO_MAX};
use scheduler::profile::{FinishedRun, RunClass};
use scheduler::{Cause, Config, Dynamic, NextBatch, RemovalReason, Scheduler, Waiting};
use smallvec::SmallVec;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Text lengths, about lognormal: median 30, from 8 to 128.
fn text_length(random: &mut Random) -> u32 {
    loop {
        let normal = (0..12).map(|_| random.below(1 << 20) as f64 / (1 << 20) as f64).sum::<f64>() - 6.0;
        let length = (3.4 + 0.7 * normal).exp();
        if (8.0..=128.0).contains(&length) {
            return length as u32;
        }
    }
}

#[derive(Clone, Debug)]
struct Request {
    id: usize,
    rows: u32,
    lengths: Vec<u32>,
    kind: u64,
    level: u64,
    arrived: u64,
    cancelled: Rc<Cell<bool>>,
}

impl Waiting for Request {
    fn rows(&self) -> u32 {
        self.rows
    }
    fn is_cancelled(&self) -> bool {
        self.cancelled.get()
    }
    fn fits_with(&self, first: &Self) -> bool {
        self.kind == first.kind
    }
    fn class(&self) -> u64 {
        self.kind
    }
    fn lengths(&self) -> &[u32] {
        &self.lengths
    }
}

fn padding(dims: u8) -> Padding {
    let tensor = |d| PaddedTensor { bytes: 16, dims: SmallVec::from_slice(&[d]) };
    Padding { tensors: (0..dims).map(tensor).collect() }
}

fn config(max: u32, dynamic: Dynamic, instances: u32, padding: Option<Padding>) -> Config {
    Config { max_batch_size: max, dynamic: Some(dynamic), instances, strict_delay: false, delay_scheduler: 0, padding }
}

/// Simulates random arrivals, priorities, cancellations and ends of runs, and checks every batch.
fn simulate(seed: u64) -> usize {
    let mut random = Random(seed);
    let max = 1 + random.below(12) as u32;
    let dims = 1 + random.below(2) as u8;
    let levels = random.below(3) as u32;
    let delay = if random.below(2) == 0 { 0 } else { 1 + random.below(3000) };
    let dynamic = Dynamic {
        max_queue_delay_us: delay,
        priority_levels: levels,
        default_priority_level: u32::from(levels > 0),
        ..Dynamic::default()
    };
    let instances = 1 + random.below(2) as u32;
    let of = padding(dims);
    let mut scheduler = Scheduler::new(config(max, dynamic, instances, Some(of.clone())));
    // In scan order: by level, then by arrival.
    let mut waiting: VecDeque<Request> = VecDeque::new();
    let (mut now, mut idle, mut next, mut runs) = (0u64, instances, 0, 0);
    for _ in 0..600 {
        now += random.below(2_000_000);
        match random.below(8) {
            0..5 => {
                let level = if levels == 0 { 0 } else { 1 + random.below(levels.into()) };
                let long = random.below(6) == 0;
                let length = |_| if long { random.below(200_000) as u32 + 1 } else { text_length(&mut random) };
                let lengths = (0..dims).map(length).collect();
                let request = Request {
                    id: next,
                    rows: 1 + random.below(3) as u32,
                    lengths,
                    kind: random.below(4) / 3,
                    level,
                    arrived: now,
                    cancelled: Rc::default(),
                };
                next += 1;
                let at = waiting.partition_point(|w| w.level <= level);
                waiting.insert(at, request.clone());
                assert!(scheduler.push(now, level, 0, request).is_ok());
            }
            5 if !waiting.is_empty() => {
                let one = random.below(waiting.len() as u64) as usize;
                waiting[one].cancelled.set(true);
                if random.below(2) == 0 {
                    let mut dropped = vec![];
                    scheduler.remove_cancelled(&mut dropped);
                    for (why, request) in dropped {
                        assert_eq!(why, RemovalReason::Cancelled);
                        waiting.retain(|w| w.id != request.id);
                    }
                }
            }
            _ => idle = instances.min(idle + 1),
        }
        loop {
            let mut dropped = vec![];
            let step = scheduler.step(now, idle, &mut dropped);
            for (_, request) in dropped {
                assert!(request.cancelled.get());
                waiting.retain(|w| w.id != request.id);
            }
            let batch = match step {
                NextBatch::Run { batch, why } => {
                    let is_at_once = matches!(why, Cause::IdleInstance | Cause::InstanceFreed);
                    assert!(is_at_once || delay > 0, "{why:?} without a delay");
                    batch
                }
                NextBatch::SleepUntil(at) => {
                    let oldest = waiting.iter().filter(|w| !w.cancelled.get()).map(|w| w.arrived).min().unwrap();
                    assert!(at > now && at <= oldest + delay * 1000, "sleeps beyond the delay");
                    break;
                }
                NextBatch::Idle => {
                    assert!(idle == 0 || waiting.is_empty(), "an instance is idle while requests wait");
                    break;
                }
            };
            runs += 1;
            idle -= 1;
            let oldest = waiting.iter().find(|w| !w.cancelled.get()).map(|w| w.id);
            assert_eq!(batch.iter().map(|r| r.id).min_by_key(|id| Some(*id) != oldest), oldest, "the oldest is in it");
            let first = batch.iter().find(|r| Some(r.id) == oldest).unwrap();
            assert!(batch.iter().all(|r| r.level == first.level && r.kind == first.kind && !r.cancelled.get()));
            let rows: u32 = batch.iter().map(|r| r.rows).sum();
            assert!(batch.len() == 1 || rows <= max, "{rows} rows");
            let longest: Vec<u32> =
                (0..usize::from(dims)).map(|d| batch.iter().map(|r| r.lengths[d]).max().unwrap()).collect();
            let padded = of.row_bytes(&longest);
            for request in &batch {
                let own = of.row_bytes(&request.lengths);
                assert!(padded == own || padded <= (ROW_RATIO_MAX * own).max(ROW_BYTES_FREE), "{own} to {padded}");
                waiting.retain(|w| w.id != request.id);
            }
            assert!(
                batch.iter().all(|r| of.row_bytes(&r.lengths) == padded) || padded * u64::from(rows) <= BATCH_BYTES_MAX
            );
            let volume = padded * u64::from(rows);
            observe(&mut scheduler, &batch, volume, 500_000 + 2_000 * volume + random.below(100_000));
        }
    }
    runs
}

fn observe(scheduler: &mut Scheduler<Request>, batch: &[Request], padded_bytes: u64, duration_ns: u64) {
    let (class, rows) = (batch[0].class(), batch.iter().map(|r| r.rows).sum());
    let kind = RunClass::new(class, rows, 0);
    scheduler.profile_mut().observe(&FinishedRun { class, kind, rows, padded_bytes, duration_ns });
}

#[test]
fn every_batch_has_the_oldest_request_and_respects_the_limits() {
    let runs: usize = (1..400u64).map(|seed| simulate(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)).sum();
    assert!(runs > 50_000, "{runs}");
}

/// Simulates a closed loop of `clients`; returns requests per ms, 99 % response time, and longest wait in runs.
fn closed_loop(clients: usize, padded: bool) -> (f64, u64, usize) {
    const FIXED: u64 = 30;
    let mut random = Random(99);
    let dynamic = Dynamic::default();
    let mut scheduler = Scheduler::new(config(32, dynamic, 1, padded.then(|| padding(1))));
    let (mut now, mut done, mut runs) = (0u64, 0usize, 0usize);
    let mut begun = vec![];
    let mut longest_wait = 0;
    let mut latencies = vec![];
    let mut ask = |scheduler: &mut Scheduler<Request>, now: u64, runs: usize, begun: &mut Vec<usize>| {
        let length = text_length(&mut random);
        let kind = if padded { 0 } else { u64::from(length) };
        let request = Request {
            id: begun.len(),
            rows: 1,
            lengths: vec![length],
            kind,
            level: 0,
            arrived: now,
            cancelled: Rc::default(),
        };
        begun.push(runs);
        assert!(scheduler.push(now, 0, 0, request).is_ok());
    };
    (0..clients).for_each(|_| ask(&mut scheduler, 0, 0, &mut begun));
    while done < 20_000 {
        let NextBatch::Run { batch, why: Cause::IdleInstance } = scheduler.step(now, 1, &mut vec![]) else {
            panic!("requests wait, or for something else")
        };
        runs += 1;
        let volume = batch.len() as u64 * u64::from(batch.iter().map(|r| r.lengths[0]).max().unwrap());
        let duration = (FIXED + volume) * 40_000;
        now += duration;
        observe(&mut scheduler, &batch, volume * 16, duration);
        done += batch.len();
        for request in &batch {
            longest_wait = longest_wait.max(runs - begun[request.id]);
            latencies.push(now - request.arrived);
            ask(&mut scheduler, now, runs, &mut begun);
        }
    }
    latencies.sort_unstable();
    (done as f64 / (now as f64 / 1e6), latencies[latencies.len() * 99 / 100], longest_wait)
}

#[test]
fn padding_serves_many_lengths_faster_and_none_much_later() {
    for (clients, gain) in [(8, 1.2), (32, 1.38)] {
        let ((plain, plain_p99, _), (padded, p99, longest_wait)) =
            (closed_loop(clients, false), closed_loop(clients, true));
        assert!(padded > gain * plain, "{clients} clients: {plain:.3} to {padded:.3} requests per ms");
        assert!(p99 * 100 <= plain_p99 * 115, "{clients} clients: p99 from {plain_p99} to {p99} ns");
        assert!(longest_wait <= clients, "{clients} clients: one waited for {longest_wait} runs");
    }
}
