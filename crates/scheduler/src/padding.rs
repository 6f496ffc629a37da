//! Which waiting requests run together when they may be padded to a common length.
//!
//! A run costs a fixed part plus the cost of its volume: rows times the bytes of one row, padded to the longest. So a
//! batch saves the fixed part for each request but one, and pays for its padding. The waiting requests are sorted by
//! size and cut into runs of neighbours so that their total cost is least; the run with the oldest request goes first.
//! There is no table of buckets: which lengths are near depends on what waits.
//!
//! Fairness: the oldest is in the next run, so a request waits for at most as many runs as there are older ones. Only
//! the older half of the waiting requests, or [`REACH_MIN`], may overtake others: if all could, the slowest hundredth
//! of requests was a sixth to a quarter slower, for a twentieth of rate (simulated, 32 clients).
//!
//! Costs are learned from durations. A wrong value costs only time: [`ROW_RATIO_MAX`], [`ROW_BYTES_FREE`] and
//! [`BATCH_BYTES_MAX`] limit padding independently of it.

use smallvec::SmallVec;

/// How many times its own bytes a row may take when it is padded.
pub const ROW_RATIO_MAX: u64 = 4;
/// Bytes of inputs that any row may take when it is padded, whatever its own size.
pub const ROW_BYTES_FREE: u64 = 4096;
/// Bytes that the padded inputs of a batch may take. A request that is not padded may be larger.
pub const BATCH_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of waiting requests that are compared, the oldest first.
pub const REACH_MAX: usize = 128;
/// Number of requests that are compared even if few wait.
pub const REACH_MIN: usize = 5;

/// Cost of an execution outside its measured duration, as in `curve`.
const DISPATCH_NS: f64 = 10_000.0;
/// Executions before learned costs are used.
const SEEN_MIN: u32 = 16;
/// Share of the old sums that remains after one more execution.
const MEMORY: f64 = 1.0 - 1.0 / 256.0;
/// An execution that took this many times the prediction was preempted, and is capped at that.
const OUTLIER: f64 = 3.0;

/// Computes the size of a request from its lengths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Padding {
    /// Inputs that are padded.
    pub tensors: Vec<PaddedTensor>,
}

/// One input that is padded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaddedTensor {
    /// Bytes of one row when every length is 1.
    pub bytes: u64,
    /// Padded dimensions, as indices of a request's lengths; an index may occur twice.
    pub dims: SmallVec<[u8; 2]>,
}

impl Padding {
    /// Bytes of one row of all padded inputs.
    pub fn row_bytes(&self, lengths: &[u32]) -> u64 {
        self.tensors.iter().fold(0, |sum, tensor| {
            let length = |d: &u8| u64::from(lengths.get(usize::from(*d)).copied().unwrap_or(0));
            let bytes = tensor.dims.iter().map(length).fold(tensor.bytes, u64::saturating_mul);
            sum.saturating_add(bytes)
        })
    }
}

pub(crate) struct Candidate<'a> {
    pub rows: u32,
    pub lengths: &'a [u32],
}

/// A candidate with the bytes of one row.
struct Sized<'a> {
    of: usize,
    rows: u64,
    row_bytes: u64,
    lengths: &'a [u32],
}

/// Number of waiting requests to compare.
pub(crate) fn reach(waiting: usize) -> usize {
    waiting.div_ceil(2).clamp(REACH_MIN, REACH_MAX)
}

