//! Delay before a crashed process is restarted. Pure: time is an argument.

use std::time::Duration;

/// A process that ran for longer than this before it crashed is restarted at once.
const WINDOW_NS: u64 = 60_000_000_000;
/// Number of crashes in a row at which the log warns that restarts are delayed.
const CRASHES_REPORTED: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_millis(100);
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(30);

/// Reaction to a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Restart {
    pub(crate) delay: Duration,
    /// Number of crashes in a row, if the log is to report it now: once per row.
    pub(crate) crashes_reported: Option<u32>,
}

/// The crashes of one instance. Restarts never stop: the cause may be a request of one client, and the others must be
/// served once that client stops. Growing delays bound the cost of restarts.
#[derive(Default)]
pub(crate) struct Crashes {
    last: Option<u64>,
    in_a_row: u32,
    delay: Duration,
}

impl Crashes {
    pub(crate) fn crashed(&mut self, now: u64) -> Restart {
        let ran_well = self.last.is_none_or(|last| now.saturating_sub(last) > WINDOW_NS);
        self.last = Some(now);
        // The first restart is immediate: most likely a single request caused the crash.
        (self.in_a_row, self.delay) = match ran_well {
            true => (1, Duration::ZERO),
            false => (self.in_a_row.saturating_add(1), (self.delay * 2).clamp(FIRST_DELAY, DELAY_MAX)),
        };
        Restart { delay: self.delay, crashes_reported: (self.in_a_row == CRASHES_REPORTED).then_some(self.in_a_row) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seconds: &[f64], delays: &[u64]) -> Vec<u32> {
        let mut crashes = Crashes::default();
        let all: Vec<_> = seconds.iter().map(|s| crashes.crashed((s * 1e9) as u64)).collect();
        assert_eq!(all.iter().map(|a| a.delay.as_millis() as u64).collect::<Vec<_>>(), delays, "{seconds:?}");
        all.iter().filter_map(|a| a.crashes_reported).collect()
    }

    #[test]
    fn restarts_are_immediate_then_delayed_and_never_stop_b_pyr_07() {
        let delays = [0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000];
        let seconds = |apart: f64| delays.iter().enumerate().map(|(n, _)| n as f64 * apart).collect::<Vec<_>>();
        assert_eq!(check(&seconds(0.5), &delays), [5], "reported once");
        assert_eq!(check(&seconds(20.0), &delays), [5]);
        // It crashes 0.1 s after each restart.
        let mut at = 0.0;
        let dying: Vec<f64> = delays
            .iter()
            .map(|d| {
                at += *d as f64 / 1000.0 + 0.1;
                at
            })
            .collect();
        assert_eq!(check(&dying, &delays), [5]);
    }

    #[test]
    fn after_a_minute_without_a_crash_the_restart_is_immediate() {
        assert!(check(&[1.0, 100.0, 200.0], &[0, 0, 0]).is_empty());
        let five = [0.0, 1.0, 2.0, 3.0, 4.0];
        let twice: Vec<f64> = five.iter().copied().chain(five.iter().map(|s| s + 65.0)).collect();
        assert_eq!(check(&twice, &[0, 100, 200, 400, 800, 0, 100, 200, 400, 800]), [5, 5]);
    }
}
