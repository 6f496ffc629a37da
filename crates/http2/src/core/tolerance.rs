//! What a client may cost us before its connection ends.

use super::ending::Fatal;
use super::still::Patience;
use super::trouble::{Strikes, Trouble};
use crate::frame::Reason;
use crate::limits::EMPTY_FRAMES_MAX;
use std::time::Instant;

#[derive(Default)]
pub struct Tolerance {
    pub patience: Patience,
    /// Frames without effect, one after the other.
    pub empty_frames: u32,
    pub trouble: Trouble,
    pub strikes: Strikes,
}

impl Tolerance {
    /// Counts a frame that brings nothing.
    pub fn count_empty(&mut self) -> Result<(), Fatal> {
        self.empty_frames += 1;
        match self.empty_frames > EMPTY_FRAMES_MAX {
            true => Err(Fatal(Reason::ENHANCE_YOUR_CALM, "too many empty frames")),
            false => Ok(()),
        }
    }

    /// Counts trouble; an error when it was too much, and the connection ends.
    pub fn count_trouble(&mut self, now: Instant) -> Result<(), Fatal> {
        match self.trouble.add(now) {
            true => Err(Fatal(Reason::ENHANCE_YOUR_CALM, "too many resets, settings or pings")),
            false => Ok(()),
        }
    }
}
