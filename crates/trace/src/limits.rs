//! What bounds traces: a setting of one trace per request must not make the server hold what clients send.

/// Records that wait to be taken. Further ones are dropped and counted.
pub const TRACES_WAITING_MAX: usize = 8192;
/// Bytes of the records that wait.
pub const TRACES_WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of a tensor that are kept of it (level TENSORS); the rest is cut off. Copying them takes a reactor 20 µs.
pub const TRACE_TENSOR_BYTES_MAX: usize = 256 * 1024;
/// Bytes of tensors in one record; further ones are kept without contents.
pub const TRACE_RECORD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of tensors in records that are not complete, all requests together; further ones are kept without contents.
pub const TRACES_OPEN_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Calls of one record: what is called for a request beyond them is not traced.
pub const TRACE_CALLS_MAX: usize = 2048;
/// Activities of the front end in one record: a stream of answers has three for each.
pub const TRACE_ACTIVITIES_MAX: usize = 16_384;
/// Bytes of a request's id, and of a caller's `tracestate`.
pub const TRACE_TEXT_BYTES_MAX: usize = 4096;
/// Bytes of tensors that are printed in one go when records are taken.
pub const TRACES_TAKEN_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Models that may have a setting of their own.
pub const TRACE_SETTINGS_MAX: usize = 65_536;
