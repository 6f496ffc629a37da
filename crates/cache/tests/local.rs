//! The local store: entries, evictions, counters.

mod common;
use bytes::Bytes;
use cache::{Cache, CachedOutput, Counters, Insertion, LocalCache, Lookup};
use common::*;

fn store(size: usize) -> LocalCache {
    LocalCache::new(size).expect("less than the machine has")
}

fn counters(cache: &LocalCache) -> Counters {
    cache.counters().expect("a local cache counts")
}

fn hits(cache: &LocalCache, load: u64, request: u64, indices: &[u16]) -> bool {
    let found = cache.lookup(&key(&scope(load), request), &asked(indices), &mut || panic!("asynchronous"));
    matches!(found, Lookup::Hit(_))
}

fn insert(cache: &LocalCache, load: u64, request: u64, indices: &[u16], len: usize) -> Insertion {
    cache.insert(&key(&scope(load), request), &asked(indices), &answer(load, request, indices, len))
}

#[test]
fn s38_the_least_recently_used_entry_is_evicted() {
    let cache = store(200_000);
    for request in 0..2 {
        assert_eq!(insert(&cache, 1, request, &[0], 80_000), Insertion::Stored);
    }
    assert!(hits(&cache, 1, 0, &[0]), "0 is used again");
    assert_eq!(insert(&cache, 1, 2, &[0], 80_000), Insertion::Stored);
    let there: Vec<bool> = (0..3).map(|r| hits(&cache, 1, r, &[0])).collect();
    assert_eq!(there, [true, false, true]);
    let Counters { entries, lookups, hits, misses, evictions, .. } = counters(&cache);
    assert_eq!((entries, lookups, hits, misses, evictions), (2, 4, 3, 1, 1));
}

#[test]
fn s38_recorded_five_large_answers_and_one_too_large_where_two_fit() {
    // golden-steps, cache.big: 80 kB each in 200 kB; none is a hit again, and 240 kB are not stored.
    let (cache, seen) = (store(200_000), Seen::default());
    for request in [0, 1, 2, 3, 0] {
        ask(&cache, &seen, &scope(1), 1, request, &[0], 80_000);
    }
    let Insertion::Refused(error) = insert(&cache, 1, 9, &[0], 240_000) else { panic!("kept") };
    assert!(error.message().starts_with("Requested byte_size: 240"), "{error}");
    assert!(error.message().ends_with("is greater than total cache size: 200000"), "{error}");
    let Counters { entries, hits, misses, evictions, used_bytes, .. } = counters(&cache);
    assert_eq!((entries, hits, misses, evictions), (2, 0, 5, 3));
    // Recorded: nv_cache_util 0.80128.
    assert!((160_000..162_000).contains(&used_bytes), "{used_bytes}");
    assert!((counters(&cache).utilisation() - 0.80128).abs() < 0.01);
}

#[test]
fn s44_the_second_of_two_equal_misses_finds_the_response_present() {
    let cache = store(1 << 20);
    assert!(!hits(&cache, 1, 7, &[0]) && !hits(&cache, 1, 7, &[0]), "both are on their way");
    assert_eq!(insert(&cache, 1, 7, &[0], 100), Insertion::Stored);
    let before = counters(&cache).used_bytes;
    assert_eq!(insert(&cache, 1, 7, &[0], 100), Insertion::Present);
    assert_eq!((counters(&cache).entries, counters(&cache).used_bytes), (1, before));
}

#[test]
fn s37_an_entry_is_a_hit_only_for_outputs_that_it_has() {
    let cache = store(1 << 20);
    insert(&cache, 1, 7, &[0, 1], 100);
    for (indices, hit) in [(&[0][..], true), (&[1], true), (&[0, 1], true), (&[2], false), (&[0, 2], false)] {
        assert_eq!(hits(&cache, 1, 7, indices), hit, "{indices:?}");
    }
    assert_eq!(insert(&cache, 1, 7, &[2], 100), Insertion::Stored, "joined");
    assert!(hits(&cache, 1, 7, &[0, 1, 2]));
    let joined = counters(&cache);
    assert_eq!(insert(&store(1 << 20), 1, 7, &[0, 1, 2], 100), Insertion::Stored);
    let whole = store(1 << 20);
    insert(&whole, 1, 7, &[0, 1, 2], 100);
    assert_eq!(
        (joined.entries, joined.used_bytes),
        (1, counters(&whole).used_bytes),
        "accounted as if asked for at once"
    );
    // The model returns no output 1 for request 5, and the response is complete without it.
    insert(&cache, 1, 5, &[0, 1], 100);
    assert!(hits(&cache, 1, 5, &[0, 1]));
}

