//! Codec of frames. Pure. Whatever a runner sends, a read never panics, allocates at most in proportion to the length
//! of the frame, and accesses only the frame.

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
pub use reader::ProtocolError;
pub(crate) use tensor::check_strings;
pub use tensor::{Block, Contents, Lent, TensorRef, lease_of};
