//! How far the client's bytes are read.

use crate::limits::DIRECT_FRAMES_MAX;

/// How far both sides have agreed to speak HTTP/2.
#[derive(Default)]
pub struct Handshake {
    /// The client's preface came; then its SETTINGS have to follow.
    pub prefaced: bool,
    /// The client sent something else in its place.
    pub is_stray: bool,
    /// The client's SETTINGS came.
    pub settled: bool,
    /// The client has acknowledged our SETTINGS.
    pub acknowledged: bool,
}

/// Frames, and what is here of the one that is being read.
pub struct Reading {
    /// What was left over of the last read: bytes of the beginning of a frame.
    pub known_bytes: usize,
    /// The turn was over before all of the last read was looked at.
    pub has_rest: bool,
    /// Bytes that came, and frames, of which a header block is one: marks for `patience`.
    pub received_bytes: u64,
    pub frames: u64,
    /// A frame whose payload is thrown away: bytes left.
    pub skip: usize,
    pub data: Option<Data>,
    /// Stream and payload of the last DATA frame: the next one is likely to be the same.
    pub last_data: (u32, usize),
    /// How many such frames a read is laid out for: it grows as they come and falls when others do.
    pub trust: usize,
    pub block: Option<Block>,
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
            trust: DIRECT_FRAMES_MAX,
            block: None,
        }
    }
}

impl Reading {
    /// Whether a frame, or a header block, has begun and not ended.
    pub fn is_inside_frame(&self) -> bool {
        self.known_bytes > 0 || self.block.is_some() || self.is_inside_payload()
    }

    /// Whether what comes next belongs to a body, or is thrown away.
    pub fn is_inside_payload(&self) -> bool {
        self.data.is_some() || self.skip > 0
    }

    /// Whether a frame's head, or a header block, has begun and not ended.
    pub fn is_inside_head(&self) -> bool {
        self.block.is_some() || (self.known_bytes > 0 && !self.is_inside_payload())
    }
}

/// A DATA frame of which not everything is here.
pub struct Data {
    pub stream: u32,
    /// Bytes of the body.
    pub left: usize,
    /// Bytes behind them.
    pub padding: usize,
    pub ends: bool,
}

/// A header block of which not everything is here.
pub struct Block {
    pub stream: u32,
    pub bytes: Vec<u8>,
    pub ends: bool,
    /// Its priority says that the stream depends on itself.
    pub depends_on_itself: bool,
    pub continuations: u32,
}
