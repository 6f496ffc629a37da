//! Which waiting texts run together, padded to the longest of them, under a budget of tokens.
//!
//! A run costs a fixed part plus the cost of its volume: texts times the tokens of the longest. So a batch saves the
//! fixed part for each text but one, and pays for its padding. The waiting texts are sorted by length and cut into runs
//! of neighbours so that their total cost is least; the run with the oldest text goes first. There is no table of
//! buckets: which lengths are near depends on what waits.
//!
//! Fairness: the oldest is in every second run, so a text waits for at most twice as many runs as there are older ones
//! (`Batcher::first_text` has the others). Only the older half of the waiting texts, or [`REACH_MIN`], may overtake
//! others: if all could, the slowest hundredth was a sixth to a quarter slower, for a twentieth of rate (simulated, 32
//! clients).
//!
//! Costs are learned from durations. A wrong value costs only time: the budget limits padding independently of it.

use smallvec::SmallVec;

/// Maximum number of waiting texts that are compared, the oldest first.
pub const REACH_MAX: usize = 256;
/// Number of texts that are compared even if few wait.
pub const REACH_MIN: usize = 5;

/// Cost of an execution outside its measured duration, as in `curve`.
const DISPATCH_NS: f64 = 10_000.0;
/// Executions before learned costs are used.
const SEEN_MIN: u32 = 16;
/// Share of the old sums that remains after one more execution.
const MEMORY: f64 = 1.0 - 1.0 / 256.0;
/// An execution that took this many times the prediction was preempted, and is capped at that.
const OUTLIER: f64 = 3.0;

/// Maxima of a batch of several texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Texts.
    pub texts: u32,
    /// Tokens, padding included.
    pub tokens: u32,
}

/// Number of waiting texts to compare.
pub(crate) fn reach(waiting: usize) -> usize {
    waiting.div_ceil(2).clamp(REACH_MIN, REACH_MAX)
}

/// Ascending indices of the waiting texts to run with the first, by the `tokens` of each. Several have at most the
/// budget; a text above it runs alone.
pub(crate) fn pick(budget: Budget, law: Law, tokens: &[u32]) -> SmallVec<[usize; 16]> {
    let mut sorted: SmallVec<[(u32, usize); 16]> = tokens.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    // Least cost of the first `n` texts, and where the last run of that solution begins.
    let mut least: SmallVec<[(f64, usize); 17]> = SmallVec::new();
    least.push((0.0, 0));
    for (end, &(longest, _)) in (1..).zip(&sorted) {
        let mut best = (f64::INFINITY, end - 1);
        for start in (0..end).rev() {
            let texts = (end - start) as u64;
            let volume = texts * u64::from(longest);
            // Runs further to the left are larger.
            if texts > 1 && (texts > u64::from(budget.texts) || volume > u64::from(budget.tokens)) {
                break;
            }
            let before = least.get(start).map_or(f64::INFINITY, |l| l.0);
            let cost = before + law.cost(volume);
            if cost < best.0 {
                best = (cost, start);
            }
        }
        least.push(best);
    }
    let mut end = sorted.len();
    while let Some(&(_, start)) = least.get(end).filter(|_| end > 0) {
        let run = sorted.get(start..end).unwrap_or(&[]);
        if run.iter().any(|&(_, of)| of == 0) {
            let mut picked: SmallVec<[usize; 16]> = run.iter().map(|&(_, of)| of).collect();
            picked.sort_unstable();
            return picked;
        }
        end = start;
    }
    SmallVec::from_slice(&[0])
}

/// Cost of padded batches, by least squares over the last few hundred executions.
#[derive(Default)]
pub(crate) struct Fit {
    seen: u32,
    /// Decaying sums of 1, v, v², v³ and v⁴; v in 1,024 tokens.
    volumes: [f64; 5],
    /// Decaying sums of t, v·t and v²·t.
    times: [f64; 3],
}

