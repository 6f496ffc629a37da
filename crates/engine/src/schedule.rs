//! The scheduler of a version, of either kind: chooses the waiting requests that run next.

use crate::pending::{Queued, Requests};
use crate::sequence::{self, Row, Sequencing};
use protocol::check::IdPrefix;
use scheduler::cores::InUse;
use scheduler::profile::Profile;
use scheduler::sequence::{SequenceId, SequenceScheduler, conflict_warning};
use scheduler::{Cause, NextBatch, Scheduler};
use tensor::Error;

/// Kinds of schedulers. All are pure; see the `scheduler` crate.
// One per version, and the larger variant is used by every request of most models.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Schedule {
    /// The default scheduler and the dynamic batcher.
    Batcher(Scheduler<Queued>),
    /// The sequence batcher.
    Sequences(Box<SequenceScheduler<Queued>>),
}

/// Next action.
pub(crate) enum Next {
    /// Run these, on this instance if one was chosen.
    Run(Requests, Option<u32>, Cause),
    SleepUntil(u64),
    Idle,
}

/// Why a request left without running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RemovalReason {
    /// The request waited longer than its queue policy allows.
    Expired,
    /// The sequence waited too long for a slot.
    SequenceExpired,
    /// The client cancelled it.
    Cancelled,
    /// The version ends, and its sequences with it.
    Stopped,
    /// No instance is left that could run it, for this reason.
    Gone(Error),
}

/// Requests that left without running.
pub(crate) type Removed = Vec<(RemovalReason, Queued)>;

impl Schedule {
    /// The sequence scheduler, if the version has sequences, or else one with the configuration `plain`.
    pub(crate) fn of(plain: scheduler::Config, sequencing: Option<&Sequencing>) -> Self {
        match sequencing {
            Some(sequencing) => {
                let mut scheduler = SequenceScheduler::new(sequencing.schedule.clone());
                // The state of a slot has to be dropped with its sequence.
                if sequencing.has_states() {
                    scheduler.watch_forgotten();
                }
                Self::Sequences(Box::new(scheduler))
            }
            None => Self::Batcher(Scheduler::new(plain)),
        }
    }

    /// The sequence scheduler, if the version has one.
    pub(crate) fn sequences(&self) -> Option<&SequenceScheduler<Queued>> {
        if let Self::Sequences(s) = self { Some(s) } else { None }
    }

    /// The sequence scheduler, to change.
    pub(crate) fn sequences_mut(&mut self) -> Option<&mut SequenceScheduler<Queued>> {
        if let Self::Sequences(s) = self { Some(s) } else { None }
    }

