//! Cost of executions for the batcher: mean durations per class and size, and the line t(b) = a + c·b through them.
//!
//! Answers three questions: how long an execution will take, which size costs too much per row, and what a batch saves.
//! Returns `None` until it has seen enough. A size not seen for long is quickly corrected when seen again, and a size
//! just above the best is tried now and then, so a wrong conclusion from a noisy moment does not last.

use super::remembered::remembered;
use smallvec::SmallVec;

/// Classes remembered per model. A model with free dims can have thousands; rare ones are evicted.
const CLASSES_MAX: usize = 32;
/// Executions of a size before its mean is used to limit sizes.
const SEEN_MIN: u16 = 16;
/// A size not seen for this many executions of its class is out of date: new values weigh more.
const STALE_AFTER: u32 = 128;
/// One in this many executions may use a size above the best, whose cost may have changed.
const PROBE_EVERY: u32 = 256;
/// Executions of a size before its mean is used to predict.
const SEEN_TO_PREDICT: u16 = 3;
/// Cost of an execution outside its measured duration: waking an instance and responding takes 5–15 µs.
const DISPATCH_NS: f32 = 10_000.0;
/// A size whose rows cost up to this factor of the cheapest is as good.
const TOLERANCE: f32 = 1.03;
/// Under steady overload only full batches run, and smaller ones would never be measured. After `EXPLORE_AFTER`
/// executions, one in `EXPLORE_EVERY` takes half of its rows, until that size is known.
const EXPLORE_AFTER: u32 = 64;
const EXPLORE_EVERY: u32 = 16;
/// Executions between two searches for the best size.
const REFRESH_EVERY: u32 = 16;

/// Learned costs of one model.
#[derive(Default)]
pub(crate) struct Costs {
    /// Frequent classes first.
    classes: Vec<(u64, Box<Curve>)>,
}

/// t(b) = `fixed` + `per_row`·b, ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CostLine {
    pub fixed: f64,
    pub per_row: f64,
}

impl Costs {
    pub fn observe(&mut self, class: u64, rows: u32, duration_ns: u64) {
        let known = remembered(&mut self.classes, CLASSES_MAX, |(c, _)| *c == class, || (class, Box::default()));
        if let Some((_, curve)) = known {
            curve.observe(rows.max(1), duration_ns);
        }
    }

    fn curve(&self, class: u64) -> Option<&Curve> {
        self.classes.iter().find(|(c, _)| *c == class).map(|(_, curve)| &**curve)
    }

    /// Predicted duration of an execution, ns.
    pub fn predict(&self, class: u64, rows: u32) -> Option<u64> {
        self.curve(class)?.predict(rows.max(1))
    }

    /// Maximum number of the `rows` to take; `None` for no limit.
    pub fn rows_worth(&self, class: u64, rows: u32) -> Option<u32> {
        let curve = self.curve(class)?;
        let largest = curve.rows_worth.unwrap_or(u32::MAX);
        let rows = rows.min(largest);
        if rows > 1 && curve.executions >= EXPLORE_AFTER && curve.executions.is_multiple_of(EXPLORE_EVERY) {
            let half = 1 << (rows - 1).ilog2();
            if curve.sizes.get(slot(half)).is_none_or(|s| s.seen < SEEN_MIN) {
                return Some(half);
            }
        }
        match curve.rows_worth {
            Some(worth) if curve.executions.is_multiple_of(PROBE_EVERY) => Some(slot_rows_max(slot(worth) + 1)),
            worth => worth,
        }
    }

    /// The line of the most frequent class.
    pub fn usual_line(&self) -> Option<CostLine> {
        self.classes.first()?.1.line
    }

    /// The line through the measured means; `None` before two sizes were measured.
    pub fn line(&self, class: u64) -> Option<CostLine> {
        self.curve(class)?.line
    }
}

/// Costs of one class.
#[derive(Default)]
struct Curve {
    executions: u32,
    /// Indexed by `slot`.
    sizes: SmallVec<[Size; 8]>,
    rows_worth: Option<u32>,
    line: Option<CostLine>,
}

/// Means of one size, or of a narrow range of large sizes.
#[derive(Default, Clone, Copy)]
struct Size {
    /// Mean rows: large sizes share a slot.
    rows: f32,
    ns_per_row: f32,
    seen: u16,
    /// Number of executions that the means stand for.
    weight: u16,
    /// Value of `executions` when the size was last seen.
    last: u32,
}

/// Sizes up to 8 have a slot each; larger ones share a quarter of their octave.
fn slot(rows: u32) -> usize {
    if rows <= 8 {
        return rows.max(1) as usize - 1;
    }
    // 9 belongs to the slot up to 10, and 16 to the slot up to 16.
    let octave = (rows - 1).ilog2();
    let quarter = (rows - 1) >> (octave - 2) & 3;
    8 + (octave as usize - 3) * 4 + quarter as usize
}

