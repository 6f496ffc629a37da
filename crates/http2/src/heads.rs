//! Cache of decoded heads. A client that repeats a call sends the same indices: while neither they nor the table
//! change, comparing a dozen bytes replaces decoding.

use crate::head::RequestHead;
use crate::limits::{HEAD_BLOCK_BYTES_MAX, HEADS_MAX};
use std::rc::Rc;

struct Known {
    hash: u64,
    block: Vec<u8>,
    generation: u64,
    head: Rc<RequestHead>,
}

/// The last few heads of a connection.
#[derive(Default)]
pub struct Heads {
    known: Vec<Known>,
    /// Index that is replaced next.
    next: usize,
}

impl Heads {
    /// Returns the head of a block if it is known and the table has not changed since.
    pub fn get(&self, block: &[u8], generation: u64) -> Option<Rc<RequestHead>> {
        let hash = hash_of(block);
        let is_same = |k: &&Known| k.hash == hash && k.generation == generation && k.block == block;
        Some(self.known.iter().find(is_same)?.head.clone())
    }

    pub fn clear(&mut self) {
        self.known.clear();
        self.next = 0;
    }

    /// Remembers the head of a block that did not change the table.
    pub fn keep(&mut self, block: &[u8], generation: u64, head: &Rc<RequestHead>) {
        if block.len() > HEAD_BLOCK_BYTES_MAX {
            return;
        }
        let (hash, head) = (hash_of(block), head.clone());
        if self.known.len() < HEADS_MAX {
            return self.known.push(Known { hash, block: block.to_vec(), generation, head });
        }
        if let Some(known) = self.known.get_mut(self.next) {
            // Reuses the memory of the replaced entry: with trace headers every call comes here.
            known.block.clear();
            known.block.extend_from_slice(block);
            (known.hash, known.generation, known.head) = (hash, generation, head);
        }
        self.next = (self.next + 1) % HEADS_MAX;
    }
}

/// Fast, non-cryptographic hash, so that different blocks are seldom compared; a collision costs one comparison.
fn hash_of(block: &[u8]) -> u64 {
    let mut hash = block.len() as u64;
    let mut mix = |word: u64| hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    let (words, rest) = block.as_chunks::<8>();
    words.iter().for_each(|w| mix(u64::from_le_bytes(*w)));
    match block.last_chunk::<8>() {
        // Mixes the last eight bytes, which overlap those mixed before.
        Some(last) if !rest.is_empty() => mix(u64::from_le_bytes(*last)),
        Some(_) => {}
        None => rest.iter().for_each(|&b| mix(u64::from(b))),
    }
    hash
}
