//! Parts of bodies that are read into memory of the caller's choice.

use crate::frame::Reason;
use bytes::{Buf, Bytes};
use std::task::{Context, Poll};

/// Where a part of a body is collected whose length is known: memory of the caller's choice, which bytes are read into as they come.
pub trait Collect {
    /// Where the next bytes go: as much as there is room for now, and no more than is missing. What was written there and not
    /// `filled` stays until the next write.
    fn spare(&mut self) -> &mut [u8];
    /// Asked for when `spare` is empty though bytes are missing: ready with true when it is no longer, with false when it will not be,
    /// and the body is given up.
    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(true)
    }
    /// `n` bytes were written to the front of `spare`.
    fn filled(&mut self, n: usize);
    /// Bytes still to come.
    fn missing(&self) -> usize;
    /// What was collected.
    fn into_bytes(self: Box<Self>) -> Bytes;
}

/// Moves the beginning of a piece to where it is collected, at most so many bytes; how many that were.
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

/// Why there is no collected part of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotCollected {
    /// The place had no room, and was not to have any.
    NoRoom {
        /// Bytes of it that did not come yet, or were not looked at.
        missing: usize,
    },
    /// The stream, or its connection, ended before.
    Ended(Reason),
}

/// The stream is over, or was ended by an earlier call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// How far the collection of a part of a body is.
pub enum Collected {
    /// It ended; nothing came of it when the body ended before.
    Over(Option<Result<Bytes, NotCollected>>),
    /// Its bytes are still to come.
    Waits,
    /// More of them are here, for another turn.
    HasMore,
}
