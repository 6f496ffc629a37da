//! Locks pages of existing mappings, so that devices can access them directly: regions of clients, which would
//! otherwise be copied to locked memory first.
//!
//! Locked pages cannot be swapped out, so their total is limited. A failure costs only speed.

#![allow(unsafe_code)] // vouches for a mapping

use crate::driver::{Driver, driver};
use crate::pool::HOST_DEVICE;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// Default limit of locked bytes.
pub const LOCKED_BYTES_DEFAULT: usize = 1 << 30;

/// Locked memory of the process.
struct Use {
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
    has_warned: AtomicBool,
}

static USE: Use = Use {
    bytes: AtomicUsize::new(0),
    bytes_max: AtomicUsize::new(LOCKED_BYTES_DEFAULT),
    has_warned: AtomicBool::new(false),
};

/// Sets the limit of locked bytes; pages that are locked stay so. 0 locks none.
pub fn lock_at_most(bytes: usize) {
    USE.bytes_max.store(bytes, Relaxed);
}

/// Locked bytes, and their limit.
pub fn locked_bytes() -> (usize, usize) {
    (USE.bytes.load(Relaxed), USE.bytes_max.load(Relaxed))
}

/// A mapping whose pages are locked until this is dropped.
pub struct Locked {
    driver: &'static Driver,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the address is only stored, to be passed back to the driver.
unsafe impl Send for Locked {}
// SAFETY: as above.
unsafe impl Sync for Locked {}

impl Locked {
    /// Locks a mapping. `None` without a device, beyond the limit, or if the driver fails, which is logged once.
    ///
    /// # Safety
    /// `len` bytes at `start` are mapped, and stay so until the returned value is dropped.
    pub unsafe fn new(start: NonNull<u8>, len: usize) -> Option<Self> {
        let most = USE.bytes_max.load(Relaxed);
        if most == 0 || len == 0 {
            return None;
        }
        let driver = driver().ok()?;
        let room = USE.bytes.fetch_update(SeqCst, SeqCst, |used| used.checked_add(len).filter(|&sum| sum <= most));
        if room.is_err() {
            log_once(&format!("the limit of {most} locked bytes leaves no room for {len}"));
            return None;
        }
        // SAFETY: by contract.
        match unsafe { driver.lock(HOST_DEVICE, start, len) } {
            Ok(()) => Some(Self { driver, start, len }),
            Err(e) => {
                USE.bytes.fetch_sub(len, SeqCst);
                log_once(e.message());
                None
            }
        }
    }
}

fn log_once(why: &str) {
    if !USE.has_warned.swap(true, Relaxed) {
        log::info!("a region of shared memory is not page-locked, so its copies to devices are slower: {why}");
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Err(e) = self.driver.unlock(HOST_DEVICE, self.start) {
            log::warn!("a region of shared memory stays page-locked: {}", e.message());
        }
        USE.bytes.fetch_sub(self.len, SeqCst);
    }
}
