//! Frames, as bytes and as values. Pure. Nothing a runner writes makes a read panic, allocate more than a frame's own length explains, or reach outside.

mod read;
mod reader;
mod tensor;
#[cfg(test)]
mod vectors;
pub mod write;

pub use read::{AnswerRef, CallRef, FromRunner, LogRef, MetricChange, RequestRef, ResultRef, read, split};
pub use reader::{Ids, Lie};
pub(crate) use tensor::check_strings;
pub use tensor::{Block, Contents, TensorRef};

/// Entry of the fuzz target: frames in a row, as a socket brings them. Whether one of them was right.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) -> bool {
    let (mut rest, mut accepted) = (data, false);
    while let Ok(Some((header, body, after))) = split(rest) {
        rest = after;
        accepted |= read(&header, body).is_ok();
    }
    accepted
}
