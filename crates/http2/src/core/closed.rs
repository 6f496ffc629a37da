//! What is remembered of streams that are over, so that a frame that comes late is told from one that is never allowed.
//!
//! Bounded: of resets and of skipped ids only the last few are known. A frame of a stream that may have been forgotten is read and
//! thrown away, as one that was on its way when we reset its stream.

use crate::limits::{RESETS_REMEMBERED_MAX, SKIPS_REMEMBERED_MAX};
use std::collections::VecDeque;

/// Who reset a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Us,
    Client,
}

/// How a stream that is over came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// We reset it: what comes of it may have been sent before the client knew.
    Reset,
    /// The client reset it, and so may send nothing more of it.
    ResetByClient,
    /// Both sides said all they had to say, or the client never opened it.
    Closed,
    /// A later one was opened instead.
    Skipped,
}

/// The last ends of a connection that were not orderly.
#[derive(Debug, Default)]
pub struct Closed {
    resets: VecDeque<(u32, By)>,
    /// The largest id of a reset that was forgotten.
    forgotten: u32,
    /// First and last id.
    skips: VecDeque<(u32, u32)>,
}

impl Closed {
    /// A stream was reset.
    pub fn reset(&mut self, id: u32, by: By) {
        if let Some(known) = self.resets.iter_mut().find(|(other, _)| *other == id) {
            // Once the client was told that it may not, it is not told again.
            known.1 = By::Us;
            return;
        }
        if self.resets.len() >= RESETS_REMEMBERED_MAX
            && let Some((id, _)) = self.resets.pop_front()
        {
            self.forgotten = self.forgotten.max(id);
        }
        self.resets.push_back((id, by));
    }

    /// A stream was opened after `last`.
    pub fn opened(&mut self, id: u32, last: u32) {
        let next = if last == 0 { 1 } else { last.saturating_add(2) };
        if id > next {
            if self.skips.len() >= SKIPS_REMEMBERED_MAX {
                self.skips.pop_front();
            }
            self.skips.push_back((next, id - 2));
        }
    }

    /// How a stream ended that is not on the wire and not larger than the last one opened.
    pub fn end(&self, id: u32) -> End {
        if let Some((_, by)) = self.resets.iter().find(|(other, _)| *other == id) {
            return if *by == By::Us { End::Reset } else { End::ResetByClient };
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
    fn ends_are_told_apart_for_as_long_as_they_are_remembered() {
        let mut closed = Closed::default();
        for (id, last) in [(1, 0), (3, 1), (9, 3), (11, 9)] {
            closed.opened(id, last);
        }
        closed.reset(3, By::Us);
        closed.reset(9, By::Client);
        let ends = [1, 3, 5, 7, 9, 11].map(|id| closed.end(id));
        assert_eq!(ends, [End::Closed, End::Reset, End::Skipped, End::Skipped, End::ResetByClient, End::Closed]);
        closed.reset(9, By::Us);
        assert_eq!(closed.end(9), End::Reset, "told once");
        for n in 0..2 * RESETS_REMEMBERED_MAX as u32 {
            closed.reset(101 + 2 * n, By::Client);
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
