//! How long an inline run held its thread, and whether requests wait for the end of the reactor's turn.
//!
//! A reactor must not be held: only runs of a few microseconds may happen on it, because nothing can interrupt them. So
//! only models whose cost follows from the shapes of their inputs may run inline
//! (`Capabilities::cost_may_depend_on_data`); [`scheduler::profile`] learns that cost, from runs on the pool first.
//!
//! The undisturbed cost of the model counts: if a reactor is preempted during a run, the model did not cause it. So
//! overruns are judged on the thread's CPU clock, and by their sum.

use memory::thread::{last_cpu_reading, read_cpu};
use protocol::InferRequest;
use scheduler::profile::{HoldTime, OVERRUN};
use std::sync::atomic::{AtomicBool, Ordering};
use tensor::{Base, Location, RegionRef};

/// Maximum age of the thread's last CPU reading before a run. A single overrun can be underestimated by as much.
const READING_AGE_NS: u64 = 1_000_000;

/// Begins an inline run. Reads the CPU clock unless it was read recently, so that a long run can be judged. A busy
/// reactor reads it more often for its own account (`frontend::hold`), so runs there need not.
#[inline]
pub(crate) fn hold(now: u64, exact: bool) {
    if exact || now.saturating_sub(last_cpu_reading().at) > READING_AGE_NS {
        read_cpu(now);
    }
}

/// Ends an inline run, and returns how long it held the thread.
#[inline]
pub(crate) fn held(start: u64, end: u64, exact: bool, limit_ns: u64) -> HoldTime {
    let duration = end.saturating_sub(start);
    if duration <= OVERRUN * limit_ns {
        return HoldTime::default();
    }
    if duration > LONG_NS {
        RAN_LONG.store(true, Ordering::Relaxed);
    }
    let before = last_cpu_reading();
    let since_reading = read_cpu(end).cpu_ns.saturating_sub(before.cpu_ns);
    HoldTime { cpu_ns: Some(used(duration, since_reading, start.saturating_sub(before.at))), exact }
}

/// Duration of an inline run that its record has to show, though the request did not wait.
const LONG_NS: u64 = 1_000_000;

/// One flag for all threads is enough: another thread only reads its clock once in vain.
static RAN_LONG: AtomicBool = AtomicBool::new(false);

/// Whether an inline run took a millisecond since the last call: of a model that was cheap so far.
#[inline]
pub fn ran_long() -> bool {
    RAN_LONG.load(Ordering::Relaxed) && RAN_LONG.swap(false, Ordering::Relaxed)
}

/// Lower bound of the CPU time of a run: the CPU used since the last reading, minus all time before the run.
fn used(duration: u64, since_reading: u64, before_run: u64) -> u64 {
    since_reading.saturating_sub(before_run).min(duration)
}

/// Consecutive turns with fewer than `TOGETHER` requests after which requests stop waiting for the end of their turn.
const ALONE_TURNS: u32 = 16;
/// Requests of one turn that are worth a batch. Two clients that get their responses together send again together, and
/// wait for each other; one by one, each prepares its request while the other is served, which is worth more (MLP, two
/// clients: 25k requests/s one by one, 15k to 20k in twos).
const TOGETHER: usize = 3;
/// A request this soon after another's run had arrived before: parsing takes a few µs, a client's next request tens.
const CLOSE_NS: u64 = 15_000;

/// True if a run of this request copies from or to a device. The device decides how long that takes, on no clock of
/// this thread, so a reactor must not do it. Without devices a single branch.
#[inline]
pub(crate) fn waits_for_device(request: &InferRequest) -> bool {
    device::has_devices() && touches_device(request)
}

#[cold]
fn touches_device(request: &InferRequest) -> bool {
    let inputs = request.inputs.iter().any(|input| matches!(input.data.location(), Location::Device(_)));
    let is_on_device = |region: &RegionRef| matches!(region.base(), Base::Device(_));
    inputs || request.outputs.iter().any(|output| output.region.as_ref().is_some_and(is_on_device))
}

/// Requests run one by one after collecting a turn brought no third request, the first time and at most. Requests close
/// to each other are only a hint: two clients that send again within microseconds look like many.
const REST: std::ops::RangeInclusive<u32> = 256..=4096;

/// Decides whether a request of a batching model waits for the end of its turn, because others are likely to arrive in
/// it. A client alone loses a fifth of its rate by such waits (MLP), and gains nothing.
#[derive(Default)]
pub(crate) struct TurnPolicy {
    alone: u32,
    last_run_end: u64,
    /// Consecutive requests that arrived right after the run of another.
    close: usize,
    /// Requests to run one by one before collecting again; doubled after each turn without a third request.
    rest: u32,
    next_rest: u32,
}

impl TurnPolicy {
    /// True if requests should be collected now.
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

    /// Ends a turn with this many requests.
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

    /// Ends a run on the reactor.
    pub(crate) fn ran(&mut self, end: u64) {
        self.last_run_end = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const LIMIT: u64 = 25_000;
    /// Longest time that a reactor may be held at once.
    const HOLD_NS_MAX: u64 = 1_000_000;

    #[test]
    fn a_run_is_charged_the_cpu_it_used_at_least() {
        // Duration, CPU since the reading, time between the reading and the run.
        assert_eq!(used(1_000, 900, 0), 900, "read right before");
        assert_eq!(used(4_000_000, 30_000, 0), 30_000, "preempted");
        assert_eq!(used(60_000, 700_000, 900_000), 0, "it may all have been used before");
        assert_eq!(used(3_800_000_000, 3_800_500_000, 900_000), 3_799_600_000);
        assert_eq!(used(1_000, 900_000, 100), 1_000, "never more than it took");
    }

    #[test]
    fn an_inline_run_is_judged_by_its_cpu_time() {
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
        // The clock is read after a run that was interrupted.
        assert!((0..100).any(|_| run(&|| ()).cpu_ns.is_none()));
        let slept = run(&|| std::thread::sleep(std::time::Duration::from_millis(20))).cpu_ns;
        assert!(slept.is_some_and(|ns| ns < HOLD_NS_MAX), "{slept:?}");
        let spun = run(&|| spin(5_000_000)).cpu_ns;
        assert!(spun.is_some_and(|ns| ns > 3_000_000), "{spun:?}");
    }

    #[test]
    fn a_run_after_a_recent_reading_reads_no_clock_and_is_still_judged() {
        let read = read_cpu(backend::now_ns());
        let start = read.at + READING_AGE_NS;
        hold(start, false);
        assert_eq!(last_cpu_reading(), read);
        // It used five times the limit, plus CPU that may have been used before the run.
        let until = read.cpu_ns + READING_AGE_NS + 5 * LIMIT;
        while memory::thread::cpu_ns() < until {}
        let ran = held(start, start + 5 * LIMIT, false, LIMIT);
        assert_eq!(ran, HoldTime { cpu_ns: Some(5 * LIMIT), exact: false });
        hold(last_cpu_reading().at + READING_AGE_NS + 1, false);
        assert!(last_cpu_reading().at > start + 5 * LIMIT, "the reading was too old");
        let read = last_cpu_reading();
        hold(read.at + 1, true);
        assert_eq!(last_cpu_reading().at, read.at + 1, "it is to be exact");
    }

    #[test]
    fn one_client_stops_waiting_and_a_third_is_detected() {
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
    fn burst_detection_backs_off_for_two_clients() {
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
}
