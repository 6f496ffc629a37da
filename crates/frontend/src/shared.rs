//! What every reactor of a server knows: how far the shutdown is, and how much is going on.

use crate::limits::HEALTH_WATCHERS_MAX;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// How far a shutdown is. Only ever moves down the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Everything is open.
    Serving,
    /// Listeners are closed, new inferences refused. HTTP connections end with their next reply, gRPC connections stay, so that
    /// health can be asked.
    Draining,
    /// Connections finish what they are doing and go, within this time.
    Closing(Duration),
}

/// State shared by the reactors.
#[derive(Debug)]
pub struct Shared {
    draining: AtomicBool,
    requests: AtomicU64,
    connections: AtomicU64,
    watchers: AtomicU64,
    phase: watch::Sender<Phase>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            draining: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            watchers: AtomicU64::new(0),
            phase: watch::Sender::new(Phase::Serving),
        }
    }
}

/// Counts one thing for as long as it lives.
pub struct Counted<'a>(&'a AtomicU64);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    /// A request begins.
    pub fn request(&self) -> Counted<'_> {
        self.requests.fetch_add(1, Ordering::AcqRel);
        Counted(&self.requests)
    }

    /// A connection was accepted.
    pub fn connection(&self) -> Counted<'_> {
        self.connections.fetch_add(1, Ordering::AcqRel);
        Counted(&self.connections)
    }

    /// Somebody watches our health; `None` when as many do as may.
    pub fn watcher(&self) -> Option<Counted<'_>> {
        // Counted first: of two that come together only one may have the last place.
        let before = self.watchers.fetch_add(1, Ordering::AcqRel);
        let counted = Counted(&self.watchers);
        (before < HEALTH_WATCHERS_MAX as u64).then_some(counted)
    }

    /// Requests begun and not yet answered to the last byte.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Acquire)
    }

    /// Open connections.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Acquire)
    }

    /// Whether new inferences are refused.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Moves the shutdown on; never back.
    pub fn advance(&self, to: Phase) {
        self.draining.store(true, Ordering::Release);
        self.phase.send_if_modified(|phase| {
            let later = to > *phase;
            if later {
                *phase = to;
            }
            later
        });
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
    fn no_more_watchers_than_the_limit_and_places_come_back() {
        let shared = Shared::default();
        let mut all: Vec<_> = (0..HEALTH_WATCHERS_MAX).map(|_| shared.watcher().expect("a place")).collect();
        assert!(shared.watcher().is_none() && shared.watcher().is_none(), "a refusal takes no place");
        all.pop();
        let again = shared.watcher();
        assert!(again.is_some() && shared.watcher().is_none());
    }
}
