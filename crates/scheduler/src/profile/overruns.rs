//! Runs that held the thread that brought their request for longer than they may, and whether that is the model's own doing.

/// An inline run that took this many times its limit is an overrun.
pub const OVERRUN: u64 = 2;
/// After a run that may have been an overrun so many are measured exactly.
const DOUBTED_RUNS: u32 = 16;

/// How long a run held the thread that brought its request, by that thread's CPU clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    /// CPU it used, at least; `None` when it was too short to be looked at.
    pub cpu_ns: Option<u64>,
    /// That is all it used.
    pub exact: bool,
}

/// Overruns of one model, and whether they are its own doing.
///
/// A single one says little: of 3 million runs of 12 µs beside busy neighbours, 1 in 2300 took more than 50 µs of CPU, since what
/// interrupts a thread, the hypervisor and cold caches are charged to it. They come in bunches, up to 11 in 256 runs, and one took
/// 627 µs. A model that is dear for some inputs differs in what it costs in sum. So overruns are a debt: each adds the CPU it took,
/// each inline run repays an eighth of the limit, and a debt of a millisecond, as much as a reactor may be held at once, is too
/// much. With 25 µs, the noise reached 0.63 ms; and whatever a client sends, overruns hold the reactor for 1 ms, plus 3 µs per
/// request.
#[derive(Default)]
struct Overruns {
    debt_ns: u64,
}

/// The debt that ends inline runs of a model; a single run of more does, too.
const DEBT_NS_MAX: u64 = 1_000_000;
/// Each inline run repays this part of its limit.
const REPAID_SHARE: u64 = 8;

impl Overruns {
    /// Counts an inline run that used `cpu_ns`, `None` when that was not worth looking at. Returns whether it is too much.
    fn ran(&mut self, cpu_ns: Option<u64>, limit_ns: u64) -> bool {
        self.debt_ns = self.debt_ns.saturating_sub(limit_ns / REPAID_SHARE);
        let Some(cpu_ns) = cpu_ns.filter(|&ns| ns > OVERRUN * limit_ns) else { return false };
        self.debt_ns = self.debt_ns.saturating_add(cpu_ns);
        self.debt_ns > DEBT_NS_MAX
    }
}

/// Whether requests of a model may go on running on the thread that brings them.
#[derive(Default)]
pub(super) struct Inline {
    overruns: Overruns,
    /// They were too much: never again.
    ended: bool,
    /// Runs to be measured exactly.
    doubted: u32,
}

impl Inline {
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    pub fn is_doubted(&self) -> bool {
        self.doubted > 0
    }

    /// Judges a run. Returns whether it is the one that ends them.
    pub fn ran(&mut self, ran: Held, limit_ns: u64) -> bool {
        self.doubted = self.doubted.saturating_sub(1);
        if self.overruns.ran(ran.cpu_ns, limit_ns) {
            return !std::mem::replace(&mut self.ended, true);
        }
        if ran.cpu_ns.is_some() && !ran.exact {
            self.doubted = DOUBTED_RUNS;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const LIMIT: u64 = 25_000;

    fn exactly(cpu_ns: u64) -> Held {
        Held { cpu_ns: Some(cpu_ns), exact: true }
    }

    #[test]
    fn one_run_of_more_than_a_reactor_may_be_held_ends_inline_for_good() {
        let mut inline = Inline::default();
        assert!(!inline.ran(exactly(DEBT_NS_MAX), LIMIT), "at the limit");
        let mut inline = Inline::default();
        assert!(inline.ran(exactly(DEBT_NS_MAX + 1), LIMIT));
        assert!(inline.has_ended());
        assert!(!inline.ran(exactly(DEBT_NS_MAX + 1), LIMIT), "is told once");
        (0..1000).for_each(|_| assert!(!inline.ran(Held::default(), LIMIT)));
        assert!(inline.has_ended(), "whatever it costs later");
    }

    /// Runs of which every `period`th takes `cpu_us`: the run that ends it, and the CPU of overruns until then.
    fn alternating(cpu_us: u64, period: u64) -> Option<(u64, u64)> {
        let (mut overruns, mut held_us) = (Overruns::default(), 0);
        (1..=1_000_000).find_map(|run| {
            let dear = run % period == 0;
            held_us += if dear { cpu_us } else { 0 };
            overruns.ran(dear.then_some(cpu_us * 1000), LIMIT).then_some((run, held_us))
        })
    }

    #[test]
    fn a_client_that_alternates_cheap_and_dear_inputs_is_found_out() {
        // Dear at twice the limit and a little, five times, ten times, forty times.
        assert_eq!(alternating(51, 1), Some((21, 1071)));
        assert_eq!(alternating(51, 2), Some((46, 1173)));
        assert_eq!(alternating(125, 2), Some((18, 1125)));
        assert_eq!(alternating(250, 2), Some((10, 1250)));
        assert_eq!(alternating(250, 16), Some((80, 1250)));
        assert_eq!(alternating(1001, 1000), Some((1000, 1001)));
        // What is so rare that it is repaid costs 3.125 µs per request at most.
        assert_eq!(alternating(51, 17), None);
        assert_eq!(alternating(250, 80), None);
        assert_eq!(alternating(250, 79).map(|(run, held)| held - run * 25 / 8 <= 1_250), Some(true), "slowly");
    }

    #[test]
    fn recorded_noise_does_not_end_inline() {
        // The worst 256 of 3 million runs of 12 µs (number, µs of CPU), on two cores that others used, with a hypervisor that took some.
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
        // What single overruns took, by quantile: 0, 25, 50, 75, 90, 95, 99 %.
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
            assert!(!overruns.ran(us.map(|us| us * 1000), LIMIT), "run {run}");
            worst = worst.max(overruns.debt_ns);
        }
        assert!(worst > 600_000, "{worst} ns");
    }

    #[test]
    fn a_run_that_may_have_been_an_overrun_makes_the_next_ones_exact() {
        let mut cost = Inline::default();
        cost.ran(Held { cpu_ns: Some(0), exact: false }, LIMIT);
        for run in 0..DOUBTED_RUNS {
            assert!(cost.is_doubted(), "run {run}");
            cost.ran(Held::default(), LIMIT);
        }
        assert!(!cost.is_doubted());
    }
}
