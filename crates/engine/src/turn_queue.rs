//! Collects cheap requests that arrive together, and runs them as one batch.
//!
//! A reactor that wakes up finds the requests of many connections at once. If each ran when it is parsed, a cheap model
//! would never batch; so a model that batches collects them until everything that was ready has been parsed, and runs
//! them then, still without waking another thread. Nothing is delayed: the turn ends when nothing else is ready.
//!
//! Threads without turns (the JavaScript thread, tests) run cheap requests at once.
//!
//! The work started at the end of a turn is limited (`delivery_scope`): remaining versions wait for the next end, and
//! flows of ensembles go to pool threads.
//!
//! Invariant: a version in `waiting` has requests in its queue, or another thread took them; `end` visits each once.

use crate::delivery_scope::{self, DeliveryScope};
use crate::version::ModelVersion;
use backend::now_ns;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

struct TurnQueue {
    waiting: Vec<Arc<ModelVersion>>,
    wake: Box<dyn Fn()>,
}

thread_local! {
    static TURN: RefCell<Option<TurnQueue>> = const { RefCell::new(None) };
}

/// Gives this thread turns. `wake` is called on the first request of a turn. Call [`end_turn`] after all other ready
/// work.
pub fn begin_turns(wake: impl Fn() + 'static) {
    TURN.with_borrow_mut(|t| *t = Some(TurnQueue { waiting: Vec::new(), wake: Box::new(wake) }));
    delivery_scope::thread_has_turns();
}

/// Adds a version with requests to run at the end of this turn.
pub(crate) fn join(version: Arc<ModelVersion>) {
    join_at(usize::MAX, version);
}

fn join_at(place: usize, version: Arc<ModelVersion>) {
    TURN.with_borrow_mut(|t| {
        let Some(turn) = t else { return };
        if turn.waiting.iter().any(|v| Arc::ptr_eq(v, &version)) {
            return;
        }
        turn.waiting.insert(place.min(turn.waiting.len()), version);
        if turn.waiting.len() == 1 {
            (turn.wake)();
        }
    });
}

/// Ends the turn: runs its requests, inline if they are cheap even as a batch, otherwise on the pool. What is left
/// after the end of the scope's time waits for the end of another turn, which is requested.
pub fn end_turn() {
    // Taken first, because a batch may start requests of the next turn.
    let waiting = TURN.with_borrow_mut(|t| t.as_mut().map(|t| std::mem::take(&mut t.waiting)).unwrap_or_default());
    let _scope = DeliveryScope::begin();
    // Before the first batch, so that its time counts for the flows that its responses drive.
    let until = delivery_scope::ends(now_ns());
    let mut waiting = waiting.into_iter();
    while let Some(version) = waiting.next() {
        // Other versions wait for this turn, too.
        let _ = catch_unwind(AssertUnwindSafe(|| version.end_turn()));
        if waiting.len() > 0 && now_ns() >= until {
            break;
        }
    }
    // They come first in the next turn.
    waiting.rev().for_each(|version| join_at(0, version));
}
