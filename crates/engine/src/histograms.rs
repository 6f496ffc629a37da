//! Histograms of one version: times, rows and tokens of batches, and traced requests as examples of their buckets.
//! Pure. A counter adds to them under the lock that it has anyway, so they agree with the counters.
//!
//! The sums of some are counters of the version (`crate::statistics`), and rows are counted there by batch size.

use std::collections::BTreeMap;

/// Upper bounds of times, in ns: 1, 2 and 5 times a power of ten, because objectives are such numbers. No two of them
/// have the same highest bit, so one comparison finds a bucket.
const BOUNDS_NS: [u64; 21] = [
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
    20_000_000_000,
    60_000_000_000,
];
/// Buckets in memory; the last ones are unused. A power of two, so that no index needs a check.
const SLOTS: usize = 32;
/// The largest bound of rows and of tokens.
const SIZE_MAX: u32 = 65_536;
/// The smallest bound of tokens.
const TOKENS_MIN: u32 = 16;

/// `BOUNDS_NS`, and then times that are never exceeded.
const LIMITS: [u64; SLOTS] = {
    let mut limits = [u64::MAX; SLOTS];
    let mut i = 0;
    while i < BOUNDS_NS.len() {
        limits[i] = BOUNDS_NS[i];
        i += 1;
    }
    limits
};

/// By the highest bit of a time: the first bucket that has room for a time with this bit alone.
const FIRST: [u8; 64] = {
    let mut first = [0; 64];
    let mut bit = 0;
    while bit < 64 {
        let mut i = 0;
        while LIMITS[i] < 1 << bit {
            i += 1;
        }
        first[bit] = i as u8;
        bit += 1;
    }
    first
};

/// The bucket of a time.
#[inline(always)]
fn bucket(ns: u64) -> usize {
    let first = usize::from(FIRST[(ns | 1).ilog2() as usize & 63]) & (SLOTS - 1);
    first + usize::from(ns > LIMITS[first])
}

/// The bucket of a number of rows or tokens, if the first bound is `2^first`.
fn size_bucket(size: u64, first: u32) -> usize {
    let power = u64::BITS - size.saturating_sub(1).leading_zeros();
    power.saturating_sub(first) as usize
}

/// Powers of two from `from` to one that is not below `to`.
fn sizes(from: u32, to: u32) -> Vec<f64> {
    let last = to.clamp(from, SIZE_MAX).next_power_of_two();
    (from.ilog2()..=last.ilog2()).map(|power| f64::from(1 << power)).collect()
}

/// Counts per bucket.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Buckets([u64; SLOTS]);

impl Buckets {
    #[inline(always)]
    pub(crate) fn observe(&mut self, ns: u64) {
        self.0[bucket(ns) & (SLOTS - 1)] += 1;
    }
}

/// Times that a version counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub(crate) enum Time {
    Request = 0,
    Queue = 1,
    Compute = 2,
    FirstResponse = 3,
    Tokenizing = 4,
}

/// Properties of a version that decide which histograms it has, and their bounds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HistogramShape {
    /// True if requests may have many responses.
    pub(crate) is_decoupled: bool,
    /// Rows of the largest batch; 0 or 1 without batches.
    pub(crate) rows_max: u32,
    /// Tokens of the largest batch of a text model.
    pub(crate) tokens_max: Option<u32>,
}

/// A traced request in a bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// Index of the bucket.
    pub bucket: u32,
    /// Id of the trace.
    pub trace: String,
    /// The observed value.
    pub value: f64,
    /// When the request ended, in seconds since the epoch.
    pub time: f64,
}

/// A histogram as it is shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VersionHistogram {
    /// `request`, `queue`, `compute`, `first_response` or `tokenizing` (seconds), `rows` or `tokens` (of a batch).
    pub family: &'static str,
    /// Upper bounds of the buckets.
    pub bounds: Vec<f64>,
    /// Counts per bucket, not cumulative; one more than bounds.
    pub counts: Vec<u64>,
    /// Sum of the observed values.
    pub sum: f64,
    /// The last traced requests of some buckets.
    pub exemplars: Vec<Exemplar>,
}

