//! Waiting requests of one sequence, in a slot or in the backlog.
//!
//! An id may be started again before it was ended. Then two sequences share a queue, the later one behind its START; a
//! cancellation in the former one does not affect it.

use super::SequenceId;
use crate::Waiting;
use std::collections::VecDeque;

pub(super) const NEVER: u64 = u64::MAX;

/// A request that waits.
pub(super) struct Queued<T> {
    pub item: T,
    pub start: bool,
    pub end: bool,
    pub arrived: u64,
    /// Expiry time, unless it has a slot by then.
    pub expires: u64,
}

pub(super) struct Sequence<T> {
    pub id: SequenceId,
    /// Unique, also among sequences of the same id.
    pub serial: u64,
    pub queue: VecDeque<Queued<T>>,
    /// The id is forgotten: nothing joins the sequence, and its slot is free after its last request.
    pub closed: bool,
    /// Requests handed out and not returned. Only counted for iterative sequences, whose requests may return.
    pub out: u32,
    /// The last request handed out ended it.
    pub has_ended: bool,
    /// The instance ended: a request that the model has cannot return.
    pub gone: bool,
    /// Start of the idle time.
    pub last_arrival: u64,
    /// When the scheduler has to check it; [`NEVER`] = not scheduled.
    pub alarm: u64,
}

impl<T: Waiting> Sequence<T> {
    pub fn new(id: SequenceId, serial: u64, now: u64) -> Self {
        let queue = VecDeque::with_capacity(1);
        Self {
            id,
            serial,
            queue,
            closed: false,
            out: 0,
            has_ended: false,
            gone: false,
            last_arrival: now,
            alarm: NEVER,
        }
    }

    /// When the sequence expires unless it has a slot by then: with the first of its requests (S-19).
    pub fn expires(&self) -> u64 {
        self.queue.iter().map(|q| q.expires).min().unwrap_or(NEVER)
    }

    /// True if the first request is cancelled.
    pub fn is_broken(&self) -> bool {
        self.queue.front().is_some_and(|q| q.item.is_cancelled())
    }

    /// Removes every cancelled request, and those of the same sequence behind it, which must not run without it. If the
    /// sequence has not begun (`begun` is false), those in front are removed, too. Returns true if the last sequence of
    /// the queue was cut: then nothing may join it.
    pub fn purge(&mut self, begun: bool, mut sink: impl FnMut(T)) -> bool {
        let mut last_was_cut = false;
        while let Some(broken) = self.queue.iter().position(|q| q.item.is_cancelled()) {
            let start = || self.queue.iter().take(broken + 1).rposition(|q| q.start).unwrap_or(0);
            let mut behind = self.queue.split_off(if begun { broken } else { start() });
            behind.pop_front().into_iter().for_each(|q| sink(q.item));
            last_was_cut = !cut_rest(&mut behind, &mut sink);
            self.queue.append(&mut behind);
        }
        last_was_cut
    }

    /// Removes the rest of the sequence of a cancelled request. Returns true if it was the last one of the queue.
    pub fn cut_rest(&mut self, mut sink: impl FnMut(T)) -> bool {
        !cut_rest(&mut self.queue, &mut sink)
    }
}

/// Removes everything in front of the next START; returns whether there is one.
fn cut_rest<T>(queue: &mut VecDeque<Queued<T>>, sink: &mut impl FnMut(T)) -> bool {
    while queue.front().is_some_and(|q| !q.start) {
        queue.pop_front().into_iter().for_each(|q| sink(q.item));
    }
    !queue.is_empty()
}
