//! The sequence batcher of one model (spec §5): which instance and slot a sequence gets, and which of its requests run when.
//!
//! The caller owns the instances, as for [`crate::Scheduler`]: it calls [`SequenceScheduler::push`] for every request,
//! [`SequenceScheduler::step`] after every push, completion, timer and cancellation until it returns no [`Step::Run`], and
//! tells what became of each request that ran: [`SequenceScheduler::released`], or [`SequenceScheduler::again`] for a step of
//! an iterative sequence.
//!
//! Not here: control tensors and states (the engine makes them of the rows of a batch), response order, statistics, logs.
//!
//! Invariants:
//! - every request accepted by `push` or `again` leaves exactly once, through `Run`, `removed`, `down` or `drain`;
//! - requests of a sequence leave in the order in which they came, all to the instance and slot of their sequence;
//! - a slot belongs to one sequence until the last request of it was handed out, so whatever is kept by slot needs no name:
//!   the next sequence begins with START;
//! - sequences wait for a slot only while there is no free one.
//!
//! | file | holds |
//! |---|---|
//! | `scheduler` | ids, acceptance, idle time and timeouts (5.1, 5.2) |
//! | `requests` | the requests of one sequence; what a cancelled one takes with it |
//! | `slots`, `backlog` | which slot is free; sequences that wait for one |
//! | `direct`, `oldest` | the two strategies (5.4, 5.5) |
//! | `refusal` | what clients are told |

mod backlog;
mod direct;
mod oldest;
mod refusal;
mod requests;
mod scheduler;
mod slots;

pub use refusal::{Refusal, RemovalReason, conflict_warning};
pub use scheduler::SequenceScheduler;
pub use slots::SlotId;

use std::fmt;
use tensor::Name;

/// Sequences a model has at a time, in slots and waiting together, unless the operator says otherwise. Each that waits keeps its
/// requests, and a client may open as many as it likes.
pub const SEQUENCES_MAX_DEFAULT: u32 = 65_536;

/// What the model configuration says about its sequences, checked by its reader.
#[derive(Debug, Clone)]
pub struct Config {
    /// 0 is treated as 1.
    pub max_batch_size: u32,
    /// Instances of the model; 0 is treated as 1.
    pub instances: u32,
    /// How slots become batches.
    pub strategy: Strategy,
    /// `max_sequence_idle_microseconds`, after completion of the configuration: 0 there means a second.
    pub idle_us: u64,
    /// `iterative_sequence`.
    pub iterative: bool,
    /// Most sequences in slots and waiting together.
    pub sequences_max: u32,
    /// [`Strategy::Oldest`]: Triton's literal timer instead of the work-conserving rule.
    pub strict_delay: bool,
    /// Do nothing until so many requests have been queued in slots, once (S-47); 0 = off. With [`Strategy::Oldest`] each
    /// instance's batcher does nothing until it has so many.
    pub delay_scheduler: u32,
    /// Do nothing until so many requests wait in the backlog, once (S-47); 0 = off.
    pub backlog_delay_scheduler: u32,
}

/// `strategy_choice`.
#[derive(Debug, Clone)]
pub enum Strategy {
    /// A sequence keeps a row of its instance's batches.
    Direct {
        /// `max_queue_delay_microseconds`.
        max_queue_delay_us: u64,
        /// Share of the slots that need a request to run before the delay is over. 0 = never wait.
        minimum_slot_utilization: f32,
    },
    /// A dynamic batcher per instance, to which each sequence gives one request at a time.
    Oldest {
        /// Slots per instance; 0 = `max_batch_size`.
        max_candidate_sequences: u32,
        /// `preferred_batch_size`; empty means `max_batch_size` alone.
        preferred: Vec<u32>,
        /// `max_queue_delay_microseconds`.
        max_queue_delay_us: u64,
    },
}

impl Config {
    /// Slots of each instance (5.2).
    pub fn slots_per_instance(&self) -> u32 {
        match self.strategy {
            Strategy::Oldest { max_candidate_sequences: n, .. } if n > 0 => n,
            _ => self.max_batch_size.max(1),
        }
    }
}

/// Which sequence: numbers, strings, and those the server itself begins are distinct, whatever they look like.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SequenceId {
    /// A client's number; 0 = none.
    Number(u64),
    /// A client's text; "" = none.
    Text(Name),
    /// Of an iterative sequence whose request has none (S-25). Counts from 1.
    Internal(u64),
}

impl SequenceId {
    fn is_none(&self) -> bool {
        match self {
            Self::Number(n) => *n == 0,
            Self::Text(text) => text.is_empty(),
            Self::Internal(_) => false,
        }
    }
}

impl fmt::Display for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) | Self::Internal(n) => n.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// What a request says about its sequence.
#[derive(Debug, Clone)]
pub struct Head {
    /// `sequence_id`.
    pub id: SequenceId,
    /// `sequence_start`.
    pub start: bool,
    /// `sequence_end`.
    pub end: bool,
    /// The `timeout` parameter, 0 = none. Counts only while the sequence waits for a slot.
    pub timeout_us: u64,
}

/// A request was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// It starts a sequence whose id is in use: the former one has ended, unfinished. [`conflict_warning`] is the text to log.
    pub conflict: bool,
}

/// What the caller should do next.
#[derive(Debug)]
pub enum Step<T> {
    /// Give this to its instance, which is no longer idle, then call `step` again.
    Run(Run<T>),
    /// Call `step` at this time, unless something else happens first. Always later than the `now` of the call.
    SleepUntil(u64),
    /// Nothing to do before the next push, release or completion.
    Idle,
}

/// A batch.
#[derive(Debug)]
pub struct Run<T> {
    /// Which of the idle instances.
    pub instance: u32,
    /// Never empty, and at least one has a request. [`Strategy::Direct`]: row i is slot i.
    pub rows: Vec<Row<T>>,
}

/// One row of a batch.
#[derive(Debug)]
pub struct Row<T> {
    /// Slot of the instance: where state is kept.
    pub slot: u32,
    /// `None`: a null request, with the shapes of the first request of the batch, no outputs, and counted nowhere (S-21).
    pub request: Option<Request<T>>,
}

/// A request that runs.
#[derive(Debug)]
pub struct Request<T> {
    /// What was pushed.
    pub item: T,
    /// Its sequence, for CORRID.
    pub id: SequenceId,
    /// It starts its sequence: state is fresh.
    pub start: bool,
    /// It ends its sequence.
    pub end: bool,
    /// To be given back through `released` or `again` when the request is over.
    pub origin: Origin,
}

/// Where a request came from. Its slot may be blocked until this is given back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a slot may be blocked until its request is released"]
pub struct Origin {
    slot: SlotId,
    /// Of the sequence.
    serial: u64,
}

impl Origin {
    /// Instance and slot.
    pub fn slot(&self) -> SlotId {
        self.slot
    }
}
