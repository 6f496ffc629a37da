//! Wakers of waiting tasks.

use std::task::{Context, Waker};

/// Registers the task to be woken; does not touch the reference count of a waker that is registered already.
pub fn register(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        _ => *place = Some(cx.waker().clone()),
    }
}

/// Wakes the registered task, if any.
pub fn wake(place: &mut Option<Waker>) {
    if let Some(waker) = place.take() {
        waker.wake();
    }
}