/// t = `fixed` + `per_token`·v + `squared`·v², ns. `squared` is what large batches lose to caches, 0 if nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Law {
    pub fixed: f64,
    pub per_token: f64,
    pub squared: f64,
}

impl Law {
    /// Assumption before measurements: the fixed part of a run costs as much as one mean text.
    pub fn guess(tokens: f64) -> Self {
        Self { fixed: tokens.max(1.0), per_token: 1.0, squared: 0.0 }
    }

    fn cost(&self, volume: u64) -> f64 {
        let volume = volume as f64;
        self.fixed + self.per_token * volume + self.squared * volume * volume
    }
}

impl Fit {
    /// Learns from an execution of the given volume.
    pub fn observe(&mut self, volume: u64, duration_ns: u64) {
        let (v, mut t) = (volume as f64 / 1024.0, duration_ns as f64);
        if let Some(law) = self.law() {
            t = t.min(OUTLIER * law.cost(volume));
        }
        self.seen = self.seen.saturating_add(1);
        for (sum, value) in self.volumes.iter_mut().zip([1.0, v, v * v, v.powi(3), v.powi(4)]) {
            *sum = *sum * MEMORY + value;
        }
        for (sum, value) in self.times.iter_mut().zip([t, v * t, v * v * t]) {
            *sum = *sum * MEMORY + value;
        }
    }

    /// Predicted duration of an execution, ns.
    pub fn predict(&self, volume: u64) -> Option<u64> {
        self.law().map(|law| law.cost(volume) as u64)
    }

