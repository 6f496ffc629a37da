//! The default scheduler and the dynamic batcher in its normal, work-conserving mode.
//!
//! An idle instance takes queued requests as far as preferred sizes, shapes and measured costs allow; `wait` decides
//! whether to wait for more, never longer than the queue delay. While all instances are busy requests gather, so that
//! the next batch is as large as possible.

use crate::clients::Clients;
use crate::cores::InUse;
use crate::form::{Prefix, Sizes, scan};
use crate::padding::{Budget, Law, pick, reach};
use crate::profile::{CostLine, Profile};
use crate::queue::Queue;
use crate::step::{Batch, Cause, NextBatch, PushError, RemovalReason, sleep_until};
use crate::strict::Strict;
use crate::wait::{Outlook, Waiter};
use crate::{Config, Dynamic, Waiting};
use smallvec::SmallVec;

/// Waiting requests of one model, and the rules by which they leave. The profile is an argument of each step.
pub struct Batcher<T: Waiting> {
    queue: Queue<T>,
    sizes: Sizes,
    /// D, in ns.
    delay_ns: u64,
    dynamic: bool,
    strict: Option<Strict<T>>,
    /// Requests to gather before the first batch; 0 afterwards.
    gather: usize,
    /// Condition that the requests wait for, apart from a queue delay; stale if none waits.
    waits_for: Option<Cause>,
    /// Latest time seen: callers on several threads may read their clocks in one order and get here in another.
    now: u64,
    waiter: Waiter,
    /// Set for texts, which run in batches by tokens.
    budget: Option<Budget>,
    /// Set if the next batch of texts has to have the oldest.
    takes_oldest: bool,
    /// Set if the number of runs is chosen; then there are as many instances as cores.
    cores: Option<u32>,
    in_use: InUse,
    /// Estimates who may still send a request; `None` if no batch may be taken before an instance is idle.
    clients: Option<Clients>,
}

/// Batches that last longer do not lie ready. Two wakes of threads take some 50 to 100 µs.
const AHEAD_NS_MAX: u64 = 1_000_000;

/// Number of waiting texts among which the first of a batch is searched.
const SEARCHED_MAX: usize = 4096;

/// Number of waiting requests of which the mean number of rows is taken.
const ROWS_LOOKED_AT: usize = 64;

/// Queue entries to take.
enum Chosen {
    Prefix(Prefix),
    /// Positions in `Queue::iter_first_level`.
    Positions(SmallVec<[usize; 16]>),
}

impl<T: Waiting> Batcher<T> {
    pub(crate) fn new(config: Config) -> Self {
        let is_dynamic = config.dynamic.is_some();
        let dynamic = config.dynamic.unwrap_or_default();
        // As in S-07: queue policies need requests to stay in the queue, and so does a queue delay.
        let may_run_ahead = is_dynamic
            && dynamic.may_prefetch()
            && dynamic.max_queue_delay_us == 0
            && !config.strict_delay
            && config.tokens_max.is_none();
        Self {
            clients: may_run_ahead.then(Clients::default),
            sizes: Sizes::new(config.max_batch_size, &dynamic.preferred),
            delay_ns: dynamic.max_queue_delay_us.saturating_mul(1000),
            dynamic: is_dynamic,
            strict: (config.strict_delay && is_dynamic).then(|| Strict::new(config.instances, dynamic.may_prefetch())),
            budget: config
                .tokens_max
                .filter(|_| is_dynamic && !config.strict_delay)
                .map(|tokens| Budget { texts: config.max_batch_size.max(1), tokens }),
            gather: if is_dynamic { config.delay_scheduler as usize } else { 0 },
            takes_oldest: true,
            cores: config.cores,
            in_use: InUse::default(),
            waits_for: None,
            now: 0,
            waiter: Waiter::default(),
            queue: Queue::new(if is_dynamic { dynamic } else { Dynamic::default() }),
        }
    }

