//! Copies results into a client's region.

#![allow(unsafe_code)] // one copy through the pointer the region's owner vouches for

use tensor::RegionSlice;

/// Writes `bytes` to the start of the window; false, with nothing written, when they do not fit.
///
/// `bytes` may be a view of the same region: clients use one window as input and output at once (memory.md 1.11).
pub fn write_region(window: &dyn RegionSlice, bytes: &[u8]) -> bool {
    if bytes.len() > window.len() {
        return false;
    }
    // SAFETY: `RegionSlice` promises `len()` writable bytes at `as_ptr()`, and `bytes` is not longer. `copy` allows overlap.
    unsafe { std::ptr::copy(bytes.as_ptr(), window.as_ptr(), bytes.len()) };
    true
}
