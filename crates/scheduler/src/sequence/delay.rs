//! When a batch of the direct strategy has to run.

use crate::Cause;

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

    /// Why a batch whose oldest request came at `oldest` runs now, or `Err` with the time at which it has to run.
    pub fn decide(&self, now: u64, oldest: u64, ready: u32) -> Result<Cause, u64> {
        let until = oldest.saturating_add(self.ns);
        match () {
            // Without a minimum utilization a batch does not wait (measured: in Triton the delay alone has no effect).
            () if self.ns == 0 || self.utilization <= 0.0 => Ok(Cause::IdleInstance),
            () if ready as f32 / self.slots >= self.utilization => Ok(Cause::SlotsFilled),
            () if until <= now => Ok(Cause::DelayElapsed),
            () => Err(until),
        }
    }
}
