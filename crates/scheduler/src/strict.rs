//! Triton's own formation (3.2 steps 1–4, decision order included), for `--strict-batching-delay`.
//!
//! Batches are *payloads*: formed ahead, and extended by arrivals until they are saturated or an instance takes them.
//! With policies a payload is formed only for an idle instance, otherwise up to two per instance ahead (S-07).
//!
//! Triton also merges consecutive open payloads when an instance takes one. Here at most one is open, because a new
//! payload is started only when the last one is saturated or taken.

use crate::Waiting;
use crate::form::{Prefix, Sizes, scan};
use crate::queue::{Queue, QueuedRequest};
use crate::step::{Cause, NextBatch, RemovalReason, sleep_until};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// A batch that no instance has taken yet.
struct Payload<T> {
    entries: SmallVec<[QueuedRequest<T>; 1]>,
    rows: u32,
    saturated: bool,
    /// Why it was formed or grew last.
    why: Cause,
}

pub(crate) struct Strict<T> {
    payloads: VecDeque<Payload<T>>,
    /// Maximum number of payloads; `None` = one, and only for an idle instance.
    ahead_max: Option<usize>,
}

/// Result of one attempt to form a payload.
enum Formed {
    /// A payload changed or was closed: try again.
    Progress,
    Nothing,
    WaitUntil(u64),
}

impl<T: Waiting> Strict<T> {
    pub fn new(instances: u32, may_prefetch: bool) -> Self {
        let ahead_max = may_prefetch.then_some(instances.max(1) as usize * 2);
        Self { payloads: VecDeque::new(), ahead_max }
    }

    /// Requests of the payload that may still grow.
    pub fn open(&self) -> impl Iterator<Item = &T> {
        let open = self.payloads.back().filter(|payload| !payload.saturated);
        open.into_iter().flat_map(|payload| &payload.entries).map(|entry| &entry.request)
    }

    /// Number of requests in payloads.
    pub fn len(&self) -> usize {
        self.payloads.iter().map(|p| p.entries.len()).sum()
    }

    pub fn drain(&mut self, out: &mut Vec<T>) {
        out.extend(self.payloads.drain(..).flat_map(|p| p.entries).map(|e| e.request));
    }

    pub fn remove_cancelled(&mut self, dropped: &mut Vec<(RemovalReason, T)>) {
        for payload in &mut self.payloads {
            if payload.entries.iter().any(|e| e.request.is_cancelled()) {
                for entry in std::mem::take(&mut payload.entries) {
                    if entry.request.is_cancelled() {
                        payload.rows -= entry.rows;
                        dropped.push((RemovalReason::Cancelled, entry.request));
                    } else {
                        payload.entries.push(entry);
                    }
                }
            }
        }
        self.payloads.retain(|p| !p.entries.is_empty());
    }

    pub fn step(
        &mut self,
        now: u64,
        idle: u32,
        delay_ns: u64,
        sizes: &Sizes,
        queue: &mut Queue<T>,
        dropped: &mut Vec<(RemovalReason, T)>,
    ) -> NextBatch<T> {
        loop {
            if queue.next_deadline() <= now {
                queue.expire(now, dropped);
            }
            if idle > 0 && !self.payloads.is_empty() {
                self.remove_cancelled(dropped);
                if let Some(payload) = self.payloads.pop_front() {
                    let batch = payload.entries.into_iter().map(|e| e.request).collect();
                    return NextBatch::Run { batch, why: payload.why };
                }
            }
            match self.form(now, idle, delay_ns, sizes, queue, dropped) {
                Formed::Progress => {}
                Formed::Nothing => return sleep_until(queue.next_deadline()),
                Formed::WaitUntil(at) => return NextBatch::SleepUntil(at.min(queue.next_deadline())),
            }
        }
    }

    fn form(
        &mut self,
        now: u64,
        idle: u32,
        delay_ns: u64,
        sizes: &Sizes,
        queue: &mut Queue<T>,
        dropped: &mut Vec<(RemovalReason, T)>,
    ) -> Formed {
        let slot_free = match self.ahead_max {
            Some(max) => self.payloads.len() < max,
            None => idle > 0 && self.payloads.is_empty(),
        };
        if queue.is_empty() || !slot_free {
            return Formed::Nothing;
        }
        let open = self.payloads.back_mut().filter(|p| !p.saturated);
        let first = open.as_ref().and_then(|p| p.entries.first().map(|e| (&e.request, p.rows)));
        let found = scan(sizes, first, queue.iter());
        if found.undecided {
            return Formed::Nothing;
        }
        let open_rows = first.map_or(0, |(_, rows)| rows);
        let rows = open_rows.saturating_add(found.pending.rows);
        let exceeded = delay_ns != 0 && now.saturating_sub(found.oldest) >= delay_ns;

        let why = found.cause(sizes, open_rows, exceeded, delay_ns == 0);

        // The decision order of 3.2 step 4, first match wins.
        let (send, saturated) = match found.best {
            Some(best) if !exceeded => (best, found.saturated || delay_ns == 0),
            _ if found.pending.requests == 0 => (Prefix::default(), found.saturated),
            _ if found.send_now || rows >= sizes.max_preferred() => (found.pending, true),
            _ if exceeded || delay_ns == 0 => (found.pending, found.saturated),
            _ if open_rows != 0 && !sizes.is_preferred(open_rows) => (found.pending, found.saturated),
            _ => return Formed::WaitUntil(found.oldest.saturating_add(delay_ns)),
        };

        let Some(payload) = open else {
            if send.requests == 0 {
                // All scanned requests are cancelled.
                queue.remove_cancelled(dropped);
                return Formed::Progress;
            }
            let mut payload =
                Payload { entries: SmallVec::new(), rows: 0, saturated, why: why.unwrap_or(Cause::PreferredSize) };
            payload.append(send, queue, dropped);
            if !payload.entries.is_empty() {
                self.payloads.push_back(payload);
            }
            return Formed::Progress;
        };
        (payload.saturated, payload.why) = (saturated, why.unwrap_or(payload.why));
        if send.requests == 0 && !saturated {
            queue.remove_cancelled(dropped);
        }
        payload.append(send, queue, dropped);
        Formed::Progress
    }
}

impl<T: Waiting> Payload<T> {
    fn append(&mut self, prefix: Prefix, queue: &mut Queue<T>, dropped: &mut Vec<(RemovalReason, T)>) {
        queue.take(prefix.entries, dropped, |entry| {
            self.rows += entry.rows;
            self.entries.push(entry);
        });
    }
}
