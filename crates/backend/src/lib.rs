//! The interface between the engine and a backend, and the batch that the engine passes to it.
//!
//! A backend runs batches and does not know about queues, statistics, transports or versions. The engine calls it on
//! any thread, at most `instance count` calls at a time for one model; `execute` may block on the model only. Each
//! request gets one response, in its batch entry; a decoupled model may take the entry's `Responder` and respond any
//! number of times, also later. A model whose batches end after `execute` takes the instance, too ([`Occupied`]).

pub mod copy;
pub mod gather;
pub mod helpers;
mod host;
mod instance;
pub mod metrics;
mod needs;
mod outcome;
mod placement;
pub mod plan;
pub mod poll;
mod respond;
mod run;
pub mod scatter;
pub mod sync;
#[cfg(test)]
mod testing;
mod text;

pub use host::{
    Call, CallAnswers, CallableModel, ControlAnswer, Host, ModelCall, ModelControl, ModelOperation, OpenCall,
    OpenCalls, RepositoriesChange, ServerReport,
};
pub use instance::{
    InstanceEvents, InstanceEventsRef, InstanceOffer, NoInstanceEvents, Occupancy, Occupied, Readiness, ReadyAnswer,
};
pub use memory::{MemoryLocation, Need};
pub use needs::file_bytes;
pub use placement::{Placement, all_placements, placements};
pub use respond::{Answers, Counted, Reported, ReportedEnd, ReportedTimes, RequestId, Responder, Stopped};
pub use run::*;
pub use tensor::reshape as shape;
pub use text::{Division, PreparedText, TextModel};
