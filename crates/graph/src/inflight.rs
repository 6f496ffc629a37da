//! `max_inflight_requests`: limits the calls of one step in flight, over all requests of an ensemble (S-32).

use std::collections::VecDeque;

/// Counts calls per step, and queues those over the limit in order. Shared by all requests of one ensemble: the engine
/// locks it. `T` identifies a run to its owner.
///
/// Triton blocks a thread, for at most 300 s; here only an entry waits. It is called when an earlier call ends, or
/// removed when its request ends.
#[derive(Debug)]
pub struct Inflight<T> {
    /// 0 = no limit.
    limit: u32,
    steps: Vec<CallQueue<T>>,
}

#[derive(Debug)]
struct CallQueue<T> {
    in_flight: u32,
    waiting: VecDeque<T>,
}

impl<T> Inflight<T> {
    /// Starts without calls. `limit` is the configured one; 0 = no limit.
    pub fn new(limit: u32, steps: usize) -> Self {
        let queue = || CallQueue { in_flight: 0, waiting: VecDeque::new() };
        Self { limit, steps: if limit == 0 { Vec::new() } else { (0..steps).map(|_| queue()).collect() } }
    }

    /// Returns the run if it may be called, and counts it; otherwise queues it.
    pub fn enter(&mut self, step: usize, run: T) -> Option<T> {
        let limit = self.limit;
        let Some(line) = self.steps.get_mut(step) else { return Some(run) };
        if line.in_flight < limit {
            line.in_flight += 1;
            return Some(run);
        }
        line.waiting.push_back(run);
        None
    }

    /// Ends a counted call; returns the next run, which may be called and is counted.
    pub fn leave(&mut self, step: usize) -> Option<T> {
        let line = self.steps.get_mut(step)?;
        let next = line.waiting.pop_front();
        if next.is_none() {
            line.in_flight = line.in_flight.saturating_sub(1);
        }
        next
    }

    /// Removes the queued runs of a request that ended. They were never counted.
    pub fn withdraw(&mut self, mut whose: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut out = Vec::new();
        for line in &mut self.steps {
            for run in std::mem::take(&mut line.waiting) {
                if whose(&run) { out.push(run) } else { line.waiting.push_back(run) }
            }
        }
        out
    }

    /// Number of queued runs of all steps.
    pub fn waiting(&self) -> usize {
        self.steps.iter().map(|line| line.waiting.len()).sum()
    }

    /// Number of calls of a step in flight, and of its queued runs. Both 0 without a limit, where calls are not
    /// counted.
    pub fn counts(&self, step: usize) -> (u32, usize) {
        self.steps.get(step).map_or((0, 0), |line| (line.in_flight, line.waiting.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_a_step_wait_for_each_other_in_order_s_32() {
        let mut inflight = Inflight::new(2, 2);
        assert_eq!([1, 2, 3, 4].map(|run| inflight.enter(0, run)), [Some(1), Some(2), None, None]);
        assert_eq!(inflight.enter(1, 5), Some(5), "steps are counted apart");
        assert_eq!(inflight.counts(0), (2, 2));
        assert_eq!(inflight.leave(0), Some(3));
        assert_eq!(inflight.counts(0), (2, 1), "the place went on");
        assert_eq!([inflight.leave(0), inflight.leave(0), inflight.leave(0)], [Some(4), None, None]);
        assert_eq!(inflight.counts(0), (0, 0));
    }

    #[test]
    fn a_request_that_ends_leaves_the_line() {
        let mut inflight = Inflight::new(1, 1);
        for run in ["a0", "b0", "a1", "b1"] {
            inflight.enter(0, run);
        }
        assert_eq!(inflight.withdraw(|run| run.starts_with('a')), ["a1"], "a0 counts and has to end");
        assert_eq!([inflight.leave(0), inflight.leave(0), inflight.leave(0)], [Some("b0"), Some("b1"), None]);
        assert_eq!(inflight.counts(0), (0, 0));
    }

    #[test]
    fn without_a_limit_nothing_waits_and_nothing_is_kept() {
        let mut inflight = Inflight::new(0, 1000);
        assert!((0..100).all(|run| inflight.enter(7, run) == Some(run)));
        assert_eq!((inflight.leave(7), inflight.counts(7)), (None, (0, 0)));
    }
}
