//! Counts of a measurement while it runs, and its result as JSON.

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Texts of failures that are told apart; others count together.
const FAILURES_MAX: usize = 10;
/// Characters of such a text.
const FAILURE_CHARS_MAX: usize = 300;
/// Points of the series of a run.
pub const SERIES_MAX: u32 = 1000;
/// Latencies that are listed one by one.
pub const SAMPLES_MAX: usize = 100_000;

/// Latencies, with three digits from 1 µs to an hour.
#[derive(Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1_000, 3_600_000_000_000, 3);
        Self(histogram.unwrap_or_else(|_| Histogram::new(3).expect("3 digits are valid")))
    }
}

impl Latencies {
    fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that so much of all do not exceed, in microseconds.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        us(self.0.value_at_quantile(quantile) as f64)
    }

    fn json(&self) -> Value {
        let q = |quantile| self.quantile_us(quantile);
        json!({
            "mean": us(self.0.mean()), "std": us(self.0.stdev()), "min": us(self.0.min() as f64),
            "p50": q(0.5), "p90": q(0.9), "p95": q(0.95), "p99": q(0.99), "p999": q(0.999),
            "max": us(self.0.max() as f64),
        })
    }

    /// Pairs of an upper bound in microseconds and a count.
    fn histogram(&self) -> Vec<(f64, u64)> {
        let all = self.0.iter_recorded();
        all.map(|one| (us(one.value_iterated_to() as f64), one.count_since_last_iteration())).collect()
    }
}

/// Nanoseconds in microseconds, to a digit behind the point.
fn us(ns: f64) -> f64 {
    (ns / 100.0).round() / 10.0
}

/// To three digits behind the point.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Requests that count, and what went wrong.
#[derive(Default)]
pub struct Tally {
    /// From the moment when a request was due to its last response.
    pub latency: Latencies,
    /// The same since the last point of the series.
    recent: Latencies,
    recent_errors: u64,
    /// From the moment when a request was due until it was sent, in an open loop.
    late: Latencies,
    /// From the moment when a request was due to its first response, where there may be several.
    first: Latencies,
    /// From one response to the next.
    between: Latencies,
    responses: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Texts of failures, and how often there was each.
    failures: Vec<(String, u64)>,
    other_failures: u64,
    /// When the last request was answered.
    pub last: Option<Instant>,
    samples: Vec<f64>,
    series: Vec<Value>,
}

impl Tally {
    /// A request that was due at `due` is sent at `now`.
    pub fn sent(&mut self, due: Instant, now: Instant) {
        self.late.record(now - due);
    }

    /// A response of several came; `last` is when the one before it did.
    pub fn response(&mut self, due: Instant, last: Option<Instant>, now: Instant) {
        self.responses += 1;
        match last {
            None => self.first.record(now - due),
            Some(last) => self.between.record(now - last),
        }
    }

    /// A request that was due at `due` has its last response at `now`. `samples`: its latency is listed.
    pub fn done(&mut self, due: Instant, now: Instant, samples: bool) {
        self.latency.record(now - due);
        self.recent.record(now - due);
        self.last = Some(now);
        if samples && self.samples.len() < SAMPLES_MAX {
            self.samples.push(us((now - due).as_nanos() as f64));
        }
    }

    /// A request failed.
    pub fn failed(&mut self, why: &str) {
        self.errors += 1;
        self.recent_errors += 1;
        let why: String = why.chars().take(FAILURE_CHARS_MAX).collect();
        match self.failures.iter().position(|(text, _)| *text == why) {
            Some(i) => self.failures[i].1 += 1,
            None if self.failures.len() < FAILURES_MAX - 1 => self.failures.push((why, 1)),
            None => self.other_failures += 1,
        }
    }

    /// Text of the first failure.
    pub fn first_error(&self) -> Option<&str> {
        self.failures.first().map(|(text, _)| text.as_str())
    }

    /// Answers per second since `start`, in `seconds` at least. Requests in flight when the time was up were answered
    /// and count, so the clock runs until the last of them: with slow models they are a tenth of all, and with an open
    /// loop that overloads the server far more.
    pub fn rate(&self, start: Instant, seconds: f64) -> f64 {
        let until_last = self.last.map_or(0.0, |last| last.saturating_duration_since(start).as_secs_f64());
        let seconds = seconds.max(until_last);
        if seconds > 0.0 { self.latency.count() as f64 / seconds } else { 0.0 }
    }

