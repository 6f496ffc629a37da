//! Decides whether a model is cheap enough to run on the thread that brings the request.
//!
//! A reactor must not be held: nothing but a run of a few microseconds may happen on it, and nothing can stop a run there. So only
//! models whose cost follows from the shapes of their inputs are asked about here at all (`Model::cost_may_depend_on_data`); what
//! they cost is learned per class of shapes, from runs on the pool, and a class that was not seen is not guessed at.
//!
//! What counts is what the model costs when nothing disturbs it: a reactor that is preempted in the middle of a run did not block
//! because of the model. So the estimate follows fast runs quickly and slow ones slowly, overruns are judged on the thread's
//! CPU clock, and by their sum.

use std::cell::Cell;

/// Classes remembered per model. A model with free dims can have thousands; the rare ones give way, and run on the pool.
const CLASSES_MAX: usize = 128;
/// Runs of a class before its estimate is believed.
const SEEN_MIN: u16 = 4;
/// An inline run that took this many times its limit by the monotonic clock is looked at on the CPU clock. If it took as much there,
/// it is an overrun.
const OVERRUN: u64 = 2;
/// After a run that may have been an overrun so many are measured exactly.
const DOUBTED_RUNS: u32 = 16;
/// How old the thread's last reading of its CPU clock may be before a run. By so much a single overrun can be underestimated.
const READING_AGE_NS: u64 = 1_000_000;

/// Runs that cost about the same: the class of shapes the scheduler uses, and rows and bytes to a power of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RunClass(u64);

impl RunClass {
    /// `bytes` only where they do not follow from the rest: of strings, and of ragged inputs.
    pub(crate) fn new(shapes: u64, rows: u32, bytes: u64) -> Self {
        // `shapes` is 0 or a keyed hash: no client can find two that differ in the low bits alone.
        let bytes = u64::from(u64::BITS - bytes.leading_zeros());
        Self(shapes ^ (bytes << 8) ^ u64::from(rows.max(1).ilog2()))
    }
}

/// What is known about one class.
#[derive(Clone, Copy)]
struct Estimate {
    class: RunClass,
    ns: f32,
    seen: u16,
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

/// What is known about the cost of one model.
#[derive(Default)]
pub(crate) struct InlineCost {
    /// Frequent classes first.
    classes: Vec<Estimate>,
    overruns: Overruns,
    /// They were too much: never again.
    ended: bool,
    /// Runs to be measured exactly.
    doubted: u32,
}

impl InlineCost {
    /// Whether a run of this class is expected to take less than `limit_ns`.
    pub(crate) fn is_cheap(&self, class: RunClass, limit_ns: u64) -> bool {
        let known = self.classes.iter().find(|e| e.class == class);
        known.is_some_and(|e| e.seen >= SEEN_MIN && e.ns < limit_ns as f32) && !self.ended
    }

    /// Learns from a run, wherever it ran.
    pub(crate) fn observe(&mut self, class: RunClass, duration_ns: u64) {
        let at = match self.classes.iter().position(|e| e.class == class) {
            // One step towards the front: a frequent class is found quickly, and a flood of rare ones cannot push it out.
            Some(at) if at > 0 => {
                self.classes.swap(at, at - 1);
                at - 1
            }
            Some(at) => at,
            None => {
                self.classes.truncate(CLASSES_MAX - 1);
                self.classes.push(Estimate { class, ns: 0.0, seen: 0 });
                self.classes.len() - 1
            }
        };
        let Some(Estimate { ns, seen, .. }) = self.classes.get_mut(at) else { return };
        let new = duration_ns as f32;
        *ns = match (*seen, new < *ns) {
            (0, _) => new,
            (_, true) => *ns + (new - *ns) / 4.0,
            (_, false) => *ns + (new.min(2.0 * *ns) - *ns) / 64.0,
        };
        *seen = seen.saturating_add(1);
    }

    /// Whether the next inline run is to be measured exactly.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted > 0
    }