    /// Accepts a request. `priority` and `timeout_us` are the request's parameters, 0 if absent; both are ignored where
    /// the configuration gives them no meaning.
    ///
    /// # Errors
    /// The queue of its level is full; the request is returned.
    pub fn push(&mut self, now: u64, priority: u64, timeout_us: u64, request: T) -> Result<(), (PushError, T)> {
        let now = self.advance(now);
        if self.is_empty() {
            self.waits_for = None;
        }
        self.queue.push(now, priority, timeout_us, request)?;
        if self.delay_ns != 0 {
            self.waiter.arrived(now);
        }
        Ok(())
    }

    /// Queues a request again, before the others, that was taken and did not begin: for models without policies.
    pub fn put_back(&mut self, request: T) {
        self.queue.put_back(self.now, request);
    }

    /// Lets the number of runs be chosen, for as many instances as cores, or not.
    pub fn share_cores(&mut self, cores: Option<u32>) {
        self.cores = cores;
    }

    /// True if the number of runs is chosen.
    pub fn shares_cores(&self) -> bool {
        self.cores.is_some()
    }

    /// Sets the cores and requests in use when `step` is called next.
    pub fn set_in_use(&mut self, in_use: InUse) {
        self.in_use = in_use;
    }

    /// Number of runs that may begin now and, at most, the rows of each.
    fn may_begin(&self, idle_instances: u32, profile: &Profile) -> (u32, u32) {
        // Without an idle instance nothing is worth a look at the queue, which may be long.
        let Some(cores) = self.cores.filter(|_| idle_instances > 0) else { return (idle_instances, u32::MAX) };
        let requests = u32::try_from(self.queue.len()).unwrap_or(u32::MAX).saturating_add(self.in_use.requests);
        let looked_at = self.queue.iter_first_level().take(ROWS_LOOKED_AT).map(|entry| entry.rows);
        let (sum, count) = looked_at.fold((0u64, 0u64), |(sum, count), rows| (sum + u64::from(rows), count + 1));
        let rows_of_one = sum as f64 / count.max(1) as f64;
        let cost = self.cost_of_batch(profile).map(|(fixed, per_row)| (fixed, per_row * rows_of_one));
        let runs = profile.runs(cores, cores.saturating_sub(self.in_use.others).max(1), requests, cost);
        let free = runs.saturating_sub(cores.saturating_sub(idle_instances));
        if self.delay_ns != 0 {
            // The user wants requests to wait for each other: one batch at a time forms, as large as it becomes.
            return (free.min(1), u32::MAX);
        }
        let rows_each = (f64::from(requests.div_ceil(runs)) * rows_of_one).ceil();
        (free, if runs == 1 { u32::MAX } else { (rows_each as u32).max(1) })
    }

    /// Cost of a batch of the waiting requests: its fixed part, and that of each row.
    fn cost_of_batch(&self, profile: &Profile) -> Option<(f64, f64)> {
        if !self.dynamic || self.sizes.max == 1 {
            return None;
        }
        if self.budget.is_some() {
            let tokens =
                self.queue.iter_first_level().take(SEARCHED_MAX).map(|entry| f64::from(entry.request.tokens()));
            let (sum, count) = tokens.fold((0.0, 0.0), |(sum, count), tokens| (sum + tokens, count + 1.0));
            return profile.texts().law().map(|law| (law.fixed, law.per_token * sum / f64::max(count, 1.0)));
        }
        let class = self.queue.iter().next()?.request.class();
        profile.line(class).map(|line| (line.fixed, line.per_row))
    }

    /// Records that the caller steps for the requests in the queue after something else: the end of a turn.
    pub fn waits_for(&mut self, cause: Cause) {
        self.waits_for = Some(cause);
    }

    /// Highest priority level with requests before a new one of this priority, or 0, and the rows of those requests.
    pub fn ahead(&self, priority: u64) -> (u32, u64) {
        self.queue.ahead(priority)
    }

    /// Returns what to do now. Call again until it returns no `Run`. Appends requests that will not run to `dropped`.
    pub(crate) fn step(
        &mut self,
        now: u64,
        idle_instances: u32,
        profile: &Profile,
        dropped: &mut Vec<(RemovalReason, T)>,
    ) -> NextBatch<T> {
        self.step_within(u32::MAX, now, idle_instances, profile, dropped)
    }

