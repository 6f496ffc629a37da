//! Device memory that is lent to a runner with the inputs of its model (shm/README.md, "Devices").
//!
//! A lease pins its memory: a client's region stays registered, and open in the runner, until the runner returns the
//! lease or ends. Nothing is copied; the runner may write to memory that it was lent, as it may write to a block.

use crate::generated::{BLOCK_OFFSET_BITS, LEASES_MAX};
use device::{HANDLE_BYTES, Handle};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use tensor::{Exported, RegionRef};

/// Leases of one runner.
#[derive(Default)]
pub(crate) struct Leases(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    last: u64,
    open: HashMap<u64, RegionRef>,
    /// Leases returned while a batch was running. Its result comes over the other socket and may still name them.
    late: HashMap<u64, RegionRef>,
    /// Handles that the runner may have opened: it is notified when one is closed.
    handles: HashSet<(u32, [u8; HANDLE_BYTES])>,
}

impl Leases {
    /// Leases a region. `None` if the runner already has `LEASES_MAX` leases.
    pub(crate) fn lend(&self, region: &RegionRef, device: u32, exported: &Exported) -> Option<u64> {
        let mut inner = self.0.lock();
        if inner.open.len() as u64 >= LEASES_MAX {
            return None;
        }
        inner.last = (inner.last + 1) & ((1 << BLOCK_OFFSET_BITS) - 1);
        // Numbers repeat only after 2^`BLOCK_OFFSET_BITS` leases; if one is still open then, the bytes are copied.
        let lease = inner.last;
        if inner.open.contains_key(&lease) {
            return None;
        }
        inner.open.insert(lease, RegionRef::clone(region));
        inner.handles.insert((device, exported.handle));
        Some(lease)
    }

    /// The leased region. `None` if there is no such lease.
    pub(crate) fn find(&self, lease: u64) -> Option<RegionRef> {
        let inner = self.0.lock();
        inner.open.get(&lease).or_else(|| inner.late.get(&lease)).cloned()
    }

    /// Ends a lease, at the end of the running batch if there is one. `None` if there is no such lease. The returned
    /// region may be the last reference: drop it without holding a lock.
    pub(crate) fn give_back(&self, lease: u64, batch_is_out: bool) -> Option<Option<RegionRef>> {
        let mut inner = self.0.lock();
        let region = inner.open.remove(&lease)?;
        if !batch_is_out {
            return Some(Some(region));
        }
        inner.late.insert(lease, region);
        Some(None)
    }

    /// Ends the leases that were returned during the batch.
    pub(crate) fn batch_ended(&self) {
        let late = std::mem::take(&mut self.0.lock().late);
        drop(late);
    }

    /// Ends all leases, because the process has ended.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        drop(all);
    }

    /// Number of open leases, and their bytes.
    pub(crate) fn open(&self) -> (usize, u64) {
        let inner = self.0.lock();
        (inner.open.len(), inner.open.values().map(|region| region.len() as u64).sum())
    }

    /// Forgets a handle that the server closed. True if the runner may have opened it.
    pub(crate) fn forget(&self, device: u32, handle: &Handle) -> bool {
        self.0.lock().handles.remove(&(device, handle.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::memory::Memfd;
    use std::sync::Arc;

    #[test]
    fn leases_of_a_runner_are_bounded_and_each_ends_once_b_sec_07() {
        let leases = Leases::default();
        let memory = Arc::new(Memfd::new(64).expect("memory"));
        let region: RegionRef = memory.clone();
        let exported = Exported { handle: [1; HANDLE_BYTES], offset: 0 };
        let lent: Vec<u64> = (0..LEASES_MAX).filter_map(|_| leases.lend(&region, 0, &exported)).collect();
        assert_eq!(
            (lent.len() as u64, leases.lend(&region, 0, &exported)),
            (LEASES_MAX, None),
            "the next one is copied"
        );
        assert_eq!(leases.open(), (lent.len(), 64 * LEASES_MAX));
        assert!(leases.give_back(lent[0], false).is_some_and(|ended| ended.is_some()));
        assert!(leases.give_back(lent[0], false).is_none() && leases.find(lent[0]).is_none(), "once");
        assert!(leases.give_back(lent[1], true).is_some_and(|ended| ended.is_none()));
        assert!(leases.find(lent[1]).is_some() && leases.give_back(lent[1], true).is_none());
        leases.batch_ended();
        assert!(leases.find(lent[1]).is_none());
        assert!(
            leases.lend(&region, 0, &exported).is_some_and(|lease| !lent.contains(&lease)),
            "numbers are not used again"
        );
        assert!(
            leases.forget(0, &Handle([1; HANDLE_BYTES])) && !leases.forget(0, &Handle([1; HANDLE_BYTES])),
            "reported once"
        );
        leases.clear();
        drop(region);
        assert_eq!(
            (leases.open(), Arc::strong_count(&memory)),
            ((0, 0), 1),
            "nothing stays pinned for a process that has ended"
        );
    }
}
