//! Ids, acceptance, slots, backlog, idle time and timeouts: what both strategies share (5.1, 5.2).

use super::backlog::Backlog;
use super::direct::Delay;
use super::oldest::{self, Inside};
use super::refusal::{Refusal, RemovalReason};
use super::requests::{NEVER, Queued, Sequence};
use super::slots::{FreeSlots, SlotId};
use super::{Accepted, Config, Head, Origin, Request, Run, SequenceId, Step, Strategy};
use crate::Waiting;
use crate::batcher::Batcher;
use crate::profile::Profile;
use std::collections::{BTreeSet, HashMap};
use tensor::Name;

/// Alarms that one step looks at. Many sequences may fall silent at one moment, and the thread that steps holds the lock of the model, perhaps
/// on a thread that serves others; the rest is looked at in the next step.
const ALARMS_AT_ONCE: usize = 256;

/// Where a sequence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Slot(SlotId),
    /// In the backlog, by serial.
    Backlog(u64),
}

pub(super) struct Slot<T> {
    pub occupant: Option<Sequence<T>>,
    /// [`Strategy::Oldest`]: a request of this slot is in the batcher or runs. Perhaps of a sequence that had the slot before.
    pub inside: bool,
    /// That sequence was forgotten: what is kept for it can go when the request comes back.
    pub stale: bool,
}

pub(super) struct Instance<T: Waiting> {
    /// Up to the highest that was ever used.
    pub slots: Vec<Slot<T>>,
    /// Requests waiting in the slots.
    pub queued: usize,
    /// [`Strategy::Oldest`] only.
    pub batcher: Option<Batcher<Inside<T>>>,
}

impl<T: Waiting> Instance<T> {
    fn new(config: &Config) -> Self {
        Self { slots: Vec::new(), queued: 0, batcher: oldest::batcher(config) }
    }
}

/// What an idle instance should do.
pub(super) enum Choice<T> {
    Run(Run<T>),
    WaitUntil(u64),
    Nothing,
}

/// The rules of one model.
struct Rules {
    /// `None` = [`Strategy::Oldest`].
    delay: Option<Delay>,
    iterative: bool,
    idle_ns: u64,
    sequences_max: usize,
    /// Further instances are made of it.
    config: Config,
}

/// Requests to gather before anything happens, once; 0 when that is done (S-47).
struct Gather {
    slots: usize,
    backlog: usize,
}

/// What left since the last step.
pub(super) struct Removals<T> {
    /// Requests that will not run; handed out by the next step.
    pub removed: Vec<(RemovalReason, T)>,
    /// Slots whose sequence was forgotten before its END ran; `None` = not asked for.
    pub forgotten: Option<Vec<SlotId>>,
    /// Slots that are forgotten from the next step on: the last request of their sequence is in the batch that was handed out just now, and
    /// still takes what is kept.
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
    /// By number; also of instances that left.
    pub(super) instances: Vec<Instance<T>>,
    free: FreeSlots,
    backlog: Backlog<T>,
    /// Sequences that are not closed.
    known: HashMap<SequenceId, Place>,
    /// When sequences have to be looked at: in the backlog exactly then, in slots perhaps later.
    alarms: BTreeSet<(u64, Place)>,
    pub(super) left: Removals<T>,
    serials: u64,
    internal_ids: u64,
    /// Requests waiting, wherever.
    pub(super) len: usize,
    alive: usize,
    stopping: bool,
    gather: Gather,
    /// Latest time seen: callers on several threads may read their clocks in one order and get here in another.
    now: u64,
    /// What executions cost, on whatever instance.
    pub(super) profile: Profile,
}

