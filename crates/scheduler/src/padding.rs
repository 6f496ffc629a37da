//! Which waiting requests run together when they may be padded to a common length.
//!
//! A run costs about `fixed` + its volume, where the volume is what its padded inputs hold: rows times the bytes of one row, padded
//! to the longest. So a batch saves `fixed` for each request but one, and pays for what it pads. The requests that wait are put in
//! order of their size and cut into runs of neighbours so that all of them together cost least; the run with the oldest goes first.
//! There is no table of buckets: which lengths are near depends on what waits.
//!
//! Fairness: the oldest of those in reach is in the next run, so a request waits for at most as many runs as there are older ones.
//!
//! What `fixed` is, in volume, is learned from durations. A wrong value costs time and nothing else: how far a request may be
//! padded is limited beside it, by [`ROW_RATIO_MAX`], [`ROW_BYTES_FREE`] and [`BATCH_BYTES_MAX`].

use smallvec::SmallVec;

/// Times its own bytes that a row may take when it is padded.
pub const ROW_RATIO_MAX: u64 = 4;
/// Bytes of inputs that a row may take when it is padded, whatever it takes itself.
pub const ROW_BYTES_FREE: u64 = 4096;
/// Bytes that the inputs of a batch may take when they are padded. A request that is not padded may be larger.
pub const BATCH_BYTES_MAX: u64 = 64 << 20;
/// Waiting requests that are compared, the oldest first.
pub const REACH: usize = 128;

/// What an execution costs beside its measured duration, as in `cost`.
const DISPATCH_NS: f64 = 10_000.0;
/// Executions before what was learned is used.
const SEEN_MIN: u32 = 16;
/// How much of what was learned is left after one more execution.
const MEMORY: f64 = 1.0 - 1.0 / 256.0;
/// An execution that took so many times what was expected was preempted, and counts as one that took that.
const OUTLIER: f64 = 3.0;

/// How the lengths of a request decide its size.
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
    /// Its padded dimensions, as indices of a request's lengths; one may occur twice.
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

/// A waiting request.
pub(crate) struct Candidate<'a> {
    pub rows: u32,
    pub lengths: &'a [u32],
}

/// One of them, with the bytes of one row.
struct Sized<'a> {
    of: usize,
    rows: u64,
    row_bytes: u64,
    lengths: &'a [u32],
}

