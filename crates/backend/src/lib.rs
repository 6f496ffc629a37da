//! What a framework must offer to serve a model, and the batch it is given.
//!
//! A backend runs batches. It knows nothing of queues, statistics, transports or versions; it is called from whichever thread
//! the engine chose, at most `instance count` calls at a time for one model, and must not block on anything but the model. One answer per request goes into its batch entry; a decoupled model may take the
//! entry's `Responder` instead and answer any number of times, also after the batch. One whose batches end later keeps its instance, too ([`Occupied`]).

pub mod carry;
pub mod gather;
mod host;
mod instance;
pub mod metrics;
mod needs;
pub mod pad;
mod placement;
pub mod plan;
pub mod poll;
mod respond;
mod run;
pub mod scatter;
pub mod sync;
#[cfg(test)]
mod testing;

pub use host::{Call, CallAnswers, ControlAnswer, Host, ModelCall, ModelControl, ModelOperation, OpenCall, OpenCalls};
pub use instance::{Instances, InstancesOf, NoInstances, Occupancy, Occupied, Readiness, ReadyAnswer};
pub use memory::{MemoryLocation, Need};
pub use needs::file_bytes;
pub use placement::{Placement, all_placements, placements};
pub use respond::{Answers, Counted, RequestId, Responder, Stopped};
pub use run::*;
pub use tensor::reshape as shape;
