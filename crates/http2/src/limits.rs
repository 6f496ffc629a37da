//! Bounds that need not be set. Those a server chooses are in [`Options`](crate::Options).

use std::time::Duration;

/// CONTINUATION frames of one header block.
pub const CONTINUATIONS_MAX: u32 = 64;
/// Changes of the size of its table that a header block may begin with: the smallest, and the last (RFC 7541, 4.2).
pub const TABLE_CHANGES_MAX: u32 = 2;
/// Frames in a row that carry nothing: empty DATA without an end, empty parts of a header block.
pub const EMPTY_FRAMES_MAX: u32 = 4096;
/// Bytes of a SETTINGS frame; all settings there are, many times over.
pub const SETTINGS_BYTES_MAX: usize = 1024;
/// Output gathered before it is written, and written at once. Bodies beyond it wait in their streams.
pub const WRITE_BYTES: usize = 256 * 1024;
/// Bytes read and written in one turn of a connection; then others have theirs, unless `Options::is_turn_over` says that it may go on.
/// The kernel copies them meanwhile: some 60 µs, on loopback several times that.
pub const TURN_BYTES: usize = 256 * 1024;
/// Frames of one read that are taken before `Options::is_turn_over` is asked: some 30 µs.
pub const STEPS_PER_LOOK: u32 = 64;
/// Output that a peer does not take, beyond which it is not listened to either. Bodies alone never get there, so that a client
/// that has stopped reading them can still cancel.
pub const OUTPUT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Largest DATA frame we send: what one response may delay the others by.
pub const DATA_FRAME_BYTES_MAX: usize = 256 * 1024;
/// A piece of a body this small is copied beside its frame head; a larger one is written from where it is.
pub const COPY_BYTES_MAX: usize = 4096;
/// Trouble a client may cause at once: streams that are reset before they are answered, settings that change, pings one behind the
/// other.
pub const TROUBLE_MAX: u32 = 1000;
/// It is forgiven one such thing for each answered call, and one in this time.
pub const TROUBLE_FORGIVEN_EVERY: Duration = Duration::from_millis(10);
/// Pieces of a received body that are kept as they came; beyond that small ones are put together.
pub const PIECES_MAX: usize = 16;
/// What is a small piece.
pub const SMALL_PIECE_BYTES: usize = 1024;
/// Size of what they are put together to.
pub const JOINED_BYTES: usize = 16 * 1024;
/// Read at once from a connection that sends heads and small bodies.
pub const READ_BYTES: usize = 16 * 1024;
/// Read at once while a large body arrives.
pub const READ_BYTES_MAX: usize = 256 * 1024;
/// Frames of a body that one read may bring to its place: 256 KiB in frames of 16 KiB.
pub const DIRECT_FRAMES_MAX: usize = 16;
/// Frames, and reads, smaller than this go through the read buffer: copying them costs less than laying out a read.
pub const DIRECT_BYTES_MIN: usize = 4 * 1024;
/// Bytes thrown away after the last word to a client, so that it gets to read it.
pub const LINGER_BYTES_MAX: usize = 1024 * 1024;
/// And how long that may take.
pub const LINGER: Duration = Duration::from_secs(2);
/// Bytes of a body that are thrown away after its call was answered, with room given for more, so that a client that sends all
/// before it reads gets to read the answer. Beyond it the stream gets no more room.
pub const DISCARD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long a stream that was answered early may send nothing before it is reset: a reset that comes with the answer makes some
/// clients throw the answer away.
pub const EARLY_ANSWER_TIME: Duration = Duration::from_secs(2);
/// Time for a client's preface and SETTINGS.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(20);
/// Time from the first byte of a header block, or of any frame but DATA, to its last.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(20);
/// Time in which nothing comes of a body that is waited for.
pub const BODY_STALL_TIME_MAX: Duration = Duration::from_secs(60);
/// The same while other requests wait for memory. It is looked at every five seconds.
pub const BODY_STALL_TIME_WHEN_SHORT: Duration = Duration::from_secs(5);
/// Time in which a client takes nothing of what is to be sent: its windows stay closed, or it does not read.
pub const SEND_STALL_TIME_MAX: Duration = Duration::from_secs(60);
/// Time for the acknowledgement of our SETTINGS.
pub const ACKNOWLEDGEMENT_TIME_MAX: Duration = Duration::from_secs(60);
/// Streams that were reset and are remembered, to know what a late frame means.
pub const RESETS_REMEMBERED_MAX: usize = 256;
/// Ranges of ids that a client left out and that are remembered.
pub const SKIPS_REMEMBERED_MAX: usize = 16;
/// Bytes that the decoded heads of one connection take together, from when they came to the end of their calls: 2 KiB for each of
/// 4096 streams. A stream beyond it is refused; one head alone, of an allowed size, never is.
pub const HELD_HEAD_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Of these so many need no room of the server's: those of usual clients.
pub const HELD_HEAD_BYTES_FREE: usize = 64 * 1024;
/// For the rest, `Options::head_room` is asked for so much at once.
pub const HELD_HEAD_BYTES_STEP: usize = 256 * 1024;
/// After so many bytes of heads were freed, `Options::freed` is told.
pub const FREED_BYTES_TOLD: usize = 1024 * 1024;
/// Remembered heads of a connection.
pub const HEADS_MAX: usize = 8;
/// Longest block that is remembered: a client that repeats itself sends indices.
pub const HEAD_BLOCK_BYTES_MAX: usize = 512;
