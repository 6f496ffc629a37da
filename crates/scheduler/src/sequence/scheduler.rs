//! The sequence scheduler: ids, acceptance, slots, backlog, idle time and timeouts, for both strategies (5.1, 5.2).

use super::backlog::Backlog;
use super::delay::Delay;
use super::error::{RemovalReason, SequenceError};
use super::inside::{self, Inside};
use super::requests::{NEVER, Queued, Sequence};
use super::slots::{FreeSlots, SlotId};
use super::{Accepted, Config, Head, NextRun, Origin, Request, Run, SequenceId, Strategy};
use crate::batcher::Batcher;
use crate::profile::Profile;
use crate::{Cause, Waiting};
use std::collections::{BTreeSet, HashMap};
use tensor::Name;

/// Maximum number of alarms handled by one step; the next step handles more. Many sequences may become idle at once,
/// and the calling thread holds the lock of the model and may serve others.
const ALARMS_AT_ONCE: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SequenceLocation {
    Slot(SlotId),
    /// In the backlog, by serial.
    Backlog(u64),
}

pub(super) struct Slot<T> {
    pub occupant: Option<Sequence<T>>,
    /// [`Strategy::Oldest`]: a request of this slot, perhaps of its previous sequence, is in the batcher or runs.
    pub inside: bool,
    /// The sequence of that request was forgotten: its state can be dropped when the request returns.
    pub stale: bool,
}

pub(super) struct SequenceInstance<T: Waiting> {
    /// Up to the highest slot used so far.
    pub slots: Vec<Slot<T>>,
    /// Requests waiting in the slots.
    pub queued: usize,
    /// [`Strategy::Oldest`] only.
    pub batcher: Option<Batcher<Inside<T>>>,
    /// True from its batch to the next step in which it is idle.
    is_busy: bool,
}

impl<T: Waiting> SequenceInstance<T> {
    fn new(config: &Config) -> Self {
        Self { slots: Vec::new(), queued: 0, batcher: inside::batcher(config), is_busy: false }
    }
}

/// Next action of an idle instance.
pub(super) enum Choice<T> {
    Run(Run<T>),
    WaitUntil(u64),
    Nothing,
}

struct Rules {
    /// `None` for [`Strategy::Oldest`].
    delay: Option<Delay>,
    iterative: bool,
    idle_ns: u64,
    sequences_max: usize,
    /// Kept to create further instances.
    config: Config,
}

/// Requests to gather before the first batch; 0 afterwards (S-47).
struct Gather {
    slots: usize,
    backlog: usize,
}

/// Requests and sequences that left since the last step.
pub(super) struct Removals<T> {
    /// Requests that will not run, returned by the next step.
    pub removed: Vec<(RemovalReason, T)>,
    /// Slots whose sequence was forgotten before its END ran; `None` if they are not watched.
    pub forgotten: Option<Vec<SlotId>>,
    /// Slots that are forgotten from the next step on: the last request of their sequence is in the batch just
    /// returned, and still needs the state.
    pub leaving: Vec<SlotId>,
}

impl<T> Removals<T> {
    fn forget(&mut self, slot: SlotId) {
        self.forgotten.iter_mut().for_each(|all| all.push(slot));
    }
}

/// Sequences of one model, and the rules by which their requests leave.
pub struct SequenceScheduler<T: Waiting> {
    rules: Rules,
    /// By number; removed instances keep their entry.
    pub(super) instances: Vec<SequenceInstance<T>>,
    free: FreeSlots,
    backlog: Backlog<T>,
    /// Sequences that are not closed.
    known: HashMap<SequenceId, SequenceLocation>,
    /// When sequences have to be checked: exact in the backlog, perhaps too early in slots.
    alarms: BTreeSet<(u64, SequenceLocation)>,
    pub(super) left: Removals<T>,
    serials: u64,
    internal_ids: u64,
    /// Number of waiting requests.
    pub(super) len: usize,
    alive: usize,
    stopping: bool,
    gather: Gather,
    /// Latest time seen. Callers on several threads may read their clocks in one order and call in another.
    now: u64,
    /// Measured cost of executions on any instance.
    pub(super) profile: Profile,
}

