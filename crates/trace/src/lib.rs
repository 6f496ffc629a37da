//! Traces: which requests are traced, what is noted of them, and the queue by which their records leave (O 3.3 to O 3.6).
//!
//! A request that is sampled gets a [`Trace`]: a handle that travels with it, is cloned by each part that notes something, and makes
//! children for the calls that are made for it. When the last handle of a request is dropped its [`Record`] is complete and goes into
//! the queue of the [`Tracer`]; so whatever fails, panics or leaves, each sampled request that was accepted makes one record. Time is an
//! argument: nothing here looks at a clock, and nothing waits.
//!
//! While no setting samples anything a request costs one look at a flag of its model ([`Watch::is_on`]).

mod activity;
mod context;
mod handle;
mod ids;
pub mod limits;
mod phases;
mod queue;
mod record;
mod sampler;
mod setting;
mod text;
mod tracer;
mod watch;

pub use activity::Activity;
pub use context::Context;
pub use handle::Trace;
pub use phases::{Measured, Phases};
pub use queue::Taken;
pub use record::{Call, Kind, Record, Stamp, Tensor};
pub use setting::{Mode, Setting};
pub use tracer::{Measuring, Tracer, is_any_on};
pub use watch::Watch;