impl<T: Waiting> SequenceScheduler<T> {
    /// A scheduler without sequences.
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
            instances: (0..instances).map(|_| Instance::new(&config)).collect(),
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
    /// The refusals of 5.1, and too many sequences; the request comes back.
    pub fn push(&mut self, now: u64, head: Head, item: T) -> Result<Accepted, (Refusal, T)> {
        let now = self.advance(now);
        if item.rows() > 1 {
            return Err((Refusal::BatchSize, item));
        }
        let Head { mut id, mut start, end, timeout_us } = head;
        let anonymous = id.is_none();
        if anonymous && !self.rules.iterative {
            return Err((Refusal::NoId, item));
        }
        start |= anonymous;
        if self.stopping && start {
            return Err((Refusal::Stopping, item));
        }
        if anonymous {
            self.internal_ids += 1;
            id = SequenceId::Internal(self.internal_ids);
        }
        let found = self.known.get(&id).copied().filter(|&place| !self.forget_late(now, place));
        let place = match found {
            Some(place) => place,
            None if !start => return Err((Refusal::NotStarted(id), item)),
            None if self.alive >= self.rules.sequences_max => {
                // Never more than a `u32` says.
                return Err((Refusal::TooMany { limit: self.rules.sequences_max as u32 }, item));
            }
            None => self.open(now, id),
        };
        let expires = if timeout_us == 0 { NEVER } else { now.saturating_add(timeout_us.saturating_mul(1000)) };
        self.join(now, place, Queued { item, start, end, arrived: now, expires });
        if end {
            self.close(place);
        }
        if let Place::Slot(slot) = place {
            self.move_on(now, slot);
        }
        Ok(Accepted { conflict: start && found.is_some() })
    }

