//! The requests of one sequence that wait, wherever it is: in a slot or in the backlog.
//!
//! An id may be started again before it was ended. Then two sequences stand in one queue, the later one behind its START, and
//! what befalls the former one does not reach it.

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
    /// When it expires if it has no slot by then.
    pub expires: u64,
}

/// A sequence.
pub(super) struct Sequence<T> {
    pub id: SequenceId,
    /// Tells it from every other, earlier and later ones of the same id included.
    pub serial: u64,
    pub queue: VecDeque<Queued<T>>,
    /// Its id is forgotten: nothing joins it any more, and its slot is free when the last of its requests is gone.
    pub closed: bool,
    /// Requests handed out and not given back. Counted for iterative sequences only, whose requests may return.
    pub out: u32,
    /// The last request handed out ended it.
    pub has_ended: bool,
    /// Its instance went down: what the model has of it cannot return.
    pub gone: bool,
    /// What idle time is counted from.
    pub last_arrival: u64,
    /// When the scheduler has to look at it, [`NEVER`] = need not.
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

    /// When it expires if it has no slot by then: with the first of its requests (S-19).
    pub fn expires(&self) -> u64 {
        self.queue.iter().map(|q| q.expires).min().unwrap_or(NEVER)
    }

    /// The first request was given up.
    pub fn is_broken(&self) -> bool {
        self.queue.front().is_some_and(|q| q.item.is_cancelled())
    }

    /// Takes out every cancelled request, and those of the same sequence behind it, which would otherwise run on without it. Of a
    /// sequence of which nothing ran yet (`begun` is false) those in front go, too. Returns whether the last sequence of the queue
    /// was cut: then nothing may join it.
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

    /// Takes out what belongs to the sequence of a request that was handed out and given up. Returns whether that was the last
    /// sequence of the queue.
    pub fn cut_rest(&mut self, mut sink: impl FnMut(T)) -> bool {
        !cut_rest(&mut self.queue, &mut sink)
    }
}

/// Takes out everything in front of the next START; returns whether there is one.
fn cut_rest<T>(queue: &mut VecDeque<Queued<T>>, sink: &mut impl FnMut(T)) -> bool {
    while queue.front().is_some_and(|q| !q.start) {
        queue.pop_front().into_iter().for_each(|q| sink(q.item));
    }
    !queue.is_empty()
}
