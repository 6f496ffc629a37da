//! Collects cheap requests that arrive together, so that they run as one batch.
//!
//! A reactor that wakes up finds the requests of many connections at once. Running each where it is parsed would never batch a
//! cheap model; so a model that batches keeps them until everything that was ready has been parsed, and runs them then, still
//! without waking another thread. Nothing waits for anything: the end of the turn comes as soon as there is nothing else to do.
//!
//! Threads that have no turns (the JavaScript thread, tests) run cheap requests at once.
//!
//! What the end of a turn sets going is bounded as a whole ([`TURN_END_NS_MAX`]): versions that are left after that have their end in
//! the next turn, and so have flows of ensembles on threads of the pool.
//!
//! Invariant: a version in `waiting` has requests in its queue or had them taken by another thread; `end` visits each once.

use crate::flow;
use crate::limits::TURN_END_NS_MAX;
use crate::version::ModelVersion;
use backend::now_ns;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

struct Turn {
    waiting: Vec<Arc<ModelVersion>>,
    wake: Box<dyn Fn()>,
}

/// A stretch of this thread's work in which answers are handed out to many requests.
#[derive(Clone, Copy)]
enum Stretch {
    None,
    /// How long it may take was not asked yet.
    Begun,
    /// In `now_ns` time.
    Until(u64),
}

thread_local! {
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
    static STRETCH: Cell<Stretch> = const { Cell::new(Stretch::None) };
}

/// The stretch that this value began, if it is not inside another.
pub(crate) struct InStretch {
    is_outermost: bool,
}

impl InStretch {
    /// Begins a stretch, on a thread that has turns. Costs no look at a clock.
    pub(crate) fn begin() -> Self {
        let is_outermost = has_turns() && matches!(STRETCH.get(), Stretch::None);
        if is_outermost {
            STRETCH.set(Stretch::Begun);
        }
        Self { is_outermost }
    }
}

impl Drop for InStretch {
    fn drop(&mut self) {
        if self.is_outermost {
            STRETCH.set(Stretch::None);
            flow::submit_handed_over();
        }
    }
}

/// Whether this thread is in a stretch.
pub(crate) fn in_stretch() -> bool {
    !matches!(STRETCH.get(), Stretch::None)
}

/// When what this thread does for ensembles has to leave it; the first to ask begins the time.
pub(crate) fn stretch_ends(now: u64) -> u64 {
    match STRETCH.get() {
        Stretch::None => u64::MAX,
        Stretch::Until(end) => end,
        Stretch::Begun => {
            let end = now.saturating_add(TURN_END_NS_MAX);
            STRETCH.set(Stretch::Until(end));
            end
        }
    }
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

/// Ends the turn: runs what waits for it, here if it is cheap even as a batch, else on the pool. What is left after
/// [`TURN_END_NS_MAX`] waits for the end of the next turn, which is asked for.
pub fn end_turn() {
    // Taken out first: running a batch may start requests that belong to the next turn.
    let waiting = TURN.with_borrow_mut(|t| t.as_mut().map(|t| std::mem::take(&mut t.waiting)).unwrap_or_default());
    let _stretch = InStretch::begin();
    // Before the first batch runs: what that takes is not left to the flows that its answers drive.
    let until = stretch_ends(now_ns());
    let mut waiting = waiting.into_iter();
    while let Some(version) = waiting.next() {
        // Others wait for this turn, too.
        let _ = catch_unwind(AssertUnwindSafe(|| version.end_turn()));
        if waiting.len() > 0 && now_ns() >= until {
            break;
        }
    }
    // Those of this turn come first in the next one.
    waiting.rev().for_each(|version| join_at(0, version));
}
