//! The result of a load run, as one JSON line.

use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// Latencies of one worker, and what went wrong.
pub struct Tally {
    pub latency_ns: Histogram<u64>,
    /// When the last request was answered.
    pub last: Option<Instant>,
    pub errors: u64,
    pub first_error: Option<String>,
}

impl Tally {
    pub fn new() -> Self {
        // Three digits from 1 µs to 60 s: the figures are read to two.
        let latency_ns = Histogram::new_with_bounds(1_000, 60_000_000_000, 3)
            .unwrap_or_else(|_| Histogram::new(3).expect("3 digits are valid"));
        Self { latency_ns, last: None, errors: 0, first_error: None }
    }

    /// A request that was due at `due` has its answer now.
    pub fn done(&mut self, due: Instant) {
        let now = Instant::now();
        self.latency_ns.saturating_record((now - due).as_nanos() as u64);
        self.last = Some(now);
    }

    /// Answers per second since `start`. Requests in flight when the time was up were answered and count, so the clock
    /// runs until the last of them: with slow models they are a tenth of all.
    pub fn rate(&self, start: Instant) -> f64 {
        let seconds = self.last.map_or(0.0, |last| (last - start).as_secs_f64());
        if seconds > 0.0 { self.latency_ns.len() as f64 / seconds } else { 0.0 }
    }

    pub fn failed(&mut self, why: impl Into<String>) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| why.into());
    }

    pub fn add(&mut self, other: &Self) {
        self.latency_ns += &other.latency_ns;
        self.last = self.last.max(other.last);
        self.errors += other.errors;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }

    /// `{"requests":…,"rate":…,"p50_us":…,…}`. `unsent`: arrivals of an open loop without a free connection in time.
    pub fn print(&self, duration: Duration, rate: f64, unsent: u64) {
        let us = |q: f64| self.latency_ns.value_at_quantile(q) as f64 / 1000.0;
        let error = self.first_error.as_deref().unwrap_or("").replace(['"', '\\', '\n'], " ");
        println!(
            "{{\"requests\":{},\"seconds\":{:.3},\"rate\":{rate:.2},\"p50_us\":{:.1},\
             \"p90_us\":{:.1},\"p99_us\":{:.1},\"p999_us\":{:.1},\"errors\":{},\
             \"unsent\":{unsent},\"first_error\":\"{error}\"}}",
            self.latency_ns.len(),
            duration.as_secs_f64(),
            us(0.5),
            us(0.9),
            us(0.99),
            us(0.999),
            self.errors,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_until_the_last_answer() {
        let start = Instant::now();
        let mut tally = Tally::new();
        assert_eq!(tally.rate(start), 0.0, "nothing was answered");
        for _ in 0..4 {
            tally.done(start);
        }
        let mut other = Tally::new();
        other.done(start);
        other.last = Some(start + Duration::from_millis(500));
        tally.add(&other);
        assert_eq!(tally.rate(start), 10.0, "five answers in half a second");
    }
}