    /// Like `step`, with at most so many rows in a batch, unless the user chose sizes.
    fn step_within(
        &mut self,
        rows_max: u32,
        now: u64,
        idle_instances: u32,
        profile: &Profile,
        dropped: &mut Vec<(RemovalReason, T)>,
    ) -> NextBatch<T> {
        let now = self.advance(now);
        if self.gather > 0 {
            self.waits_for = Some(Cause::Gathered);
            if self.queue.len() < self.gather {
                return NextBatch::Idle;
            }
            self.gather = 0;
        }
        if let Some(strict) = &mut self.strict {
            let mut next = strict.step(now, idle_instances, self.delay_ns, &self.sizes, &mut self.queue, dropped);
            match &mut next {
                NextBatch::Run { why, .. } => *why = self.waits_for.unwrap_or(*why),
                NextBatch::SleepUntil(_) | NextBatch::Idle => self.waits_for_instance(idle_instances),
            }
            return next;
        }
        self.waiter.idle(now, idle_instances);
        while !self.queue.is_empty() {
            let deadline = self.queue.next_deadline();
            if deadline <= now {
                self.queue.expire(now, dropped);
                continue;
            }
            let (may_begin, rows_each) = self.may_begin(idle_instances, profile);
            if may_begin == 0 {
                self.waits_for_instance(0);
                return sleep_until(deadline);
            }
            let (chosen, why) = match self.choose(rows_max.min(rows_each), now, may_begin, profile, deadline) {
                Ok(chosen) => chosen,
                Err(until) => return sleep_until(until),
            };
            let mut batch = Batch::new();
            match chosen {
                Chosen::Prefix(prefix) => {
                    self.queue.take(prefix.entries, dropped, |entry| batch.push(entry.request));
                }
                Chosen::Positions(positions) => {
                    self.queue.take_positions(&positions, dropped, |entry| batch.push(entry.request));
                }
            }
            if !batch.is_empty() {
                return NextBatch::Run { batch, why: self.waits_for.unwrap_or(why) };
            }
        }
        self.waiter.forget();
        NextBatch::Idle
    }

    /// The batch to send to an instance that still runs one of `running` requests, to be prefetched. It does not grow
    /// there, so it is taken only if it would not grow in the queue either: it is full, or all clients wait. In the
    /// second case it has at most half of all requests: while one half runs, the other half is answered and sent again.
    /// Small networks with 16 clients ran 1.3 to 1.6 times as many requests; batches of a millisecond and more
    /// gain nothing and are not taken.
    pub(crate) fn step_ahead(
        &mut self,
        now: u64,
        running: usize,
        profile: &Profile,
        dropped: &mut Vec<(RemovalReason, T)>,
    ) -> Option<Batch<T>> {
        let requests = self.queue.len() + running;
        let all_wait = self.clients.as_mut()?.all_wait(requests);
        let rows_max = if self.queue.len() >= self.sizes.max as usize {
            self.sizes.max
        } else if all_wait {
            self.queue.iter().take(requests.div_ceil(2)).map(|entry| entry.rows).fold(0, u32::saturating_add)
        } else {
            return None;
        };
        let class = self.queue.iter().next()?.request.class();
        profile.predict(class, rows_max).filter(|&ns| ns < AHEAD_NS_MAX)?;
        match self.step_within(rows_max, now, 1, profile, dropped) {
            NextBatch::Run { batch, .. } => Some(batch),
            NextBatch::SleepUntil(_) | NextBatch::Idle => None,
        }
    }