/// Those of `candidates` to run with the first of them, as indices in ascending order. `fixed` is what a run costs beside its
/// volume, in bytes of it; no run of several requests has more than `rows_max` rows.
pub(crate) fn pick(
    padding: &Padding,
    fixed: f64,
    rows_max: u32,
    candidates: &[Candidate<'_>],
) -> SmallVec<[usize; 16]> {
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
    // The least cost of the first `n` of them, and where the last run of that solution begins.
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
            // Further to the left they are only smaller, and the run only larger. Rows of equal size need no padding.
            let is_padded = padded > one.row_bytes;
            if !alone && (rows > u64::from(rows_max) || (is_padded && (padded > row_max || volume > BATCH_BYTES_MAX))) {
                break;
            }
            let before = least.get(start).map_or(f64::INFINITY, |l| l.0);
            let cost = before + fixed + volume as f64;
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

/// What executions of padded batches take: t = a + c · volume, by least squares over the last few hundred.
#[derive(Default)]
pub(crate) struct Fit {
    seen: u32,
    /// Sums of 1, v, v², t and v·t, older ones fading.
    sums: [f64; 5],
}

/// ns, and ns per byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Law {
    pub fixed: f64,
    pub per_byte: f64,
}

impl Fit {
    /// Learns from an execution of that volume.
    pub fn observe(&mut self, volume: u64, duration_ns: u64) {
        let (v, mut t) = (volume as f64, duration_ns as f64);
        if let Some(law) = self.law() {
            t = t.min(OUTLIER * (law.fixed + law.per_byte * v));
        }
        self.seen = self.seen.saturating_add(1);
        for (sum, value) in self.sums.iter_mut().zip([1.0, v, v * v, t, v * t]) {
            *sum = *sum * MEMORY + value;
        }
    }

    /// `None` before enough was seen, and where all volumes were alike.
    pub fn law(&self) -> Option<Law> {
        let [n, v, vv, t, vt] = self.sums;
        if self.seen < SEEN_MIN {
            return None;
        }
        let (v, vv, t, vt) = (v / n, vv / n, t / n, vt / n);
        let variance = vv - v * v;
        // Lengths that hardly differ do not make a line: noise would tilt it any way.
        if variance < 0.01 * v * v || v <= 0.0 {
            return None;
        }
        // Never nothing: then any amount of padding would be free.
        let per_byte = ((vt - v * t) / variance).clamp(0.1 * t / v, t / v);
        Some(Law { fixed: (t - per_byte * v).max(0.0), per_byte })
    }

    /// What a run costs beside its volume, in bytes. Before it is known: as much as the mean of those that wait.
    pub fn fixed_bytes(&self, mean_row: f64) -> f64 {
        match self.law() {
            Some(law) if law.per_byte > 0.0 => (law.fixed + DISPATCH_NS) / law.per_byte,
            _ => mean_row,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One input of one length, with so many bytes for each token.
    fn tokens(bytes: u64) -> Padding {
        Padding { tensors: vec![PaddedTensor { bytes, dims: SmallVec::from_slice(&[0]) }] }
    }

    fn check(lengths: &[u32], rows_max: u32, fixed: f64, expected: &[usize]) {
        let candidates: Vec<_> =
            lengths.iter().map(|l| Candidate { rows: 1, lengths: std::slice::from_ref(l) }).collect();
        assert_eq!(pick(&tokens(1), fixed, rows_max, &candidates)[..], *expected, "{lengths:?}, fixed {fixed}");
    }

    #[test]
    fn near_lengths_run_together_and_far_ones_do_not() {
        check(&[10], 8, 30.0, &[0]);
        check(&[10, 10, 10], 8, 30.0, &[0, 1, 2]);
        check(&[10, 12, 100, 110], 8, 30.0, &[0, 1]);
        check(&[100, 12, 10, 110], 8, 30.0, &[0, 3]);
        check(&[10, 30], 8, 19.0, &[0]); // twenty of padding for nineteen
        check(&[10, 30], 8, 21.0, &[0, 1]);
        check(&[10, 10, 10, 10], 2, 30.0, &[0, 1]);
        check(&[50, 50], 8, 0.0, &[0]); // nothing to save
    }

    #[test]
    fn the_oldest_is_always_in_the_run_also_where_the_others_are_a_better_batch() {
        check(&[128, 8, 8, 8, 8, 8, 8, 8], 8, 30.0, &[0]);
    }

    #[test]
    fn rows_count_as_they_are() {
        let length = [10u32];
        let of = |rows| Candidate { rows, lengths: &length };
        let pick =
            |rows: &[u32]| pick(&tokens(1), 30.0, 8, &rows.iter().map(|&r| of(r)).collect::<Vec<_>>()).into_vec();
        assert_eq!(pick(&[9, 1]), [0], "larger than a batch may be: alone");
        assert_eq!(pick(&[5, 4, 3]), [0], "the second does not fit beside the first");
        assert_eq!(pick(&[5, 3, 4]), [0, 1]);
    }

    #[test]
    fn a_short_request_never_takes_the_memory_of_a_long_one() {
        // However much a run of its own would cost.
        check(&[1, 100_000], 8, 1e18, &[0]);
        check(&[1, ROW_BYTES_FREE as u32], 8, 1e18, &[0, 1]);
        check(&[1, ROW_BYTES_FREE as u32 + 1], 8, 1e18, &[0]);
        check(&[100_000, 400_000], 8, 1e18, &[0, 1]);
        check(&[100_000, 400_001], 8, 1e18, &[0]);
        check(&[20 << 20, 22 << 20, 22 << 20], 8, 1e15, &[0]); // the other two are 44 MiB together, all three 66
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
        assert_eq!(pick(&padding, 30.0, 8, &candidates)[..], [0, 2], "equal in size, far in length");
        let square = Padding { tensors: vec![PaddedTensor { bytes: 4, dims: SmallVec::from_slice(&[0, 0]) }] };
        assert_eq!(square.row_bytes(&[10]), 400);
        assert_eq!(square.row_bytes(&[u32::MAX]), u64::MAX, "no overflow");
    }

    #[test]
    fn what_a_run_costs_beside_its_volume_is_learned() {
        let mut fit = Fit::default();
        assert_eq!(fit.fixed_bytes(500.0), 500.0);
        for i in 0..200u64 {
            // 30 tokens' worth of 40 µs each; one run in ten was preempted.
            let v = 8 + i * 37 % 120;
            fit.observe(v, 1_190_000 + 40_000 * v + if i % 10 == 9 { 50_000_000 } else { 0 });
        }
        let fixed = fit.fixed_bytes(0.0);
        assert!((10.0..60.0).contains(&fixed), "{fixed}");
        let mut alike = Fit::default();
        (0..100).for_each(|i| alike.observe(1000, 1_000_000 + i));
        assert_eq!(alike.law(), None, "one volume is no line");
        let mut noise = Fit::default();
        (0..100u64).for_each(|i| noise.observe(10 + i % 10, 2_000_000 - i % 10 * 10_000));
        assert!(noise.law().is_some_and(|l| l.per_byte > 0.0), "padding is never free");
    }
}
