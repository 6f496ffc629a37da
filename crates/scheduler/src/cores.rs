//! How many runs of a model share its cores: one after another on all cores ("wide"), or several at once on a part each
//! ("narrow").
//!
//! N requests wait or run. In p runs at once, each of N/p requests, they are done after (a + c·N/p) ÷ s(n/p), with the
//! cost a + c·b of a batch on one core, n cores, and the speedup s(k) of a run on k cores. The p with the earliest end
//! is taken; without batches a run has one request, and N/p of them follow each other. So a model that computes in
//! proportion to its input runs narrow as soon as two requests are there, and one that reads its weights for each run
//! stays wide and batches.
//!
//! s(n) is learned: a wide run is compared with the cost on one core. All costs are kept as those of one core, so that
//! wide and narrow runs are on one line. Between 1 and n, Amdahl's law gives s(k).

/// Speedup of each further core before it is measured.
const EFFICIENCY: f64 = 0.7;
/// Weight of one comparison of a wide run, the first ones and later, and factor by which one may differ: more is a
/// disturbed run.
const LEARNS: [f64; 2] = [1.0 / 4.0, 1.0 / 16.0];
const FIRST: u32 = 16;
const OUTLIER: f64 = 1.25;
/// A plan has to be so much faster than one with fewer runs, which is simpler and batches more.
const WORTH: f64 = 0.97;

/// Which cores a run had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Plan {
    /// The model has no plans.
    #[default]
    None,
    /// So many of all cores, from beginning to end.
    On {
        /// Cores of this run.
        cores: u32,
        /// Cores of the model.
        of: u32,
    },
    /// Other runs began or ended meanwhile: nothing is learned from it.
    Mixed,
}

impl Plan {
    /// The plan of a run on `of` cores, by the number of runs in progress when it began and when it ended.
    pub fn of(of: u32, began: u32, ended: u32) -> Self {
        let each = |runs: u32| of / runs.max(1);
        if each(began) == each(ended) && each(began) > 0 { Self::On { cores: each(began), of } } else { Self::Mixed }
    }
}

/// Cores and requests in use while the scheduler decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InUse {
    /// Requests of the model that run.
    pub requests: u32,
    /// Runs of other models on the same cores.
    pub others: u32,
}

/// The other plan is tried in a few of so many runs, wide more often than narrow, because wide runs say more.
const TRIED: std::ops::Range<u32> = 8..12;
const TRY_WIDE_EVERY: u32 = 256;
const TRY_NARROW_EVERY: u32 = 2048;

/// Learned speedup of a run on all cores.
#[derive(Default)]
pub(crate) struct Speedup {
    whole: Option<f64>,
    compared: u32,
    runs: u32,
}

impl Speedup {
    /// s(k) of a machine with `cores`.
    fn of(&self, k: f64, cores: u32) -> f64 {
        let n = f64::from(cores.max(1));
        let whole = self.whole.unwrap_or(1.0 + EFFICIENCY * (n - 1.0)).clamp(1.0, n);
        if n <= 1.0 || k <= 1.0 {
            return 1.0;
        }
        // Amdahl: s(n) = 1 ÷ (serial + (1 − serial)/n).
        let serial = (n / whole - 1.0) / (n - 1.0);
        1.0 / (serial + (1.0 - serial) / k)
    }

    /// Cost on one core of a run that took `duration` under `plan`; `expected` is the cost known so far. `None` if
    /// nothing can be learned.
    pub(crate) fn on_one_core(&mut self, plan: Plan, duration: u64, expected: Option<u64>) -> Option<u64> {
        if plan != Plan::None {
            self.runs = self.runs.wrapping_add(1);
        }
        let (cores, of) = match plan {
            Plan::None => return Some(duration),
            Plan::Mixed => return None,
            Plan::On { cores, of } => (f64::from(cores), of),
        };
        if let Some(expected) = expected.filter(|_| cores == f64::from(of) && of > 1) {
            let known = self.of(cores, of);
            let seen = expected as f64 / duration.max(1) as f64;
            let seen = seen.clamp(known / OUTLIER, known * OUTLIER);
            self.compared = self.compared.saturating_add(1);
            self.whole = Some(known + (seen - known) * LEARNS[usize::from(self.compared > FIRST)]);
        }
        Some((duration as f64 * self.of(cores, of)) as u64)
    }