impl<T: Waiting> SequenceScheduler<T> {
    /// Creates a scheduler without sequences.
    pub fn new(config: Config) -> Self {
        let instances = config.instances.max(1);
        let delay = match config.strategy {
            Strategy::Direct { max_queue_delay_us, minimum_slot_utilization } => {
                Some(Delay::new(max_queue_delay_us, minimum_slot_utilization, config.max_batch_size))
            }
            Strategy::Oldest { .. } => None,
        };
        Self {
            gather: Gather {
                slots: if delay.is_some() { config.delay_scheduler as usize } else { 0 },
                backlog: config.backlog_delay_scheduler as usize,
            },
            instances: (0..instances).map(|_| SequenceInstance::new(&config)).collect(),
            free: FreeSlots::new(instances, config.slots_per_instance()),
            rules: Rules {
                delay,
                iterative: config.iterative,
                idle_ns: config.idle_us.saturating_mul(1000),
                sequences_max: config.sequences_max as usize,
                config,
            },
            backlog: Backlog::new(),
            known: HashMap::new(),
            alarms: BTreeSet::new(),
            left: Removals { removed: Vec::new(), forgotten: None, leaving: Vec::new() },
            serials: 0,
            internal_ids: 0,
            len: 0,
            alive: 0,
            stopping: false,
            now: 0,
            profile: Profile::default(),
        }
    }

    /// Accepts a request.
    ///
    /// # Errors
    /// The request breaks a rule of 5.1, or there are too many sequences; the request is returned.
    pub fn push(&mut self, now: u64, head: Head, item: T) -> Result<Accepted, (SequenceError, T)> {
        let now = self.advance(now);
        if item.rows() > 1 {
            return Err((SequenceError::BatchSize, item));
        }
        let Head { mut id, mut start, end, timeout_us } = head;
        let anonymous = id.is_none();
        if anonymous && !self.rules.iterative {
            return Err((SequenceError::NoId, item));
        }
        start |= anonymous;
        if self.stopping && start {
            return Err((SequenceError::Stopping, item));
        }
        if anonymous {
            self.internal_ids += 1;
            id = SequenceId::Internal(self.internal_ids);
        }
        let found = self.known.get(&id).copied().filter(|&place| !self.forget_late(now, place));
        let place = match found {
            Some(place) => place,
            None if !start => return Err((SequenceError::NotStarted(id), item)),
            None if self.alive >= self.rules.sequences_max => {
                // Configured as a `u32`.
                return Err((SequenceError::TooMany { limit: self.rules.sequences_max as u32 }, item));
            }
            None => self.open(now, id),
        };
        let expires = if timeout_us == 0 { NEVER } else { now.saturating_add(timeout_us.saturating_mul(1000)) };
        self.join(now, place, Queued { item, start, end, arrived: now, expires });
        if end {
            self.close(place);
        }
        if let SequenceLocation::Slot(slot) = place {
            self.move_on(now, slot);
        }
        Ok(Accepted { conflict: start && found.is_some() })
    }

