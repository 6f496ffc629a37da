//! The synchronisation that cancellation, the thread pool and the hand-over of answers are built on: parking_lot and std. With the feature
//! `loom` it is loom's, and a test tries every interleaving (crates/engine/tests/loom.rs). A feature and not loom's own cfg, because other
//! crates react to that.

use std::time::Duration;

#[cfg(not(feature = "loom"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "loom"))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

#[cfg(feature = "loom")]
pub use loom::sync::MutexGuard;
#[cfg(feature = "loom")]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Starts a thread that serves and that nothing joins.
///
/// # Errors
/// The machine refuses.
#[cfg(not(feature = "loom"))]
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    memory::serving::spawn(name, work).map(drop)
}

/// Starts a thread that nothing joins. The model ends when it has.
///
/// # Errors
/// None.
#[cfg(feature = "loom")]
pub fn spawn(_name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    drop(loom::thread::spawn(work));
    Ok(())
}

/// Waits to be notified. True when that took too long.
#[cfg(not(feature = "loom"))]
pub fn wait_for<'m, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'m, T>,
    longest: Duration,
) -> (MutexGuard<'m, T>, bool) {
    let timed_out = condvar.wait_for(&mut guard, longest).timed_out();
    (guard, timed_out)
}

/// Waits to be notified. True when time has passed, be it that of another who was waiting: more than a real clock may do.
#[cfg(feature = "loom")]
pub fn wait_for<'m, T>(condvar: &Condvar, guard: MutexGuard<'m, T>, _: Duration) -> (MutexGuard<'m, T>, bool) {
    let guard = condvar.waiters.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
    (guard, condvar.expired.load(Ordering::Relaxed))
}

/// loom's condition variable, whose time is passed by the model.
#[cfg(feature = "loom")]
#[derive(Default)]
pub struct Condvar {
    waiters: loom::sync::Condvar,
    expired: AtomicBool,
}

#[cfg(feature = "loom")]
impl Condvar {
    /// One that nothing waits for.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes one.
    pub fn notify_one(&self) {
        self.waiters.notify_one();
    }

    /// Wakes all.
    pub fn notify_all(&self) {
        self.waiters.notify_all();
    }

    /// All that wait have waited for too long, now and from now on.
    pub fn expire(&self) {
        self.expired.store(true, Ordering::Relaxed);
        self.notify_all();
    }
}

/// loom's mutex with parking_lot's `lock`, which has no poisoning.
#[cfg(feature = "loom")]
#[derive(Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

#[cfg(feature = "loom")]
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
