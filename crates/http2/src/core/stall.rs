//! Measures how long something waits without progress.

use std::time::{Duration, Instant};

/// Detects a stall.
#[derive(Debug, Clone, Copy, Default)]
pub struct StallTimer {
    mark: u64,
    since: Option<Instant>,
}

impl StallTimer {
    /// Returns how long `waits` has been true without a change of `mark`. Measured between calls, so never too long.
    pub fn time(&mut self, waits: bool, mark: u64, now: Instant) -> Duration {
        if !waits {
            self.since = None;
            return Duration::ZERO;
        }
        if self.since.is_none() || self.mark != mark {
            *self = Self { mark, since: Some(now) };
        }
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// Stall timers of a connection.
#[derive(Debug, Default)]
pub struct StallTimers {
    pub handshake: StallTimer,
    pub acknowledgement: StallTimer,
    pub frame: StallTimer,
    pub payload: StallTimer,
    pub output: StallTimer,
    pub received: StallTimer,
}

/// The driver's next step after a check of the timeouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Continue; there may be output.
    Continue,
    /// Close at once: the client takes no output.
    Close,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waiting_without_progress_is_a_stall() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timer = StallTimer::default();
        let seconds =
            [(true, 1, 0), (true, 1, 5), (true, 1, 9), (true, 2, 10), (true, 2, 14), (false, 2, 20), (true, 2, 21)]
                .map(|(waits, mark, now)| timer.time(waits, mark, at(now)).as_secs());
        assert_eq!(seconds, [0, 5, 9, 0, 4, 0, 0]);
    }
}
