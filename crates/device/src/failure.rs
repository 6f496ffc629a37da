//! Devices that failed for this process: after some errors the driver returns the same one for every later call.
//!
//! `cuda.h` documents these errors: "leaves the process in an inconsistent state … the process must be terminated and
//! relaunched". Others, such as a lack of memory or a stale handle, fail only their call.
//!
//! Invariant: a failed device stays failed and keeps its first reason.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tensor::Error;

/// Names without the prefix `CUDA_ERROR_`.
const STICKY: [i32; 15] = [
    214, // ECC_UNCORRECTABLE
    220, // NVLINK_UNCORRECTABLE
    226, // CONTAINED
    700, // ILLEGAL_ADDRESS
    702, // LAUNCH_TIMEOUT
    709, // CONTEXT_IS_DESTROYED: by a library in this process; the primary context is ours as well
    710, // ASSERT
    714, // HARDWARE_STACK_ERROR
    715, // ILLEGAL_INSTRUCTION
    716, // MISALIGNED_ADDRESS
    717, // INVALID_ADDRESS_SPACE
    718, // INVALID_PC
    719, // LAUNCH_FAILED
    721, // TENSOR_MEMORY_LEAK
    999, // UNKNOWN
];

/// CUDA_ERROR_OUT_OF_MEMORY, which passes when others free theirs.
pub const OUT_OF_MEMORY: i32 = 2;

/// Whether the process cannot use the device any more after this error.
#[must_use]
pub fn is_sticky(code: i32) -> bool {
    STICKY.contains(&code)
}

type Listener = Arc<dyn Fn(u32, &str) + Send + Sync>;

/// Failed devices: a context belongs to the process, so they are failed for all of its servers.
struct Failures {
    /// Ordinal and reason.
    devices: Mutex<Vec<(u32, Arc<str>)>>,
    /// Number of them, so that checks on every copy need no lock while it is 0.
    count: AtomicUsize,
    listeners: Mutex<Vec<(u64, Listener)>>,
    next: AtomicU64,
}

static FAILURES: Failures = Failures {
    devices: Mutex::new(Vec::new()),
    count: AtomicUsize::new(0),
    listeners: Mutex::new(Vec::new()),
    next: AtomicU64::new(0),
};

/// A registered listener; dropping it ends the notifications, except one in progress.
#[must_use = "dropping it ends the notifications"]
#[derive(Debug)]
pub struct Listening(u64);

impl Drop for Listening {
    fn drop(&mut self) {
        let mut all = FAILURES.listeners.lock();
        let gone = all.iter().position(|(id, _)| *id == self.0).map(|at| all.remove(at));
        drop(all);
        // Its captured values may take any lock when dropped.
        drop(gone);
    }
}

/// The reason why the device cannot be used any more; `None` while it can.
#[must_use]
pub fn failed(device: u32) -> Option<Arc<str>> {
    if FAILURES.count.load(Ordering::Acquire) == 0 {
        return None;
    }
    FAILURES.devices.lock().iter().find(|(failed, _)| *failed == device).map(|(_, why)| Arc::clone(why))
}

/// Number of failed devices.
#[must_use]
pub fn failures() -> usize {
    FAILURES.count.load(Ordering::Acquire)
}

/// Returns an error for a failed device.
///
/// # Errors
/// UNAVAILABLE with the reason.
pub fn check(device: u32) -> Result<(), Error> {
    match failed(device) {
        None => Ok(()),
        Some(why) => Err(lost(device, &why)),
    }
}

/// The error of a failed device: UNAVAILABLE with the reason.
#[must_use]
pub fn lost(device: u32, why: &str) -> Error {
    Error::environment(format!("GPU {device} failed: {why}; it cannot be used until the server is started again"))
        .retry(false)
}

/// Records the failure of a device with the driver's error, for this and other libraries. Only a device's first counts.
///
/// A separate thread notifies listeners, because this may be called under any lock.
pub fn report(device: u32, why: &str) {
    let mut all = FAILURES.devices.lock();
    if all.iter().any(|(failed, _)| *failed == device) {
        return;
    }
    let why: Arc<str> = why.into();
    all.push((device, Arc::clone(&why)));
    FAILURES.count.store(all.len(), Ordering::Release);
    drop(all);
    log::error!("GPU {device} failed: {why}. No context of this process on it can be used any more");
    let listeners: Vec<Listener> = FAILURES.listeners.lock().iter().map(|(_, listener)| Arc::clone(listener)).collect();
    if listeners.is_empty() {
        return;
    }
    let tell = move || listeners.iter().for_each(|listener| listener(device, &why));
    if let Err(e) = std::thread::Builder::new().name("nereid-gpu-failed".into()).spawn(tell) {
        log::error!("no thread can report that GPU {device} failed: {e}");
    }
}

/// Notifies `listener` of each failed device, past and future, with its reason, until the returned value is dropped.
pub fn on_failure(listener: impl Fn(u32, &str) + Send + Sync + 'static) -> Listening {
    let (listener, id): (Listener, _) = (Arc::new(listener), FAILURES.next.fetch_add(1, Ordering::Relaxed));
    // Under the lock, so that no failure is missed.
    let failed = FAILURES.devices.lock();
    FAILURES.listeners.lock().push((id, Arc::clone(&listener)));
    let before = failed.clone();
    drop(failed);
    before.iter().for_each(|(device, why)| listener(*device, why));
    Listening(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_after_which_a_context_is_lost_are_sticky() {
        for code in [214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719, 999] {
            assert!(is_sticky(code), "{code}");
        }
        for code in [0, 1, 2, 3, 100, 101, 201, 208, 215, 217, 304, 400, 500, 600, 701, 704, 711, 712, 720, 801, 802] {
            assert!(!is_sticky(code), "{code}");
        }
    }
}