/// Largest size of a slot.
fn slot_rows_max(slot: usize) -> u32 {
    if slot < 8 {
        return slot as u32 + 1;
    }
    let (octave, quarter) = ((slot as u64 - 8) / 4 + 3, (slot as u64 - 8) % 4);
    u32::try_from((4 + quarter + 1) << (octave - 2)).unwrap_or(u32::MAX)
}

impl Curve {
    fn observe(&mut self, rows: u32, duration_ns: u64) {
        self.executions = self.executions.wrapping_add(1);
        let slot = slot(rows);
        if self.sizes.len() <= slot {
            self.sizes.resize(slot + 1, Size::default());
        }
        let Some(size) = self.sizes.get_mut(slot) else { return };
        let mut ns_per_row = duration_ns as f32 / rows as f32;
        if size.seen >= SEEN_MIN {
            // The model did not cause the length of a preempted execution.
            ns_per_row = ns_per_row.min(2.0 * size.ns_per_row);
        }
        if self.executions.wrapping_sub(size.last) > STALE_AFTER {
            size.weight = size.weight.min(2);
        }
        // A plain mean at first, then over the last 32 or so.
        size.seen = size.seen.saturating_add(1);
        size.weight = (size.weight + 1).min(32);
        size.ns_per_row += (ns_per_row - size.ns_per_row) / f32::from(size.weight);
        size.rows += (rows as f32 - size.rows) / f32::from(size.weight);
        size.last = self.executions;
        if self.executions.is_multiple_of(REFRESH_EVERY) {
            self.refresh();
        }
    }

    fn refresh(&mut self) {
        let known = || {
            let sizes = self.sizes.iter().enumerate().filter(|(_, s)| s.seen >= SEEN_MIN);
            sizes.map(|(slot, s)| (slot, s.ns_per_row + DISPATCH_NS / slot_rows_max(slot) as f32))
        };
        let best = known().map(|(_, cost)| cost).fold(f32::INFINITY, f32::min);
        let good = known().filter(|(_, cost)| *cost <= best * TOLERANCE).map(|(slot, _)| slot).max();
        let worse_above = known().any(|(slot, _)| Some(slot) > good);
        self.rows_worth = good.filter(|_| worse_above).map(slot_rows_max);
        self.line = self.fit();
    }

    fn predict(&self, rows: u32) -> Option<u64> {
        let seen = |s: &&Size| s.seen >= SEEN_TO_PREDICT;
        if let Some(size) = self.sizes.get(slot(rows)).filter(seen) {
            return Some((size.ns_per_row * rows as f32) as u64);
        }
        if let Some(line) = self.line {
            return Some((line.fixed + line.per_row * f64::from(rows)) as u64);
        }
        // Only one size is known: a smaller batch takes no longer, a larger one at most in proportion.
        let (slot, size) = self.sizes.iter().enumerate().find(|(_, s)| seen(s))?;
        Some((size.ns_per_row * rows.max(slot_rows_max(slot)) as f32) as u64)
    }

