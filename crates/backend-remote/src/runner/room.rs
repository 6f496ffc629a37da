//! Memory of a runner: more for its responses, less while it rests.

use super::Runner;
use crate::memory::TensorMemory;
use crate::trim;
use std::sync::Arc;
use std::time::Duration;

/// A runner waits so often for memory of a response while the server is short of it, 5 s in all; then it gets none.
const SEGMENT_TRIES: u32 = 50;
const SEGMENT_INTERVAL: Duration = Duration::from_millis(100);

impl Runner {
    /// Adds memory for responses once the server has some: requests that hold it end meanwhile.
    pub(super) fn need_responses(&self, bytes: u64) {
        self.try_responses(bytes, SEGMENT_TRIES);
    }

    fn try_responses(&self, bytes: u64, tries: u32) {
        let is_open = self.state.lock().lifecycle.is_in_service();
        if !self.memory.need_responses(bytes, is_open && tries > 0) {
            self.later(SEGMENT_INTERVAL, move |runner| runner.try_responses(bytes, tries - 1));
        }
    }
}

impl trim::IdleMemory for Runner {
    fn idle_memory(&self) -> Option<&Arc<TensorMemory>> {
        let state = self.state.lock();
        let is_idle = !state.has_requests() && state.lifecycle.is_in_service();
        is_idle.then_some(&self.memory)
    }
}
