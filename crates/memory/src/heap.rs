//! Free memory inside malloc. glibc gives back the top of a heap only: what a burst of small pieces left below stays resident.

#![allow(unsafe_code)] // malloc_trim

/// Gives free pages of malloc's heaps back to the system. Takes a millisecond per few megabytes, and other threads that allocate
/// meanwhile may wait for it: not for a thread that serves.
pub(crate) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: takes no pointer, locks what it looks at, and touches only memory that malloc knows to be free.
    unsafe {
        libc::malloc_trim(0);
    }
}
