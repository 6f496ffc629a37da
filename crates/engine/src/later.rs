//! State of a version whose batches run in other processes; see `hand_on`.

use crate::pending::Requests;
use crate::ready::ReadinessQuery;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Batches that run in other processes.
#[derive(Default)]
pub(crate) struct Later {
    /// What is to be done when the lock of the version is free.
    pub(crate) starts: Mutex<Starts>,
    /// Instances that are not back yet.
    pub(crate) occupied: AtomicU64,
    /// The model is asked whether it is ready.
    pub(crate) asked: Mutex<Option<Arc<ReadinessQuery>>>,
}

#[derive(Default)]
pub(crate) struct Starts {
    /// Batches with their instances.
    pub(crate) batches: VecDeque<(u32, Requests)>,
    /// Instances that left.
    pub(crate) left: Vec<u32>,
}

impl Later {
    /// Leaves a batch to the thread that holds the lock of the version.
    pub(crate) fn leave(&self, instance: u32, requests: Requests) {
        self.starts.lock().batches.push_back((instance, requests));
    }

    /// Instances left: the model is told by the thread that holds the lock of the version.
    pub(crate) fn left(&self, instances: &[u32]) {
        self.starts.lock().left.extend_from_slice(instances);
    }

    /// Batches that are not over.
    pub(crate) fn occupied(&self) -> u64 {
        self.occupied.load(Ordering::Acquire)
    }

    /// Wakes queries for readiness that have waited for long enough.
    pub(crate) fn wake_asking(&self) {
        if let Some(asked) = self.asked.lock().clone() {
            asked.wake_late();
        }
    }
}