    /// Least squares through the means of the sizes. All sizes weigh the same, however long ago they were seen: under
    /// steady load only one would be left.
    fn fit(&self) -> Option<CostLine> {
        let mut sums = [0.0; 5];
        for size in self.sizes.iter().filter(|s| s.seen >= SEEN_TO_PREDICT) {
            let (rows, per_row) = (f64::from(size.rows), f64::from(size.ns_per_row));
            for (sum, value) in sums.iter_mut().zip([1.0, rows, rows * per_row, rows * rows, rows * rows * per_row]) {
                *sum += value;
            }
        }
        let [count, rows, ns, rows_rows, rows_ns] = sums;
        if count < 2.0 {
            return None;
        }
        let (rows, ns) = (rows / count, ns / count);
        let variance = rows_rows / count - rows * rows;
        // Two neighbours do not make a line: noise would tilt it.
        if variance < 0.02 * rows * rows {
            return None;
        }
        let per_row = ((rows_ns / count - rows * ns) / variance).max(0.0);
        Some(CostLine { fixed: (ns - per_row * rows).max(0.0), per_row })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(t: impl Fn(u32) -> u64, sizes: &[u32], times: u32) -> Costs {
        let mut costs = Costs::default();
        for _ in 0..times {
            for &rows in sizes {
                costs.observe(7, rows, t(rows));
            }
        }
        costs
    }

    #[test]
    fn every_size_is_within_its_slot() {
        for rows in 1..100_000u32 {
            let at = slot(rows);
            assert!(rows <= slot_rows_max(at), "{rows} in slot {at} up to {}", slot_rows_max(at));
            assert!(at == 0 || rows > slot_rows_max(at - 1), "{rows} would fit slot {}", at - 1);
        }
        assert_eq!(slot_rows_max(slot(u32::MAX)), u32::MAX);
    }

    #[test]
    fn the_line_through_two_sizes_is_found() {
        let line = learned(|b| 100_000 + 5_000 * u64::from(b), &[1, 8], 20).line(7).unwrap();
        assert!((line.fixed - 100_000.0).abs() < 100.0 && (line.per_row - 5_000.0).abs() < 20.0, "{line:?}");
        assert_eq!(learned(|_| 100, &[4], 100).line(7), None, "one size is no line");
    }

    #[test]
    fn predictions_need_three_observations_of_a_size() {
        let t = |b| 100_000 + 5_000 * u64::from(b);
        assert_eq!(learned(t, &[1], 2).predict(7, 1), None);
        assert_eq!(learned(t, &[1], 3).predict(7, 1), Some(105_000));
        assert_eq!(learned(t, &[4], 3).predict(7, 1), Some(120_000), "no more than four rows cost");
        assert_eq!(learned(t, &[4], 3).predict(7, 8), Some(240_000), "at most in proportion");
        assert_eq!(learned(t, &[4], 3).predict(8, 4), None, "another class");
        let four = learned(t, &[1, 8], 20).predict(7, 4).unwrap();
        assert!(four.abs_diff(120_000) < 200, "on the line: {four}");
    }

    #[test]
    fn sizes_that_cost_more_per_row_are_avoided() {
        let square = |b: u32| 1_000_000 * u64::from(b * b);
        assert_eq!(learned(square, &[1, 2, 4, 8], 32).rows_worth(7, 1), Some(1));
        let cliff = |b: u32| u64::from(b) * if b <= 4 { 1_000_000 } else { 1_100_000 } + 500_000;
        assert_eq!(learned(cliff, &[1, 4, 8], 32).rows_worth(7, 1), Some(4));
        let linear = |b: u32| 1_000_000 * u64::from(b);
        assert_eq!(learned(linear, &[1, 8], 32).rows_worth(7, 1), None, "equal is good");
        // 2 µs a row at any size: a batch only saves the dispatch.
        assert_eq!(learned(|b| 2_100 * u64::from(b), &[1, 8], 32).rows_worth(7, 1), None);
        assert_eq!(learned(square, &[1, 8], 8).rows_worth(7, 8), None, "too little evidence");
    }

    #[test]
    fn under_overload_smaller_sizes_are_explored_down_to_the_best() {
        let mut costs = Costs::default();
        let mut sizes = vec![];
        for _ in 0..4000 {
            let rows = costs.rows_worth(7, 32).unwrap_or(32);
            sizes.push(rows);
            costs.observe(7, rows, 100_000 * u64::from(rows) + 40_000 * u64::from(rows * rows));
        }
        assert_eq!(sizes[..64], [32; 64], "not before it has run for a while");
        let last = &sizes[3500..];
        assert!(last.iter().filter(|&&r| r == 1).count() > 480, "{last:?}");
        // Where batches pay, half sizes are tried a few times and never again.
        let mut costs = Costs::default();
        let mut halves = 0;
        for _ in 0..4000 {
            let rows = costs.rows_worth(7, 32).unwrap_or(32);
            halves += u32::from(rows != 32);
            costs.observe(7, rows, 100_000 + 1_000 * u64::from(rows));
        }
        assert_eq!(halves, u32::from(SEEN_MIN));
    }

    #[test]
    fn a_size_that_became_cheaper_is_used_again() {
        let mut costs = learned(|b| 1_000_000 * u64::from(b * b), &[1, 2], 32);
        let (mut ones, mut twos) = (0, 0);
        while costs.rows_worth(7, 1).is_some() && twos < 100 {
            let rows = costs.rows_worth(7, 1).unwrap();
            *(if rows == 1 { &mut ones } else { &mut twos }) += 1;
            costs.observe(7, rows, 1_000_000);
        }
        assert!(twos <= 5 && ones > 100 * twos, "after {ones} of one row and {twos} of two");
    }

    #[test]
    fn rare_classes_neither_evict_a_frequent_one_nor_exceed_the_limit() {
        let mut costs = learned(|_| 100, &[1], 64);
        for class in 1000..3000 {
            costs.observe(class, 1, 1);
            costs.observe(7, 1, 100);
        }
        assert_eq!(costs.classes.len(), CLASSES_MAX);
        assert_eq!(costs.predict(7, 1), Some(100));
    }
}