    /// Adds what another thread counted, without its series.
    pub fn add(&mut self, other: &Self) {
        self.latency.0 += &other.latency.0;
        self.last = self.last.max(other.last);
        self.errors += other.errors;
        self.failures.extend(other.failures.iter().cloned());
    }

    /// The time since the last point, which ends `at` after the start and took `interval`: for the series and as a line
    /// of progress.
    pub fn point(&mut self, at: Duration, interval: Duration) -> Value {
        let (requests, errors) = (self.recent.count(), std::mem::take(&mut self.recent_errors));
        let rate = rounded(requests as f64 / interval.as_secs_f64().max(1e-9));
        let (at, p50, p99) = (rounded(at.as_secs_f64()), self.recent.quantile_us(0.5), self.recent.quantile_us(0.99));
        self.recent.0.reset();
        if self.series.len() < SERIES_MAX as usize {
            self.series.push(json!({ "at_s": at, "rate": rate, "p50_us": p50, "p99_us": p99 }));
        }
        json!({ "at_s": at, "requests": requests, "errors": errors, "rate": rate, "p50_us": p50, "p99_us": p99 })
    }
}

/// The outcome of a run.
pub struct Outcome {
    /// Counts of all requests that count.
    pub tally: Tally,
    /// When the requests that count began.
    pub start: Instant,
    /// How long they were due.
    pub seconds: f64,
    /// Arrivals of an open loop that were never sent.
    pub unsent: u64,
    /// CPU time of this process.
    pub cpu: Duration,
    /// Bytes that were sent and received.
    pub bytes: (u64, u64),
}

impl Outcome {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.tally.rate(self.start, self.seconds)
    }

    /// The result as JSON.
    pub fn json(&self) -> Value {
        let Tally { latency, late, first, between, failures, other_failures, .. } = &self.tally;
        let mut texts: Vec<_> = failures.clone();
        if *other_failures > 0 {
            texts.push(("others".into(), *other_failures));
        }
        let texts: Vec<_> = texts.iter().map(|(text, count)| json!({ "text": text, "count": count })).collect();
        // A request with one response has no others to count.
        let responses = if first.count() > 0 { self.tally.responses } else { latency.count() };
        let mut result = json!({
            "requests": latency.count(), "responses": responses, "errors": self.tally.errors, "failures": texts,
            "seconds": rounded(self.seconds), "rate": rounded(self.rate()), "unsent": self.unsent,
            "latency_us": latency.json(), "histogram": latency.histogram(),
            "bytes_out": self.bytes.0, "bytes_in": self.bytes.1, "cpu_us": self.cpu.as_micros() as u64,
            "series": self.tally.series,
        });
        for (name, times) in [("late_us", late), ("first_us", first), ("between_us", between)] {
            if times.count() > 0 {
                result[name] = times.json();
            }
        }
        if !self.tally.samples.is_empty() {
            result["samples_us"] = json!(self.tally.samples);
        }
        json!({ "result": result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_until_the_last_answer() {
        let start = Instant::now();
        let mut tally = Tally::default();
        assert_eq!(tally.rate(start, 0.0), 0.0, "nothing was answered");
        for _ in 0..5 {
            tally.done(start, start + Duration::from_millis(500), false);
        }
        assert_eq!(tally.rate(start, 0.4), 10.0, "five answers in half a second");
        assert_eq!(tally.rate(start, 2.0), 2.5, "and none in the rest of two");
    }

    #[test]
    fn failures_are_grouped_and_bounded() {
        let mut tally = Tally::default();
        for i in 0..30 {
            tally.failed(&format!("failure {}", i % 15));
        }
        let start = Instant::now();
        let outcome = Outcome { tally, start, seconds: 1.0, unsent: 0, cpu: Duration::ZERO, bytes: (0, 0) };
        let all = &outcome.json()["result"];
        assert_eq!(all["errors"], 30);
        assert_eq!(all["failures"][0], json!({ "text": "failure 0", "count": 2 }));
        assert_eq!(all["failures"][9], json!({ "text": "others", "count": 12 }));
        assert_eq!(all["failures"].as_array().map(Vec::len), Some(FAILURES_MAX));
        assert!(all.get("first_us").is_none() && all.get("late_us").is_none());
    }
}
