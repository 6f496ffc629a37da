//! Samples requests, records their activities and tensors, and queues the records (O 3.3 to O 3.6).
//!
//! A sampled request has a [`Trace`], a handle that each part of the server clones to add activities, with children for
//! the calls that are made for the request. When the last handle is dropped, the [`Record`] is complete and enters the
//! queue of the [`Tracer`]; so every sampled request that was accepted makes one record, even if something fails or
//! panics. Times are arguments: this crate reads no clock and never waits.
//!
//! While no setting samples, a request only reads one flag of its model ([`Watch::is_on`]).

mod activity;
mod context;
mod handle;
mod ids;
pub mod limits;
mod phases;
mod queue;
mod record;
mod sampler;
mod text;
mod tracer;
mod watch;

pub use activity::Activity;
pub use context::Context;
pub use handle::Trace;
pub use options::{TraceMode, TraceSetting};
pub use phases::{Behind, Measured, Phases};
pub use queue::Taken;
pub use record::{Call, Record, RecordedTensor, Stamp, TensorSide};
pub use tracer::{Measuring, Tracer, is_any_on};
pub use watch::Watch;
