//! State that the reactors of a server share: the phase of a shutdown, and counts of requests and connections.

use crate::access_log::Logs;
use crate::limits::{
    CONSOLES_MAX, EXPLANATIONS_MAX, HEALTH_WATCH_ASK, HEALTH_WATCHERS_MAX, WHY_FAILED_MAX, WHY_SLOWEST_MAX,
};
use crate::record::Kept;
use crate::stray::Strays;
use crate::transfer::Shortage;
use memory::Budget;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Phase of a shutdown. Only moves down the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Everything is open.
    Serving,
    /// Listeners are closed, as another process continues with their sockets. Requests are answered; HTTP connections
    /// end with their next response, and gRPC connections get a GOAWAY.
    HandingOver,
    /// Listeners stay open, because load balancers send for a moment longer: the server is not ready, and answers
    /// requests. HTTP connections end with their next response; gRPC connections get a GOAWAY once they have made a
    /// call.
    Leaving,
    /// New inferences are rejected, except those of sequences in progress, whose clients may have to connect again.
    Refusing,
    /// Listeners are closed as well.
    Draining,
    /// Connections finish their requests and end, within this time.
    Closing(Duration),
}

/// State shared by the reactors.
#[derive(Debug)]
pub struct Shared {
    parting: AtomicBool,
    draining: AtomicBool,
    requests: AtomicU64,
    connections: Connections,
    health: Health,
    started: Instant,
    phase: watch::Sender<Phase>,
    pulse: watch::Sender<u64>,
    budget: Budget,
    logs: Option<Arc<Logs>>,
    kept: Arc<Kept>,
    strays: Strays,
    consoles: Arc<AtomicU64>,
    explanations: Arc<AtomicU64>,
}

/// One of a limited number of things at once, until dropped.
#[derive(Debug)]
pub struct Place(Arc<AtomicU64>);

impl Place {
    fn of(taken: &Arc<AtomicU64>, most: usize) -> Option<Self> {
        let before = taken.fetch_add(1, Ordering::AcqRel);
        let place = Self(taken.clone());
        (before < most as u64).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Connections of all reactors.
#[derive(Debug)]
struct Connections {
    open: AtomicU64,
    max: u64,
    closed_idle: AtomicU64,
    /// Consequences of a shortage, by `Shortage`.
    shortages: [AtomicU64; 3],
    /// Time of the last accept, in ms since the start, plus 1; 0 = never.
    accepted: AtomicU64,
}

/// State of the watchers of the server's health.
#[derive(Debug)]
struct Health {
    watchers: AtomicU64,
    ready: watch::Sender<bool>,
    /// Last readiness of the models that report it themselves.
    models_ready: watch::Sender<bool>,
    /// Time of their last query for watchers, in ms since the start.
    models_asked: AtomicU64,
}

impl Default for Shared {
    fn default() -> Self {
        Self::new(0, Budget::global().clone())
    }
}

impl Shared {
    /// State with a limit of connections and the budget of requests.
    pub fn new(connections_max: usize, budget: Budget) -> Self {
        Self {
            parting: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            connections: Connections {
                open: AtomicU64::new(0),
                max: connections_max as u64,
                closed_idle: AtomicU64::new(0),
                shortages: Default::default(),
                accepted: AtomicU64::new(0),
            },
            health: Health {
                watchers: AtomicU64::new(0),
                ready: watch::Sender::new(false),
                models_ready: watch::Sender::new(true),
                models_asked: AtomicU64::new(0),
            },
            started: Instant::now(),
            phase: watch::Sender::new(Phase::Serving),
            pulse: watch::Sender::new(0),
            budget,
            logs: None,
            kept: Arc::default(),
            strays: Strays::default(),
            consoles: Arc::default(),
            explanations: Arc::default(),
        }
    }

    /// Sets the logs of requests.
    pub fn with_logs(mut self, logs: Option<Arc<Logs>>) -> Self {
        self.logs = logs;
        self
    }
}

/// Counts one item until it is dropped.
pub struct Counted<'a>(&'a AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    /// Records of past inferences.
    #[inline]
    pub fn kept(&self) -> &Arc<Kept> {
        &self.kept
    }

    /// Counts idle connections that were closed for lack of room, or for their age.
    pub fn count_closed_idle(&self, n: usize) {
        self.connections.closed_idle.fetch_add(n as u64, Ordering::Relaxed);
    }

    /// Counts a consequence of a shortage.
    pub fn count_shortage(&self, shortage: Shortage) {
        if let Some(counter) = self.connections.shortages.get(shortage as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Consequences of shortages: reason and number.
    pub fn shortages(&self) -> [(&'static str, u64); 3] {
        let [body, response, crowded] = self.connections.shortages.each_ref().map(|n| n.load(Ordering::Relaxed));
        [("slow body", body), ("slow response", response), ("health checks only", crowded)]
    }

    /// Counts a page with the console until its stream ends; `None` at the limit.
    pub fn open_console(&self) -> Option<Place> {
        Place::of(&self.consoles, CONSOLES_MAX)
    }

    /// Counts an answer about the reasons of a model that is computed or waits for a thread; `None` at the limit.
    pub fn begin_explanation(&self) -> Option<Place> {
        Place::of(&self.explanations, EXPLANATIONS_MAX)
    }

    /// Most connections that may be open.
    pub fn connections_max(&self) -> u64 {
        self.connections.max
    }

    /// Limits and their current values: name, help, value.
    pub fn gauges(&self) -> [(&'static str, &'static str, u64); 7] {
        let [slow, failed] = self.kept.counts();
        [
            ("nereid_connections", "Open HTTP and gRPC connections", self.connections()),
            ("nereid_connections_max", "Limit of nereid_connections", self.connections.max),
            (
                "nereid_connections_closed_idle",
                "Idle connections that were closed because of their age, or to make room",
                self.connections.closed_idle.load(Ordering::Relaxed),
            ),
            ("nereid_consoles", "Pages with the console that are open", self.consoles.load(Ordering::Acquire)),
            ("nereid_consoles_max", "Limit of nereid_consoles", CONSOLES_MAX as u64),
            ("nereid_requests_kept", "Records of slow and failed inferences", (slow + failed) as u64),
            ("nereid_requests_kept_max", "Limit of nereid_requests_kept", (WHY_SLOWEST_MAX + WHY_FAILED_MAX) as u64),
        ]
    }

    /// Counts a request that begins.
    pub fn request(&self) -> Counted<'_> {
        self.requests.fetch_add(1, Ordering::AcqRel);
        Counted(&self.requests)
    }

    /// Logs of requests and control calls.
    #[inline]
    pub fn logs(&self) -> Option<&Arc<Logs>> {
        self.logs.as_ref()
    }

    /// State about clients at the wrong port.
    pub fn strays(&self) -> &Strays {
        &self.strays
    }

    /// Memory budget of requests and responses.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Counts an accepted connection.
    pub fn connection(&self) -> Counted<'_> {
        self.connections.open.fetch_add(1, Ordering::AcqRel);
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.connections.accepted.store(ms + 1, Ordering::Release);
        Counted(&self.connections.open)
    }

    /// Counts a watcher of the server's health; `None` at the limit.
    pub fn watcher(&self) -> Option<Counted<'_>> {
        // Counted before the check: of two concurrent watchers only one may be the last.
        let before = self.health.watchers.fetch_add(1, Ordering::AcqRel);
        let counted = Counted(&self.health.watchers);
        (before < HEALTH_WATCHERS_MAX as u64).then_some(counted)
    }

    /// Requests whose response is not written to the last byte.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Acquire)
    }

