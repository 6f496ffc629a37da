//! Batches of texts of different lengths: seeded simulation of random traffic, total cost of batches, and fairness
//! between requests of one text and of many.

use crate::common::Random;
use scheduler::cores::Plan;
use scheduler::profile::{FinishedRun, RunClass};
use scheduler::{Cause, Config, Dynamic, NextBatch, RemovalReason, Scheduler, Waiting};
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

#[derive(Clone, Debug, Default)]
struct Text {
    id: usize,
    tokens: u32,
    place: u32,
    kind: u64,
    level: u64,
    arrived: u64,
    cancelled: Rc<Cell<bool>>,
}

impl Waiting for Text {
    fn rows(&self) -> u32 {
        1
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
    fn tokens(&self) -> u32 {
        self.tokens
    }
    fn place_in_request(&self) -> u32 {
        self.place
    }
}

fn config(max: u32, dynamic: Dynamic, instances: u32, tokens_max: Option<u32>) -> Config {
    Config {
        max_batch_size: max,
        dynamic: Some(dynamic),
        instances,
        strict_delay: false,
        delay_scheduler: 0,
        tokens_max,
        cores: None,
    }
}

/// Simulates random arrivals, priorities, cancellations and ends of runs, and checks every batch.
fn simulate(seed: u64) -> usize {
    let mut random = Random(seed);
    let max = 1 + random.below(12) as u32;
    let budget = 1 + random.below(600) as u32;
    let levels = random.below(3) as u32;
    let delay = if random.below(2) == 0 { 0 } else { 1 + random.below(3000) };
    let dynamic = Dynamic {
        max_queue_delay_us: delay,
        priority_levels: levels,
        default_priority_level: u32::from(levels > 0),
        ..Dynamic::default()
    };
    let instances = 1 + random.below(2) as u32;
    let mut scheduler = Scheduler::new(config(max, dynamic, instances, Some(budget)));
    // In scan order: by level, then by arrival.
    let mut waiting: VecDeque<Text> = VecDeque::new();
    let (mut now, mut idle, mut next, mut runs) = (0u64, instances, 0, 0);
    let mut without_oldest = 0;
    for _ in 0..600 {
        now += random.below(2_000_000);
        match random.below(8) {
            0..5 => {
                let level = if levels == 0 { 0 } else { 1 + random.below(levels.into()) };
                let long = random.below(6) == 0;
                let tokens = if long { random.below(200_000) as u32 + 1 } else { text_length(&mut random) };
                let text = Text {
                    id: next,
                    tokens,
                    place: random.below(4) as u32,
                    kind: random.below(4) / 3,
                    level,
                    arrived: now,
                    cancelled: Rc::default(),
                };
                next += 1;
                let at = waiting.partition_point(|w| w.level <= level);
                waiting.insert(at, text.clone());
                assert!(scheduler.push(now, level, 0, text).is_ok());
            }
            5 if !waiting.is_empty() => {
                let one = random.below(waiting.len() as u64) as usize;
                waiting[one].cancelled.set(true);
                if random.below(2) == 0 {
                    let mut dropped = vec![];
                    scheduler.remove_cancelled(&mut dropped);
                    for (why, text) in dropped {
                        assert_eq!(why, RemovalReason::Cancelled);
                        waiting.retain(|w| w.id != text.id);
                    }
                }
            }
            _ => idle = instances.min(idle + 1),
        }
        loop {
            let mut dropped = vec![];
            let step = scheduler.step(now, idle, &mut dropped);
            for (_, text) in dropped {
                assert!(text.cancelled.get());
                waiting.retain(|w| w.id != text.id);
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
                    assert!(idle == 0 || waiting.is_empty(), "an instance is idle while texts wait");
                    break;
                }
            };
            runs += 1;
            idle -= 1;
            let level = waiting.iter().find(|w| !w.cancelled.get()).map(|w| w.level).unwrap();
            let alive = || waiting.iter().filter(|w| !w.cancelled.get() && w.level == level);
            let oldest = alive().next().map(|w| w.id).unwrap();
            let earliest = alive().min_by_key(|w| w.place).map(|w| w.id).unwrap();
            let has = |id| batch.iter().any(|text| text.id == id);
            assert!(has(oldest) || has(earliest), "neither the oldest nor the earliest in its request");
            without_oldest = if has(oldest) || batch.len() == waiting.len() { 0 } else { without_oldest + 1 };
            assert!(without_oldest < 2, "two batches without the oldest");
            let first = &batch[0];
            assert!(batch.iter().all(|r| r.level == first.level && r.kind == first.kind && !r.cancelled.get()));
            let volume = batch.len() as u64 * u64::from(batch.iter().map(|r| r.tokens).max().unwrap());
            let fits = batch.len() as u32 <= max && volume <= u64::from(budget);
            assert!(batch.len() == 1 || fits, "{} texts, {volume} tokens", batch.len());
            let taken: Vec<_> = batch.iter().map(|text| text.id).collect();
            waiting.retain(|w| !taken.contains(&w.id));
            observe(&mut scheduler, &batch, volume, 500_000 + 20_000 * volume + random.below(100_000));
        }
    }
    runs
}

fn observe(scheduler: &mut Scheduler<Text>, batch: &[Text], tokens: u64, duration_ns: u64) {
    let (class, rows) = (batch[0].class(), batch.len() as u32);
    let kind = RunClass::new(class, rows, 0);
    scheduler.profile_mut().observe(&FinishedRun { class, kind, rows, tokens, duration_ns, plan: Plan::None });
}

