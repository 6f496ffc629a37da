//! Large buffers leave address space to the rest. A test binary of its own: the limit applies to the process.
#![cfg(target_os = "linux")]
#![allow(unsafe_code)] // mallopt, setrlimit

use memory::SlabPool;
use memory::room::RESERVED_BYTES;
use tensor::{Code, allowance};

const MIB: usize = 1 << 20;

/// Address space of this process in bytes.
fn mapped() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    statm.split(' ').next().and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no limits")]
fn large_buffers_leave_address_space_to_the_rest_of_the_process() {
    // Otherwise a thread that starts meanwhile takes 64 MiB of address space for its own heap.
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointers.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
    let pool = SlabPool::global();
    // One-time allocations of the pool and this thread.
    drop(pool.reserve(MIB).expect("nothing is limited"));
    let limit = mapped() + RESERVED_BYTES + 100 * MIB as u64;
    let limited = libc::rlimit { rlim_cur: limit, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: reads the structure, which is ours.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limited) }, 0);

    let slab = pool.reserve(64 * MIB).expect("100 MiB are more than the reserve");
    let refused = pool.reserve(64 * MIB).expect_err("36 MiB are more than the reserve");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let vector = allowance::unasked(16 * MIB).expect("36 MiB are more than the reserve");
    let refused = allowance::unasked(32 * MIB).expect_err("20 MiB are more than the reserve");
    assert_eq!(refused.code(), Code::ResourceExhausted);

    let mut small = Vec::new();
    while let Ok(more) = pool.reserve(MIB) {
        small.push(more);
    }
    assert!(limit - mapped() >= RESERVED_BYTES && !small.is_empty(), "{} bytes are left", limit - mapped());
    std::thread::spawn(|| vec![1u8; 1000].len()).join().expect("there is room for a thread");
    drop((slab, vector));
    assert!(pool.reserve(32 * MIB).is_ok(), "what went back can be had again");
}
