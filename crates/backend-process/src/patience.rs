//! Whether a batch is answered so soon that the thread which handed it over had better not sleep meanwhile.
//!
//! For one client at a time: a Python identity of 4 KiB takes 15 to 25 µs there and back, and to sleep and be woken takes as long. For a model that takes longer,
//! or whose process waits for the very CPU that is kept busy, it is given up: after each failure for twice as many batches. Pure: the caller passes the time.

/// A batch that is answered later than this is not waited for.
const WAIT_NS: u64 = 50_000;
/// Batches between two attempts, at most: so attempts cost at most 50 ns a batch.
const PAUSE_MAX: u32 = 1023;

#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// Batches that are not waited for after a failure, and how many of them are left.
    pause: u32,
    left: u32,
    /// The end of the attempt that goes on; 0: none does.
    until: u64,
}

impl Patience {
    /// A batch is handed over; until when its answer is waited for.
    pub(crate) fn begins(&mut self, now: u64) -> Option<u64> {
        if self.left > 0 {
            self.left -= 1;
            return None;
        }
        self.until = now.saturating_add(WAIT_NS);
        Some(self.until)
    }

    /// The process asked something, was answered, and goes on with its batch.
    pub(crate) fn goes_on(&mut self, now: u64) -> Option<u64> {
        if self.until < now {
            return None;
        }
        self.until = now.saturating_add(WAIT_NS);
        Some(self.until)
    }

    /// The batch has ended.
    pub(crate) fn ended(&mut self, now: u64) {
        match std::mem::take(&mut self.until) {
            0 => {}
            until if now <= until => self.pause = 0,
            _ => {
                self.pause = (2 * self.pause + 1).min(PAUSE_MAX);
                self.left = self.pause;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_batches_are_waited_for_ever_less_and_quick_ones_always() {
        let mut patience = Patience::default();
        let mut run = |batches: u32, takes: u64| {
            let mut waited = 0;
            for at in (1..=batches).map(|n| u64::from(n) * 1_000_000) {
                waited += u32::from(patience.begins(at).is_some());
                patience.ended(at + takes);
            }
            waited
        };
        assert_eq!(run(100, WAIT_NS), 100);
        assert_eq!(run(10_000, WAIT_NS + 1), 18, "after 1, 3, 7, … 1023 and then every 1024");
        assert!(run(3000, 20_000) > 1900, "it comes back");
    }

    #[test]
    fn a_batch_that_asks_is_waited_for_again_after_each_answer() {
        let mut patience = Patience::default();
        assert_eq!(patience.goes_on(1), None);
        assert_eq!(patience.begins(100), Some(100 + WAIT_NS));
        assert_eq!(patience.goes_on(40_000), Some(40_000 + WAIT_NS));
        assert_eq!(patience.goes_on(40_001 + WAIT_NS), None);
        patience.ended(40_001 + WAIT_NS);
        assert_eq!(patience.begins(200_000), None);
    }
}
