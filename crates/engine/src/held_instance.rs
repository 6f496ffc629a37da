//! The end of a batch that runs in another process: its instance becomes idle.
//!
//! Invariant: an instance taken for a batch is returned once, when `HeldInstance` is dropped, even after a panic. If
//! another batch is prefetched behind it, that one has the instance, and its `HeldInstance` returns it.

use crate::answer::{EngineResponse, Sink};
use crate::execution_cost::ExecutionCost;
use crate::limits::WARMUP_BATCH_SIZE_MAX;
use crate::version::ModelVersion;
use backend::now_ns;
use parking_lot::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::Error;

/// Destination of an instance after its batch.
#[derive(Clone)]
pub(crate) enum ReturnTo {
    /// The version's idle instances.
    Service,
    /// The warmup, which has all instances.
    WarmUp(Arc<WarmUp>),
}

/// An instance in use by a batch, returned when this is dropped: when the backend frees it, and for sequences not
/// before their requests are over, because the next ones need their state.
pub(crate) struct HeldInstance {
    pub(crate) version: Arc<ModelVersion>,
    pub(crate) instance: u32,
    pub(crate) cost: ExecutionCost,
    /// Duration of the batch in ns, which its profile learns; 0: nothing to learn.
    pub(crate) duration: AtomicU64,
    pub(crate) return_to: ReturnTo,
    /// Number of the offer of the instance to another batch; 0: none. A batch that is sent there before this one ends
    /// keeps the instance.
    pub(crate) offer: AtomicU64,
}

impl Drop for HeldInstance {
    fn drop(&mut self) {
        let cost = ExecutionCost { duration: self.duration.load(Ordering::Relaxed), end: now_ns(), ..self.cost };
        // A panic may be unwinding, and a second one would end the process.
        let returned = catch_unwind(AssertUnwindSafe(|| match &self.return_to {
            ReturnTo::Service => self.version.freed(self, cost),
            ReturnTo::WarmUp(warm_up) => warm_up.freed(),
        }));
        if returned.is_err() {
            log::error!("starting the next batch panicked; this is a defect of the server, please report it");
        }
        self.version.batch_ended();
    }
}

/// Receives the responses of a warmup.
#[derive(Default)]
pub(crate) struct WarmUp {
    pub(crate) ended: Mutex<WarmUpEnded>,
    pub(crate) more: Condvar,
}

#[derive(Default)]
pub(crate) struct WarmUpEnded {
    pub(crate) requests: u64,
    /// Instances that were free again after they responded later.
    pub(crate) instances: u64,
    pub(crate) errors: Vec<Error>,
}

impl WarmUp {
    /// Called when an instance is free.
    pub(crate) fn freed(&self) {
        self.ended.lock().instances += 1;
        self.more.notify_one();
    }
}

impl Sink for WarmUp {
    fn put(&self, answer: EngineResponse) {
        let mut ended = self.ended.lock();
        if let Some(Err(e)) = answer.response
            && ended.errors.len() < WARMUP_BATCH_SIZE_MAX as usize
        {
            ended.errors.push(e);
        }
        if answer.is_final {
            ended.requests += 1;
            self.more.notify_one();
        }
    }
}
