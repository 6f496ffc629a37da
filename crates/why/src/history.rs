//! Requests and executions of the last minutes, with the times of each request.

use crate::ring::{Arrived, Execution, Snapshot};
use crate::{Speed, quantile};

/// A request that was answered.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// The request.
    pub request: Arrived,
    /// When its execution began, in ns.
    pub start: u64,
    /// When its execution ended, in ns.
    pub end: u64,
    /// Number of requests that it stands for.
    pub weight: u32,
}

impl Answered {
    fn latency(&self) -> u64 {
        self.end.saturating_sub(self.request.arrived)
    }
}

/// An execution that ended.
#[derive(Debug, Clone, Copy)]
pub struct Ran {
    /// The execution.
    pub execution: Execution,
    /// Rows of all its requests.
    pub rows: u32,
    /// Rows, or tokens with their padding for texts: what its duration depends on.
    pub size: u32,
}

/// Requests by arrival, and executions by start.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Answered requests, by arrival.
    pub requests: Vec<Answered>,
    /// Executions that ended and were not on a reactor.
    pub runs: Vec<Ran>,
    /// For how long the oldest execution has run without an end, in ns.
    pub open_ns: u64,
}

/// Most requests of a stretch: replays of more would take seconds and say the same.
const STRETCH_MAX: usize = 20_000;
/// A pause of so many median gaps, and at least so long, ends a stretch.
const PAUSE_GAPS: u64 = 20;
const PAUSE_NS_MIN: u64 = 1_000_000_000;

impl History {
    /// Reads a ring since `since`.
    pub fn new(snapshot: &Snapshot, since: u64, now: u64) -> Self {
        let open_ns = snapshot.open_since.map_or(0, |start| now.saturating_sub(start));
        let mut history = Self { open_ns, ..Self::default() };
        for (execution, requests) in snapshot.executions().filter(|(execution, _)| execution.start >= since) {
            if execution.ns == 0 {
                continue;
            }
            let weight = if execution.is_inline { Snapshot::INLINE_EVERY } else { 1 };
            let (start, end) = (execution.start, execution.start + execution.ns);
            let (mut rows, mut longest, mut count) = (0u32, 0u16, 0u32);
            for request in requests {
                rows += u32::from(request.rows);
                longest = longest.max(request.tokens);
                count += 1;
                history.requests.push(Answered { request, start: start.max(request.arrived), end, weight });
            }
            if count > 0 && !execution.is_inline {
                let size = if longest > 0 { u32::from(longest) * count } else { rows };
                history.runs.push(Ran { execution, rows, size });
            }
        }
        history.requests.sort_unstable_by_key(|answered| answered.request.arrived);
        history.runs.sort_unstable_by_key(|ran| ran.execution.start);
        history
    }

    /// Rate and latency, with runs on reactors for what they stand.
    pub fn speed(&self) -> Speed {
        let (Some(first), Some(last)) = (self.requests.first(), self.requests.iter().map(|a| a.end).max()) else {
            return Speed::default();
        };
        let all: u64 = self.requests.iter().map(|answered| u64::from(answered.weight)).sum();
        let latencies = self.requests.iter().map(|answered| (answered.latency(), answered.weight)).collect();
        let seconds = last.saturating_sub(first.request.arrived) as f64 / 1e9;
        speed(latencies, all as f64 / seconds.max(1e-6))
    }

    /// Number of requests that ran on a reactor.
    pub fn inline(&self) -> f64 {
        self.requests.iter().filter(|answered| answered.weight > 1).map(|answered| f64::from(answered.weight)).sum()
    }

    /// Share of the requests that ran on a reactor.
    pub fn inline_share(&self) -> f64 {
        let all: f64 = self.requests.iter().map(|answered| f64::from(answered.weight)).sum();
        self.inline() / all.max(1.0)
    }

    /// The part with the most requests between pauses, or its newest requests: what is replayed.
    pub fn stretch(&self) -> Self {
        let requests = || self.requests.iter().filter(|answered| answered.weight == 1);
        let arrivals: Vec<u64> = requests().map(|answered| answered.request.arrived).collect();
        let mut gaps: Vec<u64> = arrivals.windows(2).filter_map(|pair| pair[1].checked_sub(pair[0])).collect();
        gaps.sort_unstable();
        let pause = PAUSE_NS_MIN.max(PAUSE_GAPS * quantile(&gaps, 0.5));
        let (mut best, mut from, mut busy_until) = (0..0, 0, 0u64);
        for (at, answered) in requests().enumerate() {
            if at > from && answered.request.arrived.saturating_sub(busy_until) > pause {
                from = at;
            }
            // A request that hangs is no pause of the others.
            busy_until = busy_until.max(answered.request.arrived);
            if at + 1 - from >= best.len() {
                best = from..at + 1;
            }
        }
        let best = best.start.max(best.end.saturating_sub(STRETCH_MAX))..best.end;
        let chosen: Vec<Answered> = requests().skip(best.start).take(best.len()).copied().collect();
        let (Some(first), Some(last)) = (chosen.first(), chosen.iter().map(|answered| answered.end).max()) else {
            return Self::default();
        };
        let since = first.request.arrived;
        let within = |ran: &&Ran| (since..=last).contains(&ran.execution.start);
        Self { runs: self.runs.iter().filter(within).copied().collect(), requests: chosen, open_ns: self.open_ns }
    }

    /// Duration from the first arrival to the last one, in ns.
    pub fn arrivals_ns(&self) -> u64 {
        match &self.requests[..] {
            [first, .., last] => last.request.arrived - first.request.arrived,
            _ => 0,
        }
    }
}

/// Speed of requests with these latencies, in ns, each with the number of requests that it stands for.
pub(crate) fn speed(mut latencies: Vec<(u64, u32)>, rate: f64) -> Speed {
    latencies.sort_unstable();
    let all: u64 = latencies.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let us = |share: f64| {
        let mut left = (all as f64 * share).ceil() as u64;
        let found = latencies.iter().find(|(_, weight)| {
            left = left.saturating_sub((*weight).into());
            left == 0
        });
        found.map_or(0.0, |(ns, _)| *ns as f64 / 1e3)
    };
    Speed { rate, p50_us: us(0.5), p99_us: us(0.99) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_count_by_their_weight() {
        let found = speed(vec![(9_000, 1), (1_000, 64), (5_000, 64), (7_000, 1)], 3.0);
        assert_eq!((found.p50_us, found.p99_us), (5.0, 7.0), "the 65th and the 129th of 130");
        assert_eq!(speed(vec![(1_000, 65), (2_000, 65)], 1.0).p50_us, 1.0);
        assert_eq!(speed(Vec::new(), 0.0), Speed::default());
    }
}
