//! What one load run found, as one JSON line.

use hdrhistogram::Histogram;
use std::time::Duration;

/// Latencies of one worker, and what went wrong.
pub struct Tally {
    pub latency_ns: Histogram<u64>,
    pub errors: u64,
    pub first_error: Option<String>,
}

impl Tally {
    pub fn new() -> Self {
        // Three digits from 1 µs to 60 s: the figures are read to two.
        let latency_ns = Histogram::new_with_bounds(1_000, 60_000_000_000, 3)
            .unwrap_or_else(|_| Histogram::new(3).expect("3 digits are valid"));
        Self { latency_ns, errors: 0, first_error: None }
    }

    pub fn done(&mut self, latency: Duration) {
        self.latency_ns.saturating_record(latency.as_nanos() as u64);
    }

    pub fn failed(&mut self, why: impl Into<String>) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| why.into());
    }

    pub fn add(&mut self, other: &Self) {
        self.latency_ns += &other.latency_ns;
        self.errors += other.errors;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }

    /// `{"requests":…,"rate":…,"p50_us":…,…}`. `unsent`: arrivals of an open loop that found no free connection in time.
    pub fn print(&self, seconds: f64, unsent: u64) {
        let us = |q: f64| self.latency_ns.value_at_quantile(q) as f64 / 1000.0;
        let error = self.first_error.as_deref().unwrap_or("").replace(['"', '\\', '\n'], " ");
        println!(
            "{{\"requests\":{},\"seconds\":{seconds:.3},\"rate\":{:.1},\"p50_us\":{:.1},\"p90_us\":{:.1},\"p99_us\":{:.1},\"p999_us\":{:.1},\"errors\":{},\"unsent\":{unsent},\"first_error\":\"{error}\"}}",
            self.latency_ns.len(),
            self.latency_ns.len() as f64 / seconds,
            us(0.5),
            us(0.9),
            us(0.99),
            us(0.999),
            self.errors,
        );
    }
}
