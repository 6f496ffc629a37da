//! Records of traces, as they cross.

use super::Failure;
use napi_derive::napi;

/// Contents of the headers `traceparent` and `tracestate` (several joined by commas); empty if missing.
#[napi(object, object_from_js = false)]
pub struct TraceContext {
    /// `00-<32 hex digits>-<16 hex digits>-<2 hex digits>`, in lower case, ids not zero. Of higher versions the first
    /// 55 characters.
    pub traceparent: String,
    pub tracestate: String,
}

#[napi(object, object_from_js = false)]
pub struct TraceActivity {
    pub name: String,
    /// CLOCK_MONOTONIC, the clock of `process.hrtime.bigint()`; not since the epoch.
    pub ns: u64,
}

#[napi(object, object_from_js = false)]
pub struct TraceTensor {
    #[napi(ts_type = "'TENSOR_QUEUE_INPUT' | 'TENSOR_BACKEND_OUTPUT'")]
    pub activity: String,
    pub name: String,
    /// Protocol name, `FP32`, `BYTES`, ….
    pub datatype: String,
    pub shape: Vec<i64>,
    /// Elements as text, joined by commas; strings quoted as in JSON.
    pub data: String,
}

/// One call of a model or an ensemble.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct TraceCall {
    /// From 1, never reused in a process.
    pub id: f64,
    /// Id of the parent call; 0 = none, as for the client's call.
    pub parent_id: f64,
    pub model: String,
    pub version: i64,
    /// Id that the client sent, any characters; empty = none.
    pub request_id: String,
    /// Span id that the model received (`trace::Trace::context`), 16 hex digits; empty = none.
    pub span_id: String,
    /// In the order of time: REQUEST_START, QUEUE_START, COMPUTE_START, COMPUTE_INPUT_END, COMPUTE_OUTPUT_START,
    /// COMPUTE_END, REQUEST_END. Activities from a backend (CUSTOM_…) precede the four of COMPUTE in their own order:
    /// compare times. Ensembles, cache hits and requests that left their queue without running lack the four of
    /// COMPUTE; requests rejected by their queue lack REQUEST_END. Empty without level TIMESTAMPS.
    pub activities: Vec<TraceActivity>,
    /// With level TENSORS, in mode triton; long tensors are cut (`TRACE_TENSOR_BYTES_MAX`).
    pub tensors: Vec<TraceTensor>,
    /// Why it failed, if it did.
    pub error: Option<Failure>,
}

/// Trace of one client request: the call of its model, and every call made for it (steps of an ensemble).
///
/// Records are queued in the core: `Core.takeTraces` returns complete ones in the order of their end, and `onTraces` is
/// called once when the queue becomes non-empty. A record is complete when the last byte of the response was written
/// and the last call has ended, also if the request failed, was cancelled or its client disconnected. If the queue is
/// full (`TRACES_WAITING_MAX` records, or `TRACES_WAITING_BYTES_MAX` of tensors) a record is dropped and counted in
/// `nereid_trace_records_lost_total`. The core keeps no reference: it may be kept and changed.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct TraceRecord {
    /// Trace mode of the server at the time of the request.
    #[napi(ts_type = "TraceMode")]
    pub mode: &'static str,
    /// Number of the setting that sampled it, as in `Core.setTraceSetting`.
    pub setting: u32,
    /// The client's W3C context: only in mode opentelemetry, and only if valid.
    pub context: Option<TraceContext>,
    /// Trace id that a model received, 32 hex digits; empty = none, or that of `context`.
    pub trace_id: String,
    /// The client's call first, parents before children. Empty in one case: an HTTP body that is not JSON has
    /// `activities` but no call.
    pub calls: Vec<TraceCall>,
    /// Activities of the front end, `HTTP_…` or `GRPC_…` and INFER_RESPONSE_COMPLETE, in recorded order. They are not
    /// ordered relative to those of `calls[0]`: compare times. Empty without level TIMESTAMPS.
    pub activities: Vec<TraceActivity>,
    /// Id of the client's call, also if `calls` is empty.
    pub id: f64,
}

#[napi(object, object_from_js = false)]
pub struct TakenTraces {
    pub records: Vec<TraceRecord>,
    /// Settings without further records: all were taken, with this call or before.
    pub ended: Vec<u32>,
    /// The queue is empty; `onTraces` will be called.
    pub is_all: bool,
}
