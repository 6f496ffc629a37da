//! Frames as bytes: heads, types, flags, error codes.

/// First bytes of every connection.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame head.
pub const HEAD_BYTES: usize = 9;
/// Default and smallest allowed value of MAX_FRAME_SIZE.
pub const FRAME_BYTES_MIN: u32 = 16_384;
/// Largest possible frame.
pub const FRAME_BYTES_MAX: u32 = (1 << 24) - 1;
/// Initial window.
pub const WINDOW_DEFAULT: u32 = 65_535;
/// Largest possible window.
pub const WINDOW_MAX: i64 = (1 << 31) - 1;

pub mod kind {
    #![allow(missing_docs)]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

pub mod flag {
    #![allow(missing_docs)]
    pub const ACK: u8 = 1;
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 32;
}

pub mod setting {
    #![allow(missing_docs)]
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// Why a stream or a connection ended: an error code of HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason(pub u32);

#[allow(missing_docs)]
impl Reason {
    pub const NO_ERROR: Self = Self(0);
    pub const PROTOCOL_ERROR: Self = Self(1);
    pub const INTERNAL_ERROR: Self = Self(2);
    pub const FLOW_CONTROL_ERROR: Self = Self(3);
    pub const SETTINGS_TIMEOUT: Self = Self(4);
    pub const STREAM_CLOSED: Self = Self(5);
    pub const FRAME_SIZE_ERROR: Self = Self(6);
    pub const REFUSED_STREAM: Self = Self(7);
    pub const CANCEL: Self = Self(8);
    pub const COMPRESSION_ERROR: Self = Self(9);
    pub const ENHANCE_YOUR_CALM: Self = Self(11);
}

/// Head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// Length of the payload in bytes.
    pub length: usize,
    /// One of `kind`, or unknown.
    pub kind: u8,
    /// Bits of `flag`.
    pub flags: u8,
    /// Stream id; 0 = the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Reads a head; `None` while it is incomplete.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, s, t, u, v] = bytes.first_chunk::<HEAD_BYTES>()?;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        // The highest bit is reserved.
        let stream = u32::from_be_bytes([s & 0x7f, t, u, v]);
        Some(Self { length, kind, flags, stream })
    }

    /// Encodes the head.
    pub fn bytes(self) -> [u8; HEAD_BYTES] {
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [s, t, u, v] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s, t, u, v]
    }

    /// True if `flag` is set.
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A big-endian number of 31 bits at the start of `bytes`.
pub fn number31(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk::<4>().map(|b| u32::from_be_bytes(*b) & 0x7fff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_round_trip_and_the_reserved_bit_is_ignored() {
        for (length, stream) in [(0, 0), (1, 1), (16_384, 3), (FRAME_BYTES_MAX as usize, 0x7fff_ffff)] {
            let head = FrameHead { length, kind: kind::DATA, flags: flag::END_STREAM | flag::PADDED, stream };
            let mut bytes = head.bytes();
            assert_eq!(FrameHead::read(&bytes), Some(head));
            bytes[5] |= 0x80;
            assert_eq!(FrameHead::read(&bytes), Some(head));
            assert_eq!(FrameHead::read(&bytes[..8]), None);
        }
    }
}
