//! Tasks that wait.

use std::task::{Context, Waker};

/// Registers the task to be woken, without touching the count of a waker that is registered already.
pub fn register(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        _ => *place = Some(cx.waker().clone()),
    }
}

/// Wakes the task that waits there, if one does.
pub fn wake(place: &mut Option<Waker>) {
    if let Some(waker) = place.take() {
        waker.wake();
    }
}
