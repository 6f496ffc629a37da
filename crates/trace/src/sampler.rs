//! Selects the requests that are traced (O 3.3).

use crate::queue::Outlet;
use options::TraceSetting;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Applies a setting. Dropping the last reference tells the queue that no record of the setting follows.
pub(crate) struct Sampler {
    pub(crate) setting: TraceSetting,
    pub(crate) outlet: Arc<Outlet>,
    seen: AtomicU64,
    left: AtomicI64,
}

impl Sampler {
    pub(crate) fn new(setting: TraceSetting, outlet: Arc<Outlet>) -> Arc<Self> {
        let left = AtomicI64::new(setting.count.into());
        Arc::new(Self { setting, outlet, seen: AtomicU64::new(0), left })
    }

    /// Requests that may still be sampled; -1 = no limit.
    pub(crate) fn left(&self) -> i32 {
        i32::try_from(self.left.load(Ordering::Relaxed)).unwrap_or(-1)
    }

    /// Counts a request; true if it is traced: every n-th until the count is used up, and any with a context.
    pub(crate) fn takes(&self, has_context: bool) -> bool {
        let rate = u64::from(self.setting.rate);
        let is_nth = rate > 0 && (self.seen.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(rate);
        let is_counted = is_nth && self.count_down();
        is_counted || has_context
    }

    fn count_down(&self) -> bool {
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| match left {
            0 => None,
            1.. => Some(left - 1),
            _ => Some(left),
        });
        taken.is_ok()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.outlet.end(self.setting.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use options::TraceMode;

    /// Checks which of `requests` requests are traced; those in `with` have a context.
    fn check(rate: u32, count: i32, requests: u64, with: &[u64], expected: &[u64], left: i32) {
        let setting =
            TraceSetting { number: 1, mode: TraceMode::OpenTelemetry, timestamps: true, tensors: false, rate, count };
        let sampler = Sampler::new(setting, Arc::default());
        let taken: Vec<u64> = (1..=requests).filter(|n| sampler.takes(with.contains(n))).collect();
        assert_eq!((&*taken, sampler.left()), (expected, left), "rate {rate}, count {count}");
    }

    #[test]
    fn o39_every_nth_request_is_traced_until_the_count_is_used_up() {
        check(6, -1, 20, &[], &[6, 12, 18], -1);
        check(9, -1, 20, &[], &[9, 18], -1);
        check(1, 2, 5, &[], &[1, 2], 0);
        check(3, 1, 9, &[], &[3], 0);
        check(4_294_967_295, i32::MAX, 9, &[], &[], i32::MAX);
        check(1, 0, 3, &[], &[], 0);
    }

    #[test]
    fn o45_a_request_with_a_context_is_traced_for_any_rate_and_count() {
        check(0, -1, 4, &[2], &[2], -1);
        check(1, 0, 4, &[3], &[3], 0);
        // It counts as a request, but reduces the count only if it is the n-th one.
        check(3, 5, 6, &[1], &[1, 3, 6], 3);
        check(3, 5, 6, &[3], &[3, 6], 3);
    }

    #[test]
    fn all_threads_together_sample_no_more_than_the_count() {
        let setting =
            TraceSetting { number: 1, mode: TraceMode::Triton, timestamps: true, tensors: false, rate: 2, count: 100 };
        let sampler = Sampler::new(setting, Arc::default());
        let taken: usize = std::thread::scope(|scope| {
            let work = || (0..1000).filter(|_| sampler.takes(false)).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).sum()
        });
        assert_eq!((taken, sampler.left()), (100, 0));
    }
}