    /// Returns `None` before enough executions, and if all volumes were alike.
    pub fn law(&self) -> Option<Law> {
        let [n, s1, s2, s3, s4] = self.volumes;
        if self.seen < SEEN_MIN || s1 <= 0.0 {
            return None;
        }
        // In units of the mean volume, the sums of its powers are of similar size.
        let mean = s1 / n;
        let [v2, v3, v4] = [s2 / n / mean.powi(2), s3 / n / mean.powi(3), s4 / n / mean.powi(4)];
        let [t0, t1, t2] = self.times;
        let [t0, t1, t2] = [t0 / n, t1 / n / mean, t2 / n / mean.powi(2)];
        let variance = v2 - 1.0;
        // Lengths that hardly differ do not make a line: noise would tilt it.
        if variance < 0.01 {
            return None;
        }
        let tokens = mean * 1024.0;
        let law = |fixed: f64, linear: f64, squared: f64| {
            Some(Law { fixed: fixed + DISPATCH_NS, per_token: linear / tokens, squared: squared / tokens / tokens })
        };
        // The residuals of v² and t against the line through v decide whether there is a curve.
        let covariance = t1 - t0;
        let bend = (v3 - v2) / variance;
        let left = v4 - v2 * v2 - bend * (v3 - v2);
        if left > 0.01 * v4 {
            let squared = (t2 - v2 * t0 - bend * covariance) / left;
            let linear = covariance / variance - squared * bend;
            let fixed = t0 - linear - squared * v2;
            if squared > 0.0 && linear > 0.1 * t0 && fixed >= 0.0 {
                return law(fixed, linear, squared);
            }
        }
        // Never 0, or any amount of padding would be free.
        let linear = (covariance / variance).clamp(0.1 * t0, t0);
        law(t0 - linear, linear, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fixed: f64) -> Law {
        Law { fixed, per_token: 1.0, squared: 0.0 }
    }

    fn check(tokens: &[u32], budget: (u32, u32), fixed: f64, expected: &[usize]) {
        let (texts, most) = budget;
        let picked = pick(Budget { texts, tokens: most }, line(fixed), tokens);
        assert_eq!(picked[..], *expected, "{tokens:?}, fixed {fixed}");
    }

    /// Budget of tokens that no case below reaches.
    const MANY: u32 = 100_000;

    #[test]
    fn similar_lengths_run_together_and_different_ones_do_not() {
        check(&[10], (8, MANY), 30.0, &[0]);
        check(&[10, 10, 10], (8, MANY), 30.0, &[0, 1, 2]);
        check(&[10, 12, 100, 110], (8, MANY), 30.0, &[0, 1]);
        check(&[100, 12, 10, 110], (8, MANY), 30.0, &[0, 3]);
        check(&[10, 30], (8, MANY), 19.0, &[0]); // 20 of padding to save 19
        check(&[10, 30], (8, MANY), 21.0, &[0, 1]);
        check(&[10, 10, 10, 10], (2, MANY), 30.0, &[0, 1]);
        check(&[50, 50], (8, MANY), 0.0, &[0]); // nothing to save
    }

    #[test]
    fn the_oldest_text_runs_even_if_the_others_are_a_better_batch() {
        check(&[128, 8, 8, 8, 8, 8, 8, 8], (8, MANY), 30.0, &[0]);
    }

    #[test]
    fn batches_are_limited_by_texts_and_by_tokens_with_padding() {
        check(&[10, 10, 10], (2, MANY), 30.0, &[0, 1]);
        check(&[60, 60, 60, 60], (8, 120), 1e9, &[0, 1]);
        check(&[60, 61, 60, 61], (8, 121), 1e9, &[0, 2]);
        check(&[10, 50, 50], (8, 100), 1e9, &[0]); // three of 50 would be 150
        check(&[500, 10, 10], (8, 256), 1e9, &[0]); // above the budget: alone
        check(&[u32::MAX, u32::MAX], (8, u32::MAX), 1e18, &[0]);
        check(&[10, 10], (8, 1), 1e9, &[0]);
    }

    #[test]
    fn batches_that_cost_more_than_they_save_are_not_formed() {
        let law = Law { fixed: 30.0, per_token: 1.0, squared: 0.01 };
        let budget = Budget { texts: 8, tokens: MANY };
        let tokens = [100u32, 100, 100, 10, 10];
        assert_eq!(pick(budget, law, &tokens)[..], [0], "two of 100 cost 200 more than one by one, and save 30");
        assert_eq!(pick(budget, law, &tokens[3..])[..], [0, 1]);
    }

    fn learned(t: impl Fn(u64, u64) -> u64) -> Law {
        let mut fit = Fit::default();
        (0..400u64).for_each(|i| {
            let v = 8 + i * 37 % 500;
            fit.observe(v, t(v, i));
        });
        fit.law().expect("many lengths")
    }

    fn is_about(found: f64, expected: f64, what: &str) {
        assert!((found / expected - 1.0).abs() < 0.25, "{what}: {found}, not {expected}");
    }

    #[test]
    fn the_cost_of_runs_is_learned() {
        let line = learned(|v, _| 1_200_000 + 40_000 * v);
        is_about(line.fixed, 1_210_000.0, "fixed");
        is_about(line.per_token, 40_000.0, "per token");
        assert!(line.squared * 500.0 < 0.01 * line.per_token, "{line:?}");
        let curve = learned(|v, _| 1_200_000 + 40_000 * v + 50 * v * v);
        is_about(curve.fixed, 1_210_000.0, "fixed");
        is_about(curve.per_token, 40_000.0, "per token");
        is_about(curve.squared, 50.0, "per token squared");
        // One run in ten was preempted for a while.
        let noisy = learned(|v, i| 1_200_000 + 40_000 * v + if i % 10 == 9 { 50_000_000 } else { 0 });
        assert!((20.0..200.0).contains(&(noisy.fixed / noisy.per_token)), "{noisy:?}");
        let falling = learned(|v, _| 2_000_000 - 1_000 * v);
        assert!(falling.per_token > 0.0, "padding is never free: {falling:?}");
        let mut alike = Fit::default();
        (0..100).for_each(|i| alike.observe(1000, 1_000_000 + i));
        assert_eq!(alike.law(), None, "one volume is no line");
    }

    #[test]
    fn the_newer_half_does_not_overtake() {
        assert_eq!([0, 1, 8, 10, 11, 31, 1000].map(reach), [5, 5, 5, 5, 6, 16, 256]);
    }
}
