//! The work-conserving rule against simulated load: a queue delay may help and must not hurt.

use crate::common::*;
use scheduler::{Config, NextBatch, Scheduler};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const US: u64 = 1000;

fn exponential(random: &mut Random, mean: f64) -> u64 {
    let unit = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
    (-(1.0 - unit).ln() * mean) as u64
}

#[derive(Clone, Copy)]
enum Load {
    /// Clients that send again about 30 µs after their response.
    Closed(u64),
    /// Independent arrivals, mean gap in ns.
    Open(u64),
}

#[derive(Debug)]
struct Outcome {
    requests_per_s: f64,
    mean_latency_us: f64,
    requests_per_batch: f64,
}

/// Way to the process of an instance.
#[derive(Clone, Copy, Default)]
struct Way {
    /// Time from a step to the begin of its batch, unless the batch is prefetched.
    wake: u64,
    /// A batch may be prefetched.
    ahead: bool,
}

/// Simulates `requests` requests of one row on one instance with t(b); timers fire up to `timer_slack` late.
fn simulate(config: Config, load: Load, cost: impl Fn(u32) -> u64, requests: usize, timer_slack: u64) -> Outcome {
    simulate_process(config, load, cost, requests, timer_slack, Way::default())
}

fn simulate_process(
    config: Config,
    load: Load,
    cost: impl Fn(u32) -> u64,
    requests: usize,
    timer_slack: u64,
    way: Way,
) -> Outcome {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut scheduler = Scheduler::new(config);
    let mut arrivals: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    match load {
        Load::Closed(clients) => arrivals.extend((0..clients).map(|c| Reverse(c * US))),
        Load::Open(_) => arrivals.push(Reverse(0)),
    }
    let mut arrived_at = Vec::new();
    let mut running: Option<(u64, u32)> = None;
    let mut batch_ids: Vec<usize> = vec![];
    let mut ready: Option<Vec<usize>> = None;
    let mut wake: Option<u64> = None;
    let (mut done, mut batches, mut latency, mut now) = (0usize, 0usize, 0u64, 0u64);
    let mut dropped = vec![];
    while done < requests {
        let next_arrival = arrivals.peek().map_or(u64::MAX, |r| r.0);
        let next_done = running.map_or(u64::MAX, |r| r.0);
        let next_wake = wake.map_or(u64::MAX, |w| w + timer_slack);
        now = now.max(next_arrival.min(next_done).min(next_wake));
        if next_done <= now {
            let (_, rows) = running.take().unwrap();
            scheduler.observe('a' as u64, rows, cost(rows));
            for id in batch_ids.drain(..) {
                latency += now - arrived_at[id];
                done += 1;
                if let Load::Closed(_) = load {
                    arrivals.push(Reverse(now + 25 * US + random.next() % (10 * US)));
                }
            }
        } else if next_arrival <= now {
            arrivals.pop();
            arrived_at.push(now);
            scheduler.push(now, 0, 0, request(arrived_at.len() - 1, 1, 'a' as u64)).unwrap();
            if let Load::Open(gap) = load {
                arrivals.push(Reverse(now + exponential(&mut random, gap as f64)));
            }
        }
        wake = None;
        if let Some(ids) = ready.take_if(|_| running.is_none()) {
            running = Some((now + cost(ids.len() as u32), ids.len() as u32));
            batch_ids = ids;
        }
        if running.is_some() {
            if way.ahead && ready.is_none() {
                let batch = scheduler.step_ahead(now, batch_ids.len(), &mut dropped);
                ready = batch.map(|batch| batch.iter().map(|r| r.id).collect());
                batches += usize::from(ready.is_some());
            }
            if way.ahead {
                continue;
            }
        }
        match scheduler.step(now, u32::from(running.is_none()), &mut dropped) {
            NextBatch::Run { batch, .. } => {
                batch_ids = batch.iter().map(|r| r.id).collect();
                running = Some((now + way.wake + cost(batch.len() as u32), batch.len() as u32));
                batches += 1;
            }
            NextBatch::SleepUntil(at) => wake = Some(at),
            NextBatch::Idle => {}
        }
    }
    Outcome {
        requests_per_s: done as f64 * 1e9 / now as f64,
        mean_latency_us: latency as f64 / done as f64 / 1e3,
        requests_per_batch: done as f64 / batches as f64,
    }
}

/// Mostly fixed cost, for which batching pays.
fn tiny(rows: u32) -> u64 {
    100 * US + u64::from(rows) * US
}
/// Compute-bound cost, for which batching gains nothing.
fn linear(rows: u32) -> u64 {
    5 * US + u64::from(rows) * 200 * US
}
/// Larger batches cost more per row.
fn superlinear(rows: u32) -> u64 {
    100 * US * u64::from(rows) + 40 * US * u64::from(rows) * u64::from(rows)
}

#[test]
fn a_queue_delay_never_costs_throughput_and_pays_where_executions_have_a_fixed_cost() {
    for (name, cost) in [("tiny", tiny as fn(u32) -> u64), ("linear", linear), ("superlinear", superlinear)] {
        for clients in [1, 2, 3, 8, 16, 32, 64] {
            let run = |delay, slack| simulate(dynamic(32, &[], delay), Load::Closed(clients), cost, 20_000, slack);
            let (without, with, coarse) = (run(0, 0), run(2000, 0), run(2000, 1000 * US));
            println!(
                "{name} c={clients}: {:.0} -> {:.0} /s, coarse timers {:.0} /s; \
                 batch {:.1} -> {:.1}; latency {:.0} -> {:.0} us",
                without.requests_per_s,
                with.requests_per_s,
                coarse.requests_per_s,
                without.requests_per_batch,
                with.requests_per_batch,
                without.mean_latency_us,
                with.mean_latency_us
            );
            assert!(with.requests_per_s >= 0.98 * without.requests_per_s, "{name} {clients}: {without:?} {with:?}");
            assert!(coarse.requests_per_s >= 0.97 * without.requests_per_s, "{name} {clients}: {without:?} {coarse:?}");
            if name == "tiny" && clients == 8 {
                assert!(with.requests_per_s >= 1.2 * without.requests_per_s, "{without:?} {with:?}");
            }
        }
    }
}

