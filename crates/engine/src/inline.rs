//! Decides whether a model is cheap enough to run on the thread that brings the request (design row 6).
//!
//! What counts is what the model costs when nothing disturbs it: a reactor that is preempted in the middle of a run did not block
//! because of the model. So the estimate follows fast runs quickly and slow ones slowly, and one slow run changes nothing.

/// Row counts are kept apart by their power of two.
const SLOTS: usize = 16;
/// Runs before an estimate is believed.
const SEEN_MIN: u16 = 4;
/// An inline run of this many times the limit is an overrun.
const OVERRUN: u64 = 4;
/// What an overrun adds to the score, and the score at which inlining stops. A run within bounds takes one off.
const OVERRUN_WEIGHT: u32 = 4;
const SCORE_MAX: u32 = 32;
/// How long it stops.
const PENALTY_NS: u64 = 1_000_000_000;

/// What is known about the cost of one model.
#[derive(Default)]
pub(crate) struct InlineCost {
    slots: [(f32, u16); SLOTS],
    score: u32,
    blocked_until: u64,
}

impl InlineCost {
    /// Whether a run of `rows` rows is expected to take less than `limit_ns`.
    pub(crate) fn is_cheap(&self, now: u64, rows: u32, limit_ns: u64) -> bool {
        let (ns, seen) = self.slots[slot(rows)];
        now >= self.blocked_until && seen >= SEEN_MIN && ns < limit_ns as f32
    }

    /// Learns from a run, wherever it ran.
    pub(crate) fn observe(&mut self, rows: u32, duration_ns: u64) {
        let (ns, seen) = &mut self.slots[slot(rows)];
        let new = duration_ns as f32;
        *ns = match (*seen, new < *ns) {
            (0, _) => new,
            (_, true) => *ns + (new - *ns) / 4.0,
            (_, false) => *ns + (new.min(2.0 * *ns) - *ns) / 64.0,
        };
        *seen = seen.saturating_add(1);
    }

    /// Judges a run that blocked the thread that brought it.
    pub(crate) fn ran_inline(&mut self, now: u64, duration_ns: u64, limit_ns: u64) {
        if duration_ns <= OVERRUN * limit_ns {
            self.score = self.score.saturating_sub(1);
            return;
        }
        self.score += OVERRUN_WEIGHT;
        if self.score >= SCORE_MAX {
            self.score = 0;
            self.blocked_until = now + PENALTY_NS;
            // What was believed was wrong: start over with what is seen from now on.
            self.slots = Default::default();
        }
    }
}

/// Turns in a row with less than company, after which the next request is not made to wait for the end of its turn.
const ALONE_TURNS: u32 = 16;
/// Requests in a turn that are company. Two clients who are answered together ask again together, and wait for each other: one
/// by one, each thinks while the other is served, which is worth more than their batch (MLP, two clients: 25k requests/s one by
/// one, 15k to 20k in twos).
const COMPANY: usize = 3;
/// A request that comes this soon after the run of another was there already: parsing takes a few microseconds, a client's next
/// request tens.
const CLOSE_NS: u64 = 15_000;

/// Requests that are run one by one after collecting found no company, the first time and at most. Requests right behind each other
/// are only a sign: two clients that answer within microseconds look like many.
const REST: std::ops::RangeInclusive<u32> = 256..=4096;

/// Whether a request of a batching model is likely to have company in its turn. Waiting for the end of the turn costs a request
/// that stays alone a fifth of its rate (MLP, one client), and gains nothing.
#[derive(Default)]
pub(crate) struct Company {
    alone: u32,
    last_run_end: u64,
    /// Requests in a row that came right behind the run of another.
    close: usize,
    /// Requests to run one by one before signs are looked at again; twice as many after each time they misled.
    rest: u32,
    next_rest: u32,
}

