//! A token bucket as one number: the time at which it will be full again. Pure; the caller passes `now`.
//!
//! Spending moves that time into the future by the time to refill the amount. A bucket is empty when the time is a
//! whole burst ahead. One number is one atomic: reactors share a bucket without a lock, and no change is visible in
//! parts.

use std::sync::atomic::{AtomicU64, Ordering};

/// Fill rate and capacity of a bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Time to refill one unit, in 2^-20 ns: rates up to 10^12 a second keep three digits.
    unit: u64,
    /// Time to fill the bucket, in ns.
    burst_ns: u64,
}

const FRACTION: u32 = 20;

impl Rate {
    /// `per_second` is > 0 and at most 10^12; `burst` is the capacity. Both have the same unit, and are finite.
    pub fn new(per_second: f64, burst: f64) -> Self {
        // The casts saturate to the slowest rate and the largest burst.
        let unit = (1e9 / per_second * f64::from(1 << FRACTION)) as u64;
        let burst_ns = (burst / per_second * 1e9).ceil() as u64;
        Self { unit: unit.max(1), burst_ns }
    }

    /// Time to refill `amount`, rounded down so that a whole burst can be spent; at 10^6 a second the error is <= 0.1
    /// %.
    fn cost(self, amount: u64) -> u64 {
        let cost = (u128::from(amount) * u128::from(self.unit)) >> FRACTION;
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

/// A bucket, full at first. Times are nanoseconds since any fixed moment.
#[derive(Debug, Default)]
pub struct Bucket {
    full_at: AtomicU64,
}

impl Bucket {
    /// Takes `amount` if it is available. An amount over the capacity is taken from a full bucket.
    ///
    /// # Errors
    /// The nanoseconds until it is available.
    pub fn take(&self, rate: Rate, amount: u64, now: u64) -> Result<(), u64> {
        let cost = rate.cost(amount);
        let room = rate.burst_ns.saturating_sub(cost);
        self.spend(now, cost, room)
    }

    /// Checks that the bucket is not empty. Takes nothing.
    ///
    /// # Errors
    /// The nanoseconds until it is not empty.
    pub fn look(&self, rate: Rate, now: u64) -> Result<(), u64> {
        let ahead = self.full_at.load(Ordering::Relaxed).saturating_sub(now);
        // Empty if the time is a whole burst ahead.
        if ahead < rate.burst_ns || ahead == 0 { Ok(()) } else { Err(ahead - rate.burst_ns + 1) }
    }

    /// Takes `amount` even if it is not available; the bucket stays empty until the debt is refilled.
    pub fn charge(&self, rate: Rate, amount: u64, now: u64) {
        let _ = self.spend(now, rate.cost(amount), u64::MAX);
    }

    /// Moves the time by `cost` unless it is further than `room` ahead.
    fn spend(&self, now: u64, cost: u64, room: u64) -> Result<(), u64> {
        let mut wait = 0;
        let moved = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let ahead = full_at.saturating_sub(now);
            wait = ahead.saturating_sub(room);
            (wait == 0).then(|| full_at.max(now).saturating_add(cost))
        });
        moved.map(|_| ()).map_err(|_| wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_is_available_at_once_and_then_refills() {
        let (bucket, rate) = (Bucket::default(), Rate::new(10.0, 3.0));
        let mut now = 7 * SECOND;
        for _ in 0..3 {
            assert_eq!(bucket.take(rate, 1, now), Ok(()));
        }
        assert_eq!(bucket.take(rate, 1, now), Err(SECOND / 10));
        now += SECOND / 10;
        assert_eq!(bucket.take(rate, 1, now), Ok(()));
        assert!(bucket.take(rate, 1, now).is_err());
    }

    #[test]
    fn a_charge_larger_than_the_bucket_is_a_debt() {
        let (bucket, rate) = (Bucket::default(), Rate::new(1e6, 1e6));
        assert_eq!(bucket.look(rate, 0), Ok(()));
        bucket.charge(rate, 3_000_000, 0);
        assert_eq!(bucket.look(rate, 0), Err(2 * SECOND + 1));
        assert!(bucket.look(rate, 2 * SECOND).is_err());
        assert_eq!(bucket.look(rate, 2 * SECOND + 1), Ok(()));
    }

    #[test]
    fn stopped_clocks_clocks_that_go_back_and_huge_numbers_are_handled() {
        let (bucket, rate) = (Bucket::default(), Rate::new(1e12, 1.0));
        bucket.charge(rate, u64::MAX, u64::MAX);
        assert!(bucket.look(rate, 0).is_err());
        let slow = Rate::new(1e-9, 1.0);
        assert_eq!(Bucket::default().take(slow, 1, 5), Ok(()));
        assert_eq!(Bucket::default().take(Rate::new(1.0, 0.5), 1, 5), Ok(()), "more than it holds, from a full bucket");
    }

    proptest! {
        /// A bucket never gives more than its burst and what it earned since, and the returned wait is long enough.
        #[test]
        fn no_more_is_given_than_was_earned(
            per_second in 1.0..1e6f64,
            burst in 1.0..1e4f64,
            asked in prop::collection::vec((0u64..SECOND, 1u64..20), 1..200),
        ) {
            let (bucket, rate) = (Bucket::default(), Rate::new(per_second, burst));
            let (start, mut now, mut given) = (SECOND, SECOND, 0u64);
            for (pause, amount) in asked {
                now += pause;
                let had = bucket.take(rate, amount, now);
                if had.is_ok() && amount as f64 <= burst {
                    given += amount;
                    let earned = burst + (now - start) as f64 / 1e9 * per_second;
                    prop_assert!(given as f64 <= earned * 1.001 + 1.0, "{} > {}", given, earned);
                } else if had.is_ok() {
                    return Ok(());
                }
                if let Err(wait) = had {
                    prop_assert!(wait > 0);
                    prop_assert!(bucket.take(rate, amount, now + wait).is_ok());
                    return Ok(());
                }
            }
        }

        /// An idle bucket fills, to the burst and not beyond.
        #[test]
        fn a_bucket_fills_again(per_second in 1.0..1e5f64, burst in 1u64..1000, spent in 0u64..1000) {
            let (bucket, rate) = (Bucket::default(), Rate::new(per_second, burst as f64));
            bucket.charge(rate, spent, 0);
            let later = ((spent as f64 + 1.0) / per_second * 1e9) as u64 + 1;
            for _ in 0..burst {
                prop_assert!(bucket.take(rate, 1, later).is_ok());
            }
            let more = bucket.take(rate, 1, later);
            prop_assert!(more.is_err(), "more than the burst");
        }
    }
}
