//! Synchronisation primitives of cancellation, the thread pool and the hand-over of responses: parking_lot and std.
//! With the feature `loom` they are loom's, so that crates/engine/tests/loom.rs can test every interleaving. This is a
//! feature because loom's own cfg changes other crates, too.

use std::time::Duration;

#[cfg(not(feature = "loom"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "loom"))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

#[cfg(feature = "loom")]
pub use loom::sync::MutexGuard;
#[cfg(feature = "loom")]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Starts a detached thread that serves requests.
///
/// # Errors
/// The operating system cannot start a thread.
#[cfg(not(feature = "loom"))]
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    memory::serving::spawn(name, work).map(drop)
}

/// Starts a detached thread. loom's run ends after the thread.
///
/// # Errors
/// Never: loom starts every thread.
#[cfg(feature = "loom")]
pub fn spawn(_name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    drop(loom::thread::spawn(work));
    Ok(())
}

/// Waits for a notification. Returns true on timeout.
#[cfg(not(feature = "loom"))]
pub fn wait_for<'m, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'m, T>,
    longest: Duration,
) -> (MutexGuard<'m, T>, bool) {
    let timed_out = condvar.wait_for(&mut guard, longest).timed_out();
    (guard, timed_out)
}

/// Waits for a notification. True once `expire` was called, for any waiter: more cases than a real clock allows.
#[cfg(feature = "loom")]
pub fn wait_for<'m, T>(condvar: &Condvar, guard: MutexGuard<'m, T>, _: Duration) -> (MutexGuard<'m, T>, bool) {
    let guard = condvar.waiters.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
    (guard, condvar.expired.load(Ordering::Relaxed))
}

/// loom's condition variable, with a clock that the test advances.
#[cfg(feature = "loom")]
#[derive(Default)]
pub struct Condvar {
    waiters: loom::sync::Condvar,
    expired: AtomicBool,
}

#[cfg(feature = "loom")]
impl Condvar {
    /// A condition variable without waiters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.waiters.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.waiters.notify_all();
    }

    /// Lets all waits time out, now and from now on.
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
    /// A mutex that contains `value`.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Blocks until it has the lock.
    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
