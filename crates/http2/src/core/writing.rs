//! Output to the client and its flow control.

use crate::frame::{FRAME_BYTES_MIN, FrameHead, HEAD_BYTES, Reason, WINDOW_DEFAULT, flag, kind};
use crate::hpack::Encoder;
use crate::options::Options;
use crate::output::OutputBuffer;
use std::collections::VecDeque;

pub struct Writing {
    pub output: OutputBuffer,
    pub encoder: Encoder,
    /// Send window of the connection in bytes.
    pub send_window: i64,
    /// Initial send window of a stream.
    pub peer_window: i64,
    pub peer_frame_bytes: usize,
    /// Keys of streams that have something to send.
    pub ready: VecDeque<u32>,
}

impl Writing {
    pub fn new(options: &Options) -> Self {
        Self {
            output: OutputBuffer::default(),
            encoder: Encoder::new(options.fixed),
            send_window: i64::from(WINDOW_DEFAULT),
            peer_window: i64::from(WINDOW_DEFAULT),
            peer_frame_bytes: FRAME_BYTES_MIN as usize,
            ready: VecDeque::new(),
        }
    }

    /// Writes a small frame.
    pub fn put_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let tail = self.output.tail();
        tail.extend_from_slice(&FrameHead { length: payload.len(), kind, flags, stream }.bytes());
        tail.extend_from_slice(payload);
    }

    /// Writes GOAWAY: streams after `id` are not served.
    pub fn put_goaway(&mut self, id: u32) {
        let ([a, b, c, d], [e, f, g, h]) = (id.to_be_bytes(), Reason::NO_ERROR.0.to_be_bytes());
        self.put_frame(kind::GOAWAY, 0, 0, &[a, b, c, d, e, f, g, h]);
    }

    /// Writes the head of a DATA frame; its `n` bytes follow.
    pub fn put_data_head(&mut self, id: u32, n: usize, ends: bool) {
        let flags = if ends { flag::END_STREAM } else { 0 };
        let head = FrameHead { length: n, kind: kind::DATA, flags, stream: id };
        self.output.tail().extend_from_slice(&head.bytes());
    }

    /// Writes a header block, in as many frames as it needs.
    pub fn put_block(&mut self, id: u32, ends: bool, write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        let out = self.output.tail();
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        self.encoder.begin(out);
        write(&mut self.encoder, out);
        let length = out.len() - start - HEAD_BYTES;
        let end = if ends { flag::END_STREAM } else { 0 };
        if length <= self.peer_frame_bytes {
            let head = FrameHead { length, kind: kind::HEADERS, flags: flag::END_HEADERS | end, stream: id };
            if let Some(place) = out.get_mut(start..start + HEAD_BYTES) {
                place.copy_from_slice(&head.bytes());
            }
            return;
        }
        let block = out.split_off(start + HEAD_BYTES);
        out.truncate(start);
        let count = block.len().div_ceil(self.peer_frame_bytes);
        for (i, part) in block.chunks(self.peer_frame_bytes).enumerate() {
            let kind = if i == 0 { kind::HEADERS } else { kind::CONTINUATION };
            let last = if i + 1 == count { flag::END_HEADERS } else { 0 };
            let flags = last | if i == 0 { end } else { 0 };
            out.extend_from_slice(&FrameHead { length: part.len(), kind, flags, stream: id }.bytes());
            out.extend_from_slice(part);
        }
    }
}
