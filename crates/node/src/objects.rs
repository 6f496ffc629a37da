//! Objects that cross between TypeScript and the Rust core, written by hand only here. scripts/generate.sh copies them
//! and their comments to src/native/generated; names in `ts_type` are those of src/native/names.ts.
//!
//! Objects are flat. Optional is `T | null`; a missing property is an error that names it. `u64` is `bigint`; numbers
//! that fit into 53 bits are `f64`.

mod trace;

pub use trace::*;

use napi::bindgen_prelude::{BigInt, Buffer, Either4};
use napi_derive::napi;
use std::collections::HashMap;

/// A worker thread to be made for an instance of a JavaScript model. It attaches with the number that comes with it.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct WorkerStart {
    /// Name of the instance, for the log; empty while a configuration is completed.
    pub name: String,
    /// Limit of the JavaScript heap; null = Node's.
    pub heap_bytes_max: Option<f64>,
    /// Whether Node must keep the paths of modules as they are, because they have no canonical form.
    pub preserves_links: bool,
}

#[napi(object, object_to_js = false)]
pub struct Setting {
    pub key: String,
    pub value: String,
}

/// ONNX Runtime's device providers on this machine, found without opening or running anything. Properties without a
/// value are missing, as in the JSON of `nereid gpu`.
#[napi(object, object_from_js = false)]
pub struct ProviderReport {
    /// The ONNX Runtime that fits the providers, or the one used without providers.
    pub library: Option<String>,
    /// Release, such as `1.30.0`.
    pub release: Option<String>,
    /// Directory of the providers.
    pub directory: Option<String>,
    pub cuda: Provider,
    pub tensorrt: Provider,
}

#[napi(object, object_from_js = false)]
pub struct Provider {
    /// Missing if there is no such file.
    pub file: Option<String>,
    /// Everything it needs is present. Only a session shows whether a device accepts it.
    pub usable: bool,
    /// Required libraries of CUDA and TensorRT, and, as optional, those that some operators open.
    pub libraries: Vec<ProviderLibrary>,
    /// Why it cannot be used; one sentence each, without a full stop.
    pub problems: Vec<String>,
    /// Command that installs what is missing, including optional libraries.
    pub command: Option<String>,
}

#[napi(object, object_from_js = false)]
pub struct ProviderLibrary {
    pub name: String,
    pub file: Option<String>,
    pub optional: bool,
}

#[napi(object, object_from_js = false)]
pub struct TensorIo {
    pub name: String,
    /// Number in `inference.DataType`; 0 if the protocol has no such type.
    pub datatype: i32,
    /// Full shape of the graph, -1 = symbolic.
    pub shape: Vec<i64>,
    /// An initialiser of the same name exists: requests may leave the input out.
    pub optional: bool,
}

#[napi(object, object_from_js = false)]
pub struct ModelIo {
    pub inputs: Vec<TensorIo>,
    pub outputs: Vec<TensorIo>,
}

/// An opened model that does not serve yet. Must be passed to `publishModel` or `discardModel`, once.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Opened {
    pub handle: u32,
    /// Inputs and outputs according to the file; null if the backend follows the configuration.
    pub io: Option<ModelIo>,
    /// The configuration as completed by the model's code: JSON of `inference.ModelConfig`, untrusted; null if
    /// unchanged.
    pub completed: Option<String>,
}

#[napi(object, object_to_js = false)]
pub struct OutputLabels {
    pub output: String,
    pub text: Buffer,
}

/// Arguments for publishing an opened version.
#[napi(object, object_to_js = false)]
pub struct PublishSpec {
    /// Completed and normalised `inference.ModelConfig` bytes; also the gRPC ModelConfig response. Copied.
    pub config: Buffer,
    /// The same in Triton's JSON form; the body of GET …/config.
    pub config_json: String,
    /// Label files by output name, a label per line. Copied.
    pub labels: Vec<OutputLabels>,
    /// Platform in metadata (config `platform`, else `backend`).
    pub platform: String,
}

