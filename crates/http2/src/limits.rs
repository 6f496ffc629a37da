//! Fixed limits. Those that a server sets are in [`Options`](crate::Options).

use std::time::Duration;

/// CONTINUATION frames of one header block.
pub const CONTINUATIONS_MAX: u32 = 64;
/// Table size updates at the start of a header block: the smallest size and the last one (RFC 7541, 4.2).
pub const TABLE_CHANGES_MAX: u32 = 2;
/// Consecutive frames without content: empty DATA without an end, empty parts of a header block.
pub const EMPTY_FRAMES_MAX: u32 = 4096;
/// Bytes of a SETTINGS frame; many times the size of all defined settings.
pub const SETTINGS_BYTES_MAX: usize = 1024;
/// Output gathered for one write. Bodies beyond it stay in their streams.
pub const WRITE_BYTES: usize = 256 * 1024;
/// Bytes read and written in one turn of a connection before other tasks go first, unless `Options::is_turn_over`
/// returns false. The kernel takes some 60 µs to copy them, on loopback several times that.
pub const TURN_BYTES: usize = 256 * 1024;
/// Streams of a connection, the oldest first, that one look at its progress includes.
pub const STREAMS_PER_LOOK: usize = 256;
/// Frames of one read that are processed between two calls of `Options::is_turn_over`: some 30 µs.
pub const STEPS_PER_LOOK: u32 = 64;
/// Unsent output at which the server stops reading from the client. Bodies alone never reach it, so that a client that
/// has stopped reading them can still cancel.
pub const OUTPUT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Largest DATA frame we send, which bounds how long one response delays the others.
pub const DATA_FRAME_BYTES_MAX: usize = 256 * 1024;
/// Pieces of a body up to this size are copied next to their frame head; larger ones are written from their own memory.
pub const COPY_BYTES_MAX: usize = 4096;
/// Abuse a client may cause at once: streams reset before they are answered, changes of settings, pings in a row.
pub const TROUBLE_MAX: u32 = 1000;
/// One count is forgiven for each answered call and for each of these intervals.
pub const TROUBLE_FORGIVEN_EVERY: Duration = Duration::from_millis(10);
/// Pieces of a received body that are kept as received; beyond that small ones are joined.
pub const PIECES_MAX: usize = 16;
/// Largest piece that counts as small.
pub const SMALL_PIECE_BYTES: usize = 1024;
/// Size of the buffer that small pieces are joined in.
pub const JOINED_BYTES: usize = 16 * 1024;
/// Size of a read from a connection that sends heads and small bodies.
pub const READ_BYTES: usize = 16 * 1024;
/// Size of a read while a large body arrives.
pub const READ_BYTES_MAX: usize = 256 * 1024;
/// Frames of a body that one direct read may contain: 256 KiB in frames of 16 KiB.
pub const DIRECT_FRAMES_MAX: usize = 16;
/// Frames and reads smaller than this go through the read buffer: copying them costs less than planning a direct read.
pub const DIRECT_BYTES_MIN: usize = 4 * 1024;
/// Bytes read and dropped after the last frame to a client, so that it can read that frame.
pub const LINGER_BYTES_MAX: usize = 1024 * 1024;
/// Time limit for the same.
pub const LINGER: Duration = Duration::from_secs(2);
/// Bytes of a body that are dropped after its call was answered, with window updates for more, so that a client that
/// sends everything before it reads can read the response. Beyond it the stream gets no more window.
pub const DISCARD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Silence after which a stream that was answered early is reset; some clients drop the response if reset at once.
pub const EARLY_ANSWER_TIME: Duration = Duration::from_secs(2);
/// Time for a client's preface and SETTINGS.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(20);
/// Time from the first byte of a header block, or of any frame but DATA, to its last.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(20);
/// Time without a byte of a body that a caller waits for.
pub const BODY_STALL_TIME_MAX: Duration = Duration::from_secs(60);
/// The same while other requests wait for memory. Checked every five seconds.
pub const BODY_STALL_TIME_WHEN_SHORT: Duration = Duration::from_secs(5);
/// Time in which a client takes no output: its windows stay closed, or it does not read.
pub const SEND_STALL_TIME_MAX: Duration = Duration::from_secs(60);
/// Time for the acknowledgement of our SETTINGS.
pub const ACKNOWLEDGEMENT_TIME_MAX: Duration = Duration::from_secs(60);
/// Reset streams that are remembered, to classify late frames.
pub const RESETS_REMEMBERED_MAX: usize = 256;
/// Ranges of skipped ids that are remembered.
pub const SKIPS_REMEMBERED_MAX: usize = 16;
/// Bytes of all decoded heads of one connection, from decoding to the end of their calls: 2 KiB for each of 4096
/// streams. A stream beyond it is refused; a single head of an allowed size never is.
pub const HELD_HEAD_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of these, enough for usual clients, that need no room of the server's.
pub const HELD_HEAD_BYTES_FREE: usize = 64 * 1024;
/// Bytes that are reserved from `Options::head_room` at a time.
pub const HELD_HEAD_BYTES_STEP: usize = 256 * 1024;
/// Freed bytes of heads per call of `Options::freed`.
pub const FREED_BYTES_STEP: usize = 1024 * 1024;
/// Remembered heads of a connection.
pub const HEADS_MAX: usize = 8;
/// Longest block that is remembered; a client that repeats itself sends indices.
pub const HEAD_BLOCK_BYTES_MAX: usize = 512;
