//! Free memory inside malloc. glibc returns only the top of a heap to the system, so bursts of small pieces stay.

#![allow(unsafe_code)] // malloc_trim, mallopt

/// Blocks of malloc from this size on are mappings of their own and return to the system when freed. glibc raises its
/// limit, half of this, to up to 32 MiB once a large block is freed; then the weights of models lie in heaps.
#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
const MAPPED_BYTES_MIN: libc::c_int = 256 << 10;

/// Free bytes to keep at the top of a heap. With the size above fixed, glibc would keep 128 KiB and allocate the
/// buffers of each request from the kernel again.
#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
const TOP_BYTES_KEPT: libc::c_int = 4 << 20;

/// Fixes which blocks of malloc are mappings of their own. For libraries that load weights with malloc: a model that
/// was loaded, unloaded and loaded again took 1.4 times its memory, and a third of it stayed after it was unloaded.
pub fn map_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: takes no pointers and locks what it changes; failures leave the settings as they were.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TOP_BYTES_KEPT);
    }
}

/// Returns free pages of malloc's heaps to the system. Takes a millisecond per few megabytes and may block allocations
/// of other threads: not for a serving thread.
pub(crate) fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: takes no pointer, locks what it looks at, and touches only memory that malloc knows to be free.
    unsafe {
        libc::malloc_trim(0);
    }
}