    /// Open connections.
    pub fn connections(&self) -> u64 {
        self.connections.open.load(Ordering::Acquire)
    }

    /// True if there is no connection and none was accepted within `time`.
    pub fn is_deserted(&self, time: Duration) -> bool {
        let last = match self.connections.accepted.load(Ordering::Acquire) {
            0 => return true,
            ms => Duration::from_millis(ms - 1),
        };
        self.connections() == 0 && self.started.elapsed().saturating_sub(last) > time
    }

    /// Whether connections end with their next response.
    pub fn is_parting(&self) -> bool {
        self.parting.load(Ordering::Acquire)
    }

    /// Whether new inferences are rejected.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Moves the shutdown forward; an earlier phase is ignored.
    pub fn advance(&self, to: Phase) {
        self.parting.store(true, Ordering::Release);
        if to >= Phase::Refusing {
            self.draining.store(true, Ordering::Release);
        }
        self.phase.send_if_modified(|phase| {
            let later = to > *phase;
            if later {
                *phase = to;
            }
            later
        });
    }

    /// Starts the next pulse; returns the number of the previous one.
    pub fn pulse(&self) -> u64 {
        let before = *self.pulse.borrow();
        self.pulse.send_replace(before + 1);
        before
    }

    /// Follows the pulses.
    pub fn pulses(&self) -> watch::Receiver<u64> {
        self.pulse.subscribe()
    }

    /// Notifies watchers of the readiness. `look` is called under a lock: of concurrent changes, the later look wins.
    pub fn set_ready(&self, look: impl FnOnce() -> bool) {
        self.health.ready.send_if_modified(|ready| {
            let before = std::mem::replace(ready, look());
            before != *ready
        });
    }

    /// Follows readiness.
    pub fn readiness(&self) -> watch::Receiver<bool> {
        self.health.ready.subscribe()
    }

    /// Whether a watcher that has waited for `HEALTH_WATCH_ASK` should query models now: one of all watchers does.
    pub fn is_query_due(&self) -> bool {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last = self.health.models_asked.load(Ordering::Acquire);
        // 3/4, because the ticks of a watcher vary a little.
        let is_due = now.saturating_sub(last) >= HEALTH_WATCH_ASK.as_millis() as u64 * 3 / 4;
        is_due && self.health.models_asked.compare_exchange(last, now, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Notifies watchers of the readiness that models reported.
    pub fn set_models_ready(&self, ready: bool) {
        self.health.models_ready.send_if_modified(|before| std::mem::replace(before, ready) != ready);
    }

    /// Follows the readiness that models report while watchers query them.
    pub fn models_readiness(&self) -> watch::Receiver<bool> {
        self.health.models_ready.subscribe()
    }

    /// Follows the shutdown.
    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_deserted_without_open_and_recent_connections() {
        let shared = Shared::default();
        assert!(shared.is_deserted(Duration::MAX), "no connection yet");
        let connection = shared.connection();
        assert!(!shared.is_deserted(Duration::ZERO), "an open connection");
        drop(connection);
        assert!(!shared.is_deserted(Duration::from_secs(60)), "a recent connection");
        std::thread::sleep(Duration::from_millis(5));
        assert!(shared.is_deserted(Duration::from_millis(1)));
    }

    #[test]
    fn watchers_are_limited_and_dropped_ones_do_not_count() {
        let shared = Shared::default();
        let mut all: Vec<_> = (0..HEALTH_WATCHERS_MAX).map(|_| shared.watcher().expect("a place")).collect();
        assert!(shared.watcher().is_none() && shared.watcher().is_none(), "a rejected watcher does not count");
        all.pop();
        let again = shared.watcher();
        assert!(again.is_some() && shared.watcher().is_none());
    }
}