/// State of a version in the table of models.
#[napi(object, object_from_js = false)]
pub struct VersionRow {
    /// Name of the model; `<namespace>/<name>` if repositories are namespaces.
    pub model: String,
    pub version: i64,
    #[napi(ts_type = "VersionState")]
    pub state: &'static str,
    /// Why it does not serve, or why a READY version cannot be used right now, for example because its process died.
    pub reason: String,
}

/// A socket from a service manager.
#[napi(object, object_from_js = false)]
pub struct GivenSocket {
    /// `IPv4`, `IPv6`, `unix` or `other`.
    pub family: String,
    pub is_stream: bool,
    pub is_listening: bool,
    /// 0 if the family has none.
    pub port: u16,
}

/// Address of metrics, which JavaScript serves.
#[napi(object, object_to_js = false)]
pub struct MetricsAddress {
    pub address: String,
    pub port: u16,
}

/// Bound ports (port 0 in the options picks a free one); 0 if the front end is off.
#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct BoundPorts {
    pub http_port: u16,
    pub grpc_port: u16,
    pub openai_port: u16,
    pub control_port: u16,
    pub metrics_port: u16,
    /// If there are any, nothing is bound.
    pub failures: Vec<BindFailure>,
}

/// A service that cannot be started.
#[napi(object, object_from_js = false)]
pub struct BindFailure {
    #[napi(ts_type = "'control' | 'GRPC' | 'HTTP' | 'OpenAI' | 'Metrics'")]
    pub service: String,
    #[napi(ts_type = "ErrorCode")]
    pub code: &'static str,
    /// `failed to start HTTP service: Unavailable - Socket '<addr>:<port>' already in use `.
    pub message: String,
}

/// A control operation. `argument` and the reply, except that of `page`, are JSON text, already checked for syntax.
///
/// | operation | argument | reply |
/// |---|---|---|
/// | repository_index | `{"ready":bool}` | `[{"name","version"?,"state"?,"reason"?}]` |
/// | repository_load | `{"model":s,"parameters":{…}}`; over gRPC files are base64 as over HTTP | `{}` |
/// | repository_unload | `{"model":s,"unload_dependents":bool}` | `{}` |
/// | either, from the code of a model | also `"within":s`, that model | `{}` |
/// | repository_poll | `{}` | `{}` |
/// | repository_register | `{"path":s,"names":{s:s}}`, models and their directories | `{}` |
/// | repository_unregister | `{"path":s}` | `{}` |
/// | metrics | `{}` | the text of a scrape, as a JSON string |
/// | trace_get / trace_update | `{"model":s,"settings":{…},"protocol":"http"\|"grpc"}`, over gRPC arrays | settings |
/// | openapi | `{"model":s,"version":s}`, both empty for the whole server | an OpenAPI document |
/// | page | `{"page":s,"html":bool,"host":s}`: a path | the text of that page or part |
/// | log_get / log_update | `{"settings":{…},"protocol":"http"\|"grpc"}` | every current setting |
#[napi(object, object_from_js = false)]
pub struct ControlCall {
    /// Reply with `Core.controlReply(id, …)`, exactly once.
    pub id: u32,
    #[napi(ts_type = "ControlOperation")]
    pub operation: &'static str,
    pub argument: String,
    /// Files of a load that are too long for `argument`.
    pub files: Vec<ControlFile>,
}

#[napi(object, object_from_js = false)]
pub struct ControlFile {
    /// `file:<path>`.
    pub parameter: String,
    pub contents: Buffer,
}

/// A log line of the core. The queue is bounded: excess lines are dropped and counted.
#[napi(object, object_from_js = false)]
pub struct LogRecord {
    /// 0 error, 1 warning, 2 info, 3 and up verbose level (3 = verbose 1).
    pub level: u32,
    pub message: String,
    /// Source file and line in the core.
    pub file: String,
    pub line: u32,
}

