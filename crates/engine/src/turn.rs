//! Collects cheap requests that arrive together, so that they run as one batch.
//!
//! A reactor that wakes up finds the requests of many connections at once. Running each where it is parsed would never batch a
//! cheap model; so a model that batches keeps them until everything that was ready has been parsed, and runs them then, still
//! without waking another thread. Nothing waits for anything: the end of the turn comes as soon as there is nothing else to do.
//!
//! Threads that have no turns (the JavaScript thread, tests) run cheap requests at once.
//!
//! Invariant: a version in `waiting` has requests in its queue or had them taken by another thread; `end` visits each once.

use crate::version::ModelVersion;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

struct Turn {
    waiting: Vec<Arc<ModelVersion>>,
    wake: Box<dyn Fn()>,
}

thread_local! {
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// Gives this thread turns. `wake` is called when a turn got its first request; the thread must then call [`end`] after it has
/// dealt with whatever else was ready at that moment.
pub fn begin_turns(wake: impl Fn() + 'static) {
    TURN.with_borrow_mut(|t| *t = Some(Turn { waiting: Vec::new(), wake: Box::new(wake) }));
}

/// Whether this thread has turns.
pub(crate) fn has_turns() -> bool {
    TURN.with_borrow(Option::is_some)
}

/// The version has requests that are to run at the end of this turn.
pub(crate) fn join(version: Arc<ModelVersion>) {
    TURN.with_borrow_mut(|t| {
        let Some(turn) = t else { return };
        if turn.waiting.iter().any(|v| Arc::ptr_eq(v, &version)) {
            return;
        }
        turn.waiting.push(version);
        if turn.waiting.len() == 1 {
            (turn.wake)();
        }
    });
}

/// Ends the turn: runs what waits for it, here if it is cheap even as a batch, else on the pool.
pub fn end_turn() {
    // Taken out first: running a batch may start requests that belong to the next turn.
    let waiting = TURN.with_borrow_mut(|t| t.as_mut().map(|t| std::mem::take(&mut t.waiting)).unwrap_or_default());
    for version in waiting {
        // Others wait for this turn, too.
        let _ = catch_unwind(AssertUnwindSafe(|| version.end_turn()));
    }
}
