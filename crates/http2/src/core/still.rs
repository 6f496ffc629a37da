//! What is waited for, and since when.

use std::time::{Duration, Instant};

/// Since when something stands still.
#[derive(Debug, Clone, Copy, Default)]
pub struct Still {
    mark: u64,
    since: Option<Instant>,
}

impl Still {
    /// How long it has been waited for without `mark` having changed; as far as was seen, which is never too long.
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

/// What a connection is waited for.
#[derive(Debug, Default)]
pub struct Patience {
    pub handshake: Still,
    pub acknowledgement: Still,
    pub frame: Still,
    pub payload: Still,
    pub output: Still,
    pub heard: Still,
}

/// What the driver is to do after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Go on; there may be something to write.
    GoOn,
    /// Close at once: nothing that is still to be said would be taken.
    Close,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_or_is_not_waited_for_is_not_still() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut still = Still::default();
        let seconds =
            [(true, 1, 0), (true, 1, 5), (true, 1, 9), (true, 2, 10), (true, 2, 14), (false, 2, 20), (true, 2, 21)]
                .map(|(waits, mark, now)| still.time(waits, mark, at(now)).as_secs());
        assert_eq!(seconds, [0, 5, 9, 0, 4, 0, 0]);
    }
}
