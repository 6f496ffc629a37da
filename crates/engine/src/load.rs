//! Load of an engine, by which load balancers weigh servers.
//!
//! The saturation of a version is the time, in seconds, that its instances need for the requests that wait or run now,
//! at recent costs. `metrics/saturation.ts` computes the same for scrapes, over a longer time.

use crate::statistics::Totals;
use crate::version::ModelVersion;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Minimum age after which the load is measured again.
pub const LOAD_AGE: Duration = Duration::from_secs(1);

/// Load of an engine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Load {
    /// Maximum over all versions of the busy share of instance time plus the saturation. Not 0 while requests are
    /// answered, because load balancers need a weight.
    pub utilization: f64,
    /// Successful requests per second.
    pub requests_per_second: f64,
    /// Failed requests per second.
    pub errors_per_second: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    totals: Totals,
    /// Cost of a request when some were last answered.
    seconds_per_request: f64,
}

/// Measures the load of an engine between two calls.
#[derive(Debug)]
pub struct LoadMeter(Mutex<LoadState>);

#[derive(Debug)]
struct LoadState {
    looked: Instant,
    load: Load,
    seen: HashMap<u64, Seen>,
}

impl Default for LoadMeter {
    fn default() -> Self {
        Self(Mutex::new(LoadState { looked: Instant::now(), load: Load::default(), seen: HashMap::new() }))
    }
}

impl LoadMeter {
    /// The load since the last measurement, or its result if that is younger than [`LOAD_AGE`].
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
            // Both change independently, so there may be briefly more gone instances than instances.
            let gone = version.serving.gone.load(Ordering::Relaxed) as usize;
            let instances = version.serving.instances.lock().len().saturating_sub(gone);
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
