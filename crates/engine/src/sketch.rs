//! Quantiles over the last minute, and a histogram with fixed bounds. Only used on request (observability.md 1.3, 1.5).

use std::collections::VecDeque;

const AGES: usize = 5;
const AGE_NS: u64 = 12_000_000_000;
/// Buckets per power of two: values are exact to 1/64, less than the allowed rank error matters.
const STEPS: u64 = 64;
const BUCKETS: usize = 40 * STEPS as usize;

/// Log-linear counts of microsecond values in five windows of twelve seconds.
pub(crate) struct Sketch {
    windows: VecDeque<(u64, Box<[u32]>)>,
    pub(crate) count: u64,
    pub(crate) sum_us: u64,
}

impl Sketch {
    pub(crate) fn new() -> Self {
        Self { windows: VecDeque::new(), count: 0, sum_us: 0 }
    }

    pub(crate) fn observe(&mut self, now: u64, value_us: u64) {
        self.count += 1;
        self.sum_us += value_us;
        let age = now / AGE_NS;
        if self.windows.back().is_none_or(|w| w.0 != age) {
            self.expire(age);
            let counts = if self.windows.len() == AGES { self.windows.pop_front().map(|w| w.1) } else { None };
            let mut counts = counts.unwrap_or_else(|| vec![0; BUCKETS].into_boxed_slice());
            counts.fill(0);
            self.windows.push_back((age, counts));
        }
        if let Some((_, counts)) = self.windows.back_mut() {
            let slot = &mut counts[bucket(value_us)];
            *slot = slot.saturating_add(1);
        }
    }

    fn expire(&mut self, age: u64) {
        while self.windows.front().is_some_and(|w| w.0 + AGES as u64 <= age) {
            self.windows.pop_front();
        }
    }

    /// The value at this quantile of the last minute's observations; NaN without any.
    pub(crate) fn quantile(&self, now: u64, quantile: f64) -> f64 {
        let oldest = (now / AGE_NS).saturating_sub(AGES as u64 - 1);
        let live = || self.windows.iter().filter(move |w| w.0 >= oldest).map(|w| &w.1);
        let total: u64 = live().map(|c| c.iter().map(|&n| u64::from(n)).sum::<u64>()).sum();
        if total == 0 {
            return f64::NAN;
        }
        let rank = ((quantile * total as f64).ceil() as u64).clamp(1, total);
        let mut seen = 0;
        for i in 0..BUCKETS {
            seen += live().map(|c| u64::from(c[i])).sum::<u64>();
            if seen >= rank {
                return value_of(i);
            }
        }
        value_of(BUCKETS - 1)
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let power = 63 - u64::from(value.leading_zeros()); // >= 6
    let step = (value >> (power - 6)) - STEPS;
    (((power - 5) * STEPS + step) as usize).min(BUCKETS - 1)
}

fn value_of(bucket: usize) -> f64 {
    let b = bucket as u64;
    if b < STEPS {
        return b as f64;
    }
    let power = b / STEPS + 5;
    ((STEPS + b % STEPS) << (power - 6)) as f64
}

/// Counts per bucket of a histogram with fixed upper bounds.
pub(crate) struct Histogram {
    pub(crate) bounds: Vec<f64>,
    /// Counts per bucket, not cumulative; one more than `bounds`.
    pub(crate) counts: Vec<u64>,
    pub(crate) sum: u64,
}

impl Histogram {
    pub(crate) fn new(bounds: Vec<f64>) -> Self {
        let counts = vec![0; bounds.len() + 1];
        Self { bounds, counts, sum: 0 }
    }

    pub(crate) fn observe(&mut self, value: u64) {
        self.sum += value;
        let i = self.bounds.iter().position(|&b| value as f64 <= b).unwrap_or(self.bounds.len());
        self.counts[i] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_a_64th() {
        for value in [0u64, 1, 63, 64, 65, 1000, 123_456, 9_999_999_999] {
            let back = value_of(bucket(value));
            assert!((back - value as f64).abs() <= value as f64 / 64.0, "{value} came back as {back}");
        }
    }

    #[test]
    fn quantiles_forget_after_a_minute() {
        let mut s = Sketch::new();
        for v in 1..=100 {
            s.observe(0, v);
        }
        assert!((s.quantile(0, 0.5) - 50.0).abs() <= 1.0);
        assert!((s.quantile(59_000_000_000, 0.99) - 99.0).abs() <= 2.0);
        assert!(s.quantile(61_000_000_000, 0.5).is_nan());
        assert_eq!(s.count, 100);
    }

    #[test]
    fn a_histogram_counts_up_to_and_including_its_bound() {
        let mut h = Histogram::new(vec![100.0, 500.0]);
        for v in [100, 101, 501] {
            h.observe(v);
        }
        assert_eq!(h.counts, [1, 1, 1]);
    }
}
