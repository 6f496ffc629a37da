//! A model that answers, requests for it, and how they go through a cache.
#![allow(dead_code)]

use bytes::Bytes;
use cache::{Asked, Cache, Input, Insertion, Key, Lookup, Output, Scope, Secret};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tensor::{DataType, Shape};

/// Outputs of the model.
pub const OUTPUTS: u16 = 3;

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }
}

pub fn scope(load: u64) -> Scope {
    static SECRET: LazyLock<Secret> = LazyLock::new(Secret::random);
    Scope::new(&SECRET, "m", 1, load)
}

pub fn key(scope: &Scope, request: u64) -> Key {
    let data = Bytes::copy_from_slice(&request.to_le_bytes());
    scope.key([Input { name: b"IN", datatype: DataType::Uint64, shape: &[1], data: &data }].into_iter())
}

pub fn asked(indices: &[u16]) -> Asked {
    Asked::new(indices.iter().copied())
}

pub fn output(index: u16, data: Bytes) -> Output {
    Output { index, datatype: DataType::Uint8, shape: Shape::from_slice(&[data.len() as i64]), data }
}

/// What the model of this load answers: bytes that tell request, output and load apart, `len` of them. Output 1 is left out for
/// every fifth request.
pub fn answer(load: u64, request: u64, indices: &[u16], len: usize) -> Vec<Output> {
    let there = |&&index: &&u16| index != 1 || !request.is_multiple_of(5);
    let bytes = |index: u16| {
        let seed = [request, u64::from(index), load];
        (0..len)
            .map(|i| seed.iter().fold(i as u64, |h, s| (h ^ s).wrapping_mul(0x9e37_79b9_7f4a_7c15)) as u8)
            .collect::<Vec<u8>>()
    };
    indices.iter().filter(there).map(|&index| output(index, Bytes::from(bytes(index)))).collect()
}

/// Runs of the model, and what requests led to.
#[derive(Default)]
pub struct Seen {
    pub runs: AtomicU64,
    pub hits: AtomicU64,
    pub stored: AtomicU64,
    pub present: AtomicU64,
    pub refused: AtomicU64,
}

/// As the engine asks: first the cache, then the model, whose answer is kept. The outputs that were asked for.
pub fn ask(
    cache: &dyn Cache,
    seen: &Seen,
    scope: &Scope,
    load: u64,
    request: u64,
    indices: &[u16],
    len: usize,
) -> Vec<Output> {
    let (key, asked) = (key(scope, request), asked(indices));
    let outputs = match cache.lookup(&key, &asked, &mut || panic!("nobody to wait for")) {
        Lookup::Hit(entry) => {
            seen.hits.fetch_add(1, Relaxed);
            entry.outputs().to_vec()
        }
        Lookup::Miss => {
            let outputs = answer(load, request, indices, len);
            seen.runs.fetch_add(1, Relaxed);
            let counted = match cache.insert(&key, &asked, &outputs) {
                Insertion::Stored => &seen.stored,
                Insertion::Present => &seen.present,
                Insertion::Refused(_) => &seen.refused,
            };
            counted.fetch_add(1, Relaxed);
            outputs
        }
        Lookup::Later => panic!("a local cache knows at once"),
    };
    outputs.into_iter().filter(|o| indices.contains(&o.index)).collect()
}
