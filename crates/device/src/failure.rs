//! Devices that failed for this process: after some errors the driver answers every call with the same one, until the process ends.
//!
//! Which errors those are is `cuda.h`'s word: "leaves the process in an inconsistent state … the process must be terminated and relaunched".
//! Others, such as memory that is short or a handle that is stale, cost what was asked and nothing else.
//!
//! Invariant: a device that failed stays failed; its first reason is kept.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tensor::Error;

/// Names are those of `CUDA_ERROR_…`.
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

/// Whether the process cannot use the device any more after this error of the driver.
#[must_use]
pub fn is_sticky(code: i32) -> bool {
    STICKY.contains(&code)
}

/// Ordinal and reason of each device that failed.
static FAILED: Mutex<Vec<(u32, Arc<str>)>> = Mutex::new(Vec::new());
/// How many those are: what asks on every copy takes no lock while there is none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

type Listener = Arc<dyn Fn(u32, &str) + Send + Sync>;
static LISTENERS: Mutex<Vec<(u64, Listener)>> = Mutex::new(Vec::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Somebody who is told of devices that fail, until this is dropped. One that is being told at that moment hears to the end.
#[must_use = "dropped, nobody is told"]
#[derive(Debug)]
pub struct Listening(u64);

impl Drop for Listening {
    fn drop(&mut self) {
        let mut all = LISTENERS.lock();
        let gone = all.iter().position(|(id, _)| *id == self.0).map(|at| all.remove(at));
        drop(all);
        // What it owns may want any lock.
        drop(gone);
    }
}

/// Why the device cannot be used any more; `None` while it can.
#[must_use]
pub fn failed(device: u32) -> Option<Arc<str>> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    FAILED.lock().iter().find(|(failed, _)| *failed == device).map(|(_, why)| Arc::clone(why))
}

/// How many devices failed.
#[must_use]
pub fn failures() -> usize {
    COUNT.load(Ordering::Acquire)
}

/// What is told to whoever needs a device that failed.
///
/// # Errors
/// UNAVAILABLE with the reason; nothing while the device can be used.
pub fn check(device: u32) -> Result<(), Error> {
    match failed(device) {
        None => Ok(()),
        Some(why) => Err(lost(device, &why)),
    }
}

/// UNAVAILABLE, with the reason.
#[must_use]
pub fn lost(device: u32, why: &str) -> Error {
    Error::unavailable(format!("GPU {device} failed: {why}; it cannot be used until the server is started again"))
}

/// Notes that a device failed, with what the driver said. For libraries that call the driver themselves, too; once for each device.
///
/// Listeners are told by a thread of their own: this may be called under any lock.
pub fn report(device: u32, why: &str) {
    let mut all = FAILED.lock();
    if all.iter().any(|(failed, _)| *failed == device) {
        return;
    }
    let why: Arc<str> = why.into();
    all.push((device, Arc::clone(&why)));
    COUNT.store(all.len(), Ordering::Release);
    drop(all);
    log::error!("GPU {device} failed: {why}. No context of this process on it can be used any more");
    let listeners: Vec<Listener> = LISTENERS.lock().iter().map(|(_, listener)| Arc::clone(listener)).collect();
    if listeners.is_empty() {
        return;
    }
    let tell = move || listeners.iter().for_each(|listener| listener(device, &why));
    if let Err(e) = std::thread::Builder::new().name("nereid-gpu-failed".into()).spawn(tell) {
        log::error!("nobody is told that GPU {device} failed: {e}");
    }
}

/// Has `listener` told of each device that fails, with its reason, until what it returns is dropped; also of those that did before.
pub fn on_failure(listener: impl Fn(u32, &str) + Send + Sync + 'static) -> Listening {
    let (listener, id): (Listener, _) = (Arc::new(listener), NEXT.fetch_add(1, Ordering::Relaxed));
    // Under the lock, so that no failure falls between.
    let failed = FAILED.lock();
    LISTENERS.lock().push((id, Arc::clone(&listener)));
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
