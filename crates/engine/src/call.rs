//! Calls of a version: who makes them, and how they started.

use crate::ticket::Ticket;
use protocol::InferResponse;
use tensor::Result;

/// Result of an accepted request.
pub enum Started {
    /// The request ran on the calling thread; the sink was not used.
    Answered(Result<Box<InferResponse>>),
    /// The request waits, or runs on another thread.
    Queued(Ticket),
}

/// The origin of a call.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'t> {
    /// The request that the call is part of.
    pub(crate) parent: Option<&'t Ticket>,
    /// Nothing runs inline after this time: many cheap steps of an ensemble must not hold the thread together.
    pub(crate) inline_until: u64,
    /// Number of ensembles around the call.
    pub(crate) depth: u32,
    /// Set for a text of a request that was divided.
    pub(crate) text: Option<TextPart>,
}

/// A text of a request that was divided (`texts`).
#[derive(Clone, Copy)]
pub(crate) struct TextPart {
    /// Length of the text.
    pub(crate) tokens: u32,
    /// Number of texts before it in the request.
    pub(crate) place: u32,
}
