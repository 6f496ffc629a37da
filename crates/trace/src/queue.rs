//! The queue by which records leave: bounded, never waited for.

use crate::limits::{TRACES_OPEN_BYTES_MAX, TRACES_TAKEN_BYTES_MAX, TRACES_WAITING_BYTES_MAX, TRACES_WAITING_MAX};
use crate::record::Record;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Called when there is something to take.
type Wake = Box<dyn Fn() + Send + Sync>;

/// Where samplers and traces leave what they have to tell.
#[derive(Default)]
pub(crate) struct Outlet {
    waiting: Mutex<Waiting>,
    wake: OnceLock<Wake>,
    lost: AtomicU64,
    ids: AtomicU64,
    /// Bytes of tensors in records that are not here yet.
    open: AtomicUsize,
}

#[derive(Default)]
struct Waiting {
    records: VecDeque<Record>,
    bytes: usize,
    ended: Vec<u32>,
    /// The taker was told, and did not find the queue empty since.
    is_told: bool,
}

/// What was taken.
#[derive(Debug, Default)]
pub struct Taken {
    /// In the order in which they became complete.
    pub records: Vec<Record>,
    /// Settings of which no record follows. Told once all of their records were taken.
    pub ended: Vec<u32>,
    /// Nothing more waits.
    pub is_all: bool,
}

impl Outlet {
    /// The number of a new trace, from 1.
    pub(crate) fn id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Room for the contents of a tensor: all of it or less, which is given back by `release`.
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
        let mut waiting = self.waiting.lock();
        if waiting.records.len() >= TRACES_WAITING_MAX || waiting.bytes + bytes > TRACES_WAITING_BYTES_MAX {
            drop(waiting);
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes += bytes;
        waiting.records.push_back(record);
        let tell = !std::mem::replace(&mut waiting.is_told, true);
        drop(waiting);
        if tell {
            self.tell();
        }
    }

    pub(crate) fn end(&self, setting: u32) {
        let mut waiting = self.waiting.lock();
        waiting.ended.push(setting);
        let tell = !std::mem::replace(&mut waiting.is_told, true);
        drop(waiting);
        if tell {
            self.tell();
        }
    }

    fn tell(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    pub(crate) fn wake_with(&self, wake: Wake) {
        // Only the first counts: there is one taker.
        let _ = self.wake.set(wake);
    }

    pub(crate) fn take(&self, max: usize) -> Taken {
        let mut waiting = self.waiting.lock();
        let (mut records, mut bytes) = (Vec::new(), 0);
        while records.len() < max
            && bytes < TRACES_TAKEN_BYTES_MAX
            && let Some(record) = waiting.records.pop_front()
        {
            bytes += record.bytes();
            records.push(record);
        }
        waiting.bytes = waiting.bytes.saturating_sub(bytes);
        let is_all = waiting.records.is_empty();
        let ended = if is_all { std::mem::take(&mut waiting.ended) } else { Vec::new() };
        if is_all {
            waiting.is_told = false;
        }
        Taken { records, ended, is_all }
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Records that wait, and their bytes.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let waiting = self.waiting.lock();
        (waiting.records.len(), waiting.bytes)
    }
}
