//! Synchronisation primitives of cancellation, the thread pool and the hand-over of responses: parking_lot and std.
//! With the feature `loom` they are loom's, so that crates/engine/tests/loom.rs can test every interleaving. This is a
//! feature because loom's own cfg changes other crates, too.

#[cfg(not(feature = "loom"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "loom"))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

#[cfg(feature = "loom")]
mod loomed;
#[cfg(feature = "loom")]
pub use loomed::{AtomicBool, AtomicU32, Condvar, Mutex, MutexGuard, Ordering, spawn, wait_for};

/// Starts a detached thread that serves requests.
///
/// # Errors
/// The operating system cannot start a thread.
#[cfg(not(feature = "loom"))]
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    memory::serving::spawn(name, work).map(drop)
}

/// Waits for a notification. Returns true on timeout.
#[cfg(not(feature = "loom"))]
pub fn wait_for<'m, T>(
    condvar: &Condvar,
    mut guard: MutexGuard<'m, T>,
    longest: std::time::Duration,
) -> (MutexGuard<'m, T>, bool) {
    let timed_out = condvar.wait_for(&mut guard, longest).timed_out();
    (guard, timed_out)
}
