//! Free memory inside malloc. glibc gives back the top of a heap only: what a burst of small pieces left below stays resident.

#![allow(unsafe_code)] // malloc_trim, mallopt

/// Blocks of malloc from this size on are mappings of their own, and go back to the system when they are freed. glibc begins with
/// half of it, but goes up to 32 MiB by itself as soon as a large block was freed: from then on the weights of models lie in heaps,
/// between other things.
#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
const MAPPED_BYTES_MIN: libc::c_int = 256 << 10;

/// Free bytes at the top of a heap that are kept. With the size above fixed, glibc would keep 128 KiB, and ask the kernel for the
/// buffers of a request again each time.
#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
const TOP_BYTES_KEPT: libc::c_int = 4 << 20;

/// Fixes which blocks of malloc are mappings of their own. For libraries that load weights with malloc: a model that was loaded,
/// unloaded and loaded again took 1.4 times its memory, and a third of it stayed after it was unloaded.
pub fn map_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: takes no pointers and locks what it changes; refusals leave things as they were.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TOP_BYTES_KEPT);
    }
}

/// Gives free pages of malloc's heaps back to the system. Takes a millisecond per few megabytes, and other threads that allocate
/// meanwhile may wait for it: not for a thread that serves.
pub(crate) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: takes no pointer, locks what it looks at, and touches only memory that malloc knows to be free.
    unsafe {
        libc::malloc_trim(0);
    }
}