/// A duration counter: number and total.
#[napi(object, object_from_js = false)]
pub struct Duration {
    pub count: u64,
    pub ns: u64,
}

/// Has one more count than bounds: the values above the last bound.
#[napi(object, object_from_js = false)]
pub struct Histogram {
    pub bounds: Vec<f64>,
    pub counts: Vec<u64>,
    pub sum: f64,
}

/// A histogram of a version.
#[napi(object, object_from_js = false)]
pub struct VersionHistogram {
    /// `request`, `queue`, `compute`, `first_response` or `tokenizing` (seconds), `rows` or `tokens` (of a batch).
    #[napi(ts_type = "'request' | 'queue' | 'compute' | 'first_response' | 'tokenizing' | 'rows' | 'tokens'")]
    pub family: &'static str,
    pub histogram: Histogram,
    pub exemplars: Vec<Exemplar>,
}

/// The last traced request of a bucket.
#[napi(object, object_from_js = false)]
pub struct Exemplar {
    /// Index of the bucket.
    pub bucket: u32,
    /// Id of the trace.
    pub trace: String,
    pub value: f64,
    /// When the request ended, in seconds since the epoch.
    pub time: f64,
}

#[napi(object, object_from_js = false)]
pub struct QuantileValue {
    pub quantile: f64,
    pub value: f64,
}

#[napi(object, object_from_js = false)]
pub struct Summary {
    /// `request`, `queue`, `compute_input`, `compute_infer`, `compute_output`, `cache_hit` or `cache_miss`.
    pub family: String,
    pub values: Vec<QuantileValue>,
    pub count: u64,
    pub sum_us: f64,
}

#[napi(object, object_from_js = false)]
pub struct Gauge {
    pub name: String,
    pub help: String,
    pub value: f64,
}

/// Use of a GPU, as it reports it.
#[napi(object, object_from_js = false)]
pub struct DeviceUse {
    pub uuid: String,
    /// By all processes.
    pub used_bytes: f64,
    pub total_bytes: f64,
    /// Share of time during which kernels run, from 0 to 1.
    pub utilization: f64,
}

/// Counters of one version, read consistently.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct VersionStatistics {
    pub name: String,
    /// Repository of the model, if repositories are namespaces; else ''.
    pub namespace: String,
    pub version: i64,
    pub inference_count: u64,
    pub execution_count: u64,
    pub last_inference_ms: u64,
    pub success: Duration,
    pub fail: Duration,
    pub queue: Duration,
    pub compute_input: Duration,
    pub compute_infer: Duration,
    pub compute_output: Duration,
    /// Responses from the response cache, with the lookup time.
    pub cache_hit: Duration,
    /// Requests missing in the response cache, with the time of lookup and insertion.
    pub cache_miss: Duration,
    /// The version uses the response cache.
    pub cached: bool,
    /// Failures by reason, in this order: REJECTED, CANCELED, BACKEND, OTHER.
    pub failures: Vec<u64>,
    /// Accepted and not yet executing.
    pub pending: u64,
    /// Accepted and not yet answered.
    pub inflight: u64,
    /// Execution time of all instances, each execution counted once.
    pub execution_ns: u64,
    /// Requests cancelled by their client, queued or running.
    pub cancelled: u64,
    pub histograms: Vec<VersionHistogram>,
    /// Time of first responses in ms; null if `histogram_latencies` is off.
    pub first_response: Option<Histogram>,
    /// Summaries in µs by family suffix; null if summaries are off.
    pub summaries: Option<Vec<Summary>>,
    /// Counters of the backend for this version.
    pub custom: Vec<Gauge>,
    /// The part of these counters from instances on devices, by device.
    pub on_devices: Vec<Executions>,
}