#[test]
fn a_reloaded_model_does_not_hit_old_entries_and_unloading_frees_them() {
    let cache = store(1 << 20);
    for request in 0..500 {
        insert(&cache, 1, request, &[0], 10);
        insert(&cache, 2, request, &[0], 10);
    }
    assert_eq!(counters(&cache).entries, 1000);
    assert!((0..500).all(|r| !hits(&cache, 3, r, &[0])), "a third load");
    cache.forget(&scope(1));
    assert_eq!((counters(&cache).entries, counters(&cache).evictions), (500, 0), "forgetting is no eviction");
    assert!((0..500).all(|r| hits(&cache, 2, r, &[0]) && !hits(&cache, 1, r, &[0])));
    cache.forget(&scope(2));
    assert_eq!((counters(&cache).entries, counters(&cache).used_bytes), (0, 0));
    assert_eq!(insert(&cache, 2, 1, &[0], 10), Insertion::Stored, "places are used again");
    assert!(hits(&cache, 2, 1, &[0]));
}

#[test]
fn a_view_of_a_response_outlives_its_entry() {
    let cache = store(200_000);
    insert(&cache, 1, 0, &[0], 80_000);
    let Lookup::Hit(entry) = cache.lookup(&key(&scope(1), 0), &asked(&[0]), &mut || panic!("asynchronous")) else {
        panic!("not there")
    };
    let view: Vec<CachedOutput> = entry.outputs().to_vec();
    drop(entry);
    (1..5).for_each(|r| drop(insert(&cache, 1, r, &[0], 80_000)));
    assert!(!hits(&cache, 1, 0, &[0]));
    assert_eq!(view, answer(1, 0, &[0], 80_000));
}

#[test]
fn an_insertion_evicts_a_bounded_number_of_entries() {
    let cache = store(1 << 20);
    let mut request = 0;
    while counters(&cache).evictions == 0 {
        insert(&cache, 1, request, &[0], 0);
        request += 1;
    }
    let small = counters(&cache).entries;
    assert!(small > 1100, "{small}");
    let large = || insert(&cache, 1, u64::MAX, &[0], (1 << 20) - 100_000);
    let Insertion::Refused(error) = large() else { panic!("kept at once") };
    assert!(error.message().contains("no room for 9"), "{error}");
    assert_eq!(counters(&cache).evictions, 1 + 1024);
    assert_eq!(large(), Insertion::Stored, "the next time");
}

#[test]
fn a_store_is_at_most_as_large_as_memory_and_may_be_empty() {
    assert!(LocalCache::new(usize::MAX).is_err_and(|e| e.message().starts_with("Failed to initialize LocalCache")));
    let none = store(0);
    assert!(matches!(insert(&none, 1, 1, &[0], 1), Insertion::Refused(_)) && !hits(&none, 1, 1, &[0]));
    assert_eq!(counters(&none).utilisation(), 0.0);
}

#[test]
fn durations_are_counted() {
    let cache = store(1 << 20);
    insert(&cache, 1, 1, &[0], 1000);
    hits(&cache, 1, 1, &[0]);
    let c = counters(&cache);
    assert!((1..1_000_000_000).contains(&c.insertion_ns) && (1..1_000_000_000).contains(&c.lookup_ns), "{c:?}");
}

/// A simple model of the store: a list in the order of use, the newest last.
struct Naive {
    list: Vec<(u64, usize)>,
    size: usize,
    bytes_of: fn(usize) -> usize,
    counts: [u64; 3],
}

impl Naive {
    fn ask(&mut self, request: u64, len: usize) {
        if let Some(at) = self.list.iter().position(|e| e.0 == request) {
            let entry = self.list.remove(at);
            self.list.push(entry);
            self.counts[0] += 1;
            return;
        }
        self.counts[1] += 1;
        let new = (self.bytes_of)(len);
        while self.list.iter().map(|e| e.1).sum::<usize>() + new > self.size {
            self.list.remove(0);
            self.counts[2] += 1;
        }
        self.list.push((request, new));
    }
}

#[test]
fn s38_a_long_run_behaves_as_a_naive_store() {
    // Bytes of an entry are measured, not computed again.
    fn bytes_of(data: usize) -> usize {
        let probe = store(1 << 20);
        probe.insert(&key(&scope(1), 0), &asked(&[0]), &[output(0, Bytes::from(vec![0; data]))]);
        counters(&probe).used_bytes
    }
    const SIZE: usize = 20_000;
    let (cache, seen, mut random) = (store(SIZE), Seen::default(), Random(42));
    let mut naive = Naive { list: vec![], size: SIZE, bytes_of, counts: [0; 3] };
    for i in 0..20_000 {
        // Some requests are frequent; sizes follow from the request, as those of a model do.
        let request = random.below(4).min(random.below(2)) * 40 + random.below(40);
        let len = 1 + (request as usize * 37) % 3000;
        let got = ask(&cache, &seen, &scope(1), 1, request, &[0], len);
        assert_eq!(got, answer(1, request, &[0], len), "request {i}");
        naive.ask(request, len);
        let c = counters(&cache);
        assert_eq!([c.hits, c.misses, c.evictions], naive.counts, "request {i}");
        assert_eq!(c.used_bytes, naive.list.iter().map(|e| e.1).sum::<usize>(), "request {i}");
    }
    let [hits, misses, evictions] = naive.counts;
    assert!(hits > 2000 && misses > 2000 && evictions > 2000, "{:?}", naive.counts);
}
