//! When a batch of the direct strategy has to run.

/// How long a batch may wait for more slots.
#[derive(Clone, Copy)]
pub(super) struct Delay {
    ns: u64,
    /// Share of the slots that need a request for the batch to run at once.
    utilization: f32,
    slots: f32,
}

impl Delay {
    pub fn new(max_queue_delay_us: u64, utilization: f32, max_batch_size: u32) -> Self {
        Self { ns: max_queue_delay_us.saturating_mul(1000), utilization, slots: max_batch_size.max(1) as f32 }
    }

    /// When a batch whose oldest request came at `oldest` has to run; `None` = now.
    pub fn until(&self, now: u64, oldest: u64, ready: u32) -> Option<u64> {
        // Without a minimum utilization a batch does not wait (measured: in Triton the delay alone has no effect).
        let may_wait = self.ns > 0 && self.utilization > 0.0 && (ready as f32 / self.slots) < self.utilization;
        let until = oldest.saturating_add(self.ns);
        (may_wait && until > now).then_some(until)
    }
}
