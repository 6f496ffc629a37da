//! What a server chooses.

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
        }
    }
}
