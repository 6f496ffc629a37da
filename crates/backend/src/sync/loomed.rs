//! loom's primitives, for the tests of every interleaving.

pub use loom::sync::MutexGuard;
pub use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Starts a detached thread. loom's run ends after the thread.
///
/// # Errors
/// Never: loom starts every thread.
pub fn spawn(_name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    drop(loom::thread::spawn(work));
    Ok(())
}

/// Waits for a notification. True once `expire` was called, for any waiter: more cases than a real clock allows.
pub fn wait_for<'m, T>(condvar: &Condvar, guard: MutexGuard<'m, T>, _: Duration) -> (MutexGuard<'m, T>, bool) {
    let guard = condvar.waiters.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
    (guard, condvar.expired.load(Ordering::Relaxed))
}

/// loom's condition variable, with a clock that the test advances.
#[derive(Default)]
pub struct Condvar {
    waiters: loom::sync::Condvar,
    expired: AtomicBool,
}

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
#[derive(Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

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
