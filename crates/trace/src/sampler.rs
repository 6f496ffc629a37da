//! Which requests are traced (O 3.3).

use crate::context::Context;
use crate::queue::Outlet;
use crate::record::Trace;
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Where records go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Files of Triton's form.
    Triton,
    /// Spans. A caller's context decides, too.
    OpenTelemetry,
}

/// What decides which requests are traced, and what is noted of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Told with each record it sampled.
    pub number: u32,
    /// Where they go.
    pub mode: Mode,
    /// Level TIMESTAMPS.
    pub timestamps: bool,
    /// Level TENSORS.
    pub tensors: bool,
    /// Every n-th request; 0 = none but those with a context.
    pub rate: u32,
    /// How many may be sampled; -1 = any number.
    pub count: i32,
}

impl Setting {
    /// Whether it may sample anything.
    pub(crate) fn is_on(&self) -> bool {
        let is_possible = self.rate > 0 && self.count != 0 || self.mode == Mode::OpenTelemetry;
        (self.timestamps || self.tensors) && is_possible
    }
}

/// A setting at work. The last one to hold it tells the queue that no record of it follows.
pub(crate) struct Sampler {
    pub(crate) setting: Setting,
    pub(crate) outlet: Arc<Outlet>,
    seen: AtomicU64,
    left: AtomicI64,
}

impl Sampler {
    pub(crate) fn new(setting: Setting, outlet: Arc<Outlet>) -> Arc<Self> {
        let left = AtomicI64::new(setting.count.into());
        Arc::new(Self { setting, outlet, seen: AtomicU64::new(0), left })
    }

    /// How many may still be sampled; -1 = any number.
    pub(crate) fn left(&self) -> i32 {
        i32::try_from(self.left.load(Ordering::Relaxed)).unwrap_or(-1)
    }

    /// Counts a request. Whether it is traced: every n-th as long as there is count, and one with a context always.
    fn takes(&self, has_context: bool) -> bool {
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

/// What a model's requests look at: whether they may be traced, and by which setting. Shared by all versions of the model.
#[derive(Default)]
pub struct Watch {
    is_on: AtomicBool,
    sampler: ArcSwapOption<Sampler>,
}

impl Watch {
    /// Whether requests to the model may be traced now.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Samples a request of a client. `context` is asked for the caller's, where that matters.
    pub fn begin(&self, context: impl FnOnce() -> Option<Context>) -> Option<Trace> {
        if !self.is_on() {
            return None;
        }
        // Cloned only for a request that is traced: one counter for all threads is dear.
        let sampler = self.sampler.load();
        let sampler = sampler.as_ref()?;
        let context = if sampler.setting.mode == Mode::OpenTelemetry { context() } else { None };
        sampler.takes(context.is_some()).then(|| Trace::begin(sampler.clone(), context))
    }

    pub(crate) fn set(&self, sampler: Option<&Arc<Sampler>>) {
        let sampler = sampler.filter(|s| s.setting.is_on()).cloned();
        self.is_on.store(sampler.is_some(), Ordering::Relaxed);
        self.sampler.store(sampler);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of `requests` requests are traced; those in `with` have a context.
    fn check(rate: u32, count: i32, requests: u64, with: &[u64], expected: &[u64], left: i32) {
        let setting = Setting { number: 1, mode: Mode::OpenTelemetry, timestamps: true, tensors: false, rate, count };
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
    fn o45_a_context_traces_whatever_rate_and_count_say() {
        check(0, -1, 4, &[2], &[2], -1);
        check(1, 0, 4, &[3], &[3], 0);
        // It is counted as a request, and uses the count up only when it is the n-th one.
        check(3, 5, 6, &[1], &[1, 3, 6], 3);
        check(3, 5, 6, &[3], &[3, 6], 3);
    }

    #[test]
    fn threads_together_take_no_more_than_the_count() {
        let setting = Setting { number: 1, mode: Mode::Triton, timestamps: true, tensors: false, rate: 2, count: 100 };
        let sampler = Sampler::new(setting, Arc::default());
        let taken: usize = std::thread::scope(|scope| {
            let work = || (0..1000).filter(|_| sampler.takes(false)).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).sum()
        });
        assert_eq!((taken, sampler.left()), (100, 0));
    }
}
