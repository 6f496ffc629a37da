//! The schedule of a version: which waiting requests run next. The only place that knows what kind it is.

use crate::pending::{Queued, Requests};
use crate::sequence::{self, Row, Sequencing};
use protocol::check::IdPrefix;
use scheduler::profile::Profile;
use scheduler::sequence::{SequenceId, SequenceScheduler, conflict_warning};
use scheduler::{NextBatch, Scheduler};
use tensor::Error;

/// Kinds of schedules. All of them are pure; see the `scheduler` crate.
// One per version; the larger one is on the way of every request of most models.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Schedule {
    /// The default scheduler and the dynamic batcher.
    Batcher(Scheduler<Queued>),
    /// The sequence batcher.
    Sequences(Box<SequenceScheduler<Queued>>),
}

/// What to do next.
pub(crate) enum Next {
    /// Run these, on that instance if it matters which.
    Run(Requests, Option<u32>),
    SleepUntil(u64),
    Idle,
}

/// Why a request leaves without having run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RemovalReason {
    /// It waited longer than its queue policy allows.
    Expired,
    /// Its sequence waited too long for a slot.
    SequenceExpired,
    /// The client gave up.
    Cancelled,
    /// The version ends, and its sequences with it.
    Stopped,
    /// There is no instance any more that could run it, for this reason.
    Gone(Error),
}

/// Requests that leave without having run.
pub(crate) type Removed = Vec<(RemovalReason, Queued)>;

impl Schedule {
    /// The schedule of a version: that of its sequences, else the `plain` one.
    pub(crate) fn of(plain: scheduler::Config, sequencing: Option<&Sequencing>) -> Self {
        match sequencing {
            Some(sequencing) => {
                let mut scheduler = SequenceScheduler::new(sequencing.schedule.clone());
                // The states of a slot have to go with its sequence.
                if sequencing.has_states() {
                    scheduler.watch_forgotten();
                }
                Self::Sequences(Box::new(scheduler))
            }
            None => Self::Batcher(Scheduler::new(plain)),
        }
    }

    /// The schedule of sequences, if the version has them.
    pub(crate) fn sequences(&self) -> Option<&SequenceScheduler<Queued>> {
        if let Self::Sequences(s) = self { Some(s) } else { None }
    }

    /// The schedule of sequences, to change.
    pub(crate) fn sequences_mut(&mut self) -> Option<&mut SequenceScheduler<Queued>> {
        if let Self::Sequences(s) = self { Some(s) } else { None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Batcher(s) => s.is_empty(),
            Self::Sequences(s) => s.is_empty(),
        }
    }

    /// Whether `step` would do nothing, whatever is idle.
    #[inline]
    pub(crate) fn is_still(&self) -> bool {
        match self {
            Self::Batcher(s) => s.is_still(),
            // Sequences time out.
            Self::Sequences(_) => false,
        }
    }

    /// Requests that wait.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Batcher(s) => s.len(),
            Self::Sequences(s) => s.len(),
        }
    }

    /// Accepts a request.
    ///
    /// # Errors
    /// What its client is told; the request comes back.
    pub(crate) fn push(&mut self, now: u64, request: Queued, model: &str) -> Result<(), (Error, Queued)> {
        let asked = &request.0.entry.request;
        match self {
            Self::Batcher(s) => {
                let (priority, timeout_us) = (asked.priority, asked.timeout_us);
                s.push(now, priority, timeout_us, request).map_err(|(scheduler::PushError::QueueFull, request)| {
                    let id = IdPrefix(&request.0.entry.request.id);
                    (Error::unavailable(format!("{id}Exceeds maximum queue size")), request)
                })
            }
            Self::Sequences(s) => {
                let head = sequence::head(asked);
                let id: SequenceId = head.id.clone();
                let accepted = s.push(now, head, request).map_err(|(why, request)| (why.error(model), request))?;
                if accepted.conflict {
                    log::warn!("{}", conflict_warning(&id, model));
                }
                Ok(())
            }
        }
    }

    /// What to do now, given which instances are idle, the one to prefer last. Requests that will not run are appended to
    /// `removed`. Call again until it returns no `Run`.
    pub(crate) fn step(&mut self, now: u64, idle: &[u32], removed: &mut Removed) -> Next {
        match self {
            Self::Batcher(s) => {
                let mut dropped = Vec::new();
                let step = s.step(now, u32::try_from(idle.len()).unwrap_or(u32::MAX), &mut dropped);
                removed.extend(dropped.into_iter().map(of_batcher));
                match step {
                    NextBatch::Run(requests) => Next::Run(requests, None),
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
                        Next::Run(requests, Some(run.instance))
                    }
                    scheduler::sequence::NextRun::SleepUntil(at) => Next::SleepUntil(at),
                    scheduler::sequence::NextRun::Idle => Next::Idle,
                }
            }
        }
    }

    /// What executions of the version cost.
    #[inline]
    pub(crate) fn profile(&self) -> &Profile {
        match self {
            Self::Batcher(s) => s.profile(),
            Self::Sequences(s) => s.profile(),
        }
    }

    /// The same, to learn.
    #[inline]
    pub(crate) fn profile_mut(&mut self) -> &mut Profile {
        match self {
            Self::Batcher(s) => s.profile_mut(),
            Self::Sequences(s) => s.profile_mut(),
        }
    }

    /// An instance is gone: takes out what waits for it in particular, and where none is left, everything.
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

    /// Forgets all sequences, and takes out every request that waits.
    pub(crate) fn end_sequences(&mut self, removed: &mut Removed) {
        if let Self::Sequences(s) = self {
            let mut waiting = Vec::new();
            s.drain(&mut waiting);
            removed.extend(waiting.into_iter().map(|request| (RemovalReason::Stopped, request)));
        }
    }

    /// Takes out every request that was given up.
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

/// A request with the row it was given.
fn queued(request: scheduler::sequence::Request<Queued>, rows: usize) -> Queued {
    let scheduler::sequence::Request { mut item, id, start, end, origin } = request;
    item.0.row = Some(Row {
        slot: Some(origin.slot()),
        rows,
        id: Some(id),
        start,
        end,
        origin: Some(origin),
        life: Default::default(),
    });
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