    /// Returns what to do now. Call again until it returns no `Run`. Appends requests that will not run to `removed`.
    pub fn step(&mut self, now: u64, idle: &[u32], removed: &mut Vec<(RemovalReason, T)>) -> NextRun<T> {
        let now = self.advance(now);
        if let Some(all) = &mut self.left.forgotten {
            all.append(&mut self.left.leaving);
        }
        self.look_at_alarms(now);
        let mut wake = NEVER;
        let mut run = None;
        if self.has_gathered() {
            for &instance in idle {
                let choice = match self.rules.delay {
                    Some(delay) => self.step_direct(now, instance, delay),
                    None => self.step_oldest(now, instance),
                };
                let busy = self.instances.get_mut(instance as usize).map(|instance| &mut instance.is_busy);
                let was_busy = busy.is_some_and(std::mem::take);
                match choice {
                    Choice::Run(mut r) => {
                        r.why = if was_busy { Cause::InstanceFreed } else { r.why };
                        self.instances.get_mut(instance as usize).into_iter().for_each(|busy| busy.is_busy = true);
                        run = Some(r);
                        break;
                    }
                    Choice::WaitUntil(at) => wake = wake.min(at),
                    Choice::Nothing => {}
                }
            }
        }
        removed.append(&mut self.left.removed);
        if let Some(run) = run {
            return NextRun::Run(run);
        }
        let alarm = self.alarms.first().map_or(NEVER, |(at, _)| (*at).max(now + 1));
        match wake.min(alarm) {
            NEVER => NextRun::Idle,
            at => NextRun::SleepUntil(at),
        }
    }

    /// Ends a request whose last response was sent. With [`Strategy::Oldest`] the next one of its slot may run now; an
    /// iterative sequence ends. Call `step` next.
    pub fn released(&mut self, now: u64, origin: Origin) {
        let now = self.advance(now);
        self.come_back(&origin);
        if self.rules.iterative && self.occupant(&origin).is_some_and(|s| !s.queue.iter().any(|q| q.start)) {
            self.close(SequenceLocation::Slot(origin.slot));
        }
        self.move_on(now, origin.slot);
    }

    /// Ends a step of an iterative sequence whose model wants the request again: it waits in its slot, in front of
    /// later arrivals, without flags. Call `step` next.
    ///
    /// # Errors
    /// The model is not iterative, the sequence was drained, or its instance ended; the request is returned.
    pub fn again(&mut self, now: u64, origin: Origin, item: T) -> Result<(), (SequenceError, T)> {
        let now = self.advance(now);
        if !self.rules.iterative {
            self.released(now, origin);
            return Err((SequenceError::NotIterative, item));
        }
        if self.occupant(&origin).is_some_and(|sequence| sequence.gone) {
            self.released(now, origin);
            return Err((SequenceError::InstanceGone, item));
        }
        self.come_back(&origin);
        let Some(sequence) = self.occupant(&origin) else {
            self.move_on(now, origin.slot);
            return Err((SequenceError::Drained, item));
        };
        (sequence.last_arrival, sequence.has_ended) = (now, false);
        sequence.queue.push_front(Queued { item, start: false, end: false, arrived: now, expires: NEVER });
        if let Some(instance) = self.instances.get_mut(origin.slot.instance as usize) {
            instance.queued += 1;
        }
        self.len += 1;
        self.move_on(now, origin.slot);
        Ok(())
    }

    /// Removes every cancelled request, and those of its sequence that would run after it; the sequence ends (S-41).
    /// Visits every request. Call `step` next.
    pub fn remove_cancelled(&mut self, now: u64, removed: &mut Vec<(RemovalReason, T)>) {
        let now = self.advance(now);
        if self.is_empty() {
            return removed.append(&mut self.left.removed);
        }
        // There may be many sequences, and most have no cancelled request.
        let is_broken = |sequence: &Sequence<T>| sequence.queue.iter().any(|q| q.item.is_cancelled());
        let waiting: Vec<u64> =
            self.backlog.sequences.iter().filter(|(_, s)| is_broken(s)).map(|(&serial, _)| serial).collect();
        waiting.into_iter().for_each(|serial| self.purge(SequenceLocation::Backlog(serial)));
        for i in 0..self.instances.len() {
            self.remove_cancelled_inside(now, i as u32);
            let Some(instance) = self.instances.get(i).filter(|instance| instance.queued > 0) else { continue };
            let slots = instance.slots.iter().zip(0..);
            let broken = slots.filter(|(slot, _)| slot.occupant.as_ref().is_some_and(is_broken));
            for slot in broken.map(|(_, slot)| slot).collect::<Vec<_>>() {
                let slot = SlotId { instance: i as u32, slot };
                self.purge(SequenceLocation::Slot(slot));
                self.move_on(now, slot);
            }
        }
        removed.append(&mut self.left.removed);
    }

