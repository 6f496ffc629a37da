//! The synchronisation the cancellation path is built on: parking_lot and std, or loom's versions when every interleaving is
//! tried (`RUSTFLAGS="--cfg nereid_loom"`, see crates/engine/tests/loom.rs). A cfg of our own, because other crates react to `loom`.

#[cfg(not(nereid_loom))]
pub use parking_lot::Mutex;
#[cfg(not(nereid_loom))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

#[cfg(nereid_loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// loom's mutex with parking_lot's `lock`, which has no poisoning.
#[cfg(nereid_loom)]
#[derive(Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

#[cfg(nereid_loom)]
impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