    /// What to do now, given which instances are idle. Call again until it returns no `Run`. Requests that will not run are
    /// appended to `removed`.
    pub fn step(&mut self, now: u64, idle: &[u32], removed: &mut Vec<(RemovalReason, T)>) -> Step<T> {
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
                match choice {
                    Choice::Run(r) => {
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
            return Step::Run(run);
        }
        let alarm = self.alarms.first().map_or(NEVER, |(at, _)| (*at).max(now + 1));
        match wake.min(alarm) {
            NEVER => Step::Idle,
            at => Step::SleepUntil(at),
        }
    }

    /// A request that ran is over: its last response was sent. With [`Strategy::Oldest`] the next one of its slot may run now; an
    /// iterative sequence ends. Call `step` next.
    pub fn released(&mut self, now: u64, origin: Origin) {
        let now = self.advance(now);
        self.come_back(&origin);
        if self.rules.iterative && self.occupant(&origin).is_some_and(|s| !s.queue.iter().any(|q| q.start)) {
            self.close(Place::Slot(origin.slot));
        }
        self.move_on(now, origin.slot);
    }

    /// A step of an iterative sequence is over, and the model wants the request again: it waits in its slot, in front of what
    /// came meanwhile, without flags. Call `step` next.
    ///
    /// # Errors
    /// The model is not iterative, or the sequence was drained; the request comes back, and is over.
    pub fn again(&mut self, now: u64, origin: Origin, item: T) -> Result<(), (Refusal, T)> {
        let now = self.advance(now);
        if !self.rules.iterative {
            self.released(now, origin);
            return Err((Refusal::NotIterative, item));
        }
        if self.occupant(&origin).is_some_and(|sequence| sequence.gone) {
            self.released(now, origin);
            return Err((Refusal::InstanceGone, item));
        }
        self.come_back(&origin);
        let Some(sequence) = self.occupant(&origin) else {
            self.move_on(now, origin.slot);
            return Err((Refusal::Drained, item));
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

    /// Removes every request that was given up, and with it those of its sequence that would run after it; the sequence has ended
    /// then (S-41). Costs a look at each. Call `step` next.
    pub fn remove_cancelled(&mut self, now: u64, removed: &mut Vec<(RemovalReason, T)>) {
        let now = self.advance(now);
        if self.is_empty() {
            return removed.append(&mut self.left.removed);
        }
        // There may be many sequences, and most have nothing to take out.
        let is_broken = |sequence: &Sequence<T>| sequence.queue.iter().any(|q| q.item.is_cancelled());
        let waiting: Vec<u64> =
            self.backlog.sequences.iter().filter(|(_, s)| is_broken(s)).map(|(&serial, _)| serial).collect();
        waiting.into_iter().for_each(|serial| self.purge(Place::Backlog(serial)));
        for i in 0..self.instances.len() {
            self.remove_cancelled_inside(now, i as u32);
            let Some(instance) = self.instances.get(i).filter(|instance| instance.queued > 0) else { continue };
            let slots = instance.slots.iter().zip(0..);
            let broken = slots.filter(|(slot, _)| slot.occupant.as_ref().is_some_and(is_broken));
            for slot in broken.map(|(_, slot)| slot).collect::<Vec<_>>() {
                let slot = SlotId { instance: i as u32, slot };
                self.purge(Place::Slot(slot));
                self.move_on(now, slot);
            }
        }
        removed.append(&mut self.left.removed);
    }

    /// From now on [`forgotten`](Self::forgotten) tells of sequences that ended without an END that ran.
    pub fn watch_forgotten(&mut self) {
        self.left.forgotten.get_or_insert_default();
    }

    /// Slots whose sequence was forgotten since the last call: idle for too long, given up, or iterative and over. Whatever is kept
    /// for it can go. Call after every `step`, before the rows of the batch are looked at: these may begin the next sequence of such
    /// a slot. A slot whose last row is in the batch comes with a later call.
    pub fn forgotten(&mut self) -> Vec<SlotId> {
        self.left.forgotten.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether a request without START would continue a sequence now.
    pub fn knows(&mut self, now: u64, id: &SequenceId) -> bool {
        let now = self.advance(now);
        self.known.get(id).copied().is_some_and(|place| !self.forget_late(now, place))
    }

    /// Ends a sequence as if another one of its id began: what waits of it runs, and nothing continues it. False when it is not known.
    /// Call `step` next.
    pub fn end(&mut self, now: u64, id: &SequenceId) -> bool {
        let now = self.advance(now);
        let Some(place) = self.known.get(id).copied() else { return false };
        self.close(place);
        if let Place::Slot(slot) = place {
            self.move_on(now, slot);
        }
        true
    }

    /// Whether requests wait that this instance could run, now or when their delay is over. What is still waiting for a slot or for
    /// the request before it does not count.
    pub fn has_work(&self, instance: u32) -> bool {
        let Some(instance) = self.instances.get(instance as usize) else { return false };
        instance.batcher.as_ref().map_or(instance.queued > 0, |batcher| !batcher.is_empty())
    }

    /// The instance is gone, and with it what its sequences left there: they are over. Hands back what waits of them. Sequences get no
    /// slot of it before it is [`up`](Self::up). It is not to be among the idle ones of a `step` meanwhile.
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
                // It would have taken its state with it.
                self.left.forget(origin.slot);
            }
            self.come_back(&origin);
        }
        for slot in 0..slots {
            let at = SlotId { instance, slot };
            let Some(sequence) = self.sequence(Place::Slot(at)) else { continue };
            sequence.gone = true;
            let waiting = std::mem::take(&mut sequence.queue);
            self.len -= waiting.len();
            if let Some(instance) = self.instances.get_mut(instance as usize) {
                instance.queued -= waiting.len();
            }
            out.extend(waiting.into_iter().map(|q| q.item));
            self.close(Place::Slot(at));
            self.move_on(now, at);
        }
    }

    /// The instance is back, without anything of the sequences that it had. Call `step` next.
    pub fn up(&mut self, now: u64, instance: u32) {
        self.free.up(instance);
        self.give_slots(now);
    }

    /// There is an instance more, or one that was [retired](Self::retire) stays. Call `step` next.
    pub fn add(&mut self, now: u64, instance: u32) {
        while self.instances.len() <= instance as usize {
            self.instances.push(Instance::new(&self.rules.config));
        }
        self.free.add(instance);
        self.up(now, instance);
    }

    /// Sequences that begin get no slot of this instance any more. Those that it has go on there.
    pub fn retire(&mut self, instance: u32) {
        self.free.down(instance);
    }

    /// Whether the instance has sequences, or requests of theirs that are not over.
    pub fn is_used(&self, instance: u32) -> bool {
        let slots = self.instances.get(instance as usize).map_or(&[][..], |instance| &instance.slots);
        slots.iter().any(|slot| slot.occupant.is_some() || slot.inside)
    }

    /// A retired instance that is not used leaves.
    pub fn remove(&mut self, instance: u32) {
        self.free.remove(instance);
        if let Some(instance) = self.instances.get_mut(instance as usize) {
            instance.slots = Vec::new();
        }
    }

    /// Sequences that wait for a slot get those that are free.
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

    /// Hands back what waits for a slot: there is no instance left.
    pub fn drain_backlog(&mut self, out: &mut Vec<T>) {
        for (serial, sequence) in self.backlog.take() {
            self.alarms.remove(&(sequence.alarm, Place::Backlog(serial)));
            if !sequence.closed {
                self.known.remove(&sequence.id);
            }
            self.alive -= 1;
            self.len -= sequence.queue.len();
            out.extend(sequence.queue.into_iter().map(|q| q.item));
        }
    }

    /// No new sequence is accepted any more; those in progress go on.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// From now on a sequence may be idle for `most_us` at most, counted from now where its last request came before; never longer than it
    /// might have been. Call `step` next.
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
                let place = Place::Slot(SlotId { instance: instance as u32, slot: slot as u32 });
                let Some(sequence) = self.sequence(place).filter(|sequence| !sequence.closed) else { continue };
                // Its idle time is over at the sum of both: when it would have been, or so long from now.
                sequence.last_arrival = now.min(sequence.last_arrival.saturating_add(before - most));
                let ends = sequence.last_arrival.saturating_add(most);
                self.set_alarm(place, ends);
            }
        }
    }

    /// Hands back every waiting request, cancelled ones included, and forgets all sequences.
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

    /// What executions cost. [`Strategy::Direct`] does not ask.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The same, to learn.
    pub fn profile_mut(&mut self) -> &mut Profile {
        &mut self.profile
    }

    /// Requests waiting.
    pub fn len(&self) -> usize {
        self.len
    }

    /// No request waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sequences in slots and waiting. A version that is replaced or stops is over when there are none.
    pub fn alive(&self) -> usize {
        self.alive
    }

    /// Sequences that wait for a slot.
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

    /// A new sequence: in the lowest free slot, or at the end of the backlog.
    fn open(&mut self, now: u64, id: SequenceId) -> Place {
        self.serials += 1;
        self.alive += 1;
        // A copy: the text is a slice of its request, which must not be kept in memory for the life of the sequence.
        let id = match id {
            SequenceId::Text(text) => SequenceId::Text(Name::from(text.as_str())),
            other => other,
        };
        let sequence = Sequence::new(id.clone(), self.serials, now);
        if let Some(slot) = self.free.take() {
            self.occupy(now, slot, sequence);
            return Place::Slot(slot);
        }
        let place = Place::Backlog(self.serials);
        self.known.insert(id, place);
        self.backlog.sequences.insert(self.serials, sequence);
        place
    }

    /// The slot is the sequence's until its last request is handed out. From here on it may become idle: one that had to wait
    /// could not be expected to send more.
    fn occupy(&mut self, now: u64, at: SlotId, mut sequence: Sequence<T>) {
        sequence.last_arrival = now;
        let is_open = !sequence.closed;
        if is_open {
            self.known.insert(sequence.id.clone(), Place::Slot(at));
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
            self.set_alarm(Place::Slot(at), now.saturating_add(self.rules.idle_ns));
        }
    }

    fn join(&mut self, now: u64, place: Place, queued: Queued<T>) {
        let expires = queued.expires;
        let Some(sequence) = self.sequence(place) else { return };
        sequence.last_arrival = now;
        sequence.queue.push_back(queued);
        let alarm = sequence.alarm.min(expires);
        self.len += 1;
        match place {
            Place::Slot(slot) => {
                if let Some(instance) = self.instances.get_mut(slot.instance as usize) {
                    instance.queued += 1;
                }
            }
            Place::Backlog(_) => {
                self.backlog.requests += 1;
                self.set_alarm(place, alarm);
            }
        }
    }

    /// The id is forgotten: what comes next under it starts another sequence.
    fn close(&mut self, place: Place) {
        let Some(sequence) = self.sequence(place).filter(|s| !s.closed) else { return };
        sequence.closed = true;
        let id = sequence.id.clone();
        self.known.remove(&id);
        if matches!(place, Place::Slot(_)) {
            self.set_alarm(place, NEVER);
        }
    }

    /// If the time of the sequence has passed, and no step was made since: forgets its id. The next step does the rest.
    fn forget_late(&mut self, now: u64, place: Place) -> bool {
        let idle_ns = self.rules.idle_ns;
        let iterative = self.rules.iterative;
        let is_late = match (place, self.sequence(place)) {
            (_, None) => true,
            (Place::Slot(_), Some(s)) => is_idle(s, now, idle_ns, iterative),
            (Place::Backlog(_), Some(s)) => s.alarm <= now,
        };
        if is_late {
            self.close(place);
            if let Place::Slot(slot) = place {
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
                Place::Backlog(serial) => self.expire(serial),
                Place::Slot(_) if self.forget_late(now, place) => {}
                // It was heard of since, or the model itself works on it.
                Place::Slot(_) => {
                    self.set_alarm(place, if again > now { again } else { now.saturating_add(idle_ns.max(1)) });
                }
            }
        }
    }

    /// S-19: a sequence waited for a slot for longer than one of its requests would.
    fn expire(&mut self, serial: u64) {
        self.close(Place::Backlog(serial));
        self.set_alarm(Place::Backlog(serial), NEVER);
        let Some(sequence) = self.backlog.remove(serial) else { return };
        self.alive -= 1;
        self.len -= sequence.queue.len();
        self.left.removed.extend(sequence.queue.into_iter().map(|q| {
            let why = if q.item.is_cancelled() { RemovalReason::Cancelled } else { RemovalReason::Expired };
            (why, q.item)
        }));
    }

    /// The slot moves on as far as it can: cancelled requests leave, a sequence that is over makes room for the next one, and
    /// the batcher gets its next request.
    pub(super) fn move_on(&mut self, now: u64, slot: SlotId) {
        loop {
            self.feed(now, slot);
            let Some(sequence) = self.sequence(Place::Slot(slot)) else { return };
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
            self.purge(Place::Backlog(serial));
            self.set_alarm(Place::Backlog(serial), NEVER);
            // Gone when it was given up as a whole.
            if let Some(sequence) = self.backlog.remove(serial) {
                return Some(sequence);
            }
        }
    }

    /// Takes out what was given up, with what cannot run without it. A sequence in the backlog of which nothing is left goes; for
    /// one in a slot `move_on` has to be called.
    pub(super) fn purge(&mut self, place: Place) {
        let mut gone = Vec::new();
        let begun = matches!(place, Place::Slot(_));
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
            Place::Slot(slot) => {
                if let Some(instance) = self.instances.get_mut(slot.instance as usize) {
                    instance.queued -= gone.len();
                }
            }
            Place::Backlog(serial) => {
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

    /// A request that was handed out will not run; the sequence does not go on without it.
    pub(super) fn lost(&mut self, now: u64, request: Request<T>) {
        let Request { item, origin, end, .. } = request;
        self.len -= 1;
        self.left.removed.push((RemovalReason::Cancelled, item));
        if end {
            // It would have taken its state with it.
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
                self.close(Place::Slot(origin.slot));
            }
        }
        self.left.removed.append(&mut gone);
        self.move_on(now, origin.slot);
    }

    /// The first request of a slot leaves it.
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

    /// A request that was handed out is no longer inside.
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

    /// The sequence a request came from, if it still has its slot.
    fn occupant(&mut self, origin: &Origin) -> Option<&mut Sequence<T>> {
        self.sequence(Place::Slot(origin.slot)).filter(|s| s.serial == origin.serial)
    }

    pub(super) fn slot(&mut self, at: SlotId) -> Option<&mut Slot<T>> {
        self.instances.get_mut(at.instance as usize)?.slots.get_mut(at.slot as usize)
    }

    pub(super) fn sequence(&mut self, place: Place) -> Option<&mut Sequence<T>> {
        match place {
            Place::Slot(slot) => self.slot(slot)?.occupant.as_mut(),
            Place::Backlog(serial) => self.backlog.sequences.get_mut(&serial),
        }
    }

    fn set_alarm(&mut self, place: Place, at: u64) {
        let Some(sequence) = self.sequence(place) else { return };
        let before = std::mem::replace(&mut sequence.alarm, at);
        self.alarms.remove(&(before, place));
        if at != NEVER {
            self.alarms.insert((at, place));
        }
    }
}

/// Whether nothing was heard of the sequence for too long. An iterative one whose request the model has, or will have, goes on by
/// itself.
fn is_idle<T>(sequence: &Sequence<T>, now: u64, idle_ns: u64, iterative: bool) -> bool {
    let works = iterative && (sequence.out > 0 || !sequence.queue.is_empty());
    !works && now >= sequence.last_arrival.saturating_add(idle_ns)
}
