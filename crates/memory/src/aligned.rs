//! One block of page-aligned, initialised, resident memory straight from the kernel.
//!
//! Not malloc: freed blocks of a few megabytes would stay in the allocator's heap, and resident memory after a burst of large
//! bodies would never go down again.

#![allow(unsafe_code)] // mmap, munmap and the two slice views over the block

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Larger blocks are not touched beforehand: their size may be a client's mere promise, and must not cost memory before its
/// bytes arrive.
#[cfg(target_os = "linux")]
const TOUCHED_BYTES_MAX: usize = 64 << 20;

/// Owned anonymous memory, zeroed when fresh, aligned to a page.
pub(crate) struct Block {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the block is plain memory with one owner; nothing in it is tied to the thread that mapped it.
unsafe impl Send for Block {}
// SAFETY: shared access is read-only, through `Deref`.
unsafe impl Sync for Block {}

impl Block {
    /// Maps `len` bytes (> 0) and, up to 64 MiB, touches every page, so that no request pays for page faults later. `None` when
    /// the system has no memory to give.
    pub(crate) fn new(len: usize) -> Option<Self> {
        #[cfg(target_os = "linux")]
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | if len <= TOUCHED_BYTES_MAX { libc::MAP_POPULATE } else { libc::MAP_NORESERVE };
        #[cfg(not(target_os = "linux"))]
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        Some(Self { base: NonNull::new(base.cast())?, len })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of one successful mmap, and views borrow `self`, so none is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
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
