//! Limits of abuse. Pure: the caller has the clock.

use crate::limits::{TROUBLE_FORGIVEN_EVERY, TROUBLE_MAX};
use crate::options::Pings;
use std::time::{Duration, Instant};

/// Counts actions that cost the server more than the client: streams reset before they are answered (by the client, or
/// by us for its errors), settings, and consecutive pings. Answered calls and time reduce the count.
#[derive(Debug, Default)]
pub struct Trouble {
    count: u32,
    forgiven_at: Option<Instant>,
}

impl Trouble {
    /// Counts an answered call.
    pub fn forgive(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// Counts an abuse; returns true if there were too many.
    pub fn add(&mut self, now: Instant) -> bool {
        let before = self.forgiven_at.get_or_insert(now);
        let times = now.saturating_duration_since(*before).as_nanos() / TROUBLE_FORGIVEN_EVERY.as_nanos();
        if times > 0 {
            *before = now;
            self.count = self.count.saturating_sub(u32::try_from(times).unwrap_or(u32::MAX));
        }
        self.count += 1;
        self.count > TROUBLE_MAX
    }
}

/// Minimum interval of pings without an open stream, whatever the policy allows with one.
const IDLE_INTERVAL: Duration = Duration::from_secs(2 * 3600);

/// Strikes of a client that pings too often.
#[derive(Debug, Default)]
pub struct Strikes {
    count: u32,
    last: Option<Instant>,
}

impl Strikes {
    /// True if a ping came and only its answer was sent since.
    pub fn has_pinged(&self) -> bool {
        self.last.is_some()
    }

    /// Forgets the pings, because something else was sent.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Counts a ping; returns true if it was one too many.
    pub fn ping(&mut self, policy: &Pings, now: Instant, has_streams: bool) -> bool {
        let last = self.last.replace(now);
        if policy.interval_min.is_zero() {
            return false;
        }
        let interval = if has_streams || policy.without_streams { policy.interval_min } else { IDLE_INTERVAL };
        let too_soon = last.is_some_and(|last| now.saturating_duration_since(last) < interval);
        if too_soon {
            self.count = self.count.saturating_add(1);
        }
        policy.strikes_max > 0 && self.count > policy.strikes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn trouble_is_forgiven_by_answers_and_by_time() {
        let start = Instant::now();
        let mut trouble = Trouble::default();
        assert!((0..TROUBLE_MAX).all(|_| !trouble.add(start)));
        assert!(trouble.add(start));
        trouble.forgive();
        trouble.forgive();
        assert!(!trouble.add(start) && trouble.add(start));
        let later = start + TROUBLE_FORGIVEN_EVERY * 20;
        assert!((0..19).all(|_| !trouble.add(later)));
        assert!(trouble.add(later));
        assert!(!trouble.add(later + ms(3_600_000)));
    }

    /// Sends pings at these times (ms), each with whether a stream is open and whether it ends the connection.
    fn check(policy: Pings, pings: &[(u64, bool, bool)]) {
        let (start, mut strikes) = (Instant::now(), Strikes::default());
        for &(at, has_streams, ends) in pings {
            assert_eq!(strikes.ping(&policy, start + ms(at), has_streams), ends, "at {at} ms of {pings:?}");
        }
    }

    #[test]
    fn d12_more_strikes_than_allowed_end_the_connection() {
        let policy = Pings { interval_min: ms(100), strikes_max: 2, ..Pings::default() };
        check(policy, &[(0, true, false), (10, true, false), (20, true, false), (30, true, true)]);
        check(
            policy,
            &[(0, true, false), (100, true, false), (200, true, false), (300, true, false), (400, true, false)],
        );
        // Without a stream the interval is two hours.
        check(policy, &[(0, false, false), (200, false, false), (400, false, false), (600, false, true)]);
        let allowed = Pings { without_streams: true, ..policy };
        check(allowed, &[(0, false, false), (200, false, false), (400, false, false), (600, false, false)]);
        let any = Pings { strikes_max: 0, ..policy };
        check(any, &[(0, true, false), (1, true, false), (2, true, false), (3, true, false), (4, true, false)]);
        check(Pings::default(), &[(0, true, false), (1, true, false), (2, true, false), (3, true, false)]);
    }

    #[test]
    fn d12_output_between_pings_clears_the_strikes() {
        let policy = Pings { interval_min: ms(100), strikes_max: 1, ..Pings::default() };
        let (start, mut strikes) = (Instant::now(), Strikes::default());
        for n in 0..10 {
            assert!(!strikes.ping(&policy, start + ms(n), true));
            assert!(!strikes.ping(&policy, start + ms(n), true));
            strikes.clear();
        }
    }
}
