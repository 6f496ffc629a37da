//! A call of a version: for whom it is made, and what became of it.

use crate::ticket::Ticket;
use protocol::InferResponse;
use tensor::Result;

/// What became of a request that was not refused.
pub enum Started {
    /// It ran at once on the calling thread; its sink was not asked for.
    Answered(Result<Box<InferResponse>>),
    /// It waits or runs elsewhere.
    Queued(Ticket),
}

/// For whom a call is made.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'t> {
    /// The request it is part of.
    pub(crate) parent: Option<&'t Ticket>,
    /// From then on nothing runs on this thread: many cheap steps of an ensemble must not hold it together.
    pub(crate) inline_until: u64,
    /// Ensembles it lies in.
    pub(crate) depth: u32,
}
