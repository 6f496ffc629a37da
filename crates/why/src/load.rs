//! Whether requests come at their own times (open) or from clients that wait for their responses (closed): a faster
//! server makes only the latter send more.
//!
//! A closed load never has more requests in flight than clients, and mostly nearly as many. By Little's law the mean
//! number in flight over the maximum is the share of time that a client waits. Random arrivals reach several times
//! their mean now and then, and those of an overloaded server grow all the time.

use crate::history::History;
use crate::quantile;

/// Mean number in flight over the maximum from which a load is closed.
const CLOSED: f64 = 0.5;
/// In the second half of an overloaded stretch so many times more are in flight than in the first.
const GROWS: f64 = 1.4;
/// Gaps that differ by less than this share of their median, and pauses of at least the second share, are of a client
/// with its own clock, whatever is in flight.
const REGULAR: f64 = 0.15;
const PAUSES_MIN: f64 = 0.1;
/// Fewest requests that tell a kind of load.
const REQUESTS_MIN: usize = 20;

/// How requests come.
#[derive(Debug, Clone, PartialEq)]
pub enum Traffic {
    /// At their own times.
    Open,
    /// From clients that wait.
    Closed {
        /// Number of clients.
        clients: usize,
        /// Times from a response to the next request, in ns.
        pauses: Vec<u64>,
    },
}

impl Traffic {
    /// Finds out how the requests came.
    pub fn of(history: &History) -> Self {
        if history.requests.len() < REQUESTS_MIN {
            return Self::Open;
        }
        let arrivals: Vec<u64> = history.requests.iter().map(|answered| answered.request.arrived).collect();
        let mut ends: Vec<u64> = history.requests.iter().map(|answered| answered.end).collect();
        ends.sort_unstable();
        let (mut in_flight, mut ended, mut before) = (0usize, 0, arrivals.first().copied().unwrap_or(0));
        let middle = before + history.arrivals_ns() / 2;
        let (mut maximum, mut area, mut halves) = (0usize, 0.0, [0.0; 2]);
        let mut pass = |to: u64, before: &mut u64, in_flight: usize| {
            let part = to.saturating_sub(*before) as f64 * in_flight as f64;
            area += part;
            halves[usize::from(to > middle)] += part;
            *before = to.max(*before);
        };
        for &arrival in &arrivals {
            while ends.get(ended).is_some_and(|end| *end <= arrival) {
                pass(ends[ended], &mut before, in_flight);
                in_flight = in_flight.saturating_sub(1);
                ended += 1;
            }
            pass(arrival, &mut before, in_flight);
            in_flight += 1;
            maximum = maximum.max(in_flight);
        }
        let mean = area / history.arrivals_ns().max(1) as f64;
        let grows = halves[1] > halves[0] * GROWS && maximum > 4;
        let later = arrivals.iter().skip(maximum);
        let pauses: Vec<u64> = later.zip(&ends).map(|(arrival, end)| arrival.saturating_sub(*end)).collect();
        if mean < CLOSED * maximum as f64 || grows || is_regular(&arrivals, &pauses) {
            return Self::Open;
        }
        Self::Closed { clients: maximum, pauses }
    }
}

/// True if the gaps between arrivals are nearly equal, and do not follow from responses.
fn is_regular(arrivals: &[u64], pauses: &[u64]) -> bool {
    let mut gaps: Vec<u64> = arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut pauses = pauses.to_vec();
    gaps.sort_unstable();
    pauses.sort_unstable();
    let [low, middle, high] = [0.05, 0.5, 0.95].map(|share| quantile(&gaps, share) as f64);
    high - low < REGULAR * middle && quantile(&pauses, 0.5) as f64 > PAUSES_MIN * middle
}
