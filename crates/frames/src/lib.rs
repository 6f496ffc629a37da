//! Codec of frames. Pure. Whatever a runner sends, a read never panics, allocates at most in proportion to the length
//! of the frame, and accesses only the frame.
//!
//! `read` decodes what a runner sends, `requests` what the server sends to a runner; `write` encodes both. `cache` has
//! the messages of the process of a response cache.

pub mod arena;
pub mod cache;
// All numbers of the protocol are generated, used or not.
#[allow(dead_code)]
pub mod generated;
mod id;
mod read;
mod reader;
mod requests;
mod tensor;
#[cfg(test)]
mod vectors;
pub mod write;

pub use id::InstanceId;
pub use read::{
    AnswerRef, CallRef, FromRunner, LogRef, MetricChange, RequestRef, ResultRef, other_version, read, split,
};
pub use reader::{Ids, ProtocolError};
pub use requests::{ExecuteRef, ToRunner, is_ready_result, read_request, split_request};
pub use tensor::{Block, Contents, Lent, TensorRef, check_strings, lease_of};
