//! What a server chooses.

use crate::ledger::Room;
use crate::limits::{
    ACKNOWLEDGEMENT_TIME_MAX, BODY_STALL_TIME_MAX, BODY_STALL_TIME_WHEN_SHORT, EARLY_ANSWER_TIME, HANDSHAKE_TIME_MAX,
    HEAD_TIME_MAX, SEND_STALL_TIME_MAX,
};
use std::time::Duration;

/// Options of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bytes a client may send on one stream ahead of being asked for more.
    pub stream_window: u32,
    /// And on all streams together.
    pub connection_window: u32,
    /// Largest frame that is accepted, 16 KiB at least.
    pub frame_bytes_max: u32,
    /// Streams a client may have open.
    pub streams_max: u32,
    /// Bytes of the header fields of one request, each counted with 32 more than its name and value.
    pub header_list_bytes_max: u32,
    /// Response bytes of one stream that may wait in us: what `Responder::capacity` is measured against.
    pub send_buffer_bytes_max: usize,
    /// Response fields that are the same for many responses, used as `Field::Fixed`. Sent in full once per connection, if the
    /// client keeps a table large enough, and as one byte from then on.
    pub fixed: &'static [(&'static str, &'static str)],
    /// What pings are for.
    pub pings: Pings,
    /// How long a client may leave us waiting.
    pub times: Times,
    /// Learns, a megabyte at a time, how much of the memory for heads was freed: an allocator may keep it until it is asked to give
    /// it back.
    pub freed: fn(usize),
    /// Where heads beyond a few are accounted for: together with those of other connections.
    pub head_room: Room,
    /// Whether others wait for memory that bodies may hold.
    pub is_short: fn() -> bool,
    /// Whether a turn that has moved `limits::TURN_BYTES` ends there: on a thread that knows how long it has worked, one may go on.
    pub is_turn_over: fn() -> bool,
}

/// How long a client may leave us waiting, each looked at a few times while it runs: a client may get a quarter more of the
/// shortest. The defaults are in `limits`. A connection without a call, or with a call that waits for us, is never waited for.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// For its preface and SETTINGS; then the connection is closed.
    pub handshake: Duration,
    /// For the acknowledgement of our SETTINGS; then the connection is closed.
    pub acknowledgement: Duration,
    /// For a header block, and any frame but DATA, from the first byte to the last; then the connection is closed.
    pub head: Duration,
    /// Without a byte of a body that is waited for; then its stream is reset. The connection is closed if nothing at all came.
    pub body: Duration,
    /// The same, of a body of which something came, while `Options::is_short` says that others wait for memory.
    pub body_when_short: Duration,
    /// Without taking anything of what is to be sent; likewise.
    pub send: Duration,
    /// Without a byte of a body whose call was answered; then its stream is reset.
    pub linger: Duration,
}

impl Times {
    /// The shortest of those that are waited for while nothing happens.
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

/// Limits of pings, as gRPC has them. The default has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pings {
    /// A client's ping that comes sooner than this after its last one, with nothing sent to it between the two, is a strike.
    pub interval_min: Duration,
    /// More strikes than this end the connection; 0 = they do not.
    pub strikes_max: u32,
    /// Without an open stream `interval_min` is two hours, unless this is set.
    pub without_streams: bool,
    /// Pings we send without a header or data between them; 0 = any number.
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
