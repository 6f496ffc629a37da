//! ns per request through the scheduler: `cargo run --release -p nereid-scheduler --example step_cost`.

use scheduler::{Config, Dynamic, Policy, Scheduler, Step, Waiting};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

struct Request {
    cancelled: AtomicBool,
}

struct Entry(Arc<Request>);

impl Waiting for Entry {
    fn rows(&self) -> u32 {
        1
    }
    fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Relaxed)
    }
    fn fits_with(&self, _first: &Self) -> bool {
        true
    }
    fn class(&self) -> u64 {
        1
    }
}

fn config(dynamic: Option<Dynamic>, strict_delay: bool) -> Config {
    Config { max_batch_size: 64, dynamic, instances: 1, strict_delay, delay_scheduler: 0 }
}

/// Best of seven rounds: `burst` pushes while busy, then steps until nothing runs, per request. The requests themselves are made
/// beforehand.
fn measure(name: &str, config: Config, burst: usize) {
    const REQUESTS: usize = 1 << 18;
    let request = Arc::new(Request { cancelled: AtomicBool::new(false) });
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let mut scheduler = Scheduler::new(config.clone());
        for _ in 0..64 {
            scheduler.observe(1, 1, 50_000);
            scheduler.observe(1, 64, 80_000);
        }
        let mut entries: Vec<Entry> = (0..REQUESTS).map(|_| Entry(request.clone())).collect();
        let mut dropped = Vec::new();
        let mut now = 0;
        let started = Instant::now();
        while !entries.is_empty() {
            for _ in 0..burst {
                let Some(entry) = entries.pop() else { break };
                now += 1_000_000;
                let _ = black_box(scheduler.push(now, 0, 0, entry));
                if burst > 1 {
                    black_box(scheduler.step(now, 0, &mut dropped));
                }
            }
            while let Step::Run(batch) = scheduler.step(now, 1, &mut dropped) {
                black_box(&batch);
                // The request goes on to its instance; dropping it is not the scheduler's cost.
                batch.into_iter().for_each(std::mem::forget);
                if burst == 1 {
                    break;
                }
            }
        }
        best = best.min(started.elapsed().as_nanos() as f64 / REQUESTS as f64);
    }
    println!("{name:<55} {best:6.1} ns/request");
}

fn main() {
    let policy = Policy { default_timeout_us: 1_000_000_000, max_queue_size: 1000, ..Policy::default() };
    let delay = Dynamic { max_queue_delay_us: 500, ..Dynamic::default() };
    let policies =
        Dynamic { priority_levels: 3, default_priority_level: 2, default_policy: policy, ..Dynamic::default() };
    measure("default scheduler, idle instance", config(None, false), 1);
    measure("dynamic, idle instance", config(Some(Dynamic::default()), false), 1);
    measure("dynamic with a delay, idle instance", config(Some(delay.clone()), false), 1);
    measure("dynamic with levels and time-outs, idle instance", config(Some(policies.clone()), false), 1);
    measure("dynamic, batches of 64", config(Some(Dynamic::default()), false), 64);
    measure("dynamic with levels and time-outs, batches of 64", config(Some(policies), false), 64);
    measure("dynamic, 1024 queued", config(Some(Dynamic::default()), false), 1024);
    measure("strict, idle instance", config(Some(Dynamic::default()), true), 1);

    let mut scheduler: Scheduler<Entry> = Scheduler::new(config(None, false));
    const TIMES: u32 = 1 << 20;
    let started = Instant::now();
    for i in 0..TIMES {
        scheduler.observe(1, 1 + i % 8, 50_000);
    }
    println!("{:<55} {:6.1} ns", "observe", started.elapsed().as_nanos() as f64 / f64::from(TIMES));
    let started = Instant::now();
    for i in 0..TIMES {
        black_box(scheduler.predicted_ns(1, 1 + i % 8));
    }
    println!("{:<55} {:6.1} ns", "predicted_ns", started.elapsed().as_nanos() as f64 / f64::from(TIMES));
}
