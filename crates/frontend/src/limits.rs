//! Every bound of the two front ends, with its default. One place, so that a number in a log or a metric can be found here.

use std::time::Duration;

/// Bytes of a request line with its header fields.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Header fields of one request.
pub const HEADERS_MAX: usize = 256;
/// Bytes of an HTTP body, and of a gRPC message: what fits a signed 32-bit length, as clients assume (P 1.12.4, P 2.7).
pub const BODY_BYTES_MAX: u64 = 2_147_483_647;
/// Non-empty chunks of one chunked body (P 1.1).
pub const CHUNKS_MAX: u32 = 65_536;
/// Bytes of a chunk-size line with its extensions, and of a trailer section.
pub const CHUNK_LINE_BYTES_MAX: usize = 4 * 1024;
/// Bodies up to this size are read into the connection's own buffer; larger ones get a slab of their own.
pub const INLINE_BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a body moved by one read or write: the kernel copies them meanwhile, and others wait. Some 60 µs.
pub const STEP_BYTES: usize = 256 * 1024;
/// Work that waits for a thread of [`offload`](super::offload).
pub const JOBS_WAITING_MAX: usize = 1024;
/// Work with more bytes than this is heavy: it may take tens of milliseconds, and does not get all of those threads.
pub const HEAVY_BYTES_MIN: usize = 1024 * 1024;
/// From this size on memory is given back by those threads.
pub const DISPOSE_BYTES_MIN: usize = 1024 * 1024;
/// JSON parsed on the reactor: 5 to 15 ns a byte.
pub const JSON_BYTES_ON_REACTOR_MAX: usize = 16 * 1024;
/// Tensor bytes printed as JSON on the reactor: up to 40 ns a byte.
pub const PRINT_BYTES_ON_REACTOR_MAX: usize = 8 * 1024;
/// Tensor bytes ranked for classification on the reactor.
pub const RANK_BYTES_ON_REACTOR_MAX: usize = 8 * 1024;
/// Bytes inflated on the reactor: 3 to 5 ns a byte.
pub const INFLATE_BYTES_ON_REACTOR_MAX: usize = 32 * 1024;
/// Members of a gzip body inflated on the reactor: 6 µs each, even when they are empty.
pub const INFLATE_MEMBERS_ON_REACTOR_MAX: usize = 16;
/// Members of any gzip body. Tools that write blocks, such as bgzip, make one of 64 KiB: half as many for the largest body there is.
pub const INFLATE_MEMBERS_MAX: usize = 65_536;
/// Bytes deflated on the reactor at level 1, 10 ns a byte; at level n a part of it, as it takes up to so much longer.
pub const DEFLATE_BYTES_ON_REACTOR_MAX: usize = 16 * 1024;
/// Bytes of a BYTES tensor whose strings are counted on the reactor: 1.5 ns a byte for empty ones.
pub const STRINGS_BYTES_ON_REACTOR_MAX: usize = 64 * 1024;
/// Bytes of a gRPC message besides raw tensors that are walked on the reactor: 5 ns a byte for the smallest fields.
pub const MESSAGE_BYTES_ON_REACTOR_MAX: usize = 32 * 1024;
/// Inputs and outputs of one request that are checked on the reactor.
pub const ENTRIES_ON_REACTOR_MAX: usize = 64;
/// Models whose statistics are made on the reactor: 5 µs each.
pub const MODELS_ON_REACTOR_MAX: usize = 32;
/// Bytes that come out of a compressed body for each that went in. Tensors of zeros have 1000; data that mean something rarely 100.
pub const INFLATE_RATIO_MAX: usize = 256;
/// Bytes that may come out of any body, whatever its ratio.
pub const INFLATE_RATIO_FREE_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of an error's text that are sent: names and ids of the client's stand in it.
pub const ERROR_TEXT_BYTES_MAX: usize = 16 * 1024;
/// Bytes of an unwanted body that are read and thrown away to keep the connection; beyond that it is closed.
pub const DISCARD_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes a closing connection still reads and throws away, so that a client that sends its whole body first gets to read why it
/// was refused.
pub const LINGER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// How long it does so.
pub const LINGER_TIME_MAX: Duration = Duration::from_secs(5);
/// A line of the log about clients that speak TLS at a port of plain text is written once in so long, for each port.
pub const STRAY_LINE_INTERVAL: Duration = Duration::from_secs(60);
/// Bytes read ahead from a connection whose request is still being answered (pipelining).
pub const READ_AHEAD_BYTES_MAX: usize = 64 * 1024;
/// Time a client has for a TLS handshake.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// TLS handshakes for each thread of [`offload`](super::offload) that are computed or wait for it. The others wait their turn elsewhere.
pub const HANDSHAKES_PER_THREAD: usize = 2;
/// Certificates of a listener, of which a client is shown one. They are looked through for each handshake.
pub const TLS_CERTIFICATES_MAX: usize = 64;
/// Bytes of a file with certificates or a key: thousands of roots.
pub const TLS_FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Time from the first byte of a request head to its last.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(60);
/// Time a body, ours or the client's, may make no progress.
pub const BODY_STALL_TIME_MAX: Duration = Duration::from_secs(300);
/// A server to which nobody has connected for so long closes its listeners without a grace: longer than the usual interval of
/// probes and scrapes.
pub const DESERTED_TIME: Duration = Duration::from_secs(60);
/// Open connections of both front ends together, per reactor; fewer where the descriptors are fewer.
pub const CONNECTIONS_PER_REACTOR_MAX: usize = 16_384;
/// Descriptors that connections leave to others: 256 for connections of metrics, the rest for model files, libraries and regions.
pub const DESCRIPTORS_RESERVED: u64 = 384;
/// One of so many parts of the connections is kept for either front end, whatever the other has open.
pub const CONNECTIONS_SHARE: usize = 8;
/// An HTTP/1.1 connection may wait so long for its client; clients pool them, so this is long.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(3600);
/// How often it is looked at.
pub const IDLE_SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Depth of the kernel's accept queue.
pub const ACCEPT_BACKLOG: i32 = 4096;
/// Connections of one reactor to the control address. They are counted apart: clients that take all others leave these.
pub const CONTROL_CONNECTIONS_MAX: usize = 64;
/// Bytes of the list of headers that a preflight of CORS asks for; a longer one is answered without them.
pub const CORS_HEADERS_BYTES_MAX: usize = 1024;
/// Bytes of the path of a Unix socket, which the system has room for.
pub const SOCKET_PATH_BYTES_MAX: usize = if cfg!(target_os = "macos") { 103 } else { 107 };
/// Streams a client may have open on one HTTP/2 connection.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 4096;
/// HTTP/2 flow-control window of one stream: large enough that one tensor of a usual size never waits for an update.
pub const STREAM_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
/// HTTP/2 flow-control window of a connection.
pub const CONNECTION_WINDOW_BYTES: u32 = 32 * 1024 * 1024;
/// Largest HTTP/2 frame we accept.
pub const FRAME_BYTES_MAX: u32 = 1024 * 1024;
/// Bytes of HTTP/2 header fields of one request.
pub const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;
/// Response bytes buffered per HTTP/2 stream before its sender waits. Parts are counted views, so this costs no memory.
pub const SEND_BUFFER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Requests of one ModelStreamInfer stream that are started and not yet answered; further ones wait unread.
pub const STREAM_REQUESTS_PENDING_MAX: usize = 1024;
/// Bytes of answers that wait for one reader of a decoupled model: a stream of gRPC, a body of events, an iteration of the in-process
/// API. The request that goes beyond it is cancelled; a larger answer alone is not.
pub const ANSWERS_BYTES_MAX: usize = 32 * 1024 * 1024;
/// What each of them counts beside its tensors: the answer itself, its names and shapes.
pub const ANSWER_OVERHEAD_BYTES: usize = 512;
/// Answers that wait for one reader as they are made. Small ones behind them are packed (`frontend::packed`), which takes 0.1 µs.
pub const ANSWERS_UNPACKED_MAX: usize = 128;
/// Answers that wait for one reader.
pub const ANSWERS_WAITING_MAX: usize = 32_768;
/// How long one of them may wait when another comes.
pub const ANSWERS_AGE_MAX: Duration = Duration::from_secs(60);
/// Bytes of encoded answers of decoupled models that HTTP/2 holds for one stream. As long as it holds more, the next answers stay
/// where they are counted and charged.
pub const ANSWERS_SENT_AHEAD_BYTES_MAX: usize = UNCHARGED_ANSWER_BYTES_MAX;
/// Answers that are taken between looks at how long that took. One takes 1 to 2 µs.
pub const ANSWERS_PER_LOOK: u32 = 32;
/// Open `grpc.health.v1.Health/Watch` calls of the server, with those that are told its load.
pub const HEALTH_WATCHERS_MAX: usize = 1024;
/// How often one of them, for all, has models asked that say themselves whether they are ready. Without watchers none is asked.
pub const HEALTH_WATCH_ASK: Duration = Duration::from_secs(1);
/// How often one of them looks whether its client reads again.
pub const HEALTH_WATCH_RETRY: Duration = Duration::from_millis(250);
/// Bytes of JSON that a control operation other than a load may hand to TypeScript: parsing 64 MiB would hold metrics and other
/// control operations for a second. A load brings files, up to the limits of its transport.
pub const CONTROL_ARGUMENT_BYTES_MAX: usize = 1024 * 1024;
/// Files that a load may bring: each becomes an object of JavaScript, whose heap ends the process when it is full. As in
/// `src/repository/override.ts`.
pub const LOAD_FILES_MAX: usize = 1024;
/// First step in which a body is charged to the memory budget; later ones double, up to `STEP_BYTES`.
pub const CHARGE_BYTES_MIN: usize = 16 * 1024;
/// Time a request waits for memory before it is refused.
pub const MEMORY_WAIT_TIME_MAX: Duration = Duration::from_secs(5);
/// A body that makes no progress for so long gives up its memory, with a 408, when others wait for some: a few clients that stop could
/// else keep all of it for `BODY_STALL_TIME_MAX`.
pub const STALLED_BODY_GIVES_WAY_TIME: Duration = Duration::from_secs(5);
/// How often a stalled body looks whether others wait.
pub const STALLED_BODY_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// When a client that was refused for lack of memory is asked to try again.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Answers up to this size are not charged: a socket takes them at once, or nearly so.
pub const UNCHARGED_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Bytes of lines of the access log that wait to be written, of each reactor. Further ones are dropped and counted.
pub const ACCESS_LOG_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of lines of the audit log that wait to be written.
pub const AUDIT_LOG_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Lines of the audit log whose files the thread of the log has still to hash; further ones are written without. What they hold is charged
/// to the memory budget.
pub const LINES_UNFINISHED_MAX: usize = 64;
/// Bytes of a body whose parameters the reactor writes into the audit log itself.
pub const AUDIT_BYTES_ON_REACTOR_MAX: usize = 4096;
/// Files, or settings, that a line of the audit log lists.
pub const AUDIT_ITEMS_MAX: usize = 64;
/// Bytes of a path, and of the id of a request, in a line of either log. What is escaped takes up to six times as many.
pub const LOG_PATH_BYTES_MAX: usize = 1024;
/// Likewise of a name: of a model, a region, a key, a file.
pub const LOG_NAME_BYTES_MAX: usize = 256;
/// Likewise of an error's text.
pub const LOG_ERROR_BYTES_MAX: usize = 1024;

/// Events or messages of an embedded request that are handed over at once, at most.
pub const EMBEDDED_EVENTS_PER_CALL_MAX: usize = 64;
/// No further one is added to them beyond so many bytes.
pub const EMBEDDED_BYTES_PER_CALL: usize = 256 * 1024;
/// Part of a message that an embedded call is given at once; another is taken once no more than this waits to be read. So much of each call,
/// twice, is not charged.
pub const EMBEDDED_PIECE_BYTES_MAX: usize = 256 * 1024;
