//! Waiting requests: priority levels, each with an unexpired and a delayed FIFO (spec §2).
//!
//! Scan order is level 1 unexpired, level 1 delayed, level 2 unexpired, …; `iter` and `take` both follow it. Expiry is
//! exact: `next_deadline` is never later than the time at which `expire` has work to do.

use crate::config::{Dynamic, Policy, TimeoutAction};
use crate::{PushError, RemovalReason, Waiting};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Empty levels kept for reuse. `priority_levels` may be 4·10⁹, so memory must not follow it.
const LEVELS_KEPT_MAX: usize = 64;

const NEVER: u64 = u64::MAX;

/// A waiting request.
pub(crate) struct QueuedRequest<T> {
    pub request: T,
    pub rows: u32,
    pub arrived: u64,
    /// Expiry time; [`NEVER`] if it does not expire.
    deadline: u64,
}

struct Level<T> {
    number: u32,
    policy: Policy,
    /// Rows of all its requests.
    rows: u64,
    unexpired: VecDeque<QueuedRequest<T>>,
    /// Requests that expired under [`TimeoutAction::Delay`]; they never expire again.
    delayed: VecDeque<QueuedRequest<T>>,
    /// Lower bound of the expiry times. May be early, because requests leave without updating it.
    deadline_min: u64,
}

/// All waiting requests of a model.
pub(crate) struct Queue<T> {
    /// Ascending by number; 1 is the highest priority. Created on first use.
    levels: Vec<Level<T>>,
    len: usize,
    dynamic: Dynamic,
}