    /// Number of runs to have in progress for `requests` that wait or run, on `free` of `cores`. `cost` is a and c of a
    /// batch; `None` without batches, or if it is unknown: then every request counts for itself.
    pub(crate) fn runs(&self, cores: u32, free: u32, requests: u32, cost: Option<(f64, f64)>) -> u32 {
        let end = |runs: u32| {
            let each = f64::from(requests.div_ceil(runs));
            let time = cost.map_or(each, |(fixed, per_request)| fixed + per_request * each);
            time / self.of(f64::from(free) / f64::from(runs), cores)
        };
        let mut best = (1, end(1));
        for runs in 2..=free.min(requests) {
            let time = end(runs);
            if time < best.1 * WORTH {
                best = (runs, time);
            }
        }
        let tried = |every: u32| TRIED.contains(&(self.runs % every));
        let first = if self.compared < FIRST { 8 } else { 1 };
        match best.0 {
            1 if tried(TRY_NARROW_EVERY) => free.min(requests).max(1),
            more if more > 1 && tried(TRY_WIDE_EVERY / first) => 1,
            best => best,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Plan = Plan::On { cores: 2, of: 2 };

    fn known(speedup: f64) -> Speedup {
        Speedup { whole: Some(speedup), ..Speedup::default() }
    }

    fn runs(speedup: f64, cores: u32, requests: u32, cost: Option<(f64, f64)>) -> u32 {
        known(speedup).runs(cores, cores, requests, cost)
    }

    #[test]
    fn one_request_runs_on_all_cores() {
        for cost in [None, Some((1e6, 1e6))] {
            assert_eq!(runs(1.7, 2, 1, cost), 1);
            assert_eq!(runs(6.0, 16, 1, cost), 1);
        }
    }

    #[test]
    fn requests_that_do_not_batch_run_side_by_side() {
        assert_eq!(runs(1.7, 2, 2, None), 2);
        assert_eq!(runs(1.7, 2, 32, None), 2);
        assert_eq!(runs(4.0, 8, 3, None), 3, "two cores are shared, which is better than waiting");
        assert_eq!(runs(4.0, 8, 100, None), 8);
    }

    #[test]
    fn three_requests_on_two_cores_do_not_wait_for_a_perfect_speedup() {
        assert_eq!(runs(2.0, 2, 3, None), 1, "side by side, the third would have one core");
        assert_eq!(runs(2.0, 2, 4, None), 1, "nothing is gained");
        assert_eq!(runs(1.2, 2, 3, None), 2);
    }

    #[test]
    fn a_model_that_reads_its_weights_for_each_run_stays_together() {
        assert_eq!(runs(1.7, 2, 8, Some((1e6, 1e4))), 1, "the batch is nearly free");
        assert_eq!(runs(1.7, 2, 8, Some((1e5, 1e6))), 2, "the batch gains nothing");
    }

    #[test]
    fn cores_that_others_use_are_not_counted() {
        let speedup = known(1.7);
        assert_eq!(speedup.runs(2, 1, 8, None), 1);
        assert_eq!(known(3.0).runs(4, 2, 8, None), 2);
    }

    #[test]
    fn the_other_plan_is_tried_now_and_then() {
        let mut speedup = Speedup { compared: FIRST, ..known(1.7) };
        let mut wide = 0;
        for _ in 0..2 * TRY_WIDE_EVERY {
            wide += u32::from(speedup.runs(2, 2, 8, None) == 1);
            speedup.on_one_core(Plan::On { cores: 1, of: 2 }, 1000, None);
        }
        assert_eq!(wide, 8, "four of {TRY_WIDE_EVERY}");
    }

    #[test]
    fn the_speedup_is_learned_from_wide_runs() {
        let mut speedup = Speedup::default();
        assert_eq!(speedup.on_one_core(Plan::On { cores: 1, of: 2 }, 1000, Some(5000)), Some(1000));
        for _ in 0..100 {
            speedup.on_one_core(WIDE, 1000, Some(1200));
        }
        assert!((speedup.of(2.0, 2) - 1.2).abs() < 0.02, "{}", speedup.of(2.0, 2));
        assert!((speedup.on_one_core(WIDE, 1000, None).unwrap_or(0) as f64 - 1200.0).abs() < 20.0);
        assert_eq!(speedup.on_one_core(Plan::Mixed, 1000, Some(5000)), None);
        assert_eq!(Plan::of(4, 1, 1), Plan::On { cores: 4, of: 4 });
        assert_eq!([Plan::of(4, 1, 2), Plan::of(2, 3, 3)], [Plan::Mixed, Plan::Mixed]);
        for _ in 0..3 {
            speedup.on_one_core(WIDE, 1_000_000, Some(1200));
        }
        assert!(speedup.of(2.0, 2) > 1.05, "preempted runs do not count fully");
    }
}