/// Counters of executions on a device.
#[napi(object, object_from_js = false)]
pub struct Executions {
    /// Ordinal of the device.
    pub device: u32,
    pub inference_count: u64,
    pub execution_count: u64,
    pub success: Duration,
    pub queue: Duration,
    pub compute_input: Duration,
    pub compute_infer: Duration,
    pub compute_output: Duration,
    /// Requests that failed in the backend.
    pub failures: u64,
}

/// All data of a scrape, read at one moment.
#[napi(object, object_from_js = false)]
pub struct Snapshot {
    pub versions: Vec<VersionStatistics>,
    /// Families without versions that have Triton's names, in its order.
    pub triton: Vec<Family>,
    /// Our own, and then those of models in the order of their creation.
    pub families: Vec<Family>,
    /// Uuids by ordinal of the devices with metrics, also if they do not respond now; '' for others.
    pub gpu_uuids: Vec<String>,
    /// Log records of the core dropped because the queue of the JavaScript thread was full.
    pub log_records_dropped: f64,
    /// Traces dropped because the queue of the JavaScript thread was full.
    pub trace_records_dropped: f64,
}

#[napi(object, object_from_js = false)]
pub struct Family {
    pub name: String,
    pub help: String,
    #[napi(ts_type = "'counter' | 'gauge' | 'histogram'")]
    pub kind: &'static str,
    pub series: Vec<Series>,
}

#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Series {
    pub labels: HashMap<String, String>,
    /// 0 if there is a histogram.
    pub value: f64,
    pub histogram: Option<Histogram>,
}

/// The devices of this process as described by CUDA's driver; null properties are unknown.
#[napi(object, object_from_js = false, use_nullable = true)]
#[derive(Default)]
pub struct DeviceList {
    /// Why there is none; null if there is one.
    pub unavailable: Option<String>,
    /// Highest version of CUDA that the driver supports, such as `13.0`.
    pub cuda_version: Option<String>,
    pub devices: Vec<Device>,
}

#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Device {
    /// From 0, in the order of CUDA_VISIBLE_DEVICES.
    pub ordinal: u32,
    /// Empty if unknown.
    pub name: String,
    /// Without `GPU-` or `MIG-`; an instance has its own.
    pub uuid: Option<String>,
    /// Such as `0000:17:00.0`; for an instance, that of its device.
    pub pci_address: Option<String>,
    /// Such as `9.0`.
    pub compute_capability: Option<String>,
    pub memory_bytes: Option<f64>,
    /// Ordinals of the devices whose memory it can read.
    pub peers: Vec<u32>,
}

/// All devices of the machine, including those that are not visible to this process.
#[napi(object, object_from_js = false, use_nullable = true)]
#[derive(Default)]
pub struct MachineDevices {
    /// Why they cannot be listed.
    pub unavailable: Option<String>,
    pub driver_version: Option<String>,
    pub devices: Vec<MachineDevice>,
    /// First entry of CUDA_VISIBLE_DEVICES that selects no device: CUDA ignores it and the following ones.
    pub ignored: Option<IgnoredEntry>,
}

#[napi(object, object_from_js = false, use_nullable = true)]
pub struct MachineDevice {
    /// `GPU-…`.
    pub uuid: String,
    pub name: String,
    pub pci_address: Option<String>,
    /// Uuids of its instances, `MIG-…`.
    pub instances: Vec<String>,
}

#[napi(object, object_from_js = false)]
pub struct IgnoredEntry {
    pub entry: String,
    pub why: String,
}

/// A tensor of the in-process API. `data` is raw contents (BYTES: 4-byte lengths).
#[napi(object)]
pub struct NativeTensor {
    pub name: String,
    /// Protocol name, `FP32`, `BYTES`, ….
    pub datatype: String,
    pub shape: Vec<i64>,
    /// The core copies it; owned by the caller again when the promise settles.
    pub data: Buffer,
}

#[napi(object)]
pub struct NativeParameter {
    pub key: String,
    #[napi(ts_type = "string | bigint | number | boolean")]
    pub value: Either4<String, BigInt, f64, bool>,
}

