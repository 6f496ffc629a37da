//! Hands one value from whatever thread has it to the task that waits for it.
//!
//! Invariant: the task that found nothing is woken after the value is there, once; or never if no value comes.

use crate::mail::Mailbox;
use backend::sync::Mutex;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Both ends of it: share it between the two.
pub struct HandOver<T> {
    state: Mutex<State<T>>,
    /// Of the thread whose task waits.
    mailbox: Option<Arc<Mailbox>>,
}

enum State<T> {
    /// It has not come; the task that waits for it, once it has asked.
    Awaited(Option<Waker>),
    Here(T),
    Taken,
}

impl<T> HandOver<T> {
    /// For a task of this thread.
    pub fn to_this_thread() -> Self {
        Self { state: Mutex::new(State::Awaited(None)), mailbox: Mailbox::mine() }
    }

    /// Gives the value. The first is the one; others are dropped.
    pub fn give(&self, value: T) {
        let mut state = self.state.lock();
        let State::Awaited(waker) = &mut *state else { return };
        let waker = waker.take();
        *state = State::Here(value);
        // The task would wait for the lock.
        drop(state);
        match (waker, &self.mailbox) {
            (Some(waker), Some(mailbox)) => mailbox.post(waker),
            (Some(waker), None) => waker.wake(),
            (None, _) => {}
        }
    }

    /// Takes the value; `None` when it was taken before.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.state.lock();
        if let State::Awaited(waker) = &mut *state {
            match waker {
                Some(known) => known.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Here(value) => Poll::Ready(Some(value)),
            _ => Poll::Ready(None),
        }
    }
}
