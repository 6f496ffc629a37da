//! Cost of a buffer by size: `cargo bench -p nereid-memory --bench arena [-- TEXT]`.
//!
//! Below 4 KiB there is no pool: that row measures malloc.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use memory::SlabPool;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const SIZES: [(&str, usize); 5] =
    [("256 B", 256), ("4 KiB", 4 << 10), ("64 KiB", 64 << 10), ("1 MiB", 1 << 20), ("16 MiB", 16 << 20)];
/// The default of the process's pool.
const RETAINED_BYTES_MAX: usize = 256 << 20;
const THREADS: usize = 2;

/// Gets, freezes and drops a buffer; its contents are not touched.
fn cycle(pool: &SlabPool, size: usize) {
    drop(black_box(pool.get(size).expect("memory").freeze()));
}

fn sizes(c: &mut Criterion, name: &str, measure: fn(&mut BenchmarkGroup<'_, WallTime>, BenchmarkId, usize)) {
    let mut group = c.benchmark_group(name);
    for (label, size) in SIZES {
        measure(&mut group, BenchmarkId::from_parameter(label), size);
    }
    group.finish();
}

fn one_thread(c: &mut Criterion) {
    sizes(c, "arena: get, freeze, drop", |group, id, size| {
        let pool = SlabPool::new(RETAINED_BYTES_MAX);
        group.bench_function(id, |b| b.iter(|| cycle(&pool, size)));
        // If the pool was used, all but the first slab came from the free list.
        let counters = pool.counters();
        assert!(counters.misses <= 1, "{counters:?}");
    });
}

/// Time per cycle while another thread does the same with the same size: one lock, one free list.
fn two_threads(c: &mut Criterion) {
    sizes(c, "arena: get, freeze, drop, two threads", |group, id, size| {
        let pool = SlabPool::new(RETAINED_BYTES_MAX);
        group.bench_function(id, |b| b.iter_custom(|times| together(|| (0..times).for_each(|_| cycle(&pool, size)))));
        let counters = pool.counters();
        assert!(counters.misses <= THREADS as u64, "{counters:?}");
    });
}

/// The longer time of two threads that start together.
fn together(work: impl Fn() + Sync) -> Duration {
    let start = Barrier::new(THREADS);
    let timed = || {
        start.wait();
        let from = Instant::now();
        work();
        from.elapsed()
    };
    std::thread::scope(|s| {
        let other = s.spawn(timed);
        let own = timed();
        own.max(other.join().unwrap_or(own))
    })
}

/// A pool that retains nothing: the cost of the first requests of a size, mapping and zeroing included.
fn nothing_kept(c: &mut Criterion) {
    sizes(c, "arena: get, freeze, drop, nothing kept", |group, id, size| {
        let pool = SlabPool::new(0);
        group.bench_function(id, |b| b.iter(|| cycle(&pool, size)));
        assert_eq!(pool.counters().hits, 0, "a slab was kept");
    });
}

fn copy_of(c: &mut Criterion) {
    sizes(c, "arena: copy_of", |group, id, size| {
        let pool = SlabPool::new(RETAINED_BYTES_MAX);
        let contents = vec![7; size];
        assert_eq!(&pool.copy_of(&contents).expect("memory")[..], contents);
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(id, |b| b.iter(|| pool.copy_of(black_box(&contents)).expect("memory").freeze()));
    });
}

fn main() {
    let mut c = Criterion::default().without_plots().configure_from_args();
    one_thread(&mut c);
    two_threads(&mut c);
    nothing_kept(&mut c);
    copy_of(&mut c);
}
