//! Cost of a cached request: `cargo bench -p nereid-cache --bench lookup [-- TEXT]`.

use bytes::Bytes;
use cache::{Cache, CachedOutput, Input, KeySpace, LocalCache, OutputSet, Secret};
use criterion::{BenchmarkId, Criterion, Throughput};
use std::hint::black_box;
use tensor::{DataType, Shape};

fn input(data: &Bytes) -> impl Iterator<Item = Input<'_>> {
    [Input { name: b"INPUT0", datatype: DataType::Uint8, shape: &[1, 16], data }].into_iter()
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let scope = KeySpace::new(&Secret::random(), "model", 1, 1);

    let mut group = criterion.benchmark_group("key");
    for len in [64, 4 << 10, 256 << 10, 16 << 20] {
        let data = Bytes::from(vec![1; len]);
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(BenchmarkId::from_parameter(len), |b| b.iter(|| scope.key(black_box(input(&data)))));
    }
    group.finish();

    let Ok(cache) = LocalCache::new(64 << 20) else { return };
    let asked = OutputSet::new(0..1);
    let output = |len| {
        [CachedOutput {
            index: 0,
            datatype: DataType::Uint8,
            shape: Shape::from_slice(&[len as i64]),
            data: Bytes::from(vec![1; len]),
        }]
    };
    let keys: Vec<_> = (0..10_000u32).map(|n| scope.key(input(&Bytes::copy_from_slice(&n.to_le_bytes())))).collect();
    for key in &keys {
        cache.insert(key, &asked, &output(64));
    }
    let mut n = 0;
    let mut next = || {
        n = (n + 7919) % keys.len();
        &keys[n]
    };
    criterion.bench_function("hit among 10,000", |b| b.iter(|| cache.lookup(next(), &asked, &mut || Box::new(|_| ()))));

    let mut group = criterion.benchmark_group("insert where one is evicted");
    for len in [64, 64 << 10] {
        let Ok(full) = LocalCache::new(len * 100) else { return };
        let output = output(len);
        let mut n = 0u32;
        group.bench_function(BenchmarkId::from_parameter(len), |b| {
            b.iter(|| {
                n += 1;
                full.insert(&scope.key(input(&Bytes::copy_from_slice(&n.to_le_bytes()))), &asked, &output)
            })
        });
    }
    group.finish();
    criterion.final_summary();
}
