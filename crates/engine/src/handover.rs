//! Passes one value from any thread to the task that waits for it.
//!
//! Invariant: a task that found no value is woken once, after the value is there; never if no value comes.

use crate::mail::Mailbox;
use backend::sync::Mutex;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Shared by both ends.
pub struct HandOver<T> {
    state: Mutex<Handed<T>>,
    /// Mailbox of the waiting task's thread.
    mailbox: Option<Arc<Mailbox>>,
}

enum Handed<T> {
    /// No value yet; the waker of the task, once it polled.
    Awaited(Option<Waker>),
    Here(T),
    Taken,
}

impl<T> HandOver<T> {
    /// Creates one for a task of this thread.
    pub fn to_this_thread() -> Self {
        Self { state: Mutex::new(Handed::Awaited(None)), mailbox: Mailbox::mine() }
    }

    /// Sets the value. Later values are dropped.
    pub fn give(&self, value: T) {
        let mut state = self.state.lock();
        let Handed::Awaited(waker) = &mut *state else { return };
        let waker = waker.take();
        *state = Handed::Here(value);
        // Dropped first, because the woken task locks it.
        drop(state);
        match (waker, &self.mailbox) {
            (Some(waker), Some(mailbox)) => mailbox.post(waker),
            (Some(waker), None) => waker.wake(),
            (None, _) => {}
        }
    }

    /// Takes the value; `None` if it was taken before.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.state.lock();
        if let Handed::Awaited(waker) = &mut *state {
            match waker {
                Some(known) => known.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, Handed::Taken) {
            Handed::Here(value) => Poll::Ready(Some(value)),
            _ => Poll::Ready(None),
        }
    }
}
