//! The smallest rate at which a client sends a body or reads a response, enforced while connections or memory run
//! short: clients that move a byte a second would otherwise keep both for as long as they like.
//!
//! Reads and writes only count bytes. The sweep of [`Idle`](crate::idle::Idle) looks at each connection every
//! `IDLE_SWEEP_INTERVAL`; the clock is an argument. A connection is measured while it waits for its client, and not
//! while it is idle or waits for a model.

use crate::limits::SLOW_TIME_MAX;
use http2::{ConnectionProgress, Waits};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// Consequence of a shortage of connections or memory for one connection; also what a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// The client has more of a body to send.
    SlowBody,
    /// The client leaves a response unread.
    SlowResponse,
    /// The connection is for health checks only.
    Crowded,
}

/// Bytes that one connection moves, and what it waits for.
#[derive(Default)]
pub struct Transfer {
    delayed: Cell<Option<Shortage>>,
    moved: Cell<u64>,
    /// Streams of an HTTP/2 connection, which counts for itself.
    http2: RefCell<Option<ConnectionProgress>>,
    /// `None` until the first look.
    window: Cell<Option<RateWindow>>,
    is_too_slow: Cell<bool>,
}

/// The time for which a connection has waited for its client, and the bytes it had moved before.
#[derive(Debug, Clone, Copy)]
struct RateWindow {
    waited: Duration,
    mark: u64,
}

/// Result of a look at a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Keep,
    /// The connection ends itself, with an error of its protocol.
    Told(Shortage),
    /// The caller closes the connection, which cannot be told, or was told and did not end (`None`).
    Close(Option<Shortage>),
}

impl Transfer {
    /// Sets what the connection waits for.
    pub fn wait_for(&self, delayed: Option<Shortage>) {
        self.delayed.set(delayed);
    }

    /// Counts bytes of bodies and responses.
    pub fn moved(&self, bytes: usize) {
        self.moved.set(self.moved.get() + bytes as u64);
    }

    /// Follows the streams of an HTTP/2 connection.
    pub fn follow(&self, http2: ConnectionProgress) {
        self.http2.replace(Some(http2));
    }

    /// Whether the client was too slow: the reader of its body ends the request.
    pub fn is_too_slow(&self) -> bool {
        self.is_too_slow.get()
    }

    fn now(&self) -> Waits {
        if let Some(http2) = &*self.http2.borrow() {
            return http2.waits();
        }
        let delays = |what| usize::from(self.delayed.get() == Some(what));
        let (bodies, responses) = (delays(Shortage::SlowBody), delays(Shortage::SlowResponse));
        Waits { bodies, is_body_open: false, responses, bytes: self.moved.get() }
    }

    /// Whether the connection waits for a client that has not moved enough in its current window yet, or was too slow.
    pub fn is_behind(&self, rate_min: u64) -> bool {
        let Waits { bodies, is_body_open, responses, bytes } = self.now();
        let count = (bodies + responses).max(usize::from(is_body_open)) as u64;
        let mark = self.window.get().map_or(0, |window| window.mark);
        self.is_too_slow.get() || bytes.saturating_sub(mark) < count * rate_min * SLOW_TIME_MAX.as_secs()
    }

    /// Forgets the window, for a connection that is idle or while there is no shortage.
    pub fn restart(&self) {
        self.window.set(None);
    }

    /// Adds the time `passed` since the last look, and decides once the client had `SLOW_TIME_MAX`.
    pub fn look(&self, passed: Duration, rate_min: u64) -> Verdict {
        let Waits { bodies, responses, bytes, .. } = self.now();
        let delayed = match (bodies, responses) {
            (0, 0) => return Verdict::Keep,
            (0, _) => Shortage::SlowResponse,
            _ => Shortage::SlowBody,
        };
        if self.is_too_slow.get() {
            return Verdict::Close(None);
        }
        let begun = RateWindow { waited: Duration::ZERO, mark: bytes };
        let window = self.window.get().map_or(begun, |window| RateWindow { waited: window.waited + passed, ..window });
        self.window.set(Some(window));
        if window.waited < SLOW_TIME_MAX {
            return Verdict::Keep;
        }
        if !self.is_behind(rate_min) {
            self.window.set(Some(begun));
            return Verdict::Keep;
        }
        self.is_too_slow.set(true);
        match (&*self.http2.borrow(), delayed) {
            (Some(http2), _) => http2.end("the client is too slow while connections or memory are short"),
            (None, Shortage::SlowBody) => {}
            (None, _) => return Verdict::Close(Some(delayed)),
        }
        Verdict::Told(delayed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_secs(5);

    #[test]
    fn a_client_below_the_rate_is_told_and_then_closed_and_one_above_it_stays() {
        for (bytes, expected) in [(5 * 1024, false), (5 * 1023, true)] {
            let transfer = Transfer::default();
            transfer.wait_for(Some(Shortage::SlowBody));
            for look in 1..=60 {
                transfer.moved(bytes);
                let verdict = transfer.look(LOOK, 1024);
                assert!(look >= 7 || verdict == Verdict::Keep, "{bytes} bytes, look {look}");
                if verdict != Verdict::Keep {
                    assert_eq!((verdict, look), (Verdict::Told(Shortage::SlowBody), 7));
                    break;
                }
            }
            assert_eq!(transfer.is_too_slow(), expected, "{bytes} bytes in each look");
            if expected {
                assert_eq!(transfer.look(LOOK, 1024), Verdict::Close(None));
            }
        }
    }

    #[test]
    fn only_waiting_for_the_client_counts_over_all_requests_of_a_connection() {
        let transfer = Transfer::default();
        // A model computes for an hour.
        (0..720).for_each(|_| assert_eq!(transfer.look(LOOK, 1024), Verdict::Keep));
        // Requests of 20 bytes, each of which is complete after less than the time allowed.
        for look in 0..7 {
            transfer.wait_for(Some(Shortage::SlowResponse));
            transfer.moved(20);
            let expected = if look == 6 { Verdict::Close(Some(Shortage::SlowResponse)) } else { Verdict::Keep };
            assert_eq!(transfer.look(LOOK, 1024), expected);
            transfer.wait_for(None);
        }
    }
}
