//! Inline runs that held their reactor for too long, and how long requests of their model then run on the pool.
//!
//! Such a rest lasts a second, and twice as long after each one that did not help: a machine that was busy for a moment
//! costs a model little, and a model that is slow for some inputs is tried ever more rarely. It also lasts at least a
//! thousand times what the overruns took. So, whatever clients send, overruns of a model take at most a thousandth of a
//! reactor's time, plus 3 µs per request.

/// An inline run that took this many times its limit is an overrun.
pub const OVERRUN: u64 = 2;
/// Inline runs that are measured exactly after one that may have been an overrun.
const EXACT_RUNS: u32 = 16;

/// CPU time of an inline run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HoldTime {
    /// Lower bound of the CPU time; `None` if the run was too short to be measured.
    pub cpu_ns: Option<u64>,
    /// True if `cpu_ns` is exact.
    pub exact: bool,
}

/// Overruns of one model, and whether the model causes them.
///
/// A single one says little: of 3 million runs of 12 µs beside busy neighbours, 1 in 2300 took more than 50 µs of CPU,
/// because interrupts, the hypervisor and cold caches are charged to the thread. They come in bunches, up to 11 in 256
/// runs, and one took 627 µs. A model that is slow for some inputs differs in the sum. So overruns are a debt: each
/// adds the CPU it took, each inline run repays an eighth of the limit, and more than 1 ms, as much as a reactor may be
/// held at once, is too much. With a limit of 25 µs, noise reached 0.63 ms; and whatever a client sends, overruns hold
/// the reactor for 1 ms, plus 3 µs per request.
#[derive(Default)]
struct Overruns {
    debt_ns: u64,
}

/// A larger debt stops inline runs of a model for a while, even if a single run caused it.
const DEBT_NS_MAX: u64 = 1_000_000;
/// Each inline run repays this fraction of its limit.
const REPAID_SHARE: u64 = 8;

/// Length of the first rest.
const REST_NS_MIN: u64 = 1_000_000_000;
/// Maximum of doubled rests; only the length of overruns can make one longer.
const REST_NS_MAX: u64 = 1_024_000_000_000;
/// A rest lasts at least this many times the overruns before it.
const REST_PER_OVERRUN: u64 = 1_000;
/// After inline runs without trouble for this many times the last rest, the next one is a first one again.
const FORGIVEN_AFTER_RESTS: u64 = 64;

impl Overruns {
    /// Counts an inline run; `cpu_ns` is `None` if it was not measured. Returns the debt if it is too much.
    fn ran(&mut self, cpu_ns: Option<u64>, limit_ns: u64) -> Option<u64> {
        self.debt_ns = self.debt_ns.saturating_sub(limit_ns / REPAID_SHARE);
        let cpu_ns = cpu_ns.filter(|&ns| ns > OVERRUN * limit_ns)?;
        self.debt_ns = self.debt_ns.saturating_add(cpu_ns);
        (self.debt_ns > DEBT_NS_MAX).then_some(self.debt_ns)
    }
}

/// Whether a model may run inline.
#[derive(Default)]
pub(super) struct Inline {
    overruns: Overruns,
    /// End of the rest; 0 = not resting.
    rests_until: u64,
    /// End and length of the last rest; 0 = there was none.
    rested_at: u64,
    rested_ns: u64,
    /// Number of runs still to be measured exactly.
    exact_runs: u32,
}

impl Inline {
    pub fn is_resting(&self) -> bool {
        self.rests_until > 0
    }

    /// Ends the rest if its time is over.
    pub fn wake(&mut self, now: u64) {
        if self.is_resting() && now >= self.rests_until {
            self.rested_at = now;
            self.rests_until = 0;
            // The first runs show whether the model caused the overruns.
            self.exact_runs = EXACT_RUNS;
        }
    }

    pub fn needs_exact_time(&self) -> bool {
        self.exact_runs > 0
    }

