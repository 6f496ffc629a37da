//! Keeps address space for the rest of the process where the system limits it (`ulimit -v`, `ulimit -d`).
//!
//! Large buffers depend on lengths that clients announce, and a request without a buffer is rejected. V8, thread stacks
//! and thread-local data end the process if their allocation fails. So large buffers stop before the limit.
//!
//! Without limits this only reads them.

#![allow(unsafe_code)] // getrlimit

use parking_lot::Mutex;

/// Bytes that large buffers leave free: malloc's heap for a new thread takes 64 MiB, and V8 needs some.
pub const RESERVED_BYTES: u64 = 96 << 20;

/// Held while a buffer is taken: the next one sees its size.
static TAKING: Mutex<()> = Mutex::new(());

/// Has `take` allocate `len` bytes if the reserve is left afterwards; else `None`.
pub(crate) fn take<T>(len: usize, take: impl FnOnce() -> Option<T>) -> Option<T> {
    let limits = AddressLimits::now();
    if limits == AddressLimits::NONE {
        return take();
    }
    let _alone = TAKING.lock();
    // Without statistics of the process no buffer is rejected.
    let left = std::fs::read_to_string("/proc/self/statm").ok().and_then(|statm| limits.left(&statm));
    if left.is_some_and(|left| left < RESERVED_BYTES.saturating_add(len as u64)) {
        return None;
    }
    take()
}

/// Like [`take()`], for buffers that `work` allocates.
pub(crate) fn take_with(len: usize, work: &mut dyn FnMut() -> bool) -> bool {
    take(len, || work().then_some(())).is_some()
}

/// Bytes that the process may map, and may map privately writable; `u64::MAX` = no limit.
#[derive(Clone, Copy, PartialEq, Eq)]
struct AddressLimits {
    mapped: u64,
    data: u64,
}

impl AddressLimits {
    const NONE: Self = Self { mapped: u64::MAX, data: u64::MAX };

    /// Read each time: `prlimit` can change them at any time.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn now() -> Self {
        let limit = |which| {
            let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: `limit` is an rlimit of ours that the call fills; a call that fails leaves it without a limit.
            unsafe { libc::getrlimit(which, &raw mut limit) };
            if limit.rlim_cur == libc::RLIM_INFINITY { u64::MAX } else { limit.rlim_cur }
        };
        Self { mapped: limit(libc::RLIMIT_AS), data: limit(libc::RLIMIT_DATA) }
    }

    #[cfg(any(not(target_os = "linux"), miri))]
    fn now() -> Self {
        Self::NONE
    }

    /// Bytes left. `statm` is /proc/self/statm: pages mapped, resident, shared, of code, 0, and of data and stacks.
    fn left(self, statm: &str) -> Option<u64> {
        const PAGE_BYTES: u64 = 4096;
        let bytes = |at| statm.split_ascii_whitespace().nth(at)?.parse::<u64>().ok()?.checked_mul(PAGE_BYTES);
        Some(self.mapped.saturating_sub(bytes(0)?).min(self.data.saturating_sub(bytes(5)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lesser_of_both_limits_applies() {
        let check =
            |mapped, data, left: Option<u64>, statm| assert_eq!(AddressLimits { mapped, data }.left(statm), left);
        let statm = "1000 300 200 50 0 400 0\n";
        check(2000 << 12, u64::MAX, Some(1000 << 12), statm);
        check(2000 << 12, 500 << 12, Some(100 << 12), statm);
        check(999 << 12, u64::MAX, Some(0), statm);
        check(2000 << 12, u64::MAX, None, "");
        check(2000 << 12, u64::MAX, None, "1000 many");
    }
}
