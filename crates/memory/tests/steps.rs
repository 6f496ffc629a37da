//! CPU time that a thread spends per step with a large slab.
#![cfg(target_os = "linux")]
#![allow(unsafe_code)] // reading the thread's clock

use memory::SlabPool;
use std::time::Duration;

const SIZE: usize = 64 << 20;
/// Bytes of a body that a reactor reads in one turn.
const STEP: usize = 256 << 10;
/// Limit of each step on a busy machine. Figures: docs/decisions/020.
const STEP_TIME_MAX: Duration = Duration::from_millis(1);

fn cpu() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is written by the call and outlives it.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// CPU time of `work` and its result.
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let from = cpu();
    let made = work();
    (cpu() - from, made)
}

/// Time to reserve a slab, to write a step of it (the 99th percentile), and to drop it.
fn steps(pool: &SlabPool, size: usize) -> [Duration; 3] {
    let piece = vec![7u8; STEP];
    let (reserve, slab) = timed(|| pool.reserve(size));
    let mut slab = slab.expect("address space");
    let writes = (0..size).step_by(STEP).map(|at| timed(|| slab.window(at..at + STEP).copy_from_slice(&piece)).0);
    let mut writes: Vec<_> = writes.collect();
    writes.sort_unstable();
    let write = writes[writes.len() * 99 / 100];
    let body = slab.freeze();
    assert!(body.len() == size && body.iter().step_by(STEP).all(|&b| b == 7));
    [reserve, write, timed(|| drop(body)).0]
}

#[test]
fn steps_with_a_large_slab_take_less_than_a_millisecond() {
    let kept = SlabPool::new(256 << 20);
    let _ = steps(&kept, SIZE);
    let nothing_kept = SlabPool::new(0);
    // The best of several runs: interrupts of other programs are counted too.
    let best = |pool: &SlabPool, size| {
        let runs: Vec<_> = (0..7).map(|_| steps(pool, size)).collect();
        [0, 1, 2].map(|i| runs.iter().map(|r| r[i]).min().unwrap_or_default())
    };
    for (name, found) in [
        ("64 MiB, fresh", best(&nothing_kept, SIZE)),
        ("64 MiB, pooled", best(&kept, SIZE)),
        ("320 MiB, never pooled", best(&kept, 5 * SIZE)),
    ] {
        println!("{name}: reserve {:?}, write 256 KiB {:?}, drop {:?}", found[0], found[1], found[2]);
        assert!(found.iter().all(|&t| t < STEP_TIME_MAX), "{name}: {found:?}");
    }
}