    /// Judges a run that ended at `now`. If overruns were too much, returns the length of the rest.
    pub fn ran(&mut self, ran: HoldTime, limit_ns: u64, now: u64) -> Option<u64> {
        self.exact_runs = self.exact_runs.saturating_sub(1);
        if let Some(debt_ns) = self.overruns.ran(ran.cpu_ns, limit_ns) {
            return self.rest(debt_ns, now);
        }
        if ran.cpu_ns.is_some() && !ran.exact {
            self.exact_runs = EXACT_RUNS;
        }
        None
    }

    fn rest(&mut self, debt_ns: u64, now: u64) -> Option<u64> {
        self.overruns = Overruns::default();
        if self.is_resting() {
            // Several reactors had an overrun at the same time.
            return None;
        }
        let is_forgiven = now.saturating_sub(self.rested_at) > self.rested_ns.saturating_mul(FORGIVEN_AFTER_RESTS);
        let next = if is_forgiven { REST_NS_MIN } else { self.rested_ns.saturating_mul(2) };
        let rest_ns = next.clamp(REST_NS_MIN, REST_NS_MAX).max(debt_ns.saturating_mul(REST_PER_OVERRUN));
        self.rested_ns = rest_ns;
        self.rests_until = now.saturating_add(rest_ns).max(1);
        Some(rest_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const LIMIT: u64 = 25_000;

    fn exactly(cpu_ns: u64) -> HoldTime {
        HoldTime { cpu_ns: Some(cpu_ns), exact: true }
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn one_run_above_the_debt_limit_stops_inline_runs_for_a_while() {
        let mut inline = Inline::default();
        assert_eq!(inline.ran(exactly(DEBT_NS_MAX), LIMIT, 5), None, "at the limit");
        let mut inline = Inline::default();
        let rest = inline.ran(exactly(DEBT_NS_MAX + 1), LIMIT, 5).expect("too much");
        assert!((SECOND..SECOND + SECOND / 100).contains(&rest), "{rest}");
        assert_eq!(inline.ran(exactly(DEBT_NS_MAX + 1), LIMIT, 6), None, "is told once");
        inline.wake(5 + rest - 1);
        assert!(inline.is_resting());
        inline.wake(5 + rest);
        assert!(!inline.is_resting() && inline.needs_exact_time());
    }

    /// Simulates a client that sends slow inputs whenever they run inline; returns rests and CPU time of overruns.
    fn attacked(cpu_ns: u64, seconds: u64) -> (u32, u64) {
        let (mut inline, mut rests, mut held_ns, mut now) = (Inline::default(), 0, 0, 0);
        while now < seconds * SECOND {
            if inline.is_resting() {
                now += SECOND / 10;
                inline.wake(now);
            } else {
                now += cpu_ns;
                held_ns += cpu_ns;
                rests += u32::from(inline.ran(exactly(cpu_ns), LIMIT, now).is_some());
            }
        }
        (rests, held_ns)
    }

    #[test]
    fn an_attack_takes_at_most_a_thousandth_of_the_reactor_time() {
        // 1 + 2 + 4 + … s in an hour.
        let (rests, held_ns) = attacked(250_000, 3_600);
        assert!((11..=13).contains(&rests) && held_ns < 20_000_000, "{rests} rests, {held_ns} ns");
        for cpu_ns in [51_000, 300_000, 2_000_000, 50_000_000, 4 * SECOND] {
            let (_, held_ns) = attacked(cpu_ns, 36_000);
            let most = 36_000 * SECOND / 1_000 + cpu_ns + DEBT_NS_MAX;
            assert!(held_ns < most, "{cpu_ns}: {held_ns}");
        }
    }

    #[test]
    fn rests_start_at_a_second_again_after_a_long_good_time() {
        let mut inline = Inline::default();
        let mut now = 0;
        let mut rest_after = |well_ns: u64| {
            now += well_ns;
            let rest = inline.ran(exactly(DEBT_NS_MAX + 1), LIMIT, now).expect("too much") / SECOND;
            now += rest * SECOND + SECOND;
            inline.wake(now);
            rest
        };
        assert_eq!([0, 1, 1, 1].map(|s| rest_after(s * SECOND)), [1, 2, 4, 8]);
        assert_eq!(rest_after(100 * SECOND), 16, "not long enough for a rest of 8 s");
        assert_eq!(rest_after(2_000 * SECOND), 1);
    }

    /// Every `period`th run takes `cpu_us`: returns the run that ends inline runs, and the CPU time of overruns.
    fn alternating(cpu_us: u64, period: u64) -> Option<(u64, u64)> {
        let (mut overruns, mut held_us) = (Overruns::default(), 0);
        (1..=1_000_000).find_map(|run| {
            let dear = run % period == 0;
            held_us += if dear { cpu_us } else { 0 };
            overruns.ran(dear.then_some(cpu_us * 1000), LIMIT).map(|_| (run, held_us))
        })
    }

    #[test]
    fn a_client_that_alternates_cheap_and_slow_inputs_is_detected() {
        // Twice the limit and a little, five times, ten times, forty times.
        assert_eq!(alternating(51, 1), Some((21, 1071)));
        assert_eq!(alternating(51, 2), Some((46, 1173)));
        assert_eq!(alternating(125, 2), Some((18, 1125)));
        assert_eq!(alternating(250, 2), Some((10, 1250)));
        assert_eq!(alternating(250, 16), Some((80, 1250)));
        assert_eq!(alternating(1001, 1000), Some((1000, 1001)));
        // Overruns so rare that they are repaid cost at most 3.125 µs per request.
        assert_eq!(alternating(51, 17), None);
        assert_eq!(alternating(250, 80), None);
        assert_eq!(alternating(250, 79).map(|(run, held)| held - run * 25 / 8 <= 1_250), Some(true), "slowly");
    }

    #[test]
    fn recorded_noise_does_not_stop_inline_runs() {
        // The worst 256 of 3 million runs of 12 µs (number, µs of CPU), on two shared cores under a hypervisor.
        const BUNCH: [(u64, u64); 11] = [
            (0, 107),
            (2, 50),
            (6, 66),
            (7, 83),
            (9, 60),
            (45, 53),
            (55, 69),
            (120, 60),
            (127, 106),
            (130, 99),
            (234, 102),
        ];
        // CPU time of single overruns, by quantile: 0, 25, 50, 75, 90, 95, 99 %.
        const TOOK: [u64; 7] = [51, 52, 56, 65, 79, 96, 150];
        const RUNS_PER_OVERRUN: u64 = 1_750;
        let (mut overruns, mut random, mut worst) = (Overruns::default(), 88_172_645_463_325_252u64, 0);
        for run in 0..4_000_000u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let bunch = BUNCH.iter().find(|(at, _)| run % 100_000 == *at).map(|(_, us)| *us);
            let single = (random % RUNS_PER_OVERRUN == 0).then(|| TOOK[(random >> 32) as usize % TOOK.len()]);
            let longest = (run % 3_000_000 == 1_000_000).then_some(627);
            let us = longest.or(bunch).or(single);
            assert_eq!(overruns.ran(us.map(|us| us * 1000), LIMIT), None, "run {run}");
            worst = worst.max(overruns.debt_ns);
        }
        assert!(worst > 600_000, "{worst} ns");
    }

    #[test]
    fn after_a_possible_overrun_the_next_runs_are_measured_exactly() {
        let mut cost = Inline::default();
        cost.ran(HoldTime { cpu_ns: Some(0), exact: false }, LIMIT, 0);
        for run in 0..EXACT_RUNS {
            assert!(cost.needs_exact_time(), "run {run}");
            cost.ran(HoldTime::default(), LIMIT, 0);
        }
        assert!(!cost.needs_exact_time());
    }
}
