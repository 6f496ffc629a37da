//! Plans of a model that divides its cores, simulated: as good as the better of both plans for every number of clients.

use crate::common::{Random, default_scheduler, dynamic, request};
use scheduler::cores::{InUse, Plan};
use scheduler::profile::{FinishedRun, RunClass};
use scheduler::{Config, NextBatch, Scheduler};
use std::collections::BinaryHeap;

/// A model: the cost of a batch on one core is `fixed + per_row · rows`, in µs; a run alone on both is `speedup` times
/// as fast, and two runs at once have `beside` of the speed of one core each (less than 1: they share memory).
#[derive(Clone, Copy)]
struct Model {
    batches: bool,
    fixed: f64,
    per_row: f64,
    speedup: f64,
    beside: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Policy {
    /// One run at a time.
    Wide,
    /// Two at a time.
    Narrow,
    Chosen,
}

struct Run {
    ids: Vec<usize>,
    /// Work left, in µs on one core.
    left: f64,
    started: f64,
    began_with: u32,
}

/// Requests per second of a closed loop, whose clients take 100 to 200 µs to ask again.
fn rate(model: Model, policy: Policy, clients: usize) -> f64 {
    let config = if model.batches { dynamic(32, &[], 0) } else { default_scheduler(1) };
    let cores = (policy == Policy::Chosen).then_some(2);
    let mut scheduler = Scheduler::new(Config { cores, ..config });
    let (mut random, mut now, mut done, mut next) = (Random(7), 0.0f64, 0usize, 0usize);
    let mut runs: Vec<Run> = vec![];
    // Times in ns, negated: the earliest is first.
    let mut arrivals: BinaryHeap<i64> = (0..clients).map(|i| -(i as i64 * 10_000)).collect();
    let permits = if policy == Policy::Wide { 1 } else { 2 };
    let counted = 6_000;
    let mut counted_from = 0.0;
    while done < counted {
        let speed = if runs.len() == 1 { model.speedup } else { model.beside };
        let end = runs.iter().map(|run| now + run.left / speed).fold(f64::INFINITY, f64::min);
        let arrival = arrivals.peek().map_or(f64::INFINITY, |at| -at as f64 / 1000.0);
        let at = end.min(arrival).max(now);
        runs.iter_mut().for_each(|run| run.left -= (at - now) * speed);
        now = at;
        let in_progress = runs.len() as u32;
        let over: Vec<Run> = runs.extract_if(.., |run| run.left <= 1e-6).collect();
        for run in over {
            let (rows, plan) = (run.ids.len() as u32, Plan::of(2, run.began_with, in_progress));
            let duration_ns = ((now - run.started) * 1000.0) as u64;
            let kind = RunClass::new(0, rows, 0);
            let plan = if cores.is_some() { plan } else { Plan::None };
            scheduler.profile_mut().observe(&FinishedRun { class: 0, kind, rows, tokens: 0, duration_ns, plan });
            for _ in run.ids {
                done += 1;
                arrivals.push(-((now * 1000.0) as i64 + 100_000 + random.below(100_000) as i64));
            }
        }
        if counted_from == 0.0 && done > counted / 4 {
            counted_from = now;
        }
        while arrivals.peek().is_some_and(|at| -at as f64 / 1000.0 <= now + 1e-6) {
            arrivals.pop();
            assert!(scheduler.push((now * 1000.0) as u64, 0, 0, request(next, 1, 0)).is_ok());
            next += 1;
        }
        loop {
            let requests = runs.iter().map(|run| run.ids.len() as u32).sum();
            scheduler.set_in_use(InUse { requests, others: 0 });
            let idle = permits - runs.len() as u32;
            let NextBatch::Run { batch, .. } = scheduler.step((now * 1000.0) as u64, idle, &mut vec![]) else { break };
            let left = model.fixed + model.per_row * batch.len() as f64;
            let ids = batch.iter().map(|request| request.id).collect();
            runs.push(Run { ids, left, started: now, began_with: runs.len() as u32 + 1 });
        }
    }
    (done - counted / 4) as f64 / (now - counted_from) * 1e6
}

#[test]
fn the_chosen_plan_is_as_good_as_the_better_one() {
    let computes = Model { batches: false, fixed: 0.0, per_row: 8000.0, speedup: 1.7, beside: 0.98 };
    let batches = Model { batches: true, fixed: 500.0, per_row: 8000.0, ..computes };
    let reads_weights = Model { batches: true, fixed: 1000.0, per_row: 50.0, speedup: 1.8, beside: 0.6 };
    let hardly_divides = Model { batches: true, fixed: 300.0, per_row: 2000.0, speedup: 1.1, beside: 0.95 };
    let all = [computes, batches, reads_weights, hardly_divides];
    for (number, model) in all.into_iter().enumerate() {
        for clients in [1, 2, 3, 8, 32] {
            let [wide, narrow, chosen] =
                [Policy::Wide, Policy::Narrow, Policy::Chosen].map(|policy| rate(model, policy, clients));
            println!("model {number}, {clients} clients: wide {wide:.0}/s, narrow {narrow:.0}/s, chosen {chosen:.0}/s");
            let floor = 0.95 * wide.max(narrow);
            assert!(chosen >= floor, "model {number}, {clients} clients: {wide:.0}, {narrow:.0}, chosen {chosen:.0}");
        }
    }
}

#[test]
fn rows_are_divided_and_a_delay_is_kept() {
    let four_of_four = |config: Config| {
        let mut scheduler = Scheduler::new(Config { cores: Some(2), ..config });
        (0..4).for_each(|id| assert!(scheduler.push(0, 0, 0, request(id, 4, 0)).is_ok()));
        scheduler.set_in_use(InUse::default());
        let NextBatch::Run { batch, .. } = scheduler.step(0, 2, &mut vec![]) else { panic!("requests wait") };
        batch.iter().map(|request| request.id).collect::<Vec<_>>()
    };
    assert_eq!(four_of_four(dynamic(32, &[], 0)), [0, 1], "half of the rows, which are sixteen");
    assert_eq!(four_of_four(dynamic(32, &[], 100_000)), [0, 1, 2, 3], "a batch is not divided if requests wait for it");
}
