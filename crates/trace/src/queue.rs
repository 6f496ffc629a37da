//! The bounded queue of complete records. Writers never wait.

use crate::limits::{TRACES_OPEN_BYTES_MAX, TRACES_TAKEN_BYTES_MAX, TRACES_WAITING_BYTES_MAX, TRACES_WAITING_MAX};
use crate::record::Record;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Called when the queue is no longer empty.
type Wake = Box<dyn Fn() + Send + Sync>;

/// Receives records from traces and ended settings from samplers.
#[derive(Default)]
pub(crate) struct Outlet {
    queued: Mutex<QueuedRecords>,
    wake: OnceLock<Wake>,
    lost: AtomicU64,
    ids: AtomicU64,
    /// Bytes of tensors in records that are not complete.
    open: AtomicUsize,
}

#[derive(Default)]
struct QueuedRecords {
    records: VecDeque<Record>,
    bytes: usize,
    ended: Vec<u32>,
    /// The reader was woken, and has not found the queue empty since.
    is_woken: bool,
}

/// Result of one read of the queue.
#[derive(Debug, Default)]
pub struct Taken {
    /// Records in the order in which they were completed.
    pub records: Vec<Record>,
    /// Settings without further records; each is returned once all of its records were taken.
    pub ended: Vec<u32>,
    /// True if the queue is empty.
    pub is_all: bool,
}

impl Outlet {
    /// Id of a new call, from 1.
    pub(crate) fn id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Reserves up to `bytes` for the contents of a tensor; returns the granted bytes, which `release` returns.
    pub(crate) fn reserve(&self, bytes: usize) -> usize {
        let before = self.open.fetch_add(bytes, Ordering::Relaxed);
        let granted = bytes.min(TRACES_OPEN_BYTES_MAX.saturating_sub(before));
        self.release(bytes - granted);
        granted
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.open.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes of tensors in records that are not complete.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn put(&self, record: Record) {
        let bytes = record.bytes();
        let mut queued = self.queued.lock();
        if queued.records.len() >= TRACES_WAITING_MAX || queued.bytes + bytes > TRACES_WAITING_BYTES_MAX {
            drop(queued);
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queued.bytes += bytes;
        queued.records.push_back(record);
        let wake = !std::mem::replace(&mut queued.is_woken, true);
        drop(queued);
        if wake {
            self.wake();
        }
    }

    pub(crate) fn end(&self, setting: u32) {
        let mut queued = self.queued.lock();
        queued.ended.push(setting);
        let wake = !std::mem::replace(&mut queued.is_woken, true);
        drop(queued);
        if wake {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    pub(crate) fn wake_with(&self, wake: Wake) {
        // Only the first call has an effect: there is one reader.
        let _ = self.wake.set(wake);
    }

    pub(crate) fn take(&self, max: usize) -> Taken {
        let mut queued = self.queued.lock();
        let (mut records, mut bytes) = (Vec::new(), 0);
        while records.len() < max
            && bytes < TRACES_TAKEN_BYTES_MAX
            && let Some(record) = queued.records.pop_front()
        {
            bytes += record.bytes();
            records.push(record);
        }
        queued.bytes = queued.bytes.saturating_sub(bytes);
        let is_all = queued.records.is_empty();
        let ended = if is_all { std::mem::take(&mut queued.ended) } else { Vec::new() };
        if is_all {
            queued.is_woken = false;
        }
        Taken { records, ended, is_all }
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Queued records, and their bytes.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let queued = self.queued.lock();
        (queued.records.len(), queued.bytes)
    }
}