/// Ascending indices of the `candidates` to run with the first. Several of them have at most `rows_max` rows.
pub(crate) fn pick(padding: &Padding, law: Law, rows_max: u32, candidates: &[Candidate<'_>]) -> SmallVec<[usize; 16]> {
    let mut sorted: SmallVec<[Sized<'_>; 16]> = candidates
        .iter()
        .enumerate()
        .map(|(of, c)| Sized {
            of,
            rows: u64::from(c.rows.max(1)),
            row_bytes: padding.row_bytes(c.lengths),
            lengths: c.lengths,
        })
        .collect();
    sorted.sort_unstable_by(|a, b| (a.row_bytes, a.lengths, a.of).cmp(&(b.row_bytes, b.lengths, b.of)));
    // Least cost of the first `n` requests, and where the last run of that solution begins.
    let mut least: SmallVec<[(f64, usize); 17]> = SmallVec::new();
    least.push((0.0, 0));
    for end in 1..=sorted.len() {
        let mut best = (f64::INFINITY, end - 1);
        let mut longest: SmallVec<[u32; 2]> = SmallVec::new();
        let (mut rows, mut padded) = (0u64, 0u64);
        for (start, one) in sorted.iter().enumerate().take(end).rev() {
            let alone = start + 1 == end;
            rows += one.rows;
            if alone {
                longest = one.lengths.into();
                padded = one.row_bytes;
            } else if one.lengths != &longest[..] {
                let grown = longest.iter_mut().zip(one.lengths).fold(false, |grown, (longest, length)| {
                    let grows = *length > *longest;
                    *longest = (*longest).max(*length);
                    grown | grows
                });
                padded = if grown { padding.row_bytes(&longest) } else { padded };
            }
            let row_max = one.row_bytes.saturating_mul(ROW_RATIO_MAX).max(ROW_BYTES_FREE);
            let volume = rows.saturating_mul(padded);
            // Rows further to the left are smaller and the run larger. Rows of equal size need no padding.
            let is_padded = padded > one.row_bytes;
            if !alone && (rows > u64::from(rows_max) || (is_padded && (padded > row_max || volume > BATCH_BYTES_MAX))) {
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
        if run.iter().any(|s| s.of == 0) {
            let mut picked: SmallVec<[usize; 16]> = run.iter().map(|s| s.of).collect();
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
    /// Decaying sums of 1, v, v², v³ and v⁴; v in KiB.
    volumes: [f64; 5],
    /// Decaying sums of t, v·t and v²·t.
    times: [f64; 3],
}

/// t = `fixed` + `per_byte`·v + `squared`·v², ns. `squared` is what large batches lose to caches, 0 if nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Law {
    pub fixed: f64,
    pub per_byte: f64,
    pub squared: f64,
}

impl Law {
    /// Assumption before measurements: the fixed part of a run costs as much as one mean row. Never 0, or rows without
    /// padded contents would run one by one.
    pub fn guess(row_bytes: f64) -> Self {
        Self { fixed: row_bytes.max(1.0), per_byte: 1.0, squared: 0.0 }
    }

    fn cost(&self, volume: u64) -> f64 {
        let volume = volume as f64;
        self.fixed + self.per_byte * volume + self.squared * volume * volume
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
        let bytes = mean * 1024.0;
        let law = |fixed: f64, linear: f64, squared: f64| {
            Some(Law { fixed: fixed + DISPATCH_NS, per_byte: linear / bytes, squared: squared / bytes / bytes })
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

    /// One input of one length, with this many bytes per token.
    fn tokens(bytes: u64) -> Padding {
        Padding { tensors: vec![PaddedTensor { bytes, dims: SmallVec::from_slice(&[0]) }] }
    }

    fn line(fixed: f64) -> Law {
        Law { fixed, per_byte: 1.0, squared: 0.0 }
    }

    fn check(lengths: &[u32], rows_max: u32, fixed: f64, expected: &[usize]) {
        let candidates: Vec<_> =
            lengths.iter().map(|l| Candidate { rows: 1, lengths: std::slice::from_ref(l) }).collect();
        assert_eq!(pick(&tokens(1), line(fixed), rows_max, &candidates)[..], *expected, "{lengths:?}, fixed {fixed}");
    }

    #[test]
    fn similar_lengths_run_together_and_different_ones_do_not() {
        check(&[10], 8, 30.0, &[0]);
        check(&[10, 10, 10], 8, 30.0, &[0, 1, 2]);
        check(&[10, 12, 100, 110], 8, 30.0, &[0, 1]);
        check(&[100, 12, 10, 110], 8, 30.0, &[0, 3]);
        check(&[10, 30], 8, 19.0, &[0]); // 20 of padding to save 19
        check(&[10, 30], 8, 21.0, &[0, 1]);
        check(&[10, 10, 10, 10], 2, 30.0, &[0, 1]);
        check(&[50, 50], 8, 0.0, &[0]); // nothing to save
    }

    #[test]
    fn the_oldest_request_runs_even_if_the_others_are_a_better_batch() {
        check(&[128, 8, 8, 8, 8, 8, 8, 8], 8, 30.0, &[0]);
    }

    #[test]
    fn batches_are_limited_by_rows() {
        let length = [10u32];
        let of = |rows| Candidate { rows, lengths: &length };
        let pick =
            |rows: &[u32]| pick(&tokens(1), line(30.0), 8, &rows.iter().map(|&r| of(r)).collect::<Vec<_>>()).into_vec();
        assert_eq!(pick(&[9, 1]), [0], "larger than a batch may be: alone");
        assert_eq!(pick(&[5, 4, 3]), [0], "the second does not fit beside the first");
        assert_eq!(pick(&[5, 3, 4]), [0, 1]);
    }

    #[test]
    fn padding_of_a_short_request_is_limited() {
        // Even if a run of its own would cost more.
        check(&[1, 100_000], 8, 1e18, &[0]);
        check(&[1, ROW_BYTES_FREE as u32], 8, 1e18, &[0, 1]);
        check(&[1, ROW_BYTES_FREE as u32 + 1], 8, 1e18, &[0]);
        check(&[100_000, 400_000], 8, 1e18, &[0, 1]);
        check(&[100_000, 400_001], 8, 1e18, &[0]);
        check(&[20 << 20, 22 << 20, 22 << 20], 8, 1e15, &[0]); // the last two are 44 MiB together, all three 66
        check(&[22 << 20, 22 << 20, 20 << 20], 8, 1e15, &[0, 1]);
        check(&[22 << 20, 22 << 20, 22 << 20, 22 << 20], 8, 1e18, &[0, 1, 2, 3]); // nothing is padded
        check(&[u32::MAX, u32::MAX - 1], 8, 1e18, &[0]);
    }

    #[test]
    fn several_lengths_are_padded_together() {
        let padding = Padding {
            tensors: vec![
                PaddedTensor { bytes: 1, dims: SmallVec::from_slice(&[0]) },
                PaddedTensor { bytes: 1, dims: SmallVec::from_slice(&[1]) },
            ],
        };
        let all = [[10u32, 100], [100, 10], [12, 98]];
        let candidates: Vec<_> = all.iter().map(|l| Candidate { rows: 1, lengths: l }).collect();
        assert_eq!(padding.row_bytes(&[10, 100]), 110);
        assert_eq!(pick(&padding, line(30.0), 8, &candidates)[..], [0, 2], "equal in size, far in length");
        let square = Padding { tensors: vec![PaddedTensor { bytes: 4, dims: SmallVec::from_slice(&[0, 0]) }] };
        assert_eq!(square.row_bytes(&[10]), 400);
        assert_eq!(square.row_bytes(&[u32::MAX]), u64::MAX, "no overflow");
    }

    #[test]
    fn batches_that_cost_more_than_they_save_are_not_formed() {
        let law = Law { fixed: 30.0, per_byte: 1.0, squared: 0.01 };
        let lengths = [100u32, 100, 100, 10, 10];
        let candidates: Vec<_> =
            lengths.iter().map(|l| Candidate { rows: 1, lengths: std::slice::from_ref(l) }).collect();
        assert_eq!(
            pick(&tokens(1), law, 8, &candidates)[..],
            [0],
            "two of 100 cost 200 more than one by one, and save 30"
        );
        assert_eq!(pick(&tokens(1), law, 8, &candidates[3..])[..], [0, 1]);
    }

    #[test]
    fn requests_without_lengths_run_together_before_costs_are_learned() {
        let none = [Candidate { rows: 1, lengths: &[] }, Candidate { rows: 1, lengths: &[] }];
        assert_eq!(pick(&tokens(8), Law::guess(0.0), 8, &none)[..], [0, 1]);
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
    fn the_cost_of_padded_runs_is_learned() {
        let line = learned(|v, _| 1_200_000 + 40_000 * v);
        is_about(line.fixed, 1_210_000.0, "fixed");
        is_about(line.per_byte, 40_000.0, "per byte");
        assert!(line.squared * 500.0 < 0.01 * line.per_byte, "{line:?}");
        let curve = learned(|v, _| 1_200_000 + 40_000 * v + 50 * v * v);
        is_about(curve.fixed, 1_210_000.0, "fixed");
        is_about(curve.per_byte, 40_000.0, "per byte");
        is_about(curve.squared, 50.0, "per byte squared");
        // One run in ten was preempted for a while.
        let noisy = learned(|v, i| 1_200_000 + 40_000 * v + if i % 10 == 9 { 50_000_000 } else { 0 });
        assert!((20.0..200.0).contains(&(noisy.fixed / noisy.per_byte)), "{noisy:?}");
        let falling = learned(|v, _| 2_000_000 - 1_000 * v);
        assert!(falling.per_byte > 0.0, "padding is never free: {falling:?}");
        let mut alike = Fit::default();
        (0..100).for_each(|i| alike.observe(1000, 1_000_000 + i));
        assert_eq!(alike.law(), None, "one volume is no line");
    }

    #[test]
    fn the_newer_half_does_not_overtake() {
        assert_eq!([0, 1, 8, 10, 11, 31, 1000].map(reach), [5, 5, 5, 5, 6, 16, 128]);
    }
}
