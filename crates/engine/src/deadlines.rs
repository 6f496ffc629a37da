//! Timeouts of calls.

use crate::ticket::Ticket;
use crate::timer::{Timed, Timer};
use backend::now_ns;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use tensor::Error;

/// Has only calls that are not over, so their limit bounds its size.
pub(crate) struct Deadlines {
    timer: Arc<Timer>,
    pub(crate) state: Mutex<CallDeadlines>,
    me: Weak<Self>,
}

#[derive(Default)]
pub(crate) struct CallDeadlines {
    /// By time and a unique number.
    pub(crate) tickets: BTreeMap<(u64, u64), Ticket>,
    numbers: u64,
    /// Next wake-up of the timer; 0 = none.
    armed: u64,
}

impl Deadlines {
    pub(crate) fn new(timer: Arc<Timer>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self { timer, state: Mutex::default(), me: me.clone() })
    }

    pub(crate) fn add(&self, at: u64, ticket: Ticket) -> (u64, u64) {
        let mut state = self.state.lock();
        state.numbers += 1;
        let key = (at, state.numbers);
        state.tickets.insert(key, ticket);
        self.arm(&mut state);
        key
    }

    pub(crate) fn remove(&self, key: (u64, u64)) {
        self.state.lock().tickets.remove(&key);
    }

    fn arm(&self, state: &mut CallDeadlines) {
        let Some((&(at, _), _)) = state.tickets.first_key_value() else { return };
        if (state.armed == 0 || at < state.armed) && self.timer.arm(at, self.me.clone()) {
            state.armed = at;
        }
    }
}

impl Timed for Deadlines {
    fn wake(&self, at: u64) {
        let mut due = Vec::new();
        let mut state = self.state.lock();
        if state.armed == at {
            state.armed = 0;
        }
        let now = now_ns();
        while let Some(first) = state.tickets.first_entry().filter(|first| first.key().0 <= now) {
            due.push(first.remove());
        }
        self.arm(&mut state);
        drop(state);
        for ticket in due {
            ticket.expire(Error::unavailable("Request timeout expired"));
        }
    }
}
