//! Limits on the cost that a client may cause before its connection is ended.

use super::ending::Fatal;
use super::stall::StallTimers;
use super::trouble::{Strikes, Trouble};
use crate::frame::Reason;
use crate::limits::EMPTY_FRAMES_MAX;
use std::time::Instant;

#[derive(Default)]
pub struct Tolerance {
    pub stalls: StallTimers,
    /// Consecutive frames without effect.
    pub empty_frames: u32,
    pub trouble: Trouble,
    pub strikes: Strikes,
}

impl Tolerance {
    /// Counts a frame without content.
    pub fn count_empty(&mut self) -> Result<(), Fatal> {
        self.empty_frames += 1;
        match self.empty_frames > EMPTY_FRAMES_MAX {
            true => Err(Fatal(Reason::ENHANCE_YOUR_CALM, "too many empty frames")),
            false => Ok(()),
        }
    }

    /// Counts an abuse; an error ends the connection.
    pub fn count_trouble(&mut self, now: Instant) -> Result<(), Fatal> {
        match self.trouble.add(now) {
            true => Err(Fatal(Reason::ENHANCE_YOUR_CALM, "too many resets, settings or pings")),
            false => Ok(()),
        }
    }
}
