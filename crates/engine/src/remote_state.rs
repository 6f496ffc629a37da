//! State of a version whose batches run in other processes; see `hand_on`.

use crate::pending::Requests;
use crate::readiness_query::ReadinessQuery;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Batches that run in other processes.
#[derive(Default)]
pub(crate) struct RemoteState {
    /// Work for the thread that holds the lock of the version, after it is free.
    pub(crate) starts: Mutex<Starts>,
    /// Number of busy instances.
    pub(crate) occupied: AtomicU64,
    /// The current readiness query to the model.
    pub(crate) query: Mutex<Option<Arc<ReadinessQuery>>>,
}

#[derive(Default)]
pub(crate) struct Starts {
    /// Batches with their instances.
    pub(crate) batches: VecDeque<(u32, Requests)>,
    /// Instances that were removed.
    pub(crate) left: Vec<u32>,
}

impl RemoteState {
    /// Leaves a batch to the thread that holds the lock of the version.
    pub(crate) fn leave(&self, instance: u32, requests: Requests) {
        self.starts.lock().batches.push_back((instance, requests));
    }

    /// Leaves removed instances to the thread that holds the lock of the version, which notifies the model.
    pub(crate) fn left(&self, instances: &[u32]) {
        self.starts.lock().left.extend_from_slice(instances);
    }

    /// Number of unfinished batches.
    pub(crate) fn occupied(&self) -> u64 {
        self.occupied.load(Ordering::Acquire)
    }

    /// Wakes queries for readiness that have waited long enough.
    pub(crate) fn wake_asking(&self) {
        if let Some(query) = self.query.lock().clone() {
            query.wake_late();
        }
    }
}