#[napi(object, object_to_js = false)]
pub struct RequestedOutput {
    pub name: String,
    pub classification: u32,
}

#[napi(object, object_to_js = false)]
pub struct NativeInferRequest {
    pub model: String,
    /// Empty = the server chooses.
    pub version: String,
    pub id: String,
    pub inputs: Vec<NativeTensor>,
    /// Empty = all.
    pub outputs: Vec<RequestedOutput>,
    pub parameters: Vec<NativeParameter>,
    pub priority: BigInt,
    pub timeout_us: BigInt,
}

#[napi(object, object_from_js = false)]
pub struct NativeInferResponse {
    pub model: String,
    pub version: String,
    pub id: String,
    pub parameters: Vec<NativeParameter>,
    pub outputs: Vec<NativeTensor>,
}

/// Responses of one request; `done` after the last.
#[napi(object, object_from_js = false)]
pub struct NextResponses {
    pub responses: Vec<NativeInferResponse>,
    pub done: bool,
}

/// Why a call or a request failed.
#[napi(object, object_from_js = false)]
pub struct Failure {
    #[napi(ts_type = "ErrorCode")]
    pub code: &'static str,
    #[napi(ts_type = "Fault")]
    pub fault: &'static str,
    pub retryable: bool,
    pub message: String,
}

/// A request that another server of this process received.
#[napi(object, object_to_js = false, use_nullable = true)]
pub struct EmbeddedRequest {
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// Names and values alternately, as sent.
    pub fields: Vec<String>,
    /// `address:port` of the client; null if unknown, which counts as a network.
    pub peer: Option<String>,
    /// `address:port` of this end.
    pub local: Option<String>,
    /// null = not read yet.
    pub body: Option<Buffer>,
}

/// Next step of an embedded request: a request for body bytes, a reply, or events.
#[napi(object, object_from_js = false, use_nullable = true)]
#[derive(Default)]
pub struct EmbeddedAnswer {
    /// Most bytes to pass to `body`; null in the other cases.
    pub wanted: Option<f64>,
    pub status: Option<u32>,
    /// Names and values alternately; the other server adds length and connection.
    pub fields: Option<Vec<String>>,
    /// Complete and owned by the caller, who may return it to `replies` once written.
    pub body: Option<Buffer>,
    /// Size of a body for `embedTake`, instead of `body`.
    pub large: Option<f64>,
    /// Events follow: call `next`.
    pub more: Option<bool>,
    /// The length of the body is known; otherwise, and before events, it is sent in chunks.
    pub sized: Option<bool>,
}

/// A gRPC call that another server of this process received.
#[napi(object, object_to_js = false, use_nullable = true)]
pub struct EmbeddedCall {
    pub path: String,
    /// Metadata, names and values alternately; binary values in base64.
    pub fields: Vec<String>,
    /// See `EmbeddedRequest`.
    pub peer: Option<String>,
    pub local: Option<String>,
    /// The only message, of at most 64 KiB. Copied. null = messages follow, as `piece`.
    pub message: Option<Buffer>,
}

/// How a gRPC call ended.
#[napi(object, object_from_js = false)]
pub struct EmbeddedCallEnd {
    pub code: u32,
    pub text: String,
    /// Names and values alternately.
    pub trailers: Vec<String>,
}

/// Available part of the response of a gRPC call.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct EmbeddedCallAnswer {
    /// The response begins: initial metadata may be sent.
    pub begun: bool,
    /// Complete messages, owned by the caller.
    pub messages: Vec<Buffer>,
    pub end: Option<EmbeddedCallEnd>,
}

/// A setting that all servers of a process share.
#[napi(object)]
pub struct SharedSetting {
    /// Settings with the same name are compared.
    pub name: String,
    /// Equal for equal settings.
    pub value: String,
    /// Text of a conflict: the setting of a server with this value.
    pub has: String,
    /// Text of a conflict: what the other server wants instead; empty if `has` is enough.
    pub instead: String,
}
