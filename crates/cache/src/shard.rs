//! A part of the local store with one lock: a table of entries by key, and a list in the order of use. All operations
//! but `forget` take constant time.

use crate::entry::{Entry, OutputSet};
use crate::key::Key;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

pub(crate) const NEVER: u64 = u64::MAX;

/// Index that means no node.
const NONE: u32 = u32::MAX;

/// The identity as hash function: keys are keyed hashes already.
#[derive(Default)]
pub(crate) struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, &b| hash.rotate_left(8) ^ u64::from(b));
    }
    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}

/// An entry in the list in the order of use.
struct ListNode {
    key: Key,
    /// Number of its last use; ascends from node to node.
    tick: u64,
    newer: u32,
    older: u32,
    /// Bytes that are counted for it.
    bytes: usize,
    entry: Option<Arc<Entry>>,
}

/// A removed entry, which is dropped without the lock, and the bytes that were counted for it.
pub(crate) struct Removed {
    pub bytes: usize,
    pub entry: Option<Arc<Entry>>,
}

pub(crate) enum Put {
    /// Stored; `less` bytes fewer are needed than were reserved. The caller drops the replaced entry without the lock.
    Stored { less: usize, replaced: Option<Arc<Entry>> },
    /// An entry with the same outputs exists.
    Present,
    /// The shard has no more node numbers.
    Full,
}

#[derive(Default, Clone, Copy)]
pub(crate) struct ShardCounters {
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
    pub lookup_ns: u64,
}

pub(crate) struct Shard {
    found: HashMap<u128, u32, BuildHasherDefault<Plain>>,
    nodes: Vec<ListNode>,
    /// Indices of nodes without an entry.
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    pub counters: ShardCounters,
}

impl Shard {
    pub fn new() -> Self {
        Self {
            found: HashMap::default(),
            nodes: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            counters: ShardCounters::default(),
        }
    }

    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// Number of the last use of the least recently used entry.
    pub fn oldest_tick(&self) -> u64 {
        self.node(self.oldest).map_or(NEVER, |n| n.tick)
    }

    /// The entry, if it has these outputs; marks it as used at `tick`, which must be later than all before.
    pub fn find(&mut self, key: &Key, asked: &OutputSet, tick: impl FnOnce() -> u64) -> Option<Arc<Entry>> {
        let at = *self.found.get(&key.hash)?;
        let entry = self.node(at)?.entry.clone().filter(|e| e.has_outputs(asked))?;
        self.unlink(at);
        self.link(at, tick());
        Some(entry)
    }

    /// True if there is an entry with these outputs.
    pub fn has(&self, key: &Key, asked: &OutputSet) -> bool {
        self.entry(key).is_some_and(|e| e.has_outputs(asked))
    }

    fn entry(&self, key: &Key) -> Option<&Arc<Entry>> {
        self.node(*self.found.get(&key.hash)?)?.entry.as_ref()
    }

    /// Stores an entry for which `bytes` are reserved. Joins it with an existing one that lacks some of its outputs.
    pub fn put(&mut self, key: &Key, asked: &OutputSet, entry: Entry, bytes: usize, tick: u64) -> Put {
        if let Some(&at) = self.found.get(&key.hash) {
            let Some(node) = self.nodes.get_mut(at as usize) else { return Put::Full };
            let Some(older) = node.entry.as_ref().filter(|older| !older.has_outputs(asked)) else {
                return Put::Present;
            };
            let joined = entry.joined(older);
            // Never more than the sum, which is reserved.
            let accounted = joined.bytes();
            let less = (bytes + node.bytes).saturating_sub(accounted);
            node.bytes = accounted;
            let replaced = node.entry.replace(Arc::new(joined));
            self.unlink(at);
            self.link(at, tick);
            return Put::Stored { less, replaced };
        }
        let node = ListNode { key: *key, tick, newer: NONE, older: NONE, bytes, entry: Some(Arc::new(entry)) };
        let at = match self.free.pop() {
            Some(at) => {
                if let Some(place) = self.nodes.get_mut(at as usize) {
                    *place = node;
                }
                at
            }
            None => match u32::try_from(self.nodes.len()) {
                Ok(at) if at != NONE => {
                    self.nodes.push(node);
                    at
                }
                _ => return Put::Full,
            },
        };
        self.found.insert(key.hash, at);
        self.link(at, tick);
        Put::Stored { less: 0, replaced: None }
    }

    pub fn pop_oldest(&mut self) -> Option<Removed> {
        let removed = self.remove(self.oldest)?;
        self.counters.evictions += 1;
        Some(removed)
    }

    /// Removes the entries of a scope among `count` nodes from `from` on. Returns the index of the next node, if any.
    pub fn forget(&mut self, scope: u64, from: usize, count: usize, removed: &mut Vec<Removed>) -> Option<usize> {
        let end = from.saturating_add(count).min(self.nodes.len());
        for at in from..end {
            let of_scope = self.nodes.get(at).is_some_and(|n| n.entry.is_some() && n.key.scope == scope);
            if of_scope && let Ok(at) = u32::try_from(at) {
                removed.extend(self.remove(at));
            }
        }
        (end < self.nodes.len()).then_some(end)
    }

    fn remove(&mut self, at: u32) -> Option<Removed> {
        let node = self.nodes.get_mut(at as usize)?;
        let removed = Removed { bytes: std::mem::take(&mut node.bytes), entry: node.entry.take() };
        let hash = node.key.hash;
        self.found.remove(&hash);
        self.unlink(at);
        self.free.push(at);
        Some(removed)
    }

    fn node(&self, at: u32) -> Option<&ListNode> {
        self.nodes.get(at as usize)
    }

    fn link(&mut self, at: u32, tick: u64) {
        let newest = std::mem::replace(&mut self.newest, at);
        if let Some(node) = self.nodes.get_mut(at as usize) {
            (node.tick, node.older, node.newer) = (tick, newest, NONE);
        }
        match self.nodes.get_mut(newest as usize) {
            Some(before) => before.newer = at,
            None => self.oldest = at,
        }
    }

    fn unlink(&mut self, at: u32) {
        let Some(&ListNode { newer, older, .. }) = self.node(at) else { return };
        match self.nodes.get_mut(newer as usize) {
            Some(node) => node.older = older,
            None => self.newest = older,
        }
        match self.nodes.get_mut(older as usize) {
            Some(node) => node.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_forgotten_in_pieces_without_reordering_other_entries() {
        let mut shard = Shard::new();
        let asked = OutputSet::default();
        let key = |n: u64| Key { hash: u128::from(n), rest: 0, scope: n % 3 };
        for n in 0..100 {
            let entry = Entry::copied(&asked, &[]).expect("no bytes");
            assert!(matches!(shard.put(&key(n), &asked, entry, 1, n), Put::Stored { less: 0, replaced: None }));
        }
        let (mut removed, mut from, mut pieces) = (Vec::new(), Some(0), 0);
        while let Some(at) = from {
            from = shard.forget(1, at, 16, &mut removed);
            pieces += 1;
        }
        assert_eq!((pieces, removed.len(), shard.len()), (7, 33, 67));
        assert!(removed.iter().all(|r| r.bytes == 1 && r.entry.is_some()));
        let mut ticks = Vec::new();
        while shard.oldest_tick() != NEVER {
            ticks.push(shard.oldest_tick());
            assert!(shard.pop_oldest().is_some());
        }
        assert_eq!(ticks, (0..100).filter(|n| n % 3 != 1).collect::<Vec<_>>());
        assert!(shard.pop_oldest().is_none() && shard.len() == 0);
    }
}