    /// Returns what an idle instance should take and why now, or `Err` with the time until which to wait.
    fn choose(
        &mut self,
        rows_max: u32,
        now: u64,
        idle: u32,
        profile: &Profile,
        deadline: u64,
    ) -> Result<(Chosen, Cause), u64> {
        let alone = Prefix { entries: 1, requests: 1, rows: 0 };
        // No other request could join, now or after a wait.
        if !self.dynamic || self.sizes.max == 1 || (self.queue.len() == 1 && (self.delay_ns == 0 || idle > 1)) {
            self.waiter.forget();
            return Ok((Chosen::Prefix(alone), Cause::IdleInstance));
        }
        if let Some(budget) = self.budget {
            // A budget of a share of the tokens follows from the share of the texts.
            let texts = budget.texts.min(rows_max);
            return self.choose_texts(Budget { texts, ..budget }, now, idle, profile, deadline);
        }
        let Some(first) = self.queue.iter().find(|e| !e.request.is_cancelled()) else {
            let all = Prefix { entries: self.queue.len(), ..alone };
            return Ok((Chosen::Prefix(all), Cause::IdleInstance));
        };
        let class = first.request.class();
        // Sizes chosen by the user are not questioned; other sizes are limited to those that measurements support.
        let worth = if self.sizes.chosen || self.queue.len() == 1 {
            None
        } else {
            let rows = u32::try_from(self.queue.len()).unwrap_or(u32::MAX).min(self.sizes.max);
            Some(profile.rows_worth(class, rows).unwrap_or(rows_max).min(rows_max))
                .filter(|&rows| rows < self.sizes.max)
        };
        let capped = worth.map(|rows| Sizes::new(rows, &[]));
        let sizes = capped.as_ref().unwrap_or(&self.sizes);
        let found = scan(sizes, None, self.queue.iter());
        if found.undecided {
            self.waits_for = Some(Cause::LibraryDecided);
            return Err(deadline);
        }
        let exceeded = self.delay_ns != 0 && now.saturating_sub(found.oldest) >= self.delay_ns;
        let outlook = |line| Outlook {
            now,
            requests: found.pending.requests,
            rows: found.pending.rows,
            rows_wanted: sizes.next_preferred(found.pending.rows).unwrap_or(0),
            latest: found.oldest.saturating_add(self.delay_ns),
            deadline,
            line,
        };
        let best = found.best.filter(|_| !exceeded);
        let chosen = Chosen::Prefix(best.unwrap_or(found.pending));
        if let Some(why) = found.cause(sizes, 0, exceeded, idle > 1 || self.delay_ns == 0) {
            if self.waiter.is_waiting() {
                let outlook = outlook(profile.line(class));
                self.waiter.end(&outlook);
            }
            return Ok((chosen, why));
        }
        let outlook = outlook(profile.line(class));
        let decided = self.waiter.decide(&outlook).inspect_err(|_| self.waits_for = None);
        decided.map(|why| (chosen, why))
    }