impl Company {
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
        let is_company = self.close + 1 >= COMPANY;
        if is_company {
            self.alone = 0;
        }
        is_company
    }

    /// A turn ended with that many requests.
    pub(crate) fn turn_of(&mut self, requests: usize) {
        if requests >= COMPANY {
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

fn slot(rows: u32) -> usize {
    (rows.max(1).ilog2() as usize).min(SLOTS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    const LIMIT: u64 = 25_000;

    fn learned(durations: &[u64]) -> InlineCost {
        let mut cost = InlineCost::default();
        durations.iter().for_each(|&d| cost.observe(1, d));
        cost
    }

    #[test]
    fn a_cheap_model_stays_inline_through_preemptions() {
        let mut cost = learned(&[3_000; 8]);
        for i in 0..1000u64 {
            let d = if i % 10 == 0 { 4_000_000 } else { 3_000 };
            cost.ran_inline(i, d, LIMIT);
            cost.observe(1, d);
            assert!(cost.is_cheap(i, 1, LIMIT), "run {i}");
        }
    }

    #[test]
    fn a_model_that_became_slow_leaves_the_reactor_within_eight_runs() {
        let mut cost = learned(&[3_000; 8]);
        let runs = (0..100u64).take_while(|&i| {
            cost.ran_inline(i, 300_000, LIMIT);
            cost.observe(1, 300_000);
            cost.is_cheap(i + 1, 1, LIMIT)
        });
        assert!(runs.count() < 8);
        assert!(!cost.is_cheap(u64::MAX, 1, LIMIT), "and what it believed is forgotten");
    }

    #[test]
    fn a_lonely_client_stops_waiting_and_company_is_noticed() {
        let mut company = Company::default();
        for i in 0..u64::from(ALONE_TURNS) {
            assert!(company.expected(i * 100_000 + 50_000));
            company.turn_of(1);
            company.ran(i * 100_000 + 60_000);
        }
        let now = u64::from(ALONE_TURNS) * 100_000;
        assert!(!company.expected(now), "alone for long");
        company.ran(now + 10_000);
        assert!(!company.expected(now + 13_000), "two are no company");
        company.ran(now + 23_000);
        assert!(company.expected(now + 26_000), "a third right behind");
        company.turn_of(3);
        assert!(company.expected(now + 900_000), "and it is remembered");
    }

    #[test]
    fn two_clients_are_soon_served_one_by_one() {
        let mut company = Company::default();
        let mut turns = 0;
        for i in 0..1000u64 {
            let now = i * 60_000;
            if company.expected(now) {
                turns += 1;
                company.turn_of(2);
                company.ran(now + 20_000);
            } else {
                company.ran(now + 10_000);
                assert!(!company.expected(now + 12_000));
                company.ran(now + 22_000);
            }
        }
        assert_eq!(turns, ALONE_TURNS);
    }

    #[test]
    fn two_clients_that_come_back_at_once_are_taken_for_more_ever_more_rarely() {
        let mut company = Company::default();
        let collected = (0..100_000u64).filter(|i| {
            let now = i * 20_000;
            let collects = company.expected(now);
            if collects {
                company.turn_of(2);
            }
            company.ran(now + 10_000);
            collects
        });
        assert!(collected.count() < 100_000 / 100);
        // A third client ends that.
        let until = (100_000..200_000u64).find(|i| {
            let collects = company.expected(i * 20_000);
            company.ran(i * 20_000 + 10_000);
            collects
        });
        assert!(until.is_some_and(|i| i - 100_000 < u64::from(*REST.end()) + 16), "{until:?}");
        company.turn_of(3);
        assert!((0..1000).all(|_| {
            company.turn_of(3);
            company.expected(u64::MAX)
        }));
    }

    #[test]
    fn nothing_is_cheap_before_it_was_seen() {
        assert!(!learned(&[3_000; 3]).is_cheap(0, 1, LIMIT));
        assert!(!learned(&[3_000; 9]).is_cheap(0, 64, LIMIT));
    }
}
