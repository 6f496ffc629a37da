//! A slow reference model of the sequence batcher, made of vectors. Predicts acceptance, slots and batches.

use scheduler::sequence::{Accepted, Config, Head, RemovalReason, SequenceError, SequenceId, Strategy};
use std::collections::VecDeque;

const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Waits {
    number: usize,
    start: bool,
    arrived: u64,
    expires: u64,
    shape: u64,
}

struct Line {
    /// 0 = none.
    id: u64,
    queue: VecDeque<Waits>,
    closed: bool,
    /// Index in `slots`; `None` = in the backlog.
    slot: Option<usize>,
    last: u64,
    /// The model has one of its requests (iterative sequences).
    out: bool,
}

#[derive(Clone, Default)]
struct Slot {
    /// Number of the sequence.
    line: Option<usize>,
    /// A request is in the batcher or runs.
    inside: bool,
}

pub struct Naive {
    config: Config,
    /// All sequences ever begun, in order. One that neither has a slot nor waits is over.
    lines: Vec<Line>,
    waiting: Vec<usize>,
    /// Slot 0 of every instance, then slot 1, …
    slots: Vec<Slot>,
    /// Requests in the batcher of each instance, in order.
    batchers: Vec<Vec<(usize, u32)>>,
    /// Requests that left and that the scheduler has to report.
    gone: Vec<(usize, RemovalReason)>,
    shapes: Vec<u64>,
}

impl Naive {
    pub fn new(config: Config) -> Self {
        let slots = config.slots_per_instance() * config.instances;
        let batchers = vec![vec![]; config.instances as usize];
        Self {
            lines: vec![],
            waiting: vec![],
            slots: vec![Slot::default(); slots as usize],
            batchers,
            gone: vec![],
            shapes: vec![],
            config,
        }
    }

    fn is_oldest(&self) -> bool {
        matches!(self.config.strategy, Strategy::Oldest { .. })
    }

    fn place(&self, slot: usize) -> (u32, u32) {
        let instances = self.config.instances as usize;
        ((slot % instances) as u32, (slot / instances) as u32)
    }

    fn index(&self, (instance, slot): (u32, u32)) -> usize {
        (slot * self.config.instances + instance) as usize
    }

    pub fn alive(&self) -> usize {
        self.waiting.len() + self.slots.iter().filter(|s| s.line.is_some()).count()
    }

    pub fn backlog(&self) -> usize {
        self.waiting.len()
    }

    pub fn len(&self) -> usize {
        self.lines.iter().map(|l| l.queue.len()).sum::<usize>() + self.batchers.iter().map(Vec::len).sum::<usize>()
    }

    pub fn push(&mut self, now: u64, head: &Head, number: usize, shape: u64) -> Result<Accepted, SequenceError> {
        let Head { id: SequenceId::Number(id), start, end, timeout_us } = *head else { panic!("ids are numbers here") };
        let expires = if timeout_us == 0 { NEVER } else { now + timeout_us * 1000 };
        self.tick(now);
        self.shapes.push(shape);
        assert_eq!(self.shapes.len(), number + 1);
        let start = start || id == 0;
        let found = self.live().find(|&l| id != 0 && self.lines[l].id == id && !self.lines[l].closed);
        let line = match found {
            Some(line) => line,
            None if !start => return Err(SequenceError::NotStarted(SequenceId::Number(id))),
            None if self.alive() >= self.config.sequences_max as usize => {
                return Err(SequenceError::TooMany { limit: self.config.sequences_max });
            }
            None => {
                let line = self.lines.len();
                let slot = self.slots.iter().position(|s| s.line.is_none());
                self.lines.push(Line { id, queue: VecDeque::new(), closed: false, slot, last: now, out: false });
                match slot {
                    Some(slot) => self.slots[slot].line = Some(line),
                    None => self.waiting.push(line),
                }
                line
            }
        };
        let l = &mut self.lines[line];
        l.queue.push_back(Waits { number, start, arrived: now, expires, shape });
        l.last = now;
        l.closed |= end;
        self.settle(now);
        Ok(Accepted { conflict: start && found.is_some() })
    }

    fn live(&self) -> impl Iterator<Item = usize> {
        self.waiting.iter().copied().chain(self.slots.iter().filter_map(|s| s.line))
    }

