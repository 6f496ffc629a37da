//! State of the input.

use crate::limits::DIRECT_FRAMES_MAX;

/// Progress of the handshake.
#[derive(Default)]
pub struct Handshake {
    /// The client's preface came; its SETTINGS have to follow.
    pub prefaced: bool,
    /// The client sent something other than the preface.
    pub is_stray: bool,
    /// The client's SETTINGS came.
    pub settled: bool,
    /// The client has acknowledged our SETTINGS.
    pub acknowledged: bool,
}

/// Received frames, and the received part of the current one.
pub struct Reading {
    /// Bytes left over from the last read: the beginning of a frame.
    pub known_bytes: usize,
    /// The turn ended before all of the last read was processed.
    pub has_rest: bool,
    /// Received bytes, and frames (a header block counts as one): progress marks for `timeouts`.
    pub received_bytes: u64,
    pub frames: u64,
    /// Payload bytes still to be dropped.
    pub skip: usize,
    pub data: Option<Data>,
    /// Stream and payload length of the last DATA frame, a prediction for the next one.
    pub last_data: (u32, usize),
    /// Number of frames like `last_data` that a direct read plans for: grows when they come, falls when others do.
    pub predicted_frames_max: usize,
    pub block: Option<HeaderBlock>,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            known_bytes: 0,
            has_rest: false,
            received_bytes: 0,
            frames: 0,
            skip: 0,
            data: None,
            last_data: (0, 0),
            predicted_frames_max: DIRECT_FRAMES_MAX,
            block: None,
        }
    }
}

impl Reading {
    /// True inside a frame or a header block.
    pub fn is_inside_frame(&self) -> bool {
        self.known_bytes > 0 || self.block.is_some() || self.is_inside_payload()
    }

    /// True if the next bytes belong to a body or are dropped.
    pub fn is_inside_payload(&self) -> bool {
        self.data.is_some() || self.skip > 0
    }

    /// True inside a frame's head or a header block.
    pub fn is_inside_head(&self) -> bool {
        self.block.is_some() || (self.known_bytes > 0 && !self.is_inside_payload())
    }
}

/// A partly received DATA frame.
pub struct Data {
    pub stream: u32,
    /// Remaining bytes of the body.
    pub left: usize,
    /// Padding after them.
    pub padding: usize,
    pub ends: bool,
}

/// A partly received header block.
pub struct HeaderBlock {
    pub stream: u32,
    pub bytes: Vec<u8>,
    pub ends: bool,
    /// The priority makes the stream depend on itself.
    pub depends_on_itself: bool,
    pub continuations: u32,
}
