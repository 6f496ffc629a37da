//! Remembers streams that are over, to tell a late frame from a forbidden one.
//!
//! Bounded: only the last few resets and skipped ids are known. A frame of a stream that may have been forgotten is
//! read and dropped, like one sent before the client knew of our reset.

use crate::limits::{RESETS_REMEMBERED_MAX, SKIPS_REMEMBERED_MAX};
use std::collections::VecDeque;

/// Which side reset a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetBy {
    Us,
    Client,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// We reset it: its frames may have been sent before the client knew.
    Reset,
    /// The client reset it and so may send no more of it.
    ResetByClient,
    /// Both sides finished it, or the client never opened it.
    Closed,
    /// The client skipped it and opened a later one.
    Skipped,
}

/// The last resets and skipped ids of a connection.
#[derive(Debug, Default)]
pub struct Closed {
    resets: VecDeque<(u32, ResetBy)>,
    /// The largest id of a reset that was forgotten.
    forgotten: u32,
    /// First and last id of each range.
    skips: VecDeque<(u32, u32)>,
}

impl Closed {
    /// Records a reset.
    pub fn reset(&mut self, id: u32, by: ResetBy) {
        if let Some(known) = self.resets.iter_mut().find(|(other, _)| *other == id) {
            // Once we have reset a stream, we do not reset it again.
            known.1 = ResetBy::Us;
            return;
        }
        if self.resets.len() >= RESETS_REMEMBERED_MAX
            && let Some((id, _)) = self.resets.pop_front()
        {
            self.forgotten = self.forgotten.max(id);
        }
        self.resets.push_back((id, by));
    }

    /// Records that a stream was opened after `last`.
    pub fn opened(&mut self, id: u32, last: u32) {
        let next = if last == 0 { 1 } else { last.saturating_add(2) };
        if id > next {
            if self.skips.len() >= SKIPS_REMEMBERED_MAX {
                self.skips.pop_front();
            }
            self.skips.push_back((next, id - 2));
        }
    }

    /// Returns how a stream ended that is not on the wire and not larger than the last one opened.
    pub fn end(&self, id: u32) -> End {
        if let Some((_, by)) = self.resets.iter().find(|(other, _)| *other == id) {
            return if *by == ResetBy::Us { End::Reset } else { End::ResetByClient };
        }
        if self.skips.iter().any(|&(first, last)| (first..=last).contains(&id)) {
            return End::Skipped;
        }
        if id <= self.forgotten { End::Reset } else { End::Closed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_distinguished_while_they_are_remembered() {
        let mut closed = Closed::default();
        for (id, last) in [(1, 0), (3, 1), (9, 3), (11, 9)] {
            closed.opened(id, last);
        }
        closed.reset(3, ResetBy::Us);
        closed.reset(9, ResetBy::Client);
        let ends = [1, 3, 5, 7, 9, 11].map(|id| closed.end(id));
        assert_eq!(ends, [End::Closed, End::Reset, End::Skipped, End::Skipped, End::ResetByClient, End::Closed]);
        closed.reset(9, ResetBy::Us);
        assert_eq!(closed.end(9), End::Reset, "told once");
        for n in 0..2 * RESETS_REMEMBERED_MAX as u32 {
            closed.reset(101 + 2 * n, ResetBy::Client);
        }
        assert_eq!(
            (closed.resets.len(), closed.end(3), closed.end(11)),
            (RESETS_REMEMBERED_MAX, End::Reset, End::Reset)
        );
        (0..100).for_each(|n| closed.opened(10_000 + 10 * n, 9_990 + 10 * n));
        assert!(closed.skips.len() <= SKIPS_REMEMBERED_MAX);
        // Clients that keep stream 1 for an upgrade begin with 3.
        let mut closed = Closed::default();
        closed.opened(3, 0);
        assert_eq!((closed.end(1), closed.end(3)), (End::Skipped, End::Closed));
    }
}