    /// Like `choose`, for texts. Costs and the budget decide, preferred sizes are ignored.
    fn choose_texts(
        &mut self,
        budget: Budget,
        now: u64,
        idle: u32,
        profile: &Profile,
        deadline: u64,
    ) -> Result<(Chosen, Cause), u64> {
        let fit = profile.texts();
        let Some(first) = self.first_text() else {
            let cancelled = self.queue.iter_first_level().take(SEARCHED_MAX).count();
            return Ok((Chosen::Positions((0..cancelled).collect()), Cause::IdleInstance));
        };
        let mut cancelled: SmallVec<[usize; 16]> = SmallVec::new();
        let mut positions: SmallVec<[usize; 16]> = SmallVec::from_slice(&[first]);
        let mut tokens: SmallVec<[u32; 16]> = SmallVec::new();
        let (mut total, mut oldest) = (0u64, u64::MAX);
        let mut found: Option<&T> = None;
        if let Some(entry) = self.queue.iter_first_level().nth(first) {
            found = Some(&entry.request);
            tokens.push(entry.request.tokens());
            (total, oldest) = (entry.request.tokens().into(), entry.arrived);
        }
        for (position, entry) in self.queue.iter_first_level().enumerate().take(reach(self.queue.len())) {
            if entry.request.is_cancelled() {
                cancelled.push(position);
                continue;
            }
            // A text that does not fit waits until it is the first.
            if position == first || !found.is_some_and(|first| entry.request.fits_with(first)) {
                continue;
            }
            positions.push(position);
            tokens.push(entry.request.tokens());
            total += u64::from(entry.request.tokens());
            oldest = oldest.min(entry.arrived);
        }
        let requests = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
        let mean = total as f64 / f64::from(requests.max(1));
        let outlook = || Outlook {
            now,
            requests,
            rows: requests,
            rows_wanted: self.sizes.max,
            latest: oldest.saturating_add(self.delay_ns),
            deadline,
            line: fit.law().map(|law| CostLine { fixed: law.fixed, per_row: law.per_token * mean }),
        };
        let is_late = self.delay_ns != 0 && now >= oldest.saturating_add(self.delay_ns);
        let why = match () {
            () if idle > 1 || self.delay_ns == 0 => Some(Cause::IdleInstance),
            () if requests >= self.sizes.max || total >= u64::from(budget.tokens) => Some(Cause::Full),
            () => is_late.then_some(Cause::DelayElapsed),
        };
        let why = match why {
            None => self.waiter.decide(&outlook()).inspect_err(|_| self.waits_for = None)?,
            Some(why) => {
                if self.waiter.is_waiting() {
                    self.waiter.end(&outlook());
                }
                why
            }
        };
        let law = fit.law().unwrap_or_else(|| Law::guess(mean));
        let picked = pick(budget, law, &tokens);
        self.takes_oldest = !self.takes_oldest;
        // Cancelled requests leave with any batch.
        let mut taken = cancelled;
        taken.extend(picked.into_iter().filter_map(|at| positions.get(at).copied()));
        taken.sort_unstable();
        Ok((Chosen::Positions(taken), why))
    }

    /// Position of the text that the next batch has to have; `None` if all are cancelled. Every second batch it is the
    /// oldest, so that each text runs some time, and in the others the one that comes earliest in its own request, so
    /// that a text that comes alone does not wait for a request of thousands.
    fn first_text(&self) -> Option<usize> {
        let mut waiting = self.queue.iter_first_level().enumerate().take(SEARCHED_MAX);
        let mut waiting = waiting.by_ref().filter(|(_, entry)| !entry.request.is_cancelled());
        if self.takes_oldest {
            return waiting.next().map(|(position, _)| position);
        }
        waiting.min_by_key(|(position, entry)| (entry.request.place_in_request(), *position)).map(|(at, _)| at)
    }

    /// Drops every cancelled request, wherever it waits (S-41). Visits every request.
    pub fn remove_cancelled(&mut self, dropped: &mut Vec<(RemovalReason, T)>) {
        self.queue.remove_cancelled(dropped);
        if let Some(strict) = &mut self.strict {
            strict.remove_cancelled(dropped);
        }
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.queue.len() + self.strict.as_ref().map_or(0, Strict::len)
    }

    /// The batch that forms now, and the requests behind it, in scan order.
    pub fn forming(&self) -> impl Iterator<Item = &T> {
        let open = self.strict.iter().flat_map(Strict::open);
        open.chain(self.queue.iter().map(|entry| &entry.request))
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if `step` has nothing to do and nothing to learn, because no request waits and there is no queue delay.
    #[inline]
    pub fn is_still(&self) -> bool {
        self.delay_ns == 0 && self.queue.is_empty() && self.strict.is_none()
    }

    /// Returns every waiting request, cancelled ones included, because the model stops.
    pub fn drain_all(&mut self, out: &mut Vec<T>) {
        if let Some(strict) = &mut self.strict {
            strict.drain(out);
        }
        self.queue.drain(out);
        self.waiter.forget();
    }

    /// Records what the requests in the queue wait for.
    fn waits_for_instance(&mut self, idle_instances: u32) {
        self.waits_for = (idle_instances == 0).then_some(Cause::InstanceFreed);
    }

    fn advance(&mut self, now: u64) -> u64 {
        self.now = self.now.max(now);
        self.now
    }
}
