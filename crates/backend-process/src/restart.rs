//! When a process that died is started again. Pure: time is an argument.

use std::time::Duration;

/// Crashes within this count together.
const WINDOW_NS: u64 = 60_000_000_000;
/// As many crashes within the window are the last.
const CRASHES_MAX: usize = 5;
const FIRST_DELAY: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(30);

/// What follows a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    RestartIn(Duration),
    StayDown,
}

/// The crashes of one instance.
#[derive(Default)]
pub(crate) struct Crashes {
    recent: Vec<u64>,
    delay: Duration,
}

impl Crashes {
    pub(crate) fn crashed(&mut self, now: u64) -> Then {
        let ran_well = self.recent.last().is_none_or(|&last| now.saturating_sub(last) > WINDOW_NS);
        self.recent.retain(|&at| now.saturating_sub(at) <= WINDOW_NS);
        self.recent.push(now);
        if self.recent.len() >= CRASHES_MAX {
            return Then::StayDown;
        }
        // The first time at once: what took it down was most likely one request.
        self.delay = if ran_well { Duration::ZERO } else { (self.delay * 2).clamp(FIRST_DELAY, DELAY_MAX) };
        Then::RestartIn(self.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seconds: &[f64], expected: &[Option<u64>]) {
        let mut crashes = Crashes::default();
        let then = |s: &f64| match crashes.crashed((s * 1e9) as u64) {
            Then::RestartIn(delay) => Some(delay.as_millis() as u64),
            Then::StayDown => None,
        };
        assert_eq!(seconds.iter().map(then).collect::<Vec<_>>(), expected, "{seconds:?}");
    }

    #[test]
    fn restarts_come_at_once_then_later_then_not_b_pyr_07() {
        check(&[1.0, 1.5, 2.0, 2.5, 3.0], &[Some(0), Some(100), Some(200), Some(400), None]);
        check(&[1.0, 100.0, 200.0], &[Some(0), Some(0), Some(0)]);
        // One each 20 s: never five within a minute, and rarer and rarer.
        let many: Vec<f64> = (0..12).map(|n| f64::from(n) * 20.0).collect();
        let delays = [0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000];
        check(&many, &delays.map(Some));
    }
}
