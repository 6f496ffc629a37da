//! Reads parts of bodies into memory of the caller's choice.

use crate::frame::Reason;
use bytes::{Buf, Bytes};
use std::task::{Context, Poll};

/// Target of a part of a body of known length: memory of the caller's choice that bytes are read into.
pub trait Collect {
    /// Memory for the next bytes: as much as there is room for now, at most `missing`. Bytes that were written but not
    /// `filled` stay until the next write.
    fn spare(&mut self) -> &mut [u8];
    /// Called if `spare` is empty although bytes are missing. Ready with true once there is room, with false if there
    /// will be none; then the body is dropped.
    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(true)
    }
    /// Counts `n` bytes that were written to the front of `spare`.
    fn filled(&mut self, n: usize);
    /// Bytes still to come.
    fn missing(&self) -> usize;
    /// The collected bytes.
    fn into_bytes(self: Box<Self>) -> Bytes;
}

/// Moves at most `most` bytes from the front of a piece into the target; returns their number.
pub(crate) fn fill(target: &mut dyn Collect, piece: &mut Bytes, most: usize) -> usize {
    let spare = target.spare();
    let n = spare.len().min(piece.len()).min(most);
    if let (Some(to), Some(from)) = (spare.get_mut(..n), piece.get(..n)) {
        to.copy_from_slice(from);
    }
    target.filled(n);
    piece.advance(n);
    n
}

/// Why a part of a body was not collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotCollected {
    /// The target has no room and will not get any.
    NoRoom {
        /// Bytes that did not come yet or were not processed.
        missing: usize,
    },
    /// The stream or its connection ended before.
    Ended(Reason),
}

/// The stream is over, or was ended by an earlier call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// Progress of collecting a part of a body.
pub enum Collected {
    /// Finished; `None` if the body ended before.
    Done(Option<Result<Bytes, NotCollected>>),
    /// Bytes are missing.
    Waiting,
    /// More bytes are here, for another turn.
    HasMore,
}