    /// Handles idle time and timeouts.
    pub fn tick(&mut self, now: u64) {
        let mut places: Vec<_> = (0..self.slots.len()).collect();
        places.sort_by_key(|&s| self.place(s));
        for slot in places {
            let Some(line) = self.slots[slot].line.map(|l| &mut self.lines[l]) else { continue };
            let works = self.config.iterative && (line.out || !line.queue.is_empty());
            if !works && now >= line.last + self.config.idle_us * 1000 {
                line.closed = true;
                self.settle(now);
            }
        }
        for line in self.waiting.clone() {
            self.expire(now, line);
        }
    }

    fn expire(&mut self, now: u64, line: usize) -> bool {
        let is_late = self.lines[line].queue.iter().any(|w| w.expires <= now);
        if is_late {
            self.gone.extend(self.lines[line].queue.drain(..).map(|w| (w.number, RemovalReason::Expired)));
            self.waiting.retain(|&l| l != line);
        }
        is_late
    }

    /// Advances all slots as far as possible.
    fn settle(&mut self, now: u64) {
        for slot in 0..self.slots.len() {
            self.settle_slot(now, slot);
        }
    }

    fn settle_slot(&mut self, now: u64, slot: usize) {
        loop {
            let Some(line) = self.slots[slot].line else { return };
            if self.is_oldest()
                && !self.slots[slot].inside
                && let Some(head) = self.lines[line].queue.pop_front()
            {
                let (instance, number) = self.place(slot);
                self.slots[slot].inside = true;
                self.lines[line].out = self.config.iterative;
                self.batchers[instance as usize].push((head.number, number));
            }
            let l = &self.lines[line];
            if !l.closed || !l.queue.is_empty() || l.out {
                return;
            }
            self.slots[slot].line = None;
            let Some(next) = self.waiting.first().copied() else { return };
            if self.expire(now, next) {
                // The slot is free anyway, and the next sequence may have it.
                self.slots[slot].line = Some(line);
                continue;
            }
            self.waiting.remove(0);
            self.lines[next].slot = Some(slot);
            self.lines[next].last = now;
            self.slots[slot].line = Some(next);
        }
    }

    /// Cancels a request: those of its sequence behind it leave, too, and in the backlog those before it.
    pub fn cancelled(&mut self, now: u64, number: usize) {
        let Some(line) = self.live().find(|&l| self.lines[l].queue.iter().any(|w| w.number == number)) else {
            return self.cancelled_inside(now, number);
        };
        let l = &mut self.lines[line];
        let mut from = l.queue.iter().position(|w| w.number == number).expect("just found");
        while l.slot.is_none() && !l.queue[from].start {
            from -= 1;
        }
        let to = (from + 1..l.queue.len()).find(|&i| l.queue[i].start).unwrap_or(l.queue.len());
        l.closed |= to == l.queue.len();
        self.gone.extend(l.queue.drain(from..to).map(|w| (w.number, RemovalReason::Cancelled)));
        if l.slot.is_none() && l.queue.is_empty() {
            self.waiting.retain(|&w| w != line);
        }
        self.settle(now);
    }

    fn cancelled_inside(&mut self, now: u64, number: usize) {
        for instance in 0..self.batchers.len() {
            let Some(at) = self.batchers[instance].iter().position(|w| w.0 == number) else { continue };
            let (_, slot) = self.batchers[instance].remove(at);
            let slot = self.index((instance as u32, slot));
            self.slots[slot].inside = false;
            self.gone.push((number, RemovalReason::Cancelled));
            // If the slot belongs to a later sequence, that one begins with START.
            if let Some(l) = self.slots[slot].line.map(|l| &mut self.lines[l]) {
                let to = l.queue.iter().position(|w| w.start).unwrap_or(l.queue.len());
                l.closed |= to == l.queue.len();
                l.out = false;
                self.gone.extend(l.queue.drain(..to).map(|w| (w.number, RemovalReason::Cancelled)));
            }
            self.settle(now);
        }
    }

    /// Checks that a request which the scheduler removed should have left.
    pub fn removed(&mut self, number: usize, why: RemovalReason) {
        let at = self.gone.iter().position(|g| *g == (number, why));
        self.gone.remove(at.unwrap_or_else(|| panic!("request {number} should not be removed as {why:?}")));
    }

