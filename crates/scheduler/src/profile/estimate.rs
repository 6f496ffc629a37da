//! Undisturbed cost of runs, by class. The estimate follows fast runs quickly and slow ones slowly.

use super::remembered::remembered;

/// Classes remembered per model. A model with free dims can have thousands; rare ones are evicted, and run on the pool.
const CLASSES_MAX: usize = 128;
/// Runs of a class before its estimate is used.
const SEEN_MIN: u16 = 4;

/// Class of runs that cost about the same: shapes as used by the scheduler, and rows and bytes to a power of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunClass(u64);

impl RunClass {
    /// `shapes` as in `Waiting::class`; `bytes` of strings and ragged inputs, whose size does not follow from the rest.
    pub fn new(shapes: u64, rows: u32, bytes: u64) -> Self {
        // `shapes` is 0 or a keyed hash: no client can find two that differ in the low bits alone.
        let bytes = u64::from(u64::BITS - bytes.leading_zeros());
        Self(shapes ^ (bytes << 8) ^ u64::from(rows.max(1).ilog2()))
    }
}

#[derive(Clone, Copy)]
struct Estimate {
    class: RunClass,
    ns: f32,
    seen: u16,
}

/// The estimates of one model.
#[derive(Default)]
pub(super) struct Estimates {
    /// Frequent classes first.
    classes: Vec<Estimate>,
}

impl Estimates {
    /// True if a run of this class is expected to take less than `limit_ns`.
    #[inline]
    pub fn is_below(&self, class: RunClass, limit_ns: u64) -> bool {
        let known = self.classes.iter().find(|e| e.class == class);
        known.is_some_and(|e| e.seen >= SEEN_MIN && e.ns < limit_ns as f32)
    }

    /// Learns from a run on any thread.
    pub fn observe(&mut self, class: RunClass, duration_ns: u64) {
        let new = || Estimate { class, ns: 0.0, seen: 0 };
        let known = remembered(&mut self.classes, CLASSES_MAX, |e| e.class == class, new);
        let Some(Estimate { ns, seen, .. }) = known else { return };
        let new = duration_ns as f32;
        *ns = match (*seen, new < *ns) {
            (0, _) => new,
            // The old estimate is from a first run or a busy machine and is dropped: 20 ms become 20 µs in five runs.
            (_, true) if new < *ns / 4.0 => *ns / 4.0,
            (_, true) => *ns + (new - *ns) / 4.0,
            (_, false) => *ns + (new.min(2.0 * *ns) - *ns) / 64.0,
        };
        *seen = seen.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const LIMIT: u64 = 25_000;

    fn class(rows: u32) -> RunClass {
        RunClass::new(0, rows, 0)
    }

    fn learned(durations: &[u64]) -> Estimates {
        let mut estimates = Estimates::default();
        durations.iter().for_each(|&d| estimates.observe(class(1), d));
        estimates
    }

    #[test]
    fn a_class_without_runs_has_no_estimate() {
        assert!(!learned(&[3_000; 3]).is_below(class(1), LIMIT));
        let cost = learned(&[3_000; 9]);
        assert!(cost.is_below(class(1), LIMIT));
        assert!(!cost.is_below(class(64), LIMIT), "more rows");
        assert!(!cost.is_below(RunClass::new(7, 1, 0), LIMIT), "other shapes");
        assert!(!cost.is_below(RunClass::new(0, 1, 1 << 20), LIMIT), "longer strings");
    }

    /// Runs until a class that took `dear_ns`, and now takes `cheap_ns`, is below the limit.
    fn relearned(dear_ns: u64, cheap_ns: u64) -> usize {
        let mut cost = learned(&[dear_ns; 100]);
        (0..1000)
            .find(|_| {
                cost.is_below(class(1), LIMIT) || {
                    cost.observe(class(1), cheap_ns);
                    false
                }
            })
            .expect("it is cheap")
    }

    #[test]
    fn a_class_that_became_cheap_is_relearned_within_a_few_runs() {
        assert_eq!(relearned(20_000_000, 10_000), 5);
        assert_eq!(relearned(3_000_000_000, 10_000), 9, "a first run that read a disk");
        assert_eq!(relearned(60_000, 20_000), 8, "close to the limit it is looked at more often");
    }

    #[test]
    fn one_fast_run_does_not_make_a_slow_class_cheap() {
        let mut cost = learned(&[120_000; 100]);
        cost.observe(class(1), 1_000);
        assert!(!cost.is_below(class(1), LIMIT));
    }

    #[test]
    fn a_flood_of_classes_cannot_evict_a_frequent_one() {
        let mut cost = learned(&[3_000; 8]);
        for shapes in 1..100_000u64 {
            cost.observe(RunClass::new(shapes << 16, 1, 0), 3_000);
            if shapes % 16 == 0 {
                cost.observe(class(1), 3_000);
            }
            assert!(cost.is_below(class(1), LIMIT) && cost.classes.len() <= CLASSES_MAX);
        }
    }
}
