//! How much an engine has to do: what load balancers weigh servers by.
//!
//! The saturation of a version is the seconds that its instances need for the requests that wait or run now, going by what requests took lately.
//! `metrics/saturation.ts` computes the same for scrapes, over a longer time.

use crate::statistics::Totals;
use crate::version::ModelVersion;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A report is not newer than this, however many ask.
pub const LOAD_AGE: Duration = Duration::from_secs(1);

/// What is told of an engine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Of the version that has most to do: the part of the time since the last look in which its instances were busy, and its saturation. Not 0 while
    /// requests are answered, which load balancers need to weigh servers.
    pub utilization: f64,
    /// Requests answered without error, per second.
    pub requests_per_second: f64,
    /// Requests that failed, per second.
    pub errors_per_second: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    totals: Totals,
    /// What a request cost when some were answered last.
    seconds_per_request: f64,
}

/// Measures the load of one engine, from one look to the next.
#[derive(Debug)]
pub struct LoadMeter(Mutex<State>);

#[derive(Debug)]
struct State {
    looked: Instant,
    load: Load,
    /// By `ModelVersion::load`.
    seen: HashMap<u64, Seen>,
}

impl Default for LoadMeter {
    fn default() -> Self {
        Self(Mutex::new(State { looked: Instant::now(), load: Load::default(), seen: HashMap::new() }))
    }
}

impl LoadMeter {
    /// The load since the last look, or that of the last look where it is younger than [`LOAD_AGE`].
    pub(crate) fn measure<'v>(&self, versions: impl Iterator<Item = &'v Arc<ModelVersion>>) -> Load {
        let mut state = self.0.lock();
        let passed = state.looked.elapsed();
        if passed < LOAD_AGE && !state.seen.is_empty() {
            return state.load;
        }
        let mut load = Load::default();
        let seconds = passed.max(LOAD_AGE).as_secs_f64();
        let before = std::mem::take(&mut state.seen);
        for version in versions {
            // Both change by themselves: for a moment more may be gone than there are.
            let gone = version.running.gone.load(Ordering::Relaxed) as usize;
            let instances = version.running.instances.lock().len().saturating_sub(gone);
            // An ensemble has none: its steps count.
            if instances == 0 {
                continue;
            }
            let now = version.statistics.totals();
            let last = before.get(&version.identity.load).copied().unwrap_or_default();
            let requests = now.requests.saturating_sub(last.totals.requests);
            let nanoseconds = now.execution_ns.saturating_sub(last.totals.execution_ns);
            let seconds_per_request =
                if requests > 0 { nanoseconds as f64 / requests as f64 / 1e9 } else { last.seconds_per_request };
            let busy = nanoseconds as f64 / 1e9 / seconds;
            let at_hand = version.inflight() as f64 * seconds_per_request;
            load.utilization = load.utilization.max((busy + at_hand) / instances as f64);
            load.requests_per_second += requests as f64;
            load.errors_per_second += now.failures.saturating_sub(last.totals.failures) as f64;
            state.seen.insert(version.identity.load, Seen { totals: now, seconds_per_request });
        }
        load.requests_per_second /= seconds;
        load.errors_per_second /= seconds;
        state.looked = Instant::now();
        state.load = load;
        load
    }
}
