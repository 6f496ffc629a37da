//! Decides which waiting requests of one model run together, and when. Pure: no clock, no threads, no I/O; time is an
//! argument, so every schedule can be replayed.
//!
//! The caller owns the instances. It calls `push` for every request, [`Scheduler::step`] after every push,
//! completion, timer and cancellation until it returns no [`NextBatch::Run`], and [`Scheduler::observe`] after every
//! execution.
//!
//! Models with `sequence_batching` have a [`sequence::SequenceScheduler`] instead.
//!
//! Not here: response order (`preserve_ordering`), statistics, error texts (except those of sequences).
//!
//! Invariants: every request accepted by `push` leaves exactly once, through `Run`, `dropped` or `drain_all`; a batch
//! of several requests has at most `max_batch_size` rows, and all of them fit its first one.
//!
//! | file | holds |
//! |---|---|
//! | `queue` | priority levels, queue policies, deadlines |
//! | `form` | how far a batch may reach: preferred sizes, shapes (3.2 step 3) |
//! | [`padding`] | which texts run together, padded to a common length |
//! | `batcher` | the normal mode: work-conserving |
//! | [`cores`] | how many runs share the cores of a model |
//! | `scheduler` | a batcher with the cost of its model |
//! | [`profile`] | what executions of one model cost; the only place that learns it |
//! | `wait` | when to wait for more requests, from measured arrivals and durations |
//! | `clients` | whether further requests can be expected while a batch runs |
//! | `strict` | Triton's literal timer (3.2 steps 1–4) |
//! | [`rate`] | the rate limiter, over all models: which instances may execute (S-35) |
//! | [`sequence`] | the sequence batcher (§5) |

mod batcher;
mod clients;
mod config;
pub mod cores;
mod form;
pub mod padding;
pub mod profile;
mod queue;
pub mod rate;
mod scheduler;
pub mod sequence;
mod step;
mod strict;
mod wait;

pub use config::{Config, Dynamic, Policy, TimeoutAction};
pub use scheduler::Scheduler;
pub use step::{Batch, Cause, NextBatch, PushError, RemovalReason};

/// A request, as the scheduler sees it.
pub trait Waiting {
    /// Rows of batch arithmetic: at least 1, also for models without a batch dimension.
    fn rows(&self) -> u32;

    /// True from the moment the request is cancelled. Called for every request a batch might take: one atomic load.
    fn is_cancelled(&self) -> bool;

    /// True if this request may share a batch that `first` opened (S-12).
    fn fits_with(&self, first: &Self) -> bool;

    /// False while it is not known yet whether this request may join the batch that forms before it, which waits for
    /// that, also beyond its delay. The caller steps again when it is known.
    fn is_decided(&self) -> bool {
        true
    }

    /// Hash of shapes without the batch dimension. Requests of equal class cost the same for the same number of rows.
    fn class(&self) -> u64;

    /// Tokens of a text ([`Config::tokens_max`]); 0 for other requests.
    fn tokens(&self) -> u32 {
        0
    }

    /// Number of texts before this one in its request.
    fn place_in_request(&self) -> u32 {
        0
    }
}
