//! The cache of heads: a known head, heads that do not repeat, and parsing without a cache.

use crate::support::{NoRegions, addsub};
use criterion::Criterion;
use protocol::http::{HeadCache, Limits, parse_infer};
use std::hint::black_box;

/// Number of different heads: enough to evict each before it repeats.
const STRANGERS: usize = 2048;

/// A head with two INT32 inputs of 64 bytes and both outputs, as Triton's client writes it.
fn body(id: usize) -> (bytes::Bytes, Option<usize>) {
    let input =
        |n| format!(r#"{{"name":"{n}","shape":[1,16],"datatype":"INT32","parameters":{{"binary_data_size":64}}}}"#);
    let output = |n| format!(r#"{{"name":"{n}","parameters":{{"binary_data":true}}}}"#);
    let (inputs, outputs) = (["INPUT0", "INPUT1"].map(input), ["OUTPUT0", "OUTPUT1"].map(output));
    let head = format!(r#"{{"id":"{id:08}","inputs":[{}],"outputs":[{}]}}"#, inputs.join(","), outputs.join(","));
    ([head.as_bytes(), &[7; 128]].concat().into(), Some(head.len()))
}

/// Two small binary inputs.
pub fn cache(c: &mut Criterion) {
    let (signature, limits) = (addsub(8), Limits::default());
    let mut group = c.benchmark_group("HTTP head cache, two inputs of 64 B");
    let (known, length) = body(0);
    group.bench_function("hit", |b| {
        let mut cache = HeadCache::default();
        let mut read = || cache.parse_infer(black_box(&known), length, &signature, &NoRegions, &limits);
        // A head is kept the second time.
        for _ in 0..2 {
            read().expect("the request is valid");
        }
        b.iter(read);
        assert_eq!(cache.len(), 1, "it was not remembered");
    });
    group.bench_function("miss", |b| {
        let strangers: Vec<_> = (0..STRANGERS).map(body).collect();
        let mut cache = HeadCache::default();
        let mut turn = strangers.iter().cycle();
        b.iter(|| {
            let (body, length) = turn.next()?;
            cache.parse_infer(black_box(body), *length, &signature, &NoRegions, &limits).ok()
        });
        assert!(cache.len() < 8, "{} of them were remembered", cache.len());
    });
    group.bench_function("without", |b| {
        b.iter(|| parse_infer(black_box(&known), length, &signature, &NoRegions, &limits));
    });
    group.finish();
}
