//! The sequence batcher of one model (spec §5): assigns instances and slots, and decides which requests run when.
//!
//! The caller owns the instances, as for [`crate::Scheduler`]: it calls [`SequenceScheduler::push`] for every request,
//! [`SequenceScheduler::step`] after every push, completion, timer and cancellation until it returns no
//! [`NextRun::Run`], and after each request that ran [`SequenceScheduler::released`], or [`SequenceScheduler::again`]
//! for a step of an iterative sequence.
//!
//! Not here: control tensors and states (made by the engine from the rows of a batch), response order, statistics.
//!
//! Invariants:
//! - every request accepted by `push` or `again` leaves exactly once, through `Run`, `removed`, `down` or `drain`;
//! - requests of a sequence leave in the order of their arrival, all to the instance and slot of their sequence;
//! - a slot belongs to one sequence until its last request is handed out, so state kept by slot needs no sequence id:
//!   the next sequence begins with START;
//! - sequences wait for a slot only while none is free.
//!
//! | file | holds |
//! |---|---|
//! | `scheduler` | ids, acceptance, idle time and timeouts (5.1, 5.2) |
//! | `requests` | the requests of one sequence; which others a cancelled one removes |
//! | `slots`, `backlog` | free slots; sequences that wait for one |
//! | `direct`, `oldest` | the two strategies (5.4, 5.5) |
//! | `error` | errors of requests |

mod backlog;
mod delay;
mod direct;
mod error;
mod inside;
mod oldest;
mod requests;
mod scheduler;
mod slots;

pub use error::{RemovalReason, SequenceError, conflict_warning};
pub use scheduler::SequenceScheduler;
pub use slots::SlotId;

use crate::Cause;
use std::fmt;
use tensor::Name;

/// Sequence options of a model configuration, checked by its reader.
#[derive(Debug, Clone)]
pub struct Config {
    /// 0 is treated as 1.
    pub max_batch_size: u32,
    /// Instances of the model; 0 is treated as 1.
    pub instances: u32,
    /// How requests in slots become batches.
    pub strategy: Strategy,
    /// `max_sequence_idle_microseconds` after defaults (1 s) were applied.
    pub idle_us: u64,
    /// `iterative_sequence`.
    pub iterative: bool,
    /// Maximum number of sequences in slots and waiting together.
    pub sequences_max: u32,
    /// [`Strategy::Oldest`]: Triton's literal timer instead of the work-conserving rule.
    pub strict_delay: bool,
    /// Nothing runs until this many requests have been queued in slots, once (S-47); 0 = off. With [`Strategy::Oldest`]
    /// this holds for each instance's batcher.
    pub delay_scheduler: u32,
    /// Nothing runs until this many requests wait in the backlog, once (S-47); 0 = off.
    pub backlog_delay_scheduler: u32,
}

/// `strategy_choice`.
#[derive(Debug, Clone)]
pub enum Strategy {
    /// A sequence has a fixed row in the batches of its instance.
    Direct {
        /// `max_queue_delay_microseconds`.
        max_queue_delay_us: u64,
        /// Share of the slots that need a request for a batch to run before the delay is over; 0 = never wait.
        minimum_slot_utilization: f32,
    },
    /// One dynamic batcher per instance; each sequence has at most one request in it.
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

/// Id of a sequence. Numbers, strings and internal ids never equal each other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SequenceId {
    /// A client's number; 0 = none.
    Number(u64),
    /// A client's text; "" = none.
    Text(Name),
    /// Assigned by the server to an iterative sequence whose request has no id (S-25). Counts from 1.
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

/// Sequence parameters of a request.
#[derive(Debug, Clone)]
pub struct Head {
    /// `sequence_id`.
    pub id: SequenceId,
    /// `sequence_start`.
    pub start: bool,
    /// `sequence_end`.
    pub end: bool,
    /// The `timeout` parameter, 0 = none. Only applies while the sequence waits for a slot.
    pub timeout_us: u64,
}

/// Result of accepting a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// True if it starts a sequence whose id is in use, which ends the previous one early. Log [`conflict_warning`].
    pub conflict: bool,
}

/// The caller's next action.
#[derive(Debug)]
pub enum NextRun<T> {
    /// Run this on its instance, which is then busy, and call `step` again.
    Run(Run<T>),
    /// Call `step` at this time, unless something else happens first. Always later than the `now` of the call.
    SleepUntil(u64),
    /// Nothing to do before the next push, release or completion.
    Idle,
}

/// A batch for one instance.
#[derive(Debug)]
pub struct Run<T> {
    /// One of the idle instances.
    pub instance: u32,
    /// Why it starts now.
    pub why: Cause,
    /// Never empty; at least one row has a request. [`Strategy::Direct`]: row i is slot i.
    pub rows: Vec<Row<T>>,
}

/// One row of a batch.
#[derive(Debug)]
pub struct Row<T> {
    /// Slot of the instance, under which state is kept.
    pub slot: u32,
    /// `None` for a null request (S-21): shapes of the first request of the batch, no outputs, counted nowhere.
    pub request: Option<Request<T>>,
}

/// A request that runs.
#[derive(Debug)]
pub struct Request<T> {
    /// The request that was pushed.
    pub item: T,
    /// Id of its sequence, for CORRID.
    pub id: SequenceId,
    /// True if it starts its sequence: its state is fresh.
    pub start: bool,
    /// True if it ends its sequence.
    pub end: bool,
    /// Pass this to `released` or `again` when the request is over.
    pub origin: Origin,
}

/// Slot and sequence of a request. The slot may be blocked until this is passed back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a slot may be blocked until its request is released"]
pub struct Origin {
    slot: SlotId,
    /// Serial of the sequence.
    serial: u64,
}

impl Origin {
    /// Instance and slot.
    pub fn slot(&self) -> SlotId {
        self.slot
    }
}