/// The trace of an observed time, and when its request ended.
struct Example {
    trace: String,
    ns: u64,
    ended_ns: u64,
}

/// The histograms of one version.
#[derive(Default)]
pub(crate) struct Histograms {
    shape: HistogramShape,
    times: [Buckets; 5],
    /// Sums of the times that no counter has.
    first_response_ns: u64,
    tokenizing_ns: u64,
    tokens: Buckets,
    tokens_sum: u64,
    /// The last traced request of each bucket.
    examples: BTreeMap<(Time, usize), Example>,
}

impl Histograms {
    pub(crate) fn new(shape: HistogramShape) -> Self {
        Self { shape, ..Self::default() }
    }

    #[inline(always)]
    pub(crate) fn observe(&mut self, time: Time, ns: u64) {
        self.times[time as usize].observe(ns);
    }

    pub(crate) fn first_response(&mut self, ns: u64) {
        if self.shape.is_decoupled {
            self.first_response_ns += ns;
            self.observe(Time::FirstResponse, ns);
        }
    }

    pub(crate) fn tokenized(&mut self, ns: u64) {
        self.tokenizing_ns += ns;
        self.observe(Time::Tokenizing, ns);
    }

    /// Counts the tokens of a batch.
    pub(crate) fn batch_of_tokens(&mut self, tokens: u64) {
        self.tokens_sum += tokens;
        self.tokens.0[size_bucket(tokens, TOKENS_MIN.ilog2()).min(SLOTS - 1)] += 1;
    }

    /// Keeps the trace of a request as the example of this time's bucket.
    pub(crate) fn exemplify(&mut self, time: Time, ns: u64, trace: &str, ended_ns: u64) {
        self.examples.insert((time, bucket(ns)), Example { trace: trace.to_owned(), ns, ended_ns });
    }

    /// The histograms that this version has. `sums_ns` are those of requests, queue and compute, `batches` are sizes of
    /// executed batches with their number.
    pub(crate) fn read(
        &self,
        sums_ns: [u64; 3],
        batches: impl Iterator<Item = (u64, u64)>,
        epoch_ms: u64,
    ) -> Vec<VersionHistogram> {
        let [request, queue, compute] = sums_ns;
        let time = |family, time: Time, sum_ns: u64| self.time(family, time, sum_ns, epoch_ms);
        let mut all = vec![
            time("request", Time::Request, request),
            time("queue", Time::Queue, queue),
            time("compute", Time::Compute, compute),
        ];
        if self.shape.is_decoupled {
            all.push(time("first_response", Time::FirstResponse, self.first_response_ns));
        }
        if self.shape.rows_max > 1 {
            let bounds = sizes(1, self.shape.rows_max);
            let mut counts = vec![0; bounds.len() + 1];
            let mut sum = 0;
            for (rows, number) in batches {
                sum += rows * number;
                let last = bounds.len();
                counts[size_bucket(rows, 0).min(last)] += number;
            }
            all.push(VersionHistogram { family: "rows", bounds, counts, sum: sum as f64, exemplars: Vec::new() });
        }
        if let Some(tokens_max) = self.shape.tokens_max {
            let (family, bounds) = ("tokens", sizes(TOKENS_MIN, tokens_max));
            let counts = cut(&self.tokens, bounds.len());
            all.push(VersionHistogram { family, bounds, counts, sum: self.tokens_sum as f64, exemplars: Vec::new() });
            all.push(time("tokenizing", Time::Tokenizing, self.tokenizing_ns));
        }
        all
    }