    /// Judges a run that held the thread that brought it. Returns whether it is the one that ends inline runs of the model.
    pub(crate) fn ran_inline(&mut self, ran: Held, limit_ns: u64) -> bool {
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

/// How long a run held its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Held {
    /// CPU it used, at least; `None` when it was too short to be looked at.
    cpu_ns: Option<u64>,
    /// That is all it used.
    exact: bool,
}

thread_local! {
    /// When this thread read its CPU clock last, and what it said.
    static READING: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Begins a run on this thread. The CPU clock is read when it was not for a while, so that a run that proves long can be judged:
/// with 30 µs per request, for one in thirty.
pub(crate) fn hold(now: u64, exact: bool) {
    READING.with(|r| {
        if exact || now.saturating_sub(r.get().0) > READING_AGE_NS {
            r.set((now, memory::thread::cpu_ns()));
        }
    });
}

/// Ends the run that went from `start` to `end`.
pub(crate) fn held(start: u64, end: u64, exact: bool, limit_ns: u64) -> Held {
    let duration = end.saturating_sub(start);
    if duration <= OVERRUN * limit_ns {
        return Held::default();
    }
    let (at, before) = READING.get();
    let cpu = memory::thread::cpu_ns();
    READING.set((end, cpu));
    Held { cpu_ns: Some(used(duration, cpu.saturating_sub(before), start.saturating_sub(at))), exact }
}

/// CPU that a run used at least: what was used since the last reading, less all the time before the run.
fn used(duration: u64, since_reading: u64, before_run: u64) -> u64 {
    since_reading.saturating_sub(before_run).min(duration)
}

/// Turns in a row with fewer than `TOGETHER` requests, after which the next request does not wait for the end of its turn.
const ALONE_TURNS: u32 = 16;
/// Requests of one turn that are worth a batch. Two clients who are answered together ask again together, and wait for each other: one
/// by one, each thinks while the other is served, which is worth more than their batch (MLP, two clients: 25k requests/s one by
/// one, 15k to 20k in twos).
const TOGETHER: usize = 3;
/// A request that comes this soon after the run of another was there already: parsing takes a few microseconds, a client's next
/// request tens.
const CLOSE_NS: u64 = 15_000;

/// Requests that are run one by one after a turn was collected in vain, the first time and at most. Requests right behind each other
/// are only a sign: two clients that answer within microseconds look like many.
const REST: std::ops::RangeInclusive<u32> = 256..=4096;

/// Whether a request of a batching model waits for the end of its turn, because others are likely to arrive in it. A request that stays
/// alone loses a fifth of its rate by that wait (MLP, one client), and gains nothing.
#[derive(Default)]
pub(crate) struct TurnPolicy {
    alone: u32,
    last_run_end: u64,
    /// Requests in a row that came right behind the run of another.
    close: usize,
    /// Requests to run one by one before signs are looked at again; twice as many after each time they misled.
    rest: u32,
    next_rest: u32,
}

impl TurnPolicy {
    /// Whether to collect requests from now on.
    pub(crate) fn expected(&mut self, now: u64) -> bool {
        if self.alone < ALONE_TURNS {
            return true;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return false;
        }
        self.close = if now.saturating_sub(self.last_run_end) < CLOSE_NS { self.close + 1 } else { 0 };
        let is_together = self.close + 1 >= TOGETHER;
        if is_together {
            self.alone = 0;
        }
        is_together
    }

    /// A turn ended with that many requests.
    pub(crate) fn turn_of(&mut self, requests: usize) {
        if requests >= TOGETHER {
            (self.alone, self.next_rest) = (0, 0);
            return;
        }
        self.alone = self.alone.saturating_add(1);
        if self.alone == ALONE_TURNS {
            self.rest = self.next_rest;
            self.next_rest = (2 * self.next_rest).clamp(*REST.start(), *REST.end());
            self.close = 0;
        }
    }

    /// A run on the reactor ended.
    pub(crate) fn ran(&mut self, end: u64) {
        self.last_run_end = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const LIMIT: u64 = 25_000;

    fn class(rows: u32) -> RunClass {
        RunClass::new(0, rows, 0)
    }

    fn learned(durations: &[u64]) -> InlineCost {
        let mut cost = InlineCost::default();
        durations.iter().for_each(|&d| cost.observe(class(1), d));
        cost
    }

    fn exactly(cpu_ns: u64) -> Held {
        Held { cpu_ns: Some(cpu_ns), exact: true }
    }

    #[test]
    fn a_cheap_model_stays_inline_through_preemptions() {
        let mut cost = learned(&[3_000; 8]);
        for i in 0..1000u64 {
            let (duration, held) = if i % 10 == 0 { (4_000_000, exactly(3_000)) } else { (3_000, Held::default()) };
            assert!(!cost.ran_inline(held, LIMIT));
            cost.observe(class(1), duration);
            assert!(cost.is_cheap(class(1), LIMIT), "run {i}");
        }
    }

    #[test]
    fn one_run_of_more_than_a_reactor_may_be_held_ends_inline_for_good() {
        let mut cost = learned(&[3_000; 8]);
        assert!(!cost.ran_inline(exactly(DEBT_NS_MAX), LIMIT), "at the limit");
        let mut cost = learned(&[3_000; 8]);
        assert!(cost.ran_inline(exactly(DEBT_NS_MAX + 1), LIMIT));
        assert!(!cost.is_cheap(class(1), LIMIT));
        assert!(!cost.ran_inline(exactly(DEBT_NS_MAX + 1), LIMIT), "is told once");
        (0..1000).for_each(|_| cost.observe(class(1), 3_000));
        assert!(!cost.is_cheap(class(1), LIMIT), "whatever it costs later");
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
        let mut cost = learned(&[3_000; 8]);
        cost.ran_inline(Held { cpu_ns: Some(0), exact: false }, LIMIT);
        for run in 0..DOUBTED_RUNS {
            assert!(cost.is_doubted(), "run {run}");
            cost.ran_inline(Held::default(), LIMIT);
        }
        assert!(!cost.is_doubted());
    }

    #[test]
    fn a_run_is_charged_what_it_used_at_least() {
        // Duration, CPU since the reading, time between the reading and the run.
        assert_eq!(used(1_000, 900, 0), 900, "read right before");
        assert_eq!(used(4_000_000, 30_000, 0), 30_000, "preempted");
        assert_eq!(used(60_000, 700_000, 900_000), 0, "it may all have been used before");
        assert_eq!(used(3_800_000_000, 3_800_500_000, 900_000), 3_799_600_000);
        assert_eq!(used(1_000, 900_000, 100), 1_000, "never more than it took");
    }

    #[test]
    fn a_run_on_this_thread_is_judged_by_what_it_computed() {
        let spin = |ns: u64| {
            let until = memory::thread::cpu_ns() + ns;
            while memory::thread::cpu_ns() < until {}
        };
        let run = |work: &dyn Fn()| {
            let start = backend::now_ns();
            hold(start, false);
            work();
            held(start, backend::now_ns(), false, LIMIT)
        };
        assert_eq!(run(&|| ()).cpu_ns, None);
        let slept = run(&|| std::thread::sleep(std::time::Duration::from_millis(20))).cpu_ns;
        assert!(slept.is_some_and(|ns| ns < DEBT_NS_MAX), "{slept:?}");
        let spun = run(&|| spin(5_000_000)).cpu_ns;
        assert!(spun.is_some_and(|ns| ns > 3_000_000), "{spun:?}");
    }

    #[test]
    fn one_client_stops_waiting_and_a_third_is_noticed() {
        let mut turn_policy = TurnPolicy::default();
        for i in 0..u64::from(ALONE_TURNS) {
            assert!(turn_policy.expected(i * 100_000 + 50_000));
            turn_policy.turn_of(1);
            turn_policy.ran(i * 100_000 + 60_000);
        }
        let now = u64::from(ALONE_TURNS) * 100_000;
        assert!(!turn_policy.expected(now), "alone for long");
        turn_policy.ran(now + 10_000);
        assert!(!turn_policy.expected(now + 13_000), "two are not enough");
        turn_policy.ran(now + 23_000);
        assert!(turn_policy.expected(now + 26_000), "a third right behind");
        turn_policy.turn_of(3);
        assert!(turn_policy.expected(now + 900_000), "and it is remembered");
    }

    #[test]
    fn two_clients_are_soon_served_one_by_one() {
        let mut turn_policy = TurnPolicy::default();
        let mut turns = 0;
        for i in 0..1000u64 {
            let now = i * 60_000;
            if turn_policy.expected(now) {
                turns += 1;
                turn_policy.turn_of(2);
                turn_policy.ran(now + 20_000);
            } else {
                turn_policy.ran(now + 10_000);
                assert!(!turn_policy.expected(now + 12_000));
                turn_policy.ran(now + 22_000);
            }
        }
        assert_eq!(turns, ALONE_TURNS);
    }

    #[test]
    fn two_clients_that_come_back_at_once_are_taken_for_more_ever_more_rarely() {
        let mut turn_policy = TurnPolicy::default();
        let collected = (0..100_000u64).filter(|i| {
            let now = i * 20_000;
            let collects = turn_policy.expected(now);
            if collects {
                turn_policy.turn_of(2);
            }
            turn_policy.ran(now + 10_000);
            collects
        });
        assert!(collected.count() < 100_000 / 100);
        // A third client ends that.
        let until = (100_000..200_000u64).find(|i| {
            let collects = turn_policy.expected(i * 20_000);
            turn_policy.ran(i * 20_000 + 10_000);
            collects
        });
        assert!(until.is_some_and(|i| i - 100_000 < u64::from(*REST.end()) + 16), "{until:?}");
        turn_policy.turn_of(3);
        assert!((0..1000).all(|_| {
            turn_policy.turn_of(3);
            turn_policy.expected(u64::MAX)
        }));
    }

    #[test]
    fn nothing_is_cheap_before_its_class_was_seen() {
        assert!(!learned(&[3_000; 3]).is_cheap(class(1), LIMIT));
        let cost = learned(&[3_000; 9]);
        assert!(cost.is_cheap(class(1), LIMIT));
        assert!(!cost.is_cheap(class(64), LIMIT), "more rows");
        assert!(!cost.is_cheap(RunClass::new(7, 1, 0), LIMIT), "other shapes");
        assert!(!cost.is_cheap(RunClass::new(0, 1, 1 << 20), LIMIT), "longer strings");
    }

    #[test]
    fn a_flood_of_classes_cannot_push_out_a_frequent_one() {
        let mut cost = learned(&[3_000; 8]);
        for shapes in 1..100_000u64 {
            cost.observe(RunClass::new(shapes << 16, 1, 0), 3_000);
            if shapes % 16 == 0 {
                cost.observe(class(1), 3_000);
            }
            assert!(cost.is_cheap(class(1), LIMIT) && cost.classes.len() <= CLASSES_MAX);
        }
    }
}
