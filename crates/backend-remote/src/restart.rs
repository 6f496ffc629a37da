//! When a process that died is started again. Pure: time is an argument.

use std::time::Duration;

/// Crashes within this count together: a process that ran for longer is started again at once.
const WINDOW_NS: u64 = 60_000_000_000;
/// With as many crashes in a row whoever reads the log is told that pauses follow.
const CRASHES_TOLD: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_millis(100);
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(30);

/// What follows a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Again {
    pub(crate) delay: Duration,
    /// Crashes in a row, when it is time to tell them; once for each row.
    pub(crate) told: Option<u32>,
}

/// The crashes of one instance. There is no last one: what takes a process down may be a request of one client, and the others must be
/// served once that stops. Pauses that become longer bound what the starts cost.
#[derive(Default)]
pub(crate) struct Crashes {
    last: Option<u64>,
    in_a_row: u32,
    delay: Duration,
}

impl Crashes {
    pub(crate) fn crashed(&mut self, now: u64) -> Again {
        let ran_well = self.last.is_none_or(|last| now.saturating_sub(last) > WINDOW_NS);
        self.last = Some(now);
        // The first time at once: what took it down was most likely one request.
        (self.in_a_row, self.delay) = match ran_well {
            true => (1, Duration::ZERO),
            false => (self.in_a_row.saturating_add(1), (self.delay * 2).clamp(FIRST_DELAY, DELAY_MAX)),
        };
        Again { delay: self.delay, told: (self.in_a_row == CRASHES_TOLD).then_some(self.in_a_row) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seconds: &[f64], delays: &[u64]) -> Vec<u32> {
        let mut crashes = Crashes::default();
        let all: Vec<_> = seconds.iter().map(|s| crashes.crashed((s * 1e9) as u64)).collect();
        assert_eq!(all.iter().map(|a| a.delay.as_millis() as u64).collect::<Vec<_>>(), delays, "{seconds:?}");
        all.iter().filter_map(|a| a.told).collect()
    }

    #[test]
    fn restarts_come_at_once_then_later_and_never_end_b_pyr_07() {
        let delays = [0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000];
        let seconds = |apart: f64| delays.iter().enumerate().map(|(n, _)| n as f64 * apart).collect::<Vec<_>>();
        assert_eq!(check(&seconds(0.5), &delays), [5], "told once");
        assert_eq!(check(&seconds(20.0), &delays), [5]);
        // It dies as soon as it is started again.
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
    fn after_a_quiet_minute_it_is_started_at_once_again() {
        assert!(check(&[1.0, 100.0, 200.0], &[0, 0, 0]).is_empty());
        let five = [0.0, 1.0, 2.0, 3.0, 4.0];
        let twice: Vec<f64> = five.iter().copied().chain(five.iter().map(|s| s + 65.0)).collect();
        assert_eq!(check(&twice, &[0, 100, 200, 400, 800, 0, 100, 200, 400, 800]), [5, 5]);
    }
}