    /// Ends a request that ran, or queues it again.
    pub fn ended(&mut self, now: u64, slot: (u32, u32), number: usize, again: bool) {
        let slot = self.index(slot);
        self.slots[slot].inside = false;
        if self.config.iterative {
            let l = self.slots[slot].line.map(|l| &mut self.lines[l]).expect("an iterative sequence keeps its slot");
            assert!(std::mem::replace(&mut l.out, false));
            if again {
                l.last = now;
                let (expires, shape) = (NEVER, self.shapes[number]);
                l.queue.push_front(Waits { number, start: false, arrived: now, expires, shape });
            } else if !l.queue.iter().any(|w| w.start) {
                l.closed = true;
            }
        }
        self.settle_slot(now, slot);
    }

    /// Requests that the slots of an instance could run, and whether they are due.
    fn direct(&self, now: u64, instance: u32) -> (Vec<(u32, Option<usize>)>, bool) {
        let Strategy::Direct { max_queue_delay_us, minimum_slot_utilization } = self.config.strategy else {
            panic!("not direct")
        };
        let slots = self.config.slots_per_instance();
        let head = |slot: u32| {
            let line = &self.lines[self.slots[self.index((instance, slot))].line?];
            line.queue.front().copied().filter(|_| !line.out)
        };
        let heads: Vec<Option<Waits>> = (0..slots).map(head).collect();
        let Some(first) = heads.iter().flatten().next() else { return (vec![], false) };
        let highest = heads.iter().rposition(Option::is_some).expect("there is one");
        let oldest = heads.iter().flatten().map(|w| w.arrived).min().expect("there is one");
        let ready = heads.iter().flatten().count() as f32;
        let waits = max_queue_delay_us > 0
            && ready / (slots as f32) < minimum_slot_utilization
            && now < oldest + max_queue_delay_us * 1000;
        let row = |(slot, head): (usize, &Option<Waits>)| {
            (slot as u32, head.filter(|h| h.shape == first.shape).map(|h| h.number))
        };
        (heads.iter().enumerate().take(highest + 1).map(row).collect(), !waits)
    }

    /// Starts a batch.
    pub fn ran(&mut self, now: u64, instance: u32, rows: &[(u32, Option<usize>)]) {
        if self.is_oldest() {
            let batcher = &mut self.batchers[instance as usize];
            let expected: Vec<_> = batcher.drain(..rows.len()).map(|(number, slot)| (slot, Some(number))).collect();
            assert_eq!(rows, expected, "not in the order in which they came");
            return;
        }
        let (expected, due) = self.direct(now, instance);
        assert!(due && rows == expected, "instance {instance} runs {rows:?}, not {expected:?}; due: {due}");
        for (slot, number) in rows {
            let slot = self.index((instance, *slot));
            if number.is_some() {
                let line = self.slots[slot].line.expect("it ran");
                self.lines[line].queue.pop_front();
                self.lines[line].out = self.config.iterative;
                self.settle_slot(now, slot);
            }
        }
    }

    /// Checks after the last step that nothing is left to remove or to run.
    pub fn nothing_to_do(&mut self, now: u64, idle: &[u32]) {
        assert!(self.gone.is_empty(), "still waiting: {:?}", self.gone);
        for &instance in idle {
            match self.config.strategy {
                Strategy::Direct { .. } => {
                    let (rows, due) = self.direct(now, instance);
                    assert!(!due, "instance {instance} is idle, and could run {rows:?}");
                }
                Strategy::Oldest { max_queue_delay_us: 0, .. } => {
                    assert!(self.batchers[instance as usize].is_empty(), "instance {instance} is idle beside requests");
                }
                Strategy::Oldest { .. } => {}
            }
        }
    }

    /// Earliest time at which something becomes late.
    pub fn next_time(&self) -> Option<u64> {
        let expiries = self.waiting.iter().flat_map(|&l| &self.lines[l].queue).map(|w| w.expires);
        let idle = self.slots.iter().filter_map(|s| s.line).map(|l| &self.lines[l]);
        let idle = idle.filter(|l| !l.closed && !self.config.iterative).map(|l| l.last + self.config.idle_us * 1000);
        expiries.chain(idle).filter(|&t| t != NEVER).min()
    }
}