#[test]
fn every_batch_respects_the_budget_and_no_text_is_left_behind() {
    let runs: usize = (1..400u64).map(|seed| simulate(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)).sum();
    assert!(runs > 50_000, "{runs}");
}

/// Cost of a run without tokens, in tokens, and nanoseconds of a token.
const FIXED: u64 = 30;
const TOKEN_NS: u64 = 40_000;

/// Runs the next batch of an instance. Returns its texts.
fn run(scheduler: &mut Scheduler<Text>, now: &mut u64) -> Vec<Text> {
    let NextBatch::Run { batch, why: Cause::IdleInstance } = scheduler.step(*now, 1, &mut vec![]) else {
        panic!("texts wait, or for something else")
    };
    let volume = batch.len() as u64 * u64::from(batch.iter().map(|r| r.tokens).max().unwrap());
    let duration = (FIXED + volume) * TOKEN_NS;
    *now += duration;
    observe(scheduler, &batch, volume, duration);
    batch.to_vec()
}

/// Simulates a closed loop of `clients`; returns texts per ms, 99 % response time, and longest wait in runs.
fn closed_loop(clients: usize, budget: Option<u32>) -> (f64, u64, usize) {
    let mut random = Random(99);
    let mut scheduler = Scheduler::new(config(32, Dynamic::default(), 1, budget));
    let (mut now, mut done, mut runs) = (0u64, 0usize, 0usize);
    let mut begun = vec![];
    let mut longest_wait = 0;
    let mut latencies = vec![];
    let mut ask = |scheduler: &mut Scheduler<Text>, now: u64, runs: usize, begun: &mut Vec<usize>| {
        let tokens = text_length(&mut random);
        // Without the budget only texts of one length run together.
        let kind = if budget.is_some() { 0 } else { u64::from(tokens) };
        let text = Text { id: begun.len(), tokens, kind, arrived: now, ..Text::default() };
        begun.push(runs);
        assert!(scheduler.push(now, 0, 0, text).is_ok());
    };
    (0..clients).for_each(|_| ask(&mut scheduler, 0, 0, &mut begun));
    while done < 20_000 {
        let batch = run(&mut scheduler, &mut now);
        runs += 1;
        done += batch.len();
        for text in &batch {
            longest_wait = longest_wait.max(runs - begun[text.id]);
            latencies.push(now - text.arrived);
            ask(&mut scheduler, now, runs, &mut begun);
        }
    }
    latencies.sort_unstable();
    (done as f64 / (now as f64 / 1e6), latencies[latencies.len() * 99 / 100], longest_wait)
}

#[test]
fn batches_by_tokens_serve_many_lengths_faster_and_none_much_later() {
    for (clients, gain) in [(8, 1.2), (32, 1.38)] {
        let ((plain, plain_p99, _), (padded, p99, longest_wait)) =
            (closed_loop(clients, None), closed_loop(clients, Some(256)));
        assert!(padded > gain * plain, "{clients} clients: {plain:.3} to {padded:.3} texts per ms");
        assert!(p99 * 100 <= plain_p99 * 115, "{clients} clients: p99 from {plain_p99} to {p99} ns");
        assert!(longest_wait <= 2 * clients, "{clients} clients: one waited for {longest_wait} runs");
    }
}

/// A request of `book` texts waits, and `clients` send one text at a time. Returns the longest wait of such a text and
/// the number of runs until the book is read, both in runs.
fn beside_a_book(book: u32, clients: usize, seed: u64) -> (usize, usize) {
    let mut random = Random(seed);
    let mut scheduler = Scheduler::new(config(32, Dynamic::default(), 1, Some(256)));
    let mut now = 0;
    for place in 0..book {
        let text = Text { id: usize::MAX, tokens: text_length(&mut random), place, ..Text::default() };
        assert!(scheduler.push(0, 0, 0, text).is_ok());
    }
    let (mut runs, mut left, mut longest, mut begun) = (0, book, 0, vec![]);
    let mut ask = |scheduler: &mut Scheduler<Text>, now: u64, runs: usize, begun: &mut Vec<usize>| {
        let text = Text { id: begun.len(), tokens: text_length(&mut random), arrived: now, ..Text::default() };
        begun.push(runs);
        assert!(scheduler.push(now, 0, 0, text).is_ok());
    };
    (0..clients).for_each(|_| ask(&mut scheduler, 0, 0, &mut begun));
    while left > 0 {
        let batch = run(&mut scheduler, &mut now);
        runs += 1;
        for text in batch {
            if text.id == usize::MAX {
                left -= 1;
            } else {
                longest = longest.max(runs - begun[text.id]);
                ask(&mut scheduler, now, runs, &mut begun);
            }
        }
    }
    (longest, runs)
}

#[test]
fn a_text_does_not_wait_behind_a_book_nor_a_book_for_ever() {
    for seed in 1..20u64 {
        for (book, clients) in [(500, 1), (2_000, 1), (500, 8), (2_000, 32)] {
            let (text, all) = beside_a_book(book, clients, seed);
            assert!(text <= 2 * clients + 2, "{clients} beside {book}: a text waited for {text} runs");
            assert!(all <= 2 * book as usize, "{clients} beside {book}: the book took {all} runs");
        }
    }
}
