//! Stretches: work of one thread that delivers responses of many requests, such as the end of a reactor's turn.
//!
//! In a stretch, a reactor drives ensembles for a limited time ([`TURN_END_NS_MAX`]), and passes flows that are not
//! over to pool threads together, at its end.

use crate::limits::TURN_END_NS_MAX;
use std::cell::Cell;

#[derive(Clone, Copy)]
enum Stretch {
    /// The thread has no turns, and no stretches.
    Never,
    /// The thread is in no stretch.
    None,
    /// The end of the time is not decided yet.
    Begun,
    /// End of the time, in `now_ns` time.
    Until(u64),
}

thread_local! {
    static STRETCH: Cell<Stretch> = const { Cell::new(Stretch::Never) };
    static AT_END: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// The stretch that this value began, unless it is nested in another.
pub(crate) struct InStretch {
    is_outermost: bool,
}

impl InStretch {
    /// Begins a stretch on a thread with turns. Does not read a clock.
    pub(crate) fn begin() -> Self {
        let is_outermost = matches!(STRETCH.get(), Stretch::None);
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
            if let Some(at_end) = AT_END.take() {
                at_end();
            }
        }
    }
}

/// Called when this thread gets turns.
pub(crate) fn thread_has_turns() {
    STRETCH.set(Stretch::None);
}

/// True if this thread has turns.
pub(crate) fn has_turns() -> bool {
    !matches!(STRETCH.get(), Stretch::Never)
}

/// Calls `f` at the end of the stretch that this thread is in. Returns false if it is in none. A stretch has one `f`.
pub(crate) fn at_end(f: fn()) -> bool {
    let is_in_stretch = matches!(STRETCH.get(), Stretch::Begun | Stretch::Until(_));
    if is_in_stretch {
        AT_END.set(Some(f));
    }
    is_in_stretch
}

/// End of the time for ensembles on this thread; the first call starts it.
pub(crate) fn ends(now: u64) -> u64 {
    match STRETCH.get() {
        Stretch::Never | Stretch::None => u64::MAX,
        Stretch::Until(end) => end,
        Stretch::Begun => {
            let end = now.saturating_add(TURN_END_NS_MAX);
            STRETCH.set(Stretch::Until(end));
            end
        }
    }
}
