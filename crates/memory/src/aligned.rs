//! Blocks of page-aligned, initialised memory straight from the kernel.
//!
//! Not malloc: its heap would keep freed blocks of a few megabytes, and resident memory would never fall.
//!
//! A large block is only address space: its pages come when first written, or a range at a time with `prepare`. A
//! reactor must not wait for 64 MiB of zeroed pages (15 ms), nor pay for bytes that a client only announced.

#![allow(unsafe_code)] // mmap, madvise, munmap and the two slice views over the block

use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Blocks per process for lengths that clients announce. Half of the kernel's default limit of mappings per process
/// (vm.max_map_count); each block may become a mapping.
pub(crate) const MAPPINGS_MAX: usize = 32_768;
/// Blocks up to this size get their pages at once: at most 60 µs, and such a small block is used whole.
const TOUCHED_BYTES_MAX: usize = 256 << 10;
/// Pages return to the system in pieces of this size, so that other threads that map memory wait less.
#[cfg(all(target_os = "linux", not(miri)))]
const RELEASE_PIECE_BYTES: usize = 4 << 20;

/// Live blocks of the process.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

/// Owned anonymous memory, zeroed when fresh, page-aligned.
pub(crate) struct Block {
    base: NonNull<u8>,
    len: usize,
    /// Pages before this offset were written at some time and are most likely resident.
    touched: usize,
}

// SAFETY: the block is plain memory with one owner; nothing in it is tied to the thread that mapped it.
unsafe impl Send for Block {}
// SAFETY: shared access is read-only, through `Deref`.
unsafe impl Sync for Block {}

impl Block {
    /// Maps `len` bytes (> 0). `None` if the system has no memory or address space.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let touched = len <= TOUCHED_BYTES_MAX;
        #[cfg(all(target_os = "linux", not(miri)))]
        let flags =
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | if touched { libc::MAP_POPULATE } else { libc::MAP_NORESERVE };
        #[cfg(any(not(target_os = "linux"), miri))]
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        #[cfg(all(target_os = "linux", not(miri)))]
        if !touched {
            // With huge pages the first byte of a body would cost 2 MiB, and the step that reads it 0.2 ms more.
            // SAFETY: the range is the mapping just made; the advice does not change its contents, nor does a failure.
            unsafe { libc::madvise(base, len, libc::MADV_NOHUGEPAGE) };
        }
        MAPPINGS.fetch_add(1, Relaxed);
        Some(Self { base: NonNull::new(base.cast())?, len, touched: if touched { len } else { 0 } })
    }

    /// Live blocks of the process.
    pub(crate) fn count() -> usize {
        MAPPINGS.load(Relaxed)
    }

    /// End of the part that may have been written.
    pub(crate) fn touched(&self) -> usize {
        self.touched
    }

    /// Marks the block as written up to `to`.
    pub(crate) fn touch(&mut self, to: usize) {
        self.touched = self.touched.max(to.min(self.len));
    }

    /// Faults in the pages of a range that will be written next: a third of the cost of single faults.
    pub(crate) fn prepare(&mut self, range: Range<usize>) {
        let end = range.end.min(self.len);
        if end <= self.touched {
            return;
        }
        #[cfg(all(target_os = "linux", not(miri)))]
        {
            const PAGE: usize = 4096;
            let from = range.start.max(self.touched) / PAGE * PAGE;
            // SAFETY: `from < end <= len`, within the mapping; populating changes no byte. A kernel without this advice
            // (before 5.14) rejects it, and pages are faulted in one by one.
            unsafe { libc::madvise(self.base.as_ptr().add(from).cast(), end - from, libc::MADV_POPULATE_WRITE) };
        }
        self.touched = end;
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        #[cfg(all(target_os = "linux", not(miri)))]
        {
            let mut at = 0;
            while self.touched > RELEASE_PIECE_BYTES && at < self.touched {
                let n = RELEASE_PIECE_BYTES.min(self.len - at);
                // SAFETY: within the mapping, of which no view is left: views borrow `self`.
                unsafe { libc::madvise(self.base.as_ptr().add(at).cast(), n, libc::MADV_DONTNEED) };
                at += n;
            }
        }
        // SAFETY: `base` and `len` are those of one successful mmap, and views borrow `self`, so none is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        MAPPINGS.fetch_sub(1, Relaxed);
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` mapped, kernel-zeroed bytes, valid until `drop`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}
