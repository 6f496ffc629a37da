//! Limits of traces: a server that traces every request must not keep all that clients send.

/// Most queued records. Further ones are dropped and counted.
pub const TRACES_WAITING_MAX: usize = 8192;
/// Most bytes of queued records.
pub const TRACES_WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most bytes that are kept of a tensor (level TENSORS); the rest is cut off. Copying them takes a reactor 20 µs.
pub const TRACE_TENSOR_BYTES_MAX: usize = 256 * 1024;
/// Most bytes of tensors in one record; further tensors have no contents.
pub const TRACE_RECORD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes of tensors in all incomplete records together; further tensors have no contents.
pub const TRACES_OPEN_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most calls in one record; further calls are not traced.
pub const TRACE_CALLS_MAX: usize = 2048;
/// Most activities of the front end in one record: a stream has three per response.
pub const TRACE_ACTIVITIES_MAX: usize = 16_384;
/// Most bytes of a request id, and of a caller's `tracestate`.
pub const TRACE_TEXT_BYTES_MAX: usize = 4096;
/// Bytes of records after which one `take` ends.
pub const TRACES_TAKEN_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Most models with their own setting.
pub const TRACE_SETTINGS_MAX: usize = 65_536;
