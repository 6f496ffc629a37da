//! Heads that were decoded before. A client that makes the same call again sends the same indices: as long as neither they nor the
//! table have changed, they mean the same, and a comparison of a dozen bytes is all there is to do.

use crate::head::RequestHead;
use crate::limits::{HEAD_BLOCK_BYTES_MAX, HEADS_MAX};
use std::rc::Rc;

struct Known {
    block: Box<[u8]>,
    generation: u64,
    head: Rc<RequestHead>,
}

/// The last few heads of a connection.
#[derive(Default)]
pub struct Heads {
    known: Vec<Known>,
    /// Which is given up next.
    next: usize,
}

impl Heads {
    /// The head of a block, if it is known and the table has not changed since.
    pub fn get(&self, block: &[u8], generation: u64) -> Option<Rc<RequestHead>> {
        let known = self.known.iter().find(|k| k.generation == generation && *k.block == *block)?;
        Some(known.head.clone())
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.known.clear();
        self.next = 0;
    }

    /// Remembers the head of a block that did not change the table.
    pub fn keep(&mut self, block: &[u8], generation: u64, head: &Rc<RequestHead>) {
        if block.len() > HEAD_BLOCK_BYTES_MAX {
            return;
        }
        let known = Known { block: block.into(), generation, head: head.clone() };
        if self.known.len() < HEADS_MAX {
            return self.known.push(known);
        }
        if let Some(place) = self.known.get_mut(self.next) {
            *place = known;
        }
        self.next = (self.next + 1) % HEADS_MAX;
    }
}
