//! Options that the server sets.

use crate::ledger::Room;
use crate::limits::{
    ACKNOWLEDGEMENT_TIME_MAX, BODY_STALL_TIME_MAX, BODY_STALL_TIME_WHEN_SHORT, EARLY_ANSWER_TIME, HANDSHAKE_TIME_MAX,
    HEAD_TIME_MAX, SEND_STALL_TIME_MAX,
};
use std::time::Duration;

/// Options of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Initial window of a stream in bytes.
    pub stream_window: u32,
    /// Window of the whole connection in bytes.
    pub connection_window: u32,
    /// Largest accepted frame, at least 16 KiB.
    pub frame_bytes_max: u32,
    /// Concurrent streams per client.
    pub streams_max: u32,
    /// Size of the header fields of one request; each counts its name, its value and 32 bytes.
    pub header_list_bytes_max: u32,
    /// Response bytes of one stream that may be queued; `StreamWriter::capacity` is the part that is free.
    pub send_buffer_bytes_max: usize,
    /// Response fields that are the same for many responses, used as `Field::Fixed`. Sent in full once per connection,
    /// if the client's table is large enough, and as one byte from then on.
    pub fixed: &'static [(&'static str, &'static str)],
    /// Limits of pings.
    pub pings: Pings,
    /// Timeouts.
    pub times: Times,
    /// Called about once per megabyte with the number of freed bytes of heads, which an allocator may keep.
    pub freed: fn(usize),
    /// Account, shared by all connections, of heads beyond the few that are free.
    pub head_room: Room,
    /// True while others wait for memory that bodies may hold.
    pub is_short: fn() -> bool,
    /// True if a turn that has moved `limits::TURN_BYTES` must end. A thread that measures its work may continue.
    pub is_turn_over: fn() -> bool,
}

/// Timeouts. Each is checked a few times while it runs, so that a client may get a quarter more of the shortest. The
/// defaults are in `limits`. No timeout applies to a connection without a call, or while a call waits for the server.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Time for the client's preface and SETTINGS; then the connection is closed.
    pub handshake: Duration,
    /// Time to acknowledge our SETTINGS; then the connection is closed.
    pub acknowledgement: Duration,
    /// Time from the first to the last byte of a header block or any frame but DATA; then the connection closes.
    pub head: Duration,
    /// Time without a byte of a body that a caller waits for; then its stream is reset. If the client sent nothing at
    /// all, the connection is closed.
    pub body: Duration,
    /// The same for a body that has begun, while `Options::is_short` returns true.
    pub body_when_short: Duration,
    /// Time in which the client takes no output; then the stream is reset or the connection closed, as for `body`.
    pub send: Duration,
    /// Time without a byte of a body whose call was answered; then its stream is reset.
    pub linger: Duration,
}

impl Times {
    /// The shortest timeout that can run while nothing happens.
    pub(crate) fn shortest(&self) -> Duration {
        self.handshake.min(self.acknowledgement).min(self.head).min(self.body).min(self.send)
    }
}

impl Default for Times {
    fn default() -> Self {
        Self {
            handshake: HANDSHAKE_TIME_MAX,
            acknowledgement: ACKNOWLEDGEMENT_TIME_MAX,
            head: HEAD_TIME_MAX,
            body: BODY_STALL_TIME_MAX,
            body_when_short: BODY_STALL_TIME_WHEN_SHORT,
            send: SEND_STALL_TIME_MAX,
            linger: EARLY_ANSWER_TIME,
        }
    }
}

/// Limits of pings, as in gRPC. The default has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pings {
    /// A ping that comes sooner than this after the client's last one, with nothing sent to it in between, is a strike.
    pub interval_min: Duration,
    /// More strikes than this end the connection; 0 = no limit.
    pub strikes_max: u32,
    /// Without an open stream `interval_min` is two hours, unless this is set.
    pub without_streams: bool,
    /// Pings we send without a header or data between them; 0 = no limit.
    pub sent_without_data_max: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stream_window: 1024 * 1024,
            connection_window: 8 * 1024 * 1024,
            frame_bytes_max: 64 * 1024,
            streams_max: 256,
            header_list_bytes_max: 64 * 1024,
            send_buffer_bytes_max: 1024 * 1024,
            fixed: &[],
            pings: Pings::default(),
            times: Times::default(),
            freed: |_| {},
            head_room: Room::default(),
            is_short: || false,
            is_turn_over: || true,
        }
    }
}