    fn time(&self, family: &'static str, time: Time, sum_ns: u64, epoch_ms: u64) -> VersionHistogram {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let exemplar = |(&(_, bucket), example): (&(Time, usize), &Example)| Exemplar {
            bucket: bucket as u32,
            trace: example.trace.clone(),
            value: seconds(example.ns),
            time: (epoch_ms + example.ended_ns / 1_000_000) as f64 / 1e3,
        };
        VersionHistogram {
            family,
            bounds: BOUNDS_NS.map(seconds).to_vec(),
            counts: cut(&self.times[time as usize], BOUNDS_NS.len()),
            sum: seconds(sum_ns),
            exemplars: self.examples.range((time, 0)..=(time, SLOTS)).map(exemplar).collect(),
        }
    }
}

/// The counts of as many bounds, and of the values above the last one.
fn cut(buckets: &Buckets, bounds: usize) -> Vec<u64> {
    let (counts, above) = buckets.0.split_at(bounds);
    counts.iter().copied().chain([above.iter().sum()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let near = BOUNDS_NS.iter().flat_map(|&bound| [bound - 1, bound, bound + 1]);
        let powers = (0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for ns in near.chain(powers).chain([u64::MAX]) {
            let searched = BOUNDS_NS.iter().position(|&bound| ns <= bound).unwrap_or(BOUNDS_NS.len());
            assert_eq!(bucket(ns), searched, "{ns} ns");
        }
    }

    #[test]
    fn a_size_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        assert_eq!([0, 1, 2, 3, 4, 5, 8, 9, 1 << 40].map(|n| size_bucket(n, 0)), [0, 0, 1, 2, 2, 3, 3, 4, 40]);
        assert_eq!([1, 16, 17, 32, 33].map(|n| size_bucket(n, 4)), [0, 0, 1, 1, 2]);
        assert_eq!(sizes(1, 12), [1.0, 2.0, 4.0, 8.0, 16.0]);
        assert_eq!(sizes(16, 8), [16.0]);
        assert_eq!(sizes(1, u32::MAX).last(), Some(&f64::from(SIZE_MAX)));
    }

    #[test]
    fn a_version_has_the_histograms_that_it_can_fill() {
        let families = |shape| -> Vec<_> {
            Histograms::new(shape).read([0; 3], std::iter::empty(), 0).iter().map(|h| h.family).collect()
        };
        assert_eq!(families(HistogramShape::default()), ["request", "queue", "compute"]);
        let all = HistogramShape { is_decoupled: true, rows_max: 4, tokens_max: Some(64) };
        let names = ["request", "queue", "compute", "first_response", "rows", "tokens", "tokenizing"];
        assert_eq!(families(all), names);
    }

    #[test]
    fn sizes_above_the_last_bound_are_counted_there() {
        let shape = HistogramShape { rows_max: 4, tokens_max: Some(32), ..HistogramShape::default() };
        let mut histograms = Histograms::new(shape);
        [3, 32, 33, 1 << 40].into_iter().for_each(|tokens| histograms.batch_of_tokens(tokens));
        let read = histograms.read([0; 3], [(0, 1), (1, 2), (4, 3), (9, 5)].into_iter(), 0);
        let of = |family| read.iter().find(|h| h.family == family).expect("a family");
        assert_eq!((&of("tokens").counts[..], of("tokens").sum), (&[1, 1, 2][..], f64::from(68) + 2f64.powi(40)));
        assert_eq!((&of("rows").counts[..], of("rows").sum), (&[3, 0, 3, 5][..], 59.0));
    }

    #[test]
    fn a_bucket_keeps_its_last_trace() {
        let mut histograms = Histograms::default();
        histograms.exemplify(Time::Queue, 15_000, "a", 1_000_000);
        histograms.exemplify(Time::Queue, 16_000, "b", 2_500_000);
        histograms.exemplify(Time::Request, 1, "c", 3_000_000);
        let read = histograms.read([0; 3], std::iter::empty(), 1000);
        let b = Exemplar { bucket: 1, trace: "b".into(), value: 0.000_016, time: 1.002 };
        assert_eq!(read[1].exemplars, [b]);
        assert_eq!(read[0].exemplars.len(), 1);
        assert!(read[2].exemplars.is_empty());
    }
}