impl<T: Waiting> Queue<T> {
    pub fn new(dynamic: Dynamic) -> Self {
        let mut queue = Self { levels: Vec::new(), len: 0, dynamic };
        let number = queue.dynamic.level(0);
        queue.level(number);
        queue
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn push(&mut self, now: u64, priority: u64, timeout_us: u64, request: T) -> Result<(), (PushError, T)> {
        let number = self.dynamic.level(priority);
        let level = self.level(number);
        let limit = level.policy.max_queue_size as usize;
        if limit != 0 && level.unexpired.len() + level.delayed.len() >= limit {
            return Err((PushError::QueueFull, request));
        }
        let deadline = level.policy.timeout_ns(timeout_us).map_or(NEVER, |t| now.saturating_add(t));
        level.deadline_min = if level.unexpired.is_empty() { deadline } else { level.deadline_min.min(deadline) };
        let rows = request.rows().max(1);
        level.rows += u64::from(rows);
        level.unexpired.push_back(QueuedRequest { rows, request, arrived: now, deadline });
        self.len += 1;
        Ok(())
    }

    /// Queues a request that was taken, without a deadline, before all others of the default level.
    pub fn put_back(&mut self, now: u64, request: T) {
        let number = self.dynamic.level(0);
        let entry = QueuedRequest { rows: request.rows().max(1), request, arrived: now, deadline: NEVER };
        let level = self.level(number);
        level.rows += u64::from(entry.rows);
        level.unexpired.push_front(entry);
        self.len += 1;
    }

    fn level(&mut self, number: u32) -> &mut Level<T> {
        let at = match self.levels.binary_search_by_key(&number, |l| l.number) {
            Ok(at) => at,
            Err(_) => {
                if self.levels.len() >= LEVELS_KEPT_MAX {
                    self.levels.retain(|l| !l.unexpired.is_empty() || !l.delayed.is_empty());
                }
                let at = self.levels.partition_point(|l| l.number < number);
                let policy = self.dynamic.policy(number);
                let (unexpired, delayed) = (VecDeque::new(), VecDeque::new());
                self.levels.insert(at, Level { number, policy, rows: 0, unexpired, delayed, deadline_min: NEVER });
                at
            }
        };
        &mut self.levels[at]
    }

    /// Highest level with requests before a new one of this priority, or 0, and the rows of all those requests.
    pub fn ahead(&self, priority: u64) -> (u32, u64) {
        let number = self.dynamic.level(priority);
        let ahead = || self.levels.iter().filter(|level| level.number <= number && level.rows > 0);
        (ahead().next().map_or(0, |level| level.number), ahead().map(|level| level.rows).sum())
    }

    /// Requests in scan order.
    pub fn iter(&self) -> impl Iterator<Item = &QueuedRequest<T>> {
        self.levels.iter().flat_map(|l| l.unexpired.iter().chain(&l.delayed))
    }

    /// Removes the first `count` requests of the scan order: drops cancelled ones, passes the others to `sink`.
    pub fn take(
        &mut self,
        count: usize,
        dropped: &mut Vec<(RemovalReason, T)>,
        mut sink: impl FnMut(QueuedRequest<T>),
    ) {
        let mut left = count;
        for level in &mut self.levels {
            while left > 0 {
                let Some(entry) = level.unexpired.pop_front().or_else(|| level.delayed.pop_front()) else { break };
                left -= 1;
                self.len -= 1;
                level.rows -= u64::from(entry.rows);
                if entry.request.is_cancelled() {
                    dropped.push((RemovalReason::Cancelled, entry.request));
                } else {
                    sink(entry);
                }
            }
        }
    }

    /// Requests of the first level that has any, in scan order: those that may overtake each other.
    pub fn iter_first_level(&self) -> impl Iterator<Item = &QueuedRequest<T>> {
        let level = self.levels.iter().find(|l| !l.unexpired.is_empty() || !l.delayed.is_empty());
        level.into_iter().flat_map(|l| l.unexpired.iter().chain(&l.delayed))
    }

    /// Removes requests of `iter_first_level` by ascending positions: drops cancelled ones, passes the others to
    /// `sink`.
    pub fn take_positions(
        &mut self,
        positions: &[usize],
        dropped: &mut Vec<(RemovalReason, T)>,
        mut sink: impl FnMut(QueuedRequest<T>),
    ) {
        let Some(level) = self.levels.iter_mut().find(|l| !l.unexpired.is_empty() || !l.delayed.is_empty()) else {
            return;
        };
        let unexpired = level.unexpired.len();
        let (mut taken, mut kept) =
            (SmallVec::<[QueuedRequest<T>; 8]>::new(), SmallVec::<[QueuedRequest<T>; 8]>::new());
        for (fifo, offset) in [(&mut level.unexpired, 0), (&mut level.delayed, unexpired)] {
            let len = fifo.len();
            let mut wanted = positions.iter().filter_map(|p| p.checked_sub(offset)).filter(|p| *p < len).peekable();
            let Some(reach) = wanted.clone().next_back().map(|last| last + 1) else { continue };
            for (position, entry) in fifo.drain(..reach).enumerate() {
                let out = if wanted.next_if_eq(&position).is_some() { &mut taken } else { &mut kept };
                out.push(entry);
            }
            kept.drain(..).rev().for_each(|entry| fifo.push_front(entry));
        }
        self.len -= taken.len();
        for entry in taken {
            level.rows -= u64::from(entry.rows);
            if entry.request.is_cancelled() {
                dropped.push((RemovalReason::Cancelled, entry.request));
            } else {
                sink(entry);
            }
        }
    }

    /// Removes everything, in scan order.
    pub fn drain(&mut self, out: &mut Vec<T>) {
        for level in &mut self.levels {
            level.rows = 0;
            out.extend(level.unexpired.drain(..).chain(level.delayed.drain(..)).map(|e| e.request));
        }
        self.len = 0;
    }

    /// Latest time at which `expire` has to be called; [`NEVER`] if no request expires.
    pub fn next_deadline(&self) -> u64 {
        self.levels.iter().map(Level::next_deadline).min().unwrap_or(NEVER)
    }

    /// Rejects or delays, by policy, every request whose deadline has passed, at any position (S-06, S-08).
    pub fn expire(&mut self, now: u64, dropped: &mut Vec<(RemovalReason, T)>) {
        for level in &mut self.levels {
            if level.next_deadline() > now {
                continue;
            }
            let mut earliest = NEVER;
            for _ in 0..level.unexpired.len() {
                let Some(mut entry) = level.unexpired.pop_front() else { break };
                if entry.deadline > now {
                    earliest = earliest.min(entry.deadline);
                    level.unexpired.push_back(entry);
                } else if level.policy.timeout_action == TimeoutAction::Delay {
                    entry.deadline = NEVER;
                    level.delayed.push_back(entry);
                } else {
                    self.len -= 1;
                    level.rows -= u64::from(entry.rows);
                    let why =
                        if entry.request.is_cancelled() { RemovalReason::Cancelled } else { RemovalReason::Expired };
                    dropped.push((why, entry.request));
                }
            }
            level.deadline_min = earliest;
        }
    }

    /// Drops every cancelled request, at any position.
    pub fn remove_cancelled(&mut self, dropped: &mut Vec<(RemovalReason, T)>) {
        for level in &mut self.levels {
            for fifo in [&mut level.unexpired, &mut level.delayed] {
                self.len -= remove_cancelled(fifo, dropped);
            }
            level.rows = level.unexpired.iter().chain(&level.delayed).map(|entry| u64::from(entry.rows)).sum();
        }
    }
}

/// Drops the cancelled entries of one FIFO and keeps the order of the rest; returns how many were dropped.
fn remove_cancelled<T: Waiting>(fifo: &mut VecDeque<QueuedRequest<T>>, dropped: &mut Vec<(RemovalReason, T)>) -> usize {
    if !fifo.iter().any(|e| e.request.is_cancelled()) {
        return 0;
    }
    let before = fifo.len();
    for _ in 0..before {
        let Some(entry) = fifo.pop_front() else { break };
        if entry.request.is_cancelled() {
            dropped.push((RemovalReason::Cancelled, entry.request));
        } else {
            fifo.push_back(entry);
        }
    }
    before - fifo.len()
}

impl<T> Level<T> {
    fn next_deadline(&self) -> u64 {
        match self.unexpired.front() {
            None => NEVER,
            Some(_) if self.policy.allow_timeout_override => self.deadline_min,
            // All deadlines are arrival plus the same timeout, so the oldest expires first.
            Some(front) => front.deadline,
        }
    }
}
