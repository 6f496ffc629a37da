//! How often a side socket is read, from which follows who reads it: a reactor, or in bursts the hub. Pure.

/// Reads of a burst: so many of a side socket within [`BURST_NS`]. A reactor can read about three times as many.
const BURST_READS: u32 = 150;
const BURST_NS: u64 = 10_000_000;
/// How long a side socket has fewer than two thirds of them before a reactor reads it again.
const QUIET_NS: u64 = 100_000_000;
const QUIET_READS: u32 = BURST_READS * 2 / 3 * (QUIET_NS / BURST_NS) as u32;

/// How often a side socket is read. Counts over some milliseconds, since reads of a burst come in uneven groups.
#[derive(Debug, Default)]
pub(crate) struct SideRate {
    since: u64,
    reads: u32,
}

impl SideRate {
    /// Counts a read of a reactor. True in a burst.
    pub(crate) fn is_burst(&mut self, now: u64) -> bool {
        self.reads += 1;
        let is_full = self.reads >= BURST_READS;
        let in_time = now.saturating_sub(self.since) <= BURST_NS;
        if is_full || !in_time {
            *self = Self { since: now, reads: 0 };
        }
        is_full && in_time
    }

    /// Counts a read of the hub. True if no burst was for a while.
    pub(crate) fn is_quiet(&mut self, now: u64) -> bool {
        self.reads += 1;
        let is_over = now.saturating_sub(self.since) >= QUIET_NS;
        let is_quiet = is_over && self.reads < QUIET_READS;
        if is_over {
            *self = Self { since: now, reads: 0 };
        }
        is_quiet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of reads, one each `gap_us`, until a reactor sees a burst; none in 1000.
    fn reads_until_burst(gap_us: u64) -> Option<u64> {
        let mut rate = SideRate::default();
        (1..=1000).find(|n| rate.is_burst(1_000_000_000 + n * gap_us * 1000))
    }

    #[test]
    fn responses_that_come_faster_than_a_reactor_should_read_them_are_a_burst() {
        assert_eq!(reads_until_burst(5_000), None);
        assert_eq!(reads_until_burst(80), None, "64 streams with a response each 5 ms");
        assert_eq!(reads_until_burst(50), Some(151));
        assert_eq!(reads_until_burst(5), Some(151));
    }

    #[test]
    fn a_socket_is_quiet_after_a_while_of_few_reads() {
        let mut rate = SideRate::default();
        let mut at = 1_000_000_000;
        assert!(rate.is_quiet(at), "the first one");
        // Bursts of ten milliseconds with pauses between them.
        for _ in 0..20 {
            for _ in 0..500 {
                at += 20_000;
                assert!(!rate.is_quiet(at));
            }
            at += 20_000_000;
        }
        let reads = (1..).find(|_| {
            at += 1_000_000;
            rate.is_quiet(at)
        });
        assert!(reads.is_some_and(|reads| (50..250).contains(&reads)), "{reads:?}");
    }
}
