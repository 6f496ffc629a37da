//! How far a batch may reach into the queue: step 3 of the formation algorithm (S-09), shared by both modes.

use crate::Waiting;
use crate::queue::QueuedRequest;
use crate::step::Cause;
use smallvec::SmallVec;

/// Sizes a batch may have, in rows.
#[derive(Debug, Clone)]
pub(crate) struct Sizes {
    /// Maximum rows of a batch of several requests (M of S-09).
    pub max: u32,
    /// Preferred sizes (P of S-09), ascending, never empty.
    pub preferred: SmallVec<[u32; 4]>,
    /// True if the user configured preferred sizes; false for the default, the maximum alone.
    pub chosen: bool,
}

impl Sizes {
    pub fn new(max_batch_size: u32, preferred: &[u32]) -> Self {
        let max = max_batch_size.max(1);
        let mut preferred: SmallVec<[u32; 4]> = preferred.iter().copied().filter(|&p| (1..=max).contains(&p)).collect();
        preferred.sort_unstable();
        preferred.dedup();
        let chosen = !preferred.is_empty() && preferred[..] != [max];
        if preferred.is_empty() {
            preferred.push(max);
        }
        Self { max, preferred, chosen }
    }

    pub fn max_preferred(&self) -> u32 {
        self.preferred.last().copied().unwrap_or(self.max)
    }

    pub fn is_preferred(&self, rows: u32) -> bool {
        self.preferred.contains(&rows)
    }

    /// Smallest preferred size above `rows`.
    pub fn next_preferred(&self, rows: u32) -> Option<u32> {
        self.preferred.iter().copied().find(|&p| p > rows)
    }
}

/// The first requests of the scan order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Prefix {
    /// Queue entries to remove, cancelled ones included.
    pub entries: usize,
    /// Requests that are not cancelled.
    pub requests: u32,
    pub rows: u32,
}

/// Result of a scan.
#[derive(Default)]
pub(crate) struct Scan {
    /// All requests that may be in the batch, up to `max` rows.
    pub pending: Prefix,
    /// The prefix to prefer until the delay is exceeded. If empty, nothing may join the open payload.
    pub best: Option<Prefix>,
    /// Nothing may be appended to this batch any more.
    pub saturated: bool,
    /// The scan met a request that cannot join the batch.
    pub send_now: bool,
    /// The scan met a request of which it is not known yet whether it may join the batch, which has to wait for that.
    pub undecided: bool,
    /// Earliest arrival in `pending`.
    pub oldest: u64,
}

impl Scan {
    /// Why the batch, of which `open` rows are in a payload, should not wait for more requests; `None` if it may.
    /// `exceeded` is set after the queue delay, and `at_once` if there is none or no reason for one.
    pub fn cause(&self, sizes: &Sizes, open: u32, exceeded: bool, at_once: bool) -> Option<Cause> {
        let rows = |prefix: &Prefix| open.saturating_add(prefix.rows);
        match self.best {
            _ if at_once => Some(Cause::IdleInstance),
            _ if rows(&self.pending) >= sizes.max => Some(Cause::Full),
            Some(best) if !exceeded && sizes.is_preferred(rows(&best)) => Some(Cause::PreferredSize),
            _ if self.send_now => Some(Cause::NextDiffers),
            _ if exceeded => Some(Cause::DelayElapsed),
            best => best.map(|_| Cause::NextDiffers),
        }
    }
}

/// Scans the queue from its head for a batch. `open` is the first request and the rows of a payload to append to.
pub(crate) fn scan<'a, T: Waiting + 'a>(
    sizes: &Sizes,
    open: Option<(&'a T, u32)>,
    queue: impl Iterator<Item = &'a QueuedRequest<T>>,
) -> Scan {
    let mut scan = Scan { oldest: u64::MAX, ..Scan::default() };
    let (mut first, open_rows) = open.map_or((None, 0), |(first, rows)| (Some(first), rows));
    for (before, entry) in queue.enumerate() {
        if entry.request.is_cancelled() {
            continue;
        }
        let rows = open_rows.saturating_add(scan.pending.rows).saturating_add(entry.rows);
        match first {
            None => first = Some(&entry.request),
            Some(_) if !entry.request.is_decided() => {
                scan.undecided = true;
                break;
            }
            Some(first) => {
                if rows > sizes.max_preferred() {
                    if scan.best.is_none() {
                        scan.best = Some(scan.pending);
                        scan.saturated = true;
                    }
                    if rows > sizes.max {
                        scan.send_now = true;
                        break;
                    }
                }
                // Order is kept: a request that does not fit ends the batch, and later ones do not overtake it.
                if !entry.request.fits_with(first) {
                    scan.saturated = true;
                    scan.send_now = true;
                    break;
                }
            }
        }
        let pending = &mut scan.pending;
        *pending = Prefix {
            entries: before + 1,
            requests: pending.requests + 1,
            rows: pending.rows.saturating_add(entry.rows),
        };
        scan.oldest = scan.oldest.min(entry.arrived);
        if sizes.is_preferred(rows) {
            scan.best = Some(scan.pending);
        }
        // Any further request would exceed the maximum.
        if rows >= sizes.max {
            scan.send_now = true;
            break;
        }
    }
    scan
}
