//! Requests get the same responses with a cache as without one, on any number of threads.

mod common;
use cache::{Cache, Counters, KeySpace, LocalCache};
use common::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const THREADS: u64 = 8;
const REQUESTS: u64 = 4_000;
const SIZE: usize = 128 << 10;

/// The outputs that a request asks for: one, two or all.
fn indices(random: &mut Random) -> Vec<u16> {
    let wanted = 1 + random.below((1 << OUTPUTS) - 1);
    (0..OUTPUTS).filter(|i| wanted >> i & 1 == 1).collect()
}

#[test]
fn responses_are_those_of_the_model_on_all_threads() {
    let (cache, seen) = (LocalCache::new(SIZE).expect("small"), Seen::default());
    let (lookups, most) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|threads| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (cache, seen, lookups, most) = (&cache, &seen, &lookups, &most);
                threads.spawn(move || {
                    let mut random = Random(thread + 1);
                    for _ in 0..REQUESTS {
                        let load = 1 + random.below(2);
                        // Low numbers are frequent.
                        let request = (0..4).map(|_| random.below(150)).min().unwrap_or(0);
                        let len = (request as usize * 61) % 2000;
                        let indices = indices(&mut random);
                        let got = ask(cache, seen, &scope(load), load, request, &indices, len);
                        assert_eq!(
                            got,
                            answer(load, request, &indices, len),
                            "load {load}, request {request}, {indices:?}"
                        );
                        lookups.fetch_add(1, Relaxed);
                        most.fetch_max(cache.counters().expect("counted").used_bytes as u64, Relaxed);
                        if random.below(500) == 0 {
                            cache.forget(&scope(1 + random.below(2)));
                        }
                    }
                })
            })
            .collect();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        ended.into_iter().for_each(|e| e.expect("a worker failed"));
    });
    let c: Counters = cache.counters().expect("counted");
    assert_eq!((c.lookups, c.hits + c.misses), (lookups.into_inner(), c.lookups));
    assert_eq!((c.hits, c.misses), (seen.hits.into_inner(), seen.runs.into_inner()));
    assert!(most.into_inner() <= SIZE as u64, "never more than its size");
    let [stored, present, refused] = [seen.stored, seen.present, seen.refused].map(AtomicU64::into_inner);
    assert_eq!(stored + present + refused, c.misses);
    assert!(c.hits > REQUESTS && c.evictions > REQUESTS / 10, "{c:?}");
    for load in [1, 2] {
        let scope: KeySpace = scope(load);
        cache.forget(&scope);
    }
    let empty = cache.counters().expect("counted");
    assert_eq!((empty.entries, empty.used_bytes), (0, 0), "every byte was accounted once");
}
