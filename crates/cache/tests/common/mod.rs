//! A model, requests to it, and their way through a cache.
#![allow(dead_code)]

use bytes::Bytes;
use cache::{Cache, CachedOutput, Input, Insertion, Key, KeySpace, Lookup, OutputSet, Secret};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tensor::{DataType, Shape};

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

pub fn scope(load: u64) -> KeySpace {
    static SECRET: LazyLock<Secret> = LazyLock::new(Secret::random);
    KeySpace::new(&SECRET, "m", 1, load)
}

pub fn key(scope: &KeySpace, request: u64) -> Key {
    let data = Bytes::copy_from_slice(&request.to_le_bytes());
    scope.key([Input { name: b"IN", datatype: DataType::Uint64, shape: &[1], data: &data }].into_iter())
}

pub fn asked(indices: &[u16]) -> OutputSet {
    OutputSet::new(indices.iter().copied())
}

pub fn output(index: u16, data: Bytes) -> CachedOutput {
    CachedOutput { index, datatype: DataType::Uint8, shape: Shape::from_slice(&[data.len() as i64]), data }
}

/// The response of this load of the model: `len` bytes that depend on request, output and load. Every fifth request has
/// no output 1.
pub fn answer(load: u64, request: u64, indices: &[u16], len: usize) -> Vec<CachedOutput> {
    let there = |&&index: &&u16| index != 1 || !request.is_multiple_of(5);
    let bytes = |index: u16| {
        let seed = [request, u64::from(index), load];
        (0..len)
            .map(|i| seed.iter().fold(i as u64, |h, s| (h ^ s).wrapping_mul(0x9e37_79b9_7f4a_7c15)) as u8)
            .collect::<Vec<u8>>()
    };
    indices.iter().filter(there).map(|&index| output(index, Bytes::from(bytes(index)))).collect()
}

/// Executions of the model, and results of lookups and insertions.
#[derive(Default)]
pub struct Seen {
    pub runs: AtomicU64,
    pub hits: AtomicU64,
    pub stored: AtomicU64,
    pub present: AtomicU64,
    pub refused: AtomicU64,
}

/// Returns the requested outputs as the engine does: from the cache, or from the model, whose response is stored.
pub fn ask(
    cache: &dyn Cache,
    seen: &Seen,
    scope: &KeySpace,
    load: u64,
    request: u64,
    indices: &[u16],
    len: usize,
) -> Vec<CachedOutput> {
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
