//! Free memory inside malloc. glibc returns only the top of a heap to the system, so bursts of small pieces stay.

#![allow(unsafe_code)] // malloc_trim, mallopt

use parking_lot::Mutex;

/// Blocks of malloc from this size on are mappings of their own and return to the system when freed. glibc raises its
/// limit, half of this, to up to 32 MiB once a large block is freed; then the weights of models lie in heaps.
const MAPPED_BYTES_MIN: usize = 256 << 10;

/// Free bytes to keep at the top of a heap. With the size above fixed, glibc would keep 128 KiB and allocate the
/// buffers of each request from the kernel again.
const TOP_BYTES_KEPT: usize = 4 << 20;

/// The same while a model is loaded: glibc accepts no more than half of a heap, and all that is freed is kept.
const LOADING: [usize; 2] = [32 << 20, 1 << 30];

/// Loads that take place.
static LOADS: Mutex<usize> = Mutex::new(0);

fn set(mapped_bytes_min: usize, top_bytes_kept: usize) {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: takes no pointers and locks what it changes; failures leave the settings as they were.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, mapped_bytes_min as libc::c_int);
        libc::mallopt(libc::M_TRIM_THRESHOLD, top_bytes_kept as libc::c_int);
    }
}

/// Fixes which blocks of malloc are mappings of their own. For libraries that load weights with malloc: a model that
/// was loaded, unloaded and loaded again took 1.4 times its memory, and a third of it stayed after it was unloaded.
pub fn map_large_blocks() {
    set(MAPPED_BYTES_MIN, TOP_BYTES_KEPT);
}

/// Models of fewer bytes are loaded with blocks that are mapped one by one: their copies cost little, and returning
/// free memory looks at all heaps.
const LOADED_BYTES_MIN: u64 = 16 << 20;

/// Has malloc keep what is freed, for all threads, until the load of a model of so many bytes ends.
///
/// A library that loads weights copies them several times, and frees each copy when it has the next. As mappings of
/// their own, these copies of a model of 102 MB took 142,000 faults of pages, which were two thirds of the time.
pub fn loading(bytes: u64) -> Option<(Loading, Trim)> {
    if bytes < LOADED_BYTES_MIN {
        return None;
    }
    let mut loads = LOADS.lock();
    *loads += 1;
    set(LOADING[0], LOADING[1]);
    Some((Loading(()), Trim { block: block() }))
}

/// A load that takes place; afterwards free memory is returned to the system.
pub struct Loading(());

impl Drop for Loading {
    fn drop(&mut self) {
        let mut loads = LOADS.lock();
        *loads -= 1;
        if *loads == 0 {
            map_large_blocks();
        }
        drop(loads);
        trim();
        drop(block());
    }
}

/// A block in this thread's heap, of which no page is touched. Freeing it has glibc look at the top of that heap, and
/// return it: glibc does so for blocks from 64 KiB on (`FASTBIN_CONSOLIDATION_THRESHOLD`).
///
/// `malloc_trim` joins free blocks, also with the top, and returns the top of the main heap only: of one load in four
/// 20 MiB stayed in the heap of the thread that had loaded it.
fn block() -> Vec<u8> {
    std::hint::black_box(Vec::with_capacity(MAPPED_BYTES_MIN / 2))
}

/// Returns free memory to the system when it is dropped: behind the model, whose weights lie in heaps.
pub struct Trim {
    /// A block of the heap in which the weights lie.
    block: Vec<u8>,
}

impl Drop for Trim {
    fn drop(&mut self) {
        trim();
        drop(std::mem::take(&mut self.block));
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
