//! Usage of a key: requests in flight, buckets and counters. Shared by all users of the key, and kept by reloads.

use crate::bucket::{Bucket, Rate};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Quota of a key; `None` = no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Quota {
    /// Most requests in flight.
    pub concurrency: Option<u32>,
    /// Rate of bytes of requests and responses.
    pub bytes: Option<Rate>,
    /// Rate of requests.
    pub requests: Option<Rate>,
}

impl Quota {
    /// True if the quota depends on the time.
    fn has_rate(&self) -> bool {
        self.bytes.is_some() || self.requests.is_some()
    }
}

/// The part of a quota that is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Part {
    Concurrency,
    Bytes,
    Requests,
}

impl Part {
    /// Name in a keys file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Concurrency => "concurrency",
            Self::Bytes => "bytes_per_second",
            Self::Requests => "requests_per_second",
        }
    }
}

/// Result of the access check of a request, in the order of [`RESULTS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AccessResult {
    Admitted,
    Forbidden,
    Exhausted,
    Expired,
}

/// Names of outcomes in metrics.
pub const RESULTS: [&str; 4] = ["admitted", "forbidden", "exhausted", "expired"];

/// Usage of a key since the start of the process.
#[derive(Debug, Default)]
pub struct Meter {
    in_flight: AtomicU32,
    requests: Bucket,
    bytes: Bucket,
    bytes_total: AtomicU64,
    outcomes: [AtomicU64; RESULTS.len()],
}

impl Meter {
    pub(crate) fn count(&self, outcome: AccessResult) {
        if let Some(counter) = self.outcomes.get(outcome as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of requests since the start, by [`RESULTS`].
    pub fn counts(&self) -> [u64; RESULTS.len()] {
        std::array::from_fn(|i| self.outcomes.get(i).map_or(0, |counter| counter.load(Ordering::Relaxed)))
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Bytes of requests and responses since the start.
    pub fn bytes_total(&self) -> u64 {
        self.bytes_total.load(Ordering::Relaxed)
    }

    /// Takes a place in the quota for one request.
    ///
    /// # Errors
    /// The part that is used up, and the nanoseconds until a retry; 0 for `concurrency`, where the time is unknown.
    pub(crate) fn hold(self: &Arc<Self>, quota: &Quota, now: impl FnOnce() -> u64) -> Result<QuotaHold, (Part, u64)> {
        let max = quota.concurrency.unwrap_or(u32::MAX);
        let taken = self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < max).then_some(n + 1));
        if taken.is_err() {
            return Err((Part::Concurrency, 0));
        }
        // From here on, dropping it releases the place.
        let hold = QuotaHold { meter: self.clone(), bytes: quota.bytes };
        self.spend(quota, now)?;
        Ok(hold)
    }

    /// Takes one request from the rates.
    ///
    /// # Errors
    /// The part that is used up, and the nanoseconds until a retry.
    pub(crate) fn spend(&self, quota: &Quota, now: impl FnOnce() -> u64) -> Result<(), (Part, u64)> {
        if !quota.has_rate() {
            return Ok(());
        }
        let now = now();
        if let Some(rate) = quota.bytes {
            self.bytes.look(rate, now).map_err(|wait| (Part::Bytes, wait))?;
        }
        // Last, because this bucket gets nothing back on a later error.
        match quota.requests {
            Some(rate) => self.requests.take(rate, 1, now).map_err(|wait| (Part::Requests, wait)),
            None => Ok(()),
        }
    }
}

/// The place of a request in the quota of its key. Dropped when the response is written or the connection is closed.
#[derive(Debug)]
pub struct QuotaHold {
    meter: Arc<Meter>,
    bytes: Option<Rate>,
}

impl QuotaHold {
    /// Counts received bytes or bytes to send. Bytes over the quota delay the next request. `now`, in ns, is called
    /// only if there is a quota.
    pub fn charge(&self, bytes: u64, now: impl FnOnce() -> u64) {
        self.meter.bytes_total.fetch_add(bytes, Ordering::Relaxed);
        if let Some(rate) = self.bytes {
            self.meter.bytes.charge(rate, bytes, now());
        }
    }
}

impl Drop for QuotaHold {
    fn drop(&mut self) {
        self.meter.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_place_is_released_on_drop_and_on_rejection() {
        let meter = Arc::new(Meter::default());
        let requests = Some(Rate::new(1.0, 1.0));
        let quota = Quota { concurrency: Some(2), requests, ..Quota::default() };
        let first = meter.hold(&quota, || 0).unwrap();
        assert_eq!(meter.hold(&quota, || 0).unwrap_err(), (Part::Requests, SECOND));
        assert_eq!(meter.in_flight(), 1);
        let second = meter.hold(&quota, || SECOND).unwrap();
        assert_eq!(meter.hold(&quota, || 9 * SECOND).unwrap_err(), (Part::Concurrency, 0));
        drop((first, second));
        assert_eq!(meter.in_flight(), 0);
    }

    #[test]
    fn bytes_over_the_quota_delay_the_next_request() {
        let meter = Arc::new(Meter::default());
        let quota = Quota { bytes: Some(Rate::new(1000.0, 1000.0)), ..Quota::default() };
        let hold = meter.hold(&quota, || 0).unwrap();
        hold.charge(10_000, || 0);
        assert_eq!(meter.hold(&quota, || 0).unwrap_err(), (Part::Bytes, 9 * SECOND + 1));
        assert!(meter.hold(&quota, || 9 * SECOND + 1).is_ok());
        assert_eq!(meter.bytes_total(), 10_000);
    }

    #[test]
    fn without_a_quota_the_clock_is_not_read() {
        let meter = Arc::new(Meter::default());
        let hold = meter.hold(&Quota::default(), || unreachable!()).unwrap();
        hold.charge(1, || unreachable!());
    }

    proptest! {
        #[test]
        fn places_in_flight_equal_the_live_holds(
            max in 1u32..8,
            steps in prop::collection::vec(any::<Option<u8>>(), 1..100),
        ) {
            let meter = Arc::new(Meter::default());
            let quota = Quota { concurrency: Some(max), ..Quota::default() };
            let mut held = Vec::new();
            for step in steps {
                match step {
                    None => match meter.hold(&quota, || 0) {
                        Ok(hold) => held.push(hold),
                        Err(_) => prop_assert_eq!(held.len() as u32, max),
                    },
                    Some(at) if !held.is_empty() => drop(held.swap_remove(usize::from(at) % held.len())),
                    Some(_) => {}
                }
                prop_assert_eq!(meter.in_flight() as usize, held.len());
                prop_assert!(meter.in_flight() <= max);
            }
        }
    }
}