    /// The batch that forms now, and the requests behind it.
    pub(crate) fn forming(&self) -> impl Iterator<Item = &Queued> {
        let batcher = if let Self::Batcher(s) = self { Some(s) } else { None };
        batcher.into_iter().flat_map(|s| s.forming())
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Batcher(s) => s.is_empty(),
            Self::Sequences(s) => s.is_empty(),
        }
    }

    /// True if `step` would do nothing for any idle instances.
    #[inline]
    pub(crate) fn is_still(&self) -> bool {
        match self {
            Self::Batcher(s) => s.is_still(),
            // Sequences have timeouts.
            Self::Sequences(_) => false,
        }
    }

    /// Number of waiting requests.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Batcher(s) => s.len(),
            Self::Sequences(s) => s.len(),
        }
    }

    /// Accepts a request.
    ///
    /// # Errors
    /// The client's error; the request is returned.
    pub(crate) fn push(&mut self, now: u64, request: Queued, model: &str) -> Result<(), (Error, Queued)> {
        let head = &request.0.entry.request;
        match self {
            Self::Batcher(s) => {
                let (priority, timeout_us) = (head.priority, head.timeout_us);
                s.push(now, priority, timeout_us, request).map_err(|(scheduler::PushError::QueueFull, request)| {
                    let id = IdPrefix(&request.0.entry.request.id);
                    (Error::unavailable(format!("{id}Exceeds maximum queue size")), request)
                })
            }
            Self::Sequences(s) => {
                let head = sequence::head(head);
                let id: SequenceId = head.id.clone();
                let accepted = s.push(now, head, request).map_err(|(why, request)| (why.error(model), request))?;
                if accepted.conflict {
                    log::warn!("{}", conflict_warning(&id, model));
                }
                Ok(())
            }
        }
    }

    /// Priority level and rows of the requests before a new one of this priority.
    pub(crate) fn ahead(&self, priority: u64) -> (u32, u64) {
        match self {
            Self::Batcher(s) => s.ahead(priority),
            Self::Sequences(s) => (0, s.len() as u64),
        }
    }

    /// Queues a request again, before the others. `Err` if it belongs to a sequence.
    pub(crate) fn put_back(&mut self, request: Queued) -> Result<(), Queued> {
        match self {
            Self::Batcher(s) => {
                s.put_back(request);
                Ok(())
            }
            Self::Sequences(_) => Err(request),
        }
    }

    /// True if the number of runs in progress is chosen (`scheduler::cores`).
    pub(crate) fn shares_cores(&self) -> bool {
        matches!(self, Self::Batcher(s) if s.shares_cores())
    }

    /// Lets the number of runs be chosen, or not.
    pub(crate) fn share_cores(&mut self, cores: Option<u32>) {
        if let Self::Batcher(s) = self {
            s.share_cores(cores);
        }
    }

    /// Sets the cores and requests in use when `step` is called next, for models that divide their cores.
    pub(crate) fn set_in_use(&mut self, in_use: InUse) {
        if let Self::Batcher(s) = self {
            s.set_in_use(in_use);
        }
    }

    /// Returns what to do now; the preferred idle instance is last. Call again until it returns no `Run`. Appends
    /// requests that will not run to `removed`.
    pub(crate) fn step(&mut self, now: u64, idle: &[u32], removed: &mut Removed) -> Next {
        match self {
            Self::Batcher(s) => {
                let mut dropped = Vec::new();
                let step = s.step(now, u32::try_from(idle.len()).unwrap_or(u32::MAX), &mut dropped);
                removed.extend(dropped.into_iter().map(of_batcher));
                match step {
                    NextBatch::Run { batch, why } => Next::Run(batch, None, why),
                    NextBatch::SleepUntil(at) => Next::SleepUntil(at),
                    NextBatch::Idle => Next::Idle,
                }
            }
            Self::Sequences(s) => {
                let mut dropped = Vec::new();
                let step = s.step(now, idle, &mut dropped);
                removed.extend(dropped.into_iter().map(of_sequences));
                match step {
                    scheduler::sequence::NextRun::Run(run) => {
                        let rows = run.rows.len();
                        let requests =
                            run.rows.into_iter().filter_map(|row| Some(queued(row.request?, rows))).collect();
                        Next::Run(requests, Some(run.instance), run.why)
                    }
                    scheduler::sequence::NextRun::SleepUntil(at) => Next::SleepUntil(at),
                    scheduler::sequence::NextRun::Idle => Next::Idle,
                }
            }
        }
    }

    /// The batch to send to an instance that still runs one of `running` requests, to be prefetched.
    pub(crate) fn step_ahead(&mut self, now: u64, running: usize, removed: &mut Removed) -> Option<Requests> {
        let Self::Batcher(s) = self else { return None };
        let mut dropped = Vec::new();
        let requests = s.step_ahead(now, running, &mut dropped);
        removed.extend(dropped.into_iter().map(of_batcher));
        requests
    }

    /// The measured cost of executions.
    #[inline]
    pub(crate) fn profile(&self) -> &Profile {
        match self {
            Self::Batcher(s) => s.profile(),
            Self::Sequences(s) => s.profile(),
        }
    }

    /// The measured cost of executions, to update.
    #[inline]
    pub(crate) fn profile_mut(&mut self) -> &mut Profile {
        match self {
            Self::Batcher(s) => s.profile_mut(),
            Self::Sequences(s) => s.profile_mut(),
        }
    }

    /// Removes the requests that wait for a gone instance or, if none is left, all requests.
    pub(crate) fn down(&mut self, now: u64, instance: u32, none_is_left: bool, why: &Error, removed: &mut Removed) {
        let mut waiting = Vec::new();
        match self {
            Self::Batcher(s) if none_is_left => s.drain_all(&mut waiting),
            Self::Batcher(_) => {}
            Self::Sequences(s) => {
                s.down(now, instance, &mut waiting);
                if none_is_left {
                    s.drain_backlog(&mut waiting);
                }
            }
        }
        removed.extend(waiting.into_iter().map(|request| (RemovalReason::Gone(why.clone()), request)));
    }

    /// Forgets all sequences and removes every waiting request.
    pub(crate) fn end_sequences(&mut self, removed: &mut Removed) {
        if let Self::Sequences(s) = self {
            let mut waiting = Vec::new();
            s.drain(&mut waiting);
            removed.extend(waiting.into_iter().map(|request| (RemovalReason::Stopped, request)));
        }
    }

    /// Removes every cancelled request.
    pub(crate) fn remove_cancelled(&mut self, now: u64, removed: &mut Removed) {
        match self {
            Self::Batcher(s) => {
                let mut dropped = Vec::new();
                s.remove_cancelled(&mut dropped);
                removed.extend(dropped.into_iter().map(of_batcher));
            }
            Self::Sequences(s) => {
                let mut dropped = Vec::new();
                s.remove_cancelled(now, &mut dropped);
                removed.extend(dropped.into_iter().map(of_sequences));
            }
        }
    }
}

/// Stores the row of a request in it.
fn queued(request: scheduler::sequence::Request<Queued>, rows: usize) -> Queued {
    let scheduler::sequence::Request { mut item, id, start, end, origin } = request;
    let slot = Some(origin.slot());
    item.0.row = Some(Row { slot, rows, id: Some(id), start, end, origin: Some(origin), ..Row::default() });
    item
}

fn of_batcher((why, request): (scheduler::RemovalReason, Queued)) -> (RemovalReason, Queued) {
    let why = match why {
        scheduler::RemovalReason::Expired => RemovalReason::Expired,
        scheduler::RemovalReason::Cancelled => RemovalReason::Cancelled,
    };
    (why, request)
}

fn of_sequences((why, request): (scheduler::sequence::RemovalReason, Queued)) -> (RemovalReason, Queued) {
    let why = match why {
        scheduler::sequence::RemovalReason::Expired => RemovalReason::SequenceExpired,
        scheduler::sequence::RemovalReason::Cancelled => RemovalReason::Cancelled,
    };
    (why, request)
}
