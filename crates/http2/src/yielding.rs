//! Yields to other tasks.

use std::future::Future;
use std::pin::pin;
use std::task::Context;
use tokio::task::yield_now;

/// Has the task of `cx`, which returns `Pending` although it could continue, polled again after others had their turn.
///
/// A task that wakes itself runs up to 61 times (tokio's interval between two polls of the sockets) before a newly
/// ready client is noticed: 18 ms at 300 µs each. This wakes it after the sockets were polled.
pub fn yield_turn(cx: &mut Context<'_>) {
    let _ = pin!(yield_now()).poll(cx);
}
