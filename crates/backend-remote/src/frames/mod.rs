//! Frames, as bytes and as values. Pure. Nothing a runner writes makes a read panic, allocate more than a frame's own length explains, or reach outside.

mod id;
mod read;
mod reader;
mod tensor;
#[cfg(test)]
mod vectors;
pub mod write;

pub use id::InstanceId;
pub use read::{
    AnswerRef, CallRef, FromRunner, LogRef, MetricChange, RequestRef, ResultRef, other_version, read, split,
};
pub use reader::Lie;
pub(crate) use tensor::check_strings;
pub use tensor::{Block, Contents, Lent, TensorRef, lease_of};
