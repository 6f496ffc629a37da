//! Limits of the front ends. A number in a log or a metric can be found here.

use std::time::Duration;

/// Bytes of a request line with its header fields.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Header fields of one request.
pub const HEADERS_MAX: usize = 256;
/// Bytes of an HTTP body or a gRPC message: a signed 32-bit length, as clients assume (P 1.12.4, P 2.7).
pub const BODY_BYTES_MAX: u64 = 2_147_483_647;
/// Non-empty chunks of one chunked body (P 1.1).
pub const CHUNKS_MAX: u32 = 65_536;
/// Bytes of a chunk-size line with its extensions, and of a trailer section.
pub const CHUNK_LINE_BYTES_MAX: usize = 4 * 1024;
/// Bodies up to this size are read into the connection's own buffer; larger ones get a slab of their own.
pub const INLINE_BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a body per read or write. The kernel copies them meanwhile, about 60 µs, and other requests wait.
pub const STEP_BYTES: usize = 256 * 1024;
/// Jobs that wait for a thread of `offload`.
pub const JOBS_WAITING_MAX: usize = 1024;
/// A job with more bytes is heavy: it may take tens of milliseconds, and heavy jobs do not get all of those threads.
pub const HEAVY_BYTES_MIN: usize = 1024 * 1024;
/// Memory of at least this size is freed by those threads.
pub const DISPOSE_BYTES_MIN: usize = 1024 * 1024;
/// JSON parsed on the reactor: 5 to 15 ns a byte.
pub const JSON_BYTES_ON_REACTOR_MAX: usize = 16 * 1024;
/// Tensor bytes printed as JSON on the reactor: up to 40 ns a byte.
pub const PRINT_BYTES_ON_REACTOR_MAX: usize = 8 * 1024;
/// Tensor bytes ranked for classification on the reactor.
pub const RANK_BYTES_ON_REACTOR_MAX: usize = 8 * 1024;
/// Bytes inflated on the reactor: 3 to 5 ns a byte.
pub const INFLATE_BYTES_ON_REACTOR_MAX: usize = 32 * 1024;
/// Members of a gzip body inflated on the reactor: 6 µs each, even if they are empty.
pub const INFLATE_MEMBERS_ON_REACTOR_MAX: usize = 16;
/// Members of any gzip body. Tools such as bgzip write one per 64 KiB: half as many for the largest allowed body.
pub const INFLATE_MEMBERS_MAX: usize = 65_536;
/// Bytes deflated on the reactor at level 1, 10 ns a byte; at level n the n-th part, as it takes up to n times as long.
pub const DEFLATE_BYTES_ON_REACTOR_MAX: usize = 16 * 1024;
/// Bytes of a BYTES tensor whose strings are counted on the reactor: 1.5 ns a byte for empty ones.
pub const STRINGS_BYTES_ON_REACTOR_MAX: usize = 64 * 1024;
/// Bytes of a gRPC message besides raw tensors that are parsed on the reactor: 5 ns a byte for the smallest fields.
pub const MESSAGE_BYTES_ON_REACTOR_MAX: usize = 32 * 1024;
/// Inputs and outputs of one request that are checked on the reactor.
pub const ENTRIES_ON_REACTOR_MAX: usize = 64;
/// Answers about the reasons of models that are computed at once, or wait for it: each takes up to a second.
pub const EXPLANATIONS_MAX: usize = 4;
/// Pages with the console that may be open.
pub const CONSOLES_MAX: usize = 16;
/// Seconds between two looks of a console at the slowest requests.
pub const CONSOLE_SLOWEST_TICKS: u64 = 2;
/// Bytes of a page or part of one that are sent without compression.
pub const PAGE_BYTES_UNCOMPRESSED_MAX: usize = 16 * 1024;
/// Level of the compression of pages, each of which a browser fetches once.
pub const PAGE_COMPRESSION: u32 = 6;
/// Models whose statistics are encoded on the reactor: 5 µs each.
pub const MODELS_ON_REACTOR_MAX: usize = 32;
/// Inflated bytes per byte of a compressed body. Tensors of zeros reach 1000, real data rarely 100.
pub const INFLATE_RATIO_MAX: usize = 256;
/// Inflated bytes that any body may have, whatever its ratio.
pub const INFLATE_RATIO_FREE_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of an error text that are sent: it contains names and ids from the client.
pub const ERROR_TEXT_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the body of a rejected request that are discarded to keep the connection; beyond that it is closed.
pub const DISCARD_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes that a closing connection still discards, so that a client that sends its whole body first reads the error.
pub const LINGER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Time that a closing connection reads and discards.
pub const LINGER_TIME_MAX: Duration = Duration::from_secs(5);
/// Time between two log lines about clients of the wrong protocol, per port and protocol.
pub const STRAY_LINE_INTERVAL: Duration = Duration::from_secs(60);
/// Calls of a model that one request of a text endpoint has open at a time.
pub const TEXT_CALLS_PENDING_MAX: usize = 4;
/// Bytes of the texts of a request to `/tokenize`, whose answer has a hundred bytes for each token.
pub const TOKENIZE_BYTES_MAX: usize = 256 << 10;
/// Bytes of an `x-request-id` that the reply repeats; a longer one is replaced.
pub const REQUEST_ID_BYTES_MAX: usize = 256;
/// Bytes read ahead from a connection whose request is still being answered (pipelining).
pub const READ_AHEAD_BYTES_MAX: usize = 64 * 1024;
/// Time a client has for a TLS handshake.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// TLS handshakes per thread of `offload` that run or are queued there. Further ones wait in `tls`.
pub const HANDSHAKES_PER_THREAD: usize = 2;
/// Certificates of a listener. Each handshake searches all of them for the one to present.
pub const TLS_CERTIFICATES_MAX: usize = 64;
/// Bytes of a file with certificates or a key: thousands of roots.
pub const TLS_FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Time from the first byte of a request head to its last.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(60);
/// Time without progress of a body in either direction before the connection is closed.
pub const BODY_STALL_TIME_MAX: Duration = Duration::from_secs(300);
/// A server without connections for this long closes its listeners without a grace period: longer than the usual
/// interval of probes and scrapes.
pub const DESERTED_TIME: Duration = Duration::from_secs(60);
/// Open connections of both front ends per reactor; fewer if the process has fewer descriptors.
pub const CONNECTIONS_PER_REACTOR_MAX: usize = 16_384;
/// Descriptors that connections do not use: 256 for connections of metrics, the others for files and regions.
pub const DESCRIPTORS_RESERVED: u64 = 384;
/// Each front end can always have one n-th of the connections, however many the other one has open.
pub const CONNECTIONS_SHARE: usize = 8;
/// Connections of each reactor beyond those, out of the same descriptors, that only health checks are answered on; at
/// most one in 16. A new one replaces the oldest.
pub const HEALTH_SEATS_MAX: usize = 16;
/// Time in which a client has to reach the smallest rate (`--slow-client-bytes-per-sec`).
pub const SLOW_TIME_MAX: Duration = Duration::from_secs(30);
/// Percentage of the connections, or of the memory budget, above which the smallest rate is enforced.
pub const SHORTAGE_PERCENT: u64 = 80;
/// Time that an HTTP/1.1 connection may be idle; long, because clients pool them.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(3600);
/// Interval of checks for idle connections and slow clients.
pub const IDLE_SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Depth of the kernel's accept queue.
pub const ACCEPT_BACKLOG: i32 = 4096;
/// Connections per reactor to the control address. They are counted separately: clients cannot exhaust them.
pub const CONTROL_CONNECTIONS_MAX: usize = 64;
/// Bytes of the list of headers of a CORS preflight; a longer one is answered without them.
pub const CORS_HEADERS_BYTES_MAX: usize = 1024;
/// Bytes of the path of a Unix socket, a limit of the system.
pub const SOCKET_PATH_BYTES_MAX: usize = if cfg!(target_os = "macos") { 103 } else { 107 };
/// Streams a client may have open on one HTTP/2 connection.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 4096;
/// HTTP/2 flow-control window of a stream: a tensor of a usual size never waits for an update.
pub const STREAM_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
/// HTTP/2 flow-control window of a connection.
pub const CONNECTION_WINDOW_BYTES: u32 = 32 * 1024 * 1024;
/// Largest HTTP/2 frame that is accepted.
pub const FRAME_BYTES_MAX: u32 = 1024 * 1024;
/// Bytes of HTTP/2 header fields of one request.
pub const HEADER_LIST_BYTES_MAX: u32 = 64 * 1024;
/// Response bytes buffered per HTTP/2 stream before its sender waits. Parts are counted views, so this costs no memory.
pub const SEND_BUFFER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Inflight requests of one ModelStreamInfer stream; further ones are not read.
pub const STREAM_REQUESTS_PENDING_MAX: usize = 1024;
/// Bytes of responses in the inbox of one reader of a decoupled model: a gRPC stream, a body of events, an iteration of
/// the in-process API. A request that exceeds it is cancelled, unless its response is the only one.
pub const ANSWERS_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes that a response counts beside its tensors: for its struct, names and shapes.
pub const ANSWER_OVERHEAD_BYTES: usize = 512;
/// Responses that an inbox keeps as they are. Small ones after them are packed (`frontend::packed`), in 0.1 µs each.
pub const ANSWERS_UNPACKED_MAX: usize = 128;
/// Responses in one inbox.
pub const ANSWERS_WAITING_MAX: usize = 32_768;
/// Age of the oldest response in an inbox when another one is added.
pub const ANSWERS_AGE_MAX: Duration = Duration::from_secs(60);
/// Bytes of encoded responses of decoupled models that HTTP/2 queues for one stream. Further responses stay in the
/// inbox, which counts and charges them.
pub const ANSWERS_SENT_AHEAD_BYTES_MAX: usize = UNCHARGED_ANSWER_BYTES_MAX;
/// Responses that are taken between two checks of the elapsed time. One takes 1 to 2 µs.
pub const ANSWERS_PER_LOOK: u32 = 32;
/// Open `grpc.health.v1.Health/Watch` and load report calls of the server.
pub const HEALTH_WATCHERS_MAX: usize = 1024;
/// Interval in which one watcher, for all, queries models that report their readiness themselves.
pub const HEALTH_WATCH_ASK: Duration = Duration::from_secs(1);
/// Interval in which a watcher checks whether its client reads again.
pub const HEALTH_WATCH_RETRY: Duration = Duration::from_millis(250);
/// Bytes of JSON that a control operation other than a load may pass to TypeScript: parsing 64 MiB would block metrics
/// and other control operations for a second. A load contains files, up to the limits of its transport.
pub const CONTROL_ARGUMENT_BYTES_MAX: usize = 1024 * 1024;
/// Files of a load: each becomes a JavaScript object, and a full JavaScript heap ends the process. The same limit is in
/// `src/repository/override.ts`.
pub const LOAD_FILES_MAX: usize = 1024;
/// First step in which a body is charged to the memory budget; later ones double, up to `STEP_BYTES`.
pub const CHARGE_BYTES_MIN: usize = 16 * 1024;
/// Time that a request waits for memory before it is rejected.
pub const MEMORY_WAIT_TIME_MAX: Duration = Duration::from_secs(5);
/// The same for a body that holds memory while many such bodies wait.
pub const MEMORY_WAIT_TIME_MIN: Duration = Duration::from_secs(1);
/// Time without progress after which a body is rejected with a 408 if other requests wait for memory: a few clients
/// that stop sending could otherwise keep all of it for `BODY_STALL_TIME_MAX`.
pub const STALLED_BODY_GIVES_WAY_TIME: Duration = Duration::from_secs(5);
/// Interval in which a stalled body checks whether other requests wait.
pub const STALLED_BODY_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which a client that was rejected for lack of memory is asked to try again.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Responses up to this size are not charged: a socket takes them almost at once.
pub const UNCHARGED_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Unwritten bytes of the access log per reactor. Further lines are dropped and counted.
pub const ACCESS_LOG_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Unwritten bytes of the audit log.
pub const AUDIT_LOG_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Lines of the audit log whose files the thread of the log has still to hash; further ones are written without hashes.
/// The memory budget is charged for the files.
pub const LINES_UNFINISHED_MAX: usize = 64;
/// Bytes of a body whose parameters the reactor writes into the audit log itself.
pub const AUDIT_BYTES_ON_REACTOR_MAX: usize = 4096;
/// Files, or settings, that a line of the audit log lists.
pub const AUDIT_ITEMS_MAX: usize = 64;
/// Bytes of a path or a request id in a line of either log, before escaping, which takes up to six times as many.
pub const LOG_PATH_BYTES_MAX: usize = 1024;
/// Bytes of a name of a model, region, key or file in a line of either log, before escaping.
pub const LOG_NAME_BYTES_MAX: usize = 256;
/// Bytes of a message that is kept for the names in it, for calls other than inference.
pub const LOG_NAMES_BYTES_MAX: usize = 4096;
/// Bytes of an error text in a line of either log, before escaping.
pub const LOG_ERROR_BYTES_MAX: usize = 1024;
/// Minutes for which records of slow and failed inferences are kept.
pub const WHY_MINUTES: u64 = 15;
/// Slowest inferences of these minutes that are kept.
pub const WHY_SLOWEST_MAX: usize = 1000;
/// Slowest inferences of each minute that those of other minutes do not displace.
pub const WHY_MINUTE_MIN: usize = 32;
/// Failed inferences that are kept.
pub const WHY_FAILED_MAX: usize = 1000;
/// Inferences of each minute whose record begins with their head, so that those of a quiet server have all phases.
pub const WHY_BEGUN_EARLY_PER_MINUTE: u32 = 32;
/// Records of one id, or of one cause, in a response.
pub const WHY_LISTED_MAX: usize = 10;
/// Bytes of a record in the field `nereid-why`.
pub const WHY_BYTES_MAX: usize = 2048;

/// Events or messages of an embedded request that are passed on in one call.
pub const EMBEDDED_EVENTS_PER_CALL_MAX: usize = 64;
/// Bytes of events or messages in one call beyond which no further one is added.
pub const EMBEDDED_BYTES_PER_CALL: usize = 256 * 1024;
/// Bytes of a message that an embedded call is given at once; the next part is taken when at most this is unread. Twice
/// this size per call is not charged.
pub const EMBEDDED_PIECE_BYTES_MAX: usize = 256 * 1024;