#[test]
fn a_queue_delay_never_costs_latency_under_independent_arrivals() {
    for (name, cost) in [("tiny", tiny as fn(u32) -> u64), ("linear", linear)] {
        for gap_us in [20, 50, 100, 250, 1000] {
            if name == "linear" && gap_us < 250 {
                continue; // overload
            }
            let run = |delay| simulate(dynamic(32, &[], delay), Load::Open(gap_us * US), cost, 20_000, 0);
            let (without, with) = (run(0), run(5000));
            println!("{name} gap {gap_us}: {:.1} -> {:.1} us", without.mean_latency_us, with.mean_latency_us);
            assert!(with.mean_latency_us <= 1.03 * without.mean_latency_us, "{name} {gap_us}: {without:?} {with:?}");
        }
    }
}

#[test]
fn a_model_whose_large_batches_cost_more_per_row_gets_smaller_ones() {
    // t(1) = 140 µs is the cheapest row. Without learning, 16 clients get batches of up to 16 at 740 µs a row.
    let capped = simulate(dynamic(32, &[], 0), Load::Closed(16), superlinear, 20_000, 0);
    let alone = simulate(default_scheduler(32), Load::Closed(16), superlinear, 20_000, 0);
    println!("alone {alone:?}, learned {capped:?}");
    assert!(capped.requests_per_s >= 0.9 * alone.requests_per_s, "{alone:?} {capped:?}");
    // This also holds under overload, when smaller batches have to be tried on purpose.
    let overload = simulate(dynamic(32, &[], 0), Load::Closed(64), superlinear, 100_000, 0);
    println!("overload, learned {overload:?}");
    assert!(overload.requests_per_batch < 2.0, "{overload:?}");
    // Sizes chosen by the user are kept.
    let chosen = simulate(dynamic(32, &[8], 0), Load::Closed(16), superlinear, 2_000, 0);
    assert!(chosen.requests_per_batch > 6.0, "{chosen:?}");
}

#[test]
fn waiting_starts_only_with_evidence_and_ends_with_the_target() {
    let mut player = Player::new(dynamic(8, &[], 1000));
    // Arrivals 2 µs apart, and an instance that takes 100 µs per execution of any size.
    player.idle = 0;
    for i in 0..20 {
        player.play(&format!("{}:+1", i * 2));
    }
    let mut out = vec![];
    player.scheduler.drain_all(&mut out);
    assert_eq!(player.play("40:+1 41:!"), "41:run[20]", "nothing known about cost: go");
    for _ in 0..20 {
        player.scheduler.observe('a' as u64, 1, 100_000);
        player.scheduler.observe('a' as u64, 8, 101_000);
    }
    player.idle = 1;
    let trace = player.play("42:+1 44:+1 46:+1 48:+1 50:+1 52:+1 54:+1 56:+1");
    assert!(trace.starts_with("42:sleep") && trace.ends_with("56:run[21,22,23,24,25,26,27,28]full"), "{trace}");
    player.idle = 2;
    assert_eq!(player.play("58:+1"), "58:run[29].", "a second idle instance: go");
    player.idle = 1;
    let trace = player.play("60:+1 2000:?");
    assert!(trace.starts_with("60:sleep") && trace.ends_with(":run[30]none"), "nobody came: {trace}");
    player.idle = 1;
    assert_eq!(player.play("2001:+1"), "2001:run[31]wait", "the next chance is let pass");
}

#[test]
fn a_prefetched_batch_never_costs_throughput_and_saves_wakes_of_a_process() {
    let process = |ahead| Way { wake: 50 * US, ahead };
    for (name, cost) in [("tiny", tiny as fn(u32) -> u64), ("linear", linear), ("superlinear", superlinear)] {
        for clients in [1, 2, 3, 8, 16, 32, 64, 100] {
            let run =
                |ahead| simulate_process(dynamic(32, &[], 0), Load::Closed(clients), cost, 20_000, 0, process(ahead));
            let (without, with) = (run(false), run(true));
            println!(
                "{name} c={clients}: {:.0} -> {:.0} /s; batch {:.1} -> {:.1}; latency {:.0} -> {:.0} us",
                without.requests_per_s,
                with.requests_per_s,
                without.requests_per_batch,
                with.requests_per_batch,
                without.mean_latency_us,
                with.mean_latency_us
            );
            assert!(with.requests_per_s >= 0.99 * without.requests_per_s, "{name} {clients}: {without:?} {with:?}");
            if name == "tiny" && clients > 1 {
                assert!(with.requests_per_s >= 1.2 * without.requests_per_s, "{clients}: {without:?} {with:?}");
            }
        }
        for gap_us in [20, 50, 100, 250, 1000] {
            if name != "tiny" && gap_us < 300 {
                continue; // overload
            }
            let run =
                |ahead| simulate_process(dynamic(32, &[], 0), Load::Open(gap_us * US), cost, 20_000, 0, process(ahead));
            let (without, with) = (run(false), run(true));
            println!("{name} gap {gap_us}: {:.1} -> {:.1} us", without.mean_latency_us, with.mean_latency_us);
            assert!(with.mean_latency_us <= 1.03 * without.mean_latency_us, "{name} {gap_us}: {without:?} {with:?}");
        }
    }
}