    /// Lets [`forgotten`](Self::forgotten) report sequences that ended without running an END.
    pub fn watch_forgotten(&mut self) {
        self.left.forgotten.get_or_insert_default();
    }

    /// Slots whose sequence was forgotten since the last call, because it was idle for too long, cancelled, or
    /// iterative and over: their state can be dropped. Call after every `step`, before using the rows of the batch,
    /// which may begin the next sequence of such a slot. A slot whose last row is in the batch is returned by a later
    /// call.
    pub fn forgotten(&mut self) -> Vec<SlotId> {
        self.left.forgotten.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// True if a request without START would continue a sequence now.
    pub fn knows(&mut self, now: u64, id: &SequenceId) -> bool {
        let now = self.advance(now);
        self.known.get(id).copied().is_some_and(|place| !self.forget_late(now, place))
    }

    /// Ends a sequence as a START of its id would: its waiting requests run, and nothing continues it. Returns false if
    /// it is unknown. Call `step` next.
    pub fn end(&mut self, now: u64, id: &SequenceId) -> bool {
        let now = self.advance(now);
        let Some(place) = self.known.get(id).copied() else { return false };
        self.close(place);
        if let SequenceLocation::Slot(slot) = place {
            self.move_on(now, slot);
        }
        true
    }

    /// True if this instance could run waiting requests, now or after their delay. Requests that wait for a slot or
    /// for the request before them do not count.
    pub fn has_work(&self, instance: u32) -> bool {
        let Some(instance) = self.instances.get(instance as usize) else { return false };
        instance.batcher.as_ref().map_or(instance.queued > 0, |batcher| !batcher.is_empty())
    }

    /// Ends an instance, and with it the state and sequences of its slots. Returns their waiting requests in `out`.
    /// Until [`up`](Self::up) the instance gets no sequences, and must not be among the idle ones of a `step`.
    pub fn down(&mut self, now: u64, instance: u32, out: &mut Vec<T>) {
        let now = self.advance(now);
        self.free.down(instance);
        let Some(gone) = self.instances.get_mut(instance as usize) else { return };
        let slots = gone.slots.len() as u32;
        let mut inside = Vec::new();
        if let Some(batcher) = &mut gone.batcher {
            batcher.drain_all(&mut inside);
        }
        for Inside(Request { item, origin, end, .. }) in inside {
            self.len -= 1;
            out.push(item);
            if end {
                // It would have dropped the state.
                self.left.forget(origin.slot);
            }
            self.come_back(&origin);
        }
        for slot in 0..slots {
            let at = SlotId { instance, slot };
            let Some(sequence) = self.sequence(SequenceLocation::Slot(at)) else { continue };
            sequence.gone = true;
            let waiting = std::mem::take(&mut sequence.queue);
            self.len -= waiting.len();
            if let Some(instance) = self.instances.get_mut(instance as usize) {
                instance.queued -= waiting.len();
            }
            out.extend(waiting.into_iter().map(|q| q.item));
            self.close(SequenceLocation::Slot(at));
            self.move_on(now, at);
        }
    }

    /// Lets sequences use the instance again; their earlier state is gone. Call `step` next.
    pub fn up(&mut self, now: u64, instance: u32) {
        self.free.up(instance);
        self.give_slots(now);
    }

    /// Adds an instance, or keeps one that was [retired](Self::retire). Call `step` next.
    pub fn add(&mut self, now: u64, instance: u32) {
        while self.instances.len() <= instance as usize {
            self.instances.push(SequenceInstance::new(&self.rules.config));
        }
        self.free.add(instance);
        self.up(now, instance);
    }

    /// New sequences get no slot of this instance any more. Its current ones go on.
    pub fn retire(&mut self, instance: u32) {
        self.free.down(instance);
    }

    /// True if the instance has sequences, or requests of theirs that are not over.
    pub fn is_used(&self, instance: u32) -> bool {
        let slots = self.instances.get(instance as usize).map_or(&[][..], |instance| &instance.slots);
        slots.iter().any(|slot| slot.occupant.is_some() || slot.inside)
    }

    /// Removes a retired instance that is not used.
    pub fn remove(&mut self, instance: u32) {
        self.free.remove(instance);
        if let Some(instance) = self.instances.get_mut(instance as usize) {
            instance.slots = Vec::new();
        }
    }

    /// Moves sequences from the backlog to free slots.
    fn give_slots(&mut self, now: u64) {
        let now = self.advance(now);
        while !self.backlog.sequences.is_empty() {
            let Some(slot) = self.free.take() else { return };
            match self.next_of_backlog(now) {
                Some(next) => {
                    self.occupy(now, slot, next);
                    self.move_on(now, slot);
                }
                None => self.free.give(slot),
            }
        }
    }

    /// Returns all requests of the backlog, because there is no instance left.
    pub fn drain_backlog(&mut self, out: &mut Vec<T>) {
        for (serial, sequence) in self.backlog.take() {
            self.alarms.remove(&(sequence.alarm, SequenceLocation::Backlog(serial)));
            if !sequence.closed {
                self.known.remove(&sequence.id);
            }
            self.alive -= 1;
            self.len -= sequence.queue.len();
            out.extend(sequence.queue.into_iter().map(|q| q.item));
        }
    }

    /// Rejects new sequences from now on; those in progress go on.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Shortens the idle time to `most_us`, counted from now for sequences whose last request came earlier; no sequence
    /// ends later than it would have. Call `step` next.
    pub fn limit_idle(&mut self, now: u64, most_us: u64) {
        let now = self.advance(now);
        let (before, most) = (self.rules.idle_ns, most_us.saturating_mul(1000));
        if before <= most {
            return;
        }
        self.rules.idle_ns = most;
        for instance in 0..self.instances.len() {
            let slots = self.instances.get(instance).map_or(0, |instance| instance.slots.len());
            for slot in 0..slots {
                let place = SequenceLocation::Slot(SlotId { instance: instance as u32, slot: slot as u32 });
                let Some(sequence) = self.sequence(place).filter(|sequence| !sequence.closed) else { continue };
                // With the new idle time added: the previous end, or `most_us` from now, whichever is earlier.
                sequence.last_arrival = now.min(sequence.last_arrival.saturating_add(before - most));
                let ends = sequence.last_arrival.saturating_add(most);
                self.set_alarm(place, ends);
            }
        }
    }

    /// Returns every waiting request, cancelled ones included, and forgets all sequences.
    pub fn drain(&mut self, out: &mut Vec<T>) {
        out.extend(self.left.removed.drain(..).map(|(_, item)| item));
        for (i, instance) in self.instances.iter_mut().enumerate() {
            if let Some(batcher) = &mut instance.batcher {
                let mut inside = Vec::new();
                batcher.drain_all(&mut inside);
                for Inside(request) in inside {
                    if let Some(slot) = instance.slots.get_mut(request.origin.slot.slot as usize) {
                        slot.inside = false;
                    }
                    out.push(request.item);
                }
            }
            for (slot, place) in instance.slots.iter_mut().zip(0..) {
                if let Some(sequence) = slot.occupant.take() {
                    out.extend(sequence.queue.into_iter().map(|q| q.item));
                    self.free.give(SlotId { instance: i as u32, slot: place });
                }
            }
            instance.queued = 0;
        }
        out.extend(self.backlog.take().into_values().flat_map(|s| s.queue).map(|q| q.item));
        self.known.clear();
        self.alarms.clear();
        (self.len, self.alive) = (0, 0);
    }

    /// Measured cost of executions. Not used by [`Strategy::Direct`].
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Measured cost of executions, to update.
    pub fn profile_mut(&mut self) -> &mut Profile {
        &mut self.profile
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of sequences, in slots and waiting. A version that is replaced or stopped ends when there are none.
    pub fn alive(&self) -> usize {
        self.alive
    }

    /// Number of sequences that wait for a slot.
    pub fn backlog(&self) -> usize {
        self.backlog.sequences.len()
    }

    fn advance(&mut self, now: u64) -> u64 {
        self.now = self.now.max(now);
        self.now
    }

    fn has_gathered(&mut self) -> bool {
        if self.gather.slots > 0 || self.gather.backlog > 0 {
            let backlog = self.backlog.requests;
            if self.len - backlog < self.gather.slots || backlog < self.gather.backlog {
                return false;
            }
            self.gather = Gather { slots: 0, backlog: 0 };
        }
        true
    }

    /// Begins a sequence: in the lowest free slot, or at the end of the backlog.
    fn open(&mut self, now: u64, id: SequenceId) -> SequenceLocation {
        self.serials += 1;
        self.alive += 1;
        // Copied, because the text is a slice of its request and would keep that in memory.
        let id = match id {
            SequenceId::Text(text) => SequenceId::Text(Name::from(text.as_str())),
            other => other,
        };
        let sequence = Sequence::new(id.clone(), self.serials, now);
        if let Some(slot) = self.free.take() {
            self.occupy(now, slot, sequence);
            return SequenceLocation::Slot(slot);
        }
        let place = SequenceLocation::Backlog(self.serials);
        self.known.insert(id, place);
        self.backlog.sequences.insert(self.serials, sequence);
        place
    }

    /// Gives a slot to the sequence until its last request is handed out. Idle time counts from here: a client whose
    /// sequence had to wait may not have sent more.
    fn occupy(&mut self, now: u64, at: SlotId, mut sequence: Sequence<T>) {
        sequence.last_arrival = now;
        let is_open = !sequence.closed;
        if is_open {
            self.known.insert(sequence.id.clone(), SequenceLocation::Slot(at));
        }
        let Some(instance) = self.instances.get_mut(at.instance as usize) else { return };
        instance.queued += sequence.queue.len();
        let slot = at.slot as usize;
        if slot >= instance.slots.len() {
            instance.slots.resize_with(slot + 1, || Slot { occupant: None, inside: false, stale: false });
        }
        if let Some(slot) = instance.slots.get_mut(slot) {
            slot.occupant = Some(sequence);
        }
        if is_open {
            self.set_alarm(SequenceLocation::Slot(at), now.saturating_add(self.rules.idle_ns));
        }
    }

    fn join(&mut self, now: u64, place: SequenceLocation, queued: Queued<T>) {
        let expires = queued.expires;
        let Some(sequence) = self.sequence(place) else { return };
        sequence.last_arrival = now;
        sequence.queue.push_back(queued);
        let alarm = sequence.alarm.min(expires);
        self.len += 1;
        match place {
            SequenceLocation::Slot(slot) => {
                if let Some(instance) = self.instances.get_mut(slot.instance as usize) {
                    instance.queued += 1;
                }
            }
            SequenceLocation::Backlog(_) => {
                self.backlog.requests += 1;
                self.set_alarm(place, alarm);
            }
        }
    }

    /// Forgets the id: its next request starts another sequence.
    fn close(&mut self, place: SequenceLocation) {
        let Some(sequence) = self.sequence(place).filter(|s| !s.closed) else { return };
        sequence.closed = true;
        let id = sequence.id.clone();
        self.known.remove(&id);
        if matches!(place, SequenceLocation::Slot(_)) {
            self.set_alarm(place, NEVER);
        }
    }

    /// Forgets the id of a sequence that is late but was not yet handled by a step. The next step does the rest.
    fn forget_late(&mut self, now: u64, place: SequenceLocation) -> bool {
        let idle_ns = self.rules.idle_ns;
        let iterative = self.rules.iterative;
        let is_late = match (place, self.sequence(place)) {
            (_, None) => true,
            (SequenceLocation::Slot(_), Some(s)) => is_idle(s, now, idle_ns, iterative),
            (SequenceLocation::Backlog(_), Some(s)) => s.alarm <= now,
        };
        if is_late {
            self.close(place);
            if let SequenceLocation::Slot(slot) = place {
                self.move_on(now, slot);
            }
        }
        is_late
    }

    fn look_at_alarms(&mut self, now: u64) {
        let idle_ns = self.rules.idle_ns;
        for _ in 0..ALARMS_AT_ONCE {
            if self.alarms.first().is_none_or(|(at, _)| *at > now) {
                return;
            }
            let Some((_, place)) = self.alarms.pop_first() else { return };
            let Some(sequence) = self.sequence(place) else { continue };
            sequence.alarm = NEVER;
            let again = sequence.last_arrival.saturating_add(idle_ns);
            match place {
                SequenceLocation::Backlog(serial) => self.expire(serial),
                SequenceLocation::Slot(_) if self.forget_late(now, place) => {}
                // A request arrived since, or the model works on one.
                SequenceLocation::Slot(_) => {
                    self.set_alarm(place, if again > now { again } else { now.saturating_add(idle_ns.max(1)) });
                }
            }
        }
    }

    /// Removes a sequence that waited for a slot for longer than the timeout of one of its requests (S-19).
    fn expire(&mut self, serial: u64) {
        self.close(SequenceLocation::Backlog(serial));
        self.set_alarm(SequenceLocation::Backlog(serial), NEVER);
        let Some(sequence) = self.backlog.remove(serial) else { return };
        self.alive -= 1;
        self.len -= sequence.queue.len();
        self.left.removed.extend(sequence.queue.into_iter().map(|q| {
            let why = if q.item.is_cancelled() { RemovalReason::Cancelled } else { RemovalReason::Expired };
            (why, q.item)
        }));
    }

    /// Advances a slot: drops cancelled requests, replaces a finished sequence, and feeds the batcher.
    pub(super) fn move_on(&mut self, now: u64, slot: SlotId) {
        loop {
            self.feed(now, slot);
            let Some(sequence) = self.sequence(SequenceLocation::Slot(slot)) else { return };
            if !sequence.closed || !sequence.queue.is_empty() || sequence.out > 0 {
                return;
            }
            let has_ended = sequence.has_ended;
            if let Some(at) = self.slot(slot) {
                at.occupant = None;
                at.stale |= !has_ended && at.inside;
                if !has_ended && !at.inside {
                    self.left.forget(slot);
                }
            }
            self.alive -= 1;
            if self.free.is_down(slot.instance) {
                return self.free.give(slot);
            }
            match self.next_of_backlog(now) {
                Some(next) => self.occupy(now, slot, next),
                None => return self.free.give(slot),
            }
        }
    }

    fn next_of_backlog(&mut self, now: u64) -> Option<Sequence<T>> {
        loop {
            let (&serial, sequence) = self.backlog.sequences.first_key_value()?;
            if sequence.alarm <= now {
                self.expire(serial);
                continue;
            }
            self.purge(SequenceLocation::Backlog(serial));
            self.set_alarm(SequenceLocation::Backlog(serial), NEVER);
            // `None` if `purge` removed the whole sequence.
            if let Some(sequence) = self.backlog.remove(serial) {
                return Some(sequence);
            }
        }
    }

    /// Removes cancelled requests and those that cannot run without them. An empty sequence in the backlog is removed,
    /// too; for one in a slot call `move_on`.
    pub(super) fn purge(&mut self, place: SequenceLocation) {
        let mut gone = Vec::new();
        let begun = matches!(place, SequenceLocation::Slot(_));
        let Some(sequence) = self.sequence(place) else { return };
        let is_over = sequence.purge(begun, |item| gone.push((RemovalReason::Cancelled, item)));
        if gone.is_empty() {
            return;
        }
        let (expires, is_empty) = (sequence.expires(), sequence.queue.is_empty());
        self.len -= gone.len();
        if is_over {
            self.close(place);
        }
        match place {
            SequenceLocation::Slot(slot) => {
                if let Some(instance) = self.instances.get_mut(slot.instance as usize) {
                    instance.queued -= gone.len();
                }
            }
            SequenceLocation::Backlog(serial) => {
                self.backlog.requests -= gone.len();
                self.set_alarm(place, expires);
                if is_empty {
                    self.close(place);
                    self.backlog.remove(serial);
                    self.alive -= 1;
                }
            }
        }
        self.left.removed.append(&mut gone);
    }

    /// Drops a cancelled request that was handed out; its sequence ends.
    pub(super) fn lost(&mut self, now: u64, request: Request<T>) {
        let Request { item, origin, end, .. } = request;
        self.len -= 1;
        self.left.removed.push((RemovalReason::Cancelled, item));
        if end {
            // It would have dropped the state.
            self.left.forget(origin.slot);
        }
        self.come_back(&origin);
        let mut gone = Vec::new();
        if let Some(sequence) = self.occupant(&origin) {
            let is_over = sequence.cut_rest(|item| gone.push((RemovalReason::Cancelled, item)));
            self.len -= gone.len();
            if let Some(instance) = self.instances.get_mut(origin.slot.instance as usize) {
                instance.queued -= gone.len();
            }
            if is_over {
                self.close(SequenceLocation::Slot(origin.slot));
            }
        }
        self.left.removed.append(&mut gone);
        self.move_on(now, origin.slot);
    }

    /// Takes the first request of a slot.
    pub(super) fn hand_out(&mut self, at: SlotId) -> Option<Request<T>> {
        let iterative = self.rules.iterative;
        let instance = self.instances.get_mut(at.instance as usize)?;
        let sequence = instance.slots.get_mut(at.slot as usize)?.occupant.as_mut()?;
        let Queued { item, start, end, .. } = sequence.queue.pop_front()?;
        instance.queued -= 1;
        sequence.out += u32::from(iterative);
        sequence.has_ended = end;
        let origin = Origin { slot: at, serial: sequence.serial };
        Some(Request { item, id: sequence.id.clone(), start, end, origin })
    }

    /// Records the return of a request that was handed out.
    fn come_back(&mut self, origin: &Origin) {
        if let Some(slot) = self.slot(origin.slot) {
            slot.inside = false;
            if std::mem::take(&mut slot.stale) {
                self.left.forget(origin.slot);
            }
        }
        let iterative = self.rules.iterative;
        if let Some(sequence) = self.occupant(origin) {
            sequence.out -= u32::from(iterative);
        }
    }

    /// The sequence of a request, if it still has its slot.
    fn occupant(&mut self, origin: &Origin) -> Option<&mut Sequence<T>> {
        self.sequence(SequenceLocation::Slot(origin.slot)).filter(|s| s.serial == origin.serial)
    }

    pub(super) fn slot(&mut self, at: SlotId) -> Option<&mut Slot<T>> {
        self.instances.get_mut(at.instance as usize)?.slots.get_mut(at.slot as usize)
    }

    pub(super) fn sequence(&mut self, place: SequenceLocation) -> Option<&mut Sequence<T>> {
        match place {
            SequenceLocation::Slot(slot) => self.slot(slot)?.occupant.as_mut(),
            SequenceLocation::Backlog(serial) => self.backlog.sequences.get_mut(&serial),
        }
    }

    fn set_alarm(&mut self, place: SequenceLocation, at: u64) {
        let Some(sequence) = self.sequence(place) else { return };
        let before = std::mem::replace(&mut sequence.alarm, at);
        self.alarms.remove(&(before, place));
        if at != NEVER {
            self.alarms.insert((at, place));
        }
    }
}

/// True if no request arrived for too long. An iterative sequence with a request that waits or runs is not idle.
fn is_idle<T>(sequence: &Sequence<T>, now: u64, idle_ns: u64, iterative: bool) -> bool {
    let works = iterative && (sequence.out > 0 || !sequence.queue.is_empty());
    !works && now >= sequence.last_arrival.saturating_add(idle_ns)
}
