//! Limits of traces: a server that traces every request must not keep all that clients send.

/// Maximum queued records; more are dropped and counted.
pub const TRACES_WAITING_MAX: usize = 8192;
/// Maximum bytes queued.
pub const TRACES_WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum bytes kept of a tensor (level TENSORS); the rest is cut off. Copying them takes a reactor 20 µs.
pub const TRACE_TENSOR_BYTES_MAX: usize = 256 * 1024;
/// Maximum tensor bytes in one record; further tensors have no contents.
pub const TRACE_RECORD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum tensor bytes in all incomplete records together; further tensors have no contents.
pub const TRACES_OPEN_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum calls in one record; more are not traced.
pub const TRACE_CALLS_MAX: usize = 2048;
/// Maximum front-end activities in one record: a stream has three per response.
pub const TRACE_ACTIVITIES_MAX: usize = 16_384;
/// Maximum bytes of a request id or a caller's `tracestate`.
pub const TRACE_TEXT_BYTES_MAX: usize = 4096;
/// Bytes of records after which one `take` ends.
pub const TRACES_TAKEN_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Maximum models with a setting.
pub const TRACE_SETTINGS_MAX: usize = 65_536;
/// Bytes of the id of a measured request, by which its record is found later.
pub const MEASURED_ID_BYTES_MAX: usize = 256;
