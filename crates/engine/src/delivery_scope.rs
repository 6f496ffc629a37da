//! Delivery scopes: work of one thread that delivers responses of many requests, such as the end of a reactor's turn.
//!
//! In a scope, a reactor drives ensembles for a limited time ([`TURN_END_NS_MAX`]), and passes flows that are not
//! over to pool threads together, at its end.

use crate::limits::TURN_END_NS_MAX;
use std::cell::Cell;

#[derive(Clone, Copy)]
enum ScopeState {
    /// The thread has no turns, and no scopes.
    Never,
    /// The thread is in no scope.
    None,
    /// The end of the time is not decided yet.
    Begun,
    /// End of the time, in `now_ns` time.
    Until(u64),
}

thread_local! {
    static SCOPE: Cell<ScopeState> = const { Cell::new(ScopeState::Never) };
    static AT_END: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// The scope that this value began, unless it is nested in another.
pub(crate) struct DeliveryScope {
    is_outermost: bool,
}

impl DeliveryScope {
    /// Begins a scope on a thread with turns. Does not read a clock.
    pub(crate) fn begin() -> Self {
        let is_outermost = matches!(SCOPE.get(), ScopeState::None);
        if is_outermost {
            SCOPE.set(ScopeState::Begun);
        }
        Self { is_outermost }
    }
}

impl Drop for DeliveryScope {
    fn drop(&mut self) {
        if self.is_outermost {
            SCOPE.set(ScopeState::None);
            if let Some(at_end) = AT_END.take() {
                at_end();
            }
        }
    }
}

/// Called when this thread gets turns.
pub(crate) fn thread_has_turns() {
    SCOPE.set(ScopeState::None);
}

/// True if this thread has turns.
pub(crate) fn has_turns() -> bool {
    !matches!(SCOPE.get(), ScopeState::Never)
}

/// Calls `f` at the end of the scope that this thread is in. Returns false if it is in none. A scope has one `f`.
pub(crate) fn at_end(f: fn()) -> bool {
    let is_in_scope = matches!(SCOPE.get(), ScopeState::Begun | ScopeState::Until(_));
    if is_in_scope {
        AT_END.set(Some(f));
    }
    is_in_scope
}

/// End of the time for ensembles on this thread; the first call starts it.
pub(crate) fn ends(now: u64) -> u64 {
    match SCOPE.get() {
        ScopeState::Never | ScopeState::None => u64::MAX,
        ScopeState::Until(end) => end,
        ScopeState::Begun => {
            let end = now.saturating_add(TURN_END_NS_MAX);
            SCOPE.set(ScopeState::Until(end));
            end
        }
    }
}
