//! What crosses between TypeScript and the Rust core: the only place where it is written by hand. scripts/generate.sh makes
//! src/native/generated out of it, comments included; names in `ts_type` are those of src/native/names.ts.
//!
//! Objects are flat. Optional is `T | null`, and a missing property is an error that names it. `u64` is `bigint`; numbers of which 2^53 are
//! enough are `f64`.

use napi::bindgen_prelude::{BigInt, Buffer, Either4};
use napi_derive::napi;
use std::collections::HashMap;

/// Settings of the whole core, fixed at start.
#[napi(object, object_to_js = false, use_nullable = true)]
pub struct CoreOptions {
    pub server_id: String,
    pub server_version: String,
    pub extensions: Vec<String>,
    pub strict_readiness: bool,
    /// Not live once a GPU failed; `onDeviceFailure` says which and why, and the process is to end.
    pub exit_on_device_error: bool,
    /// Absolute path of libonnxruntime.so, or null when the package is not there: ONNX models then fail, nothing else.
    pub onnxruntime_library: Option<String>,
    pub strict_batching_delay: bool,
    /// Keep quantile summaries (`--metrics-config`).
    pub summary_latencies: bool,
    /// Keep histograms of the first response (`--metrics-config`).
    pub histogram_latencies: bool,
    pub summary_quantiles: Vec<SummaryQuantile>,
    /// Start of the HTTP front end's body limit family, `--http-max-input-size`.
    pub http_input_bytes_max: i64,
    pub allow_client_shm: bool,
    /// `--memory-limit`: what bodies, heads and unread answers of the process may hold; 0 = half of the machine's or container's.
    pub memory_limit_bytes: i64,
    /// Without a GPU nothing of it is allocated.
    pub device_memory: DeviceMemoryOptions,
    /// `--sequence-limit`: sequences of a model in progress or waiting.
    pub sequence_limit: u32,
    /// What the response cache may take, all models together; null = there is none.
    pub response_cache_bytes: Option<i64>,
    /// The Redis that is the response cache instead; null = none.
    pub response_cache_redis: Option<RedisOptions>,
    /// `--rate-limit=execution_count`; null = executions are not limited.
    pub rate_limit: Option<RateLimit>,
    /// Models may make metrics; where the server has none, they are told so.
    pub custom_metrics: bool,
    /// How often devices are asked what they do, for a scrape; null = they are not.
    pub gpu_metrics_interval_ms: Option<u32>,
    /// Directory of our own Python modules, which runners of Python models import.
    pub python_runtime: String,
    /// What directories with unpacked Python environments are called: the core puts a number behind it, and makes and fills them.
    pub python_unpack_prefix: String,
    /// Where Python environments may lie beside a model's own directory; null = anywhere.
    pub python_environment_roots: Option<Vec<String>>,
}

/// What memory for GPUs and of them may have. Bytes.
#[napi(object, object_to_js = false)]
pub struct DeviceMemoryOptions {
    /// `--pinned-memory-pool-byte-size`; 0 = there is none.
    pub pinned_pool_bytes: i64,
    /// `--cuda-memory-pool-byte-size`: of a device the last; others have 64 MiB.
    pub device_pools: Vec<DevicePool>,
    /// `--pinned-region-byte-size`: of system shared memory, all regions together.
    pub locked_region_bytes_max: i64,
    /// `--model-load-gpu-limit`: of a device the last.
    pub load_limits: Vec<LoadLimit>,
    /// `--enable-peer-access`.
    pub peer_access: bool,
}

#[napi(object, object_to_js = false)]
pub struct DevicePool {
    pub device: u32,
    pub bytes: i64,
}

#[napi(object, object_to_js = false)]
pub struct LoadLimit {
    pub device: u32,
    pub fraction: f64,
}

/// A Redis, and how patient to be with it. Where user and password are null, those of TRITONCACHE_REDIS_USERNAME and _PASSWORD are taken.
#[napi(object, object_to_js = false, use_nullable = true)]
pub struct RedisOptions {
    pub host: String,
    pub port: u16,
    pub user: Option<String>,
    pub password: Option<String>,
    /// Number of the database.
    pub database: u32,
    pub connect_timeout_ms: u32,
    /// For the answer to a command.
    pub socket_timeout_ms: u32,
    /// For a connection that takes a command.
    pub wait_timeout_ms: u32,
    /// Connections.
    pub pool_size: u32,
}

/// Resources that executions take; none given leaves each at the most that an instance needs.
#[napi(object, object_to_js = false)]
pub struct RateLimit {
    pub resources: Vec<AvailableResource>,
}

/// Units of a resource.
#[napi(object, object_to_js = false, use_nullable = true)]
pub struct AvailableResource {
    pub name: String,
    pub count: u32,
    /// The device it is on; null is each of them.
    pub device: Option<u32>,
}

#[napi(object, object_to_js = false)]
pub struct SummaryQuantile {
    pub quantile: f64,
    pub error: f64,
}

#[napi(object, object_to_js = false)]
pub struct Setting {
    pub key: String,
    pub value: String,
}

/// What of ONNX Runtime's providers for devices is on this machine. Nothing was opened or run to find out. What is not there is missing, as
/// it is in the JSON of `nereid gpu`.
#[napi(object, object_from_js = false)]
pub struct ProviderReport {
    /// The ONNX Runtime that fits the providers; where there are none, the one that is used without. Missing when there is none at all.
    pub library: Option<String>,
    /// Its release, such as `1.30.0`.
    pub release: Option<String>,
    /// Where the providers lie.
    pub directory: Option<String>,
    pub cuda: Provider,
    pub tensorrt: Provider,
}

#[napi(object, object_from_js = false)]
pub struct Provider {
    /// Missing when it is not there.
    pub file: Option<String>,
    /// All that it needs is there. Whether a device takes it, only a session shows.
    pub usable: bool,
    /// Libraries of CUDA and TensorRT that it needs, and, optional, those that some operators open.
    pub libraries: Vec<ProviderLibrary>,
    /// Why it cannot be used, a sentence each, without a full stop.
    pub problems: Vec<String>,
    /// What installs what is missing, optional libraries included.
    pub command: Option<String>,
}

#[napi(object, object_from_js = false)]
pub struct ProviderLibrary {
    pub name: String,
    pub file: Option<String>,
    pub optional: bool,
}

/// A version to open, before its configuration is completed.
#[napi(object, object_to_js = false, use_nullable = true)]
pub struct OpenSpec {
    pub name: String,
    pub version: i64,
    /// Directory that holds `config.pbtxt`.
    pub model_directory: String,
    pub version_directory: String,
    /// Backend name: `onnxruntime`, one of `crates/backend-test`, or `ensemble`.
    pub backend: String,
    /// The user's configuration, defaults normalised, as `inference.ModelConfig` bytes. Copied.
    pub config: Buffer,
    /// `--backend-config=<backend>,<key>=<value>` pairs for this backend.
    pub settings: Vec<Setting>,
    /// `config` in Triton's JSON form: what the code of a model reads.
    pub config_json: String,
    /// The code of a model may complete its configuration.
    pub completes: bool,
    /// Of a backend that is itself written in Python (`backend` is `python` then): the directory of its `model.py`.
    pub code_directory: Option<String>,
}

#[napi(object, object_from_js = false)]
pub struct TensorIo {
    pub name: String,
    /// Number in `inference.DataType`; 0 when the protocol has no such type.
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

/// A model file that was read but does not serve yet. Must be given to `publishModel` or `discardModel`, once.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Opened {
    pub handle: u32,
    /// What the file says about itself; null for a backend that serves whatever the configuration says.
    pub io: Option<ModelIo>,
    /// What the model's code makes of the configuration: JSON of `inference.ModelConfig`, untrusted. Null when it says nothing.
    pub completed: Option<String>,
}

#[napi(object, object_to_js = false)]
pub struct OutputLabels {
    pub output: String,
    pub text: Buffer,
}

/// What the core needs to serve an opened version.
#[napi(object, object_to_js = false)]
pub struct PublishSpec {
    /// Completed and normalised `inference.ModelConfig` bytes; also the answer of the gRPC ModelConfig call. Copied.
    pub config: Buffer,
    /// The same in Triton's JSON form; the body of GET …/config.
    pub config_json: String,
    /// Label files by output name, a label per line. Copied.
    pub labels: Vec<OutputLabels>,
    /// Platform to report in metadata (config `platform`, else `backend`).
    pub platform: String,
}

/// A version that serves and can not be used right now: a process of it died, for instance.
#[napi(object, object_from_js = false)]
pub struct Unready {
    /// What the model is known by; `<namespace>/<name>` where repositories are namespaces.
    pub model: String,
    pub version: i64,
    pub reason: String,
}

/// Whose tokens are taken beside keys.
#[napi(object, object_to_js = false, use_nullable = true)]
pub struct IssuerOptions {
    /// `iss` of its tokens.
    pub issuer: String,
    /// What `aud` of its tokens must have.
    pub audience: String,
    /// The claim that rules without one look at.
    pub claim: String,
    /// Its keys, a JWK set, read again when it changes; null: they are brought by `setIssuerKeys`.
    pub keys_file: Option<String>,
}

/// What a descriptor is that a service manager gave.
#[napi(object, object_from_js = false)]
pub struct GivenSocket {
    /// `IPv4`, `IPv6`, `unix` or `other`.
    pub family: String,
    pub is_stream: bool,
    pub is_listening: bool,
    /// 0 where the family has none.
    pub port: u16,
}

/// Where metrics are served, by JavaScript.
#[napi(object, object_to_js = false)]
pub struct MetricsAddress {
    pub address: String,
    pub port: u16,
}

/// Ports really bound (port 0 in the options picks a free one); 0 where the front end is off.
#[napi(object, object_from_js = false)]
#[derive(Default)]
pub struct BoundPorts {
    pub http_port: u16,
    pub grpc_port: u16,
    pub control_port: u16,
    pub metrics_port: u16,
    /// Where there are any, nothing is bound.
    pub failures: Vec<BindFailure>,
}

/// A service that can not be started.
#[napi(object, object_from_js = false)]
pub struct BindFailure {
    #[napi(ts_type = "'control' | 'GRPC' | 'HTTP' | 'Metrics'")]
    pub service: String,
    #[napi(ts_type = "ErrorCode")]
    pub code: &'static str,
    /// `failed to start HTTP service: Unavailable - Socket '<addr>:<port>' already in use `.
    pub message: String,
}

/// One control operation. `argument` and the reply, but that of `page`, are JSON text, already checked for syntax.
///
/// | operation | argument | reply |
/// |---|---|---|
/// | repository_index | `{"ready":bool}` | `[{"name","version"?,"state"?,"reason"?}]` |
/// | repository_load | `{"model":s,"parameters":{…}}`; over gRPC file parameters arrive base64-encoded like over HTTP | `{}` |
/// | repository_unload | `{"model":s,"unload_dependents":bool}` | `{}` |
/// | either, asked for by the code of a model | also `"within":s`, that model | `{}` |
/// | trace_get / trace_update | `{"model":s,"settings":{…},"protocol":"http"\|"grpc"}`; over gRPC each value is an array of strings | every current setting |
/// | openapi | `{"model":s,"version":s}`, both empty for the whole server | an OpenAPI document |
/// | page | `{"page":s,"html":bool,"host":s}`: a path | the text of that page, or of that part of one |
/// | log_get / log_update | `{"settings":{…},"protocol":"http"\|"grpc"}` | every current setting |
#[napi(object, object_from_js = false)]
pub struct ControlCall {
    /// Answer with `Core.controlReply(id, …)`, exactly once.
    pub id: u32,
    #[napi(ts_type = "ControlOperation")]
    pub operation: &'static str,
    pub argument: String,
    /// Files of a load that are not in `argument`: long ones.
    pub files: Vec<ControlFile>,
}

#[napi(object, object_from_js = false)]
pub struct ControlFile {
    /// `file:<path>`.
    pub parameter: String,
    pub contents: Buffer,
}

/// A line the core wants logged. Bounded queue: under a flood lines are dropped and counted, never waited for.
#[napi(object, object_from_js = false)]
pub struct LogRecord {
    /// 0 error, 1 warning, 2 info, 3 and up verbose level (3 = verbose 1).
    pub level: u32,
    pub message: String,
    /// Source file and line in the core.
    pub file: String,
    pub line: u32,
}

/// A duration counter: how often, and how long in all.
#[napi(object, object_from_js = false)]
pub struct Duration {
    pub count: u64,
    pub ns: u64,
}

/// One more count than bounds: those above the last bound.
#[napi(object, object_from_js = false)]
pub struct Histogram {
    pub bounds: Vec<f64>,
    pub counts: Vec<u64>,
    pub sum: f64,
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

/// Counters of one version, all taken from one consistent value.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct VersionStatistics {
    pub name: String,
    /// The repository it is from, where repositories are namespaces; else ''.
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
    /// Requests the response cache answered, and looking for their answers.
    pub cache_hit: Duration,
    /// Requests whose answers were not there, and looking for and keeping them.
    pub cache_miss: Duration,
    /// The version has the response cache.
    pub cached: bool,
    /// Failures by reason, in this order: REJECTED, CANCELED, BACKEND, OTHER.
    pub failures: Vec<u64>,
    /// Accepted and not yet executing.
    pub pending: u64,
    /// Accepted and not yet answered.
    pub inflight: u64,
    /// Time that instances took for executions, each counted once.
    pub execution_ns: u64,
    /// Requests cancelled by their client, queued or running.
    pub cancelled: u64,
    /// Of first responses, in ms; null when histograms are off.
    pub first_response: Option<Histogram>,
    /// Summaries in µs by family suffix; null when summaries are off.
    pub summaries: Option<Vec<Summary>>,
    /// Counters the backend itself keeps for this version.
    pub custom: Vec<Gauge>,
    /// What instances on devices did of all this, by device.
    pub on_devices: Vec<Executions>,
}

/// What executions on a device counted.
#[napi(object, object_from_js = false)]
pub struct Executions {
    /// Its ordinal.
    pub device: u32,
    pub inference_count: u64,
    pub execution_count: u64,
    pub success: Duration,
    pub queue: Duration,
    pub compute_input: Duration,
    pub compute_infer: Duration,
    pub compute_output: Duration,
    /// Requests that the backend failed.
    pub failures: u64,
}

/// Everything a scrape needs from the core, taken at one moment.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Snapshot {
    pub versions: Vec<VersionStatistics>,
    /// Our own limits and their current values, for `nereid_…` families.
    pub gauges: Vec<Gauge>,
    /// What the response cache did and holds; null where there is none.
    pub cache: Option<CacheUse>,
    /// Of the rate limiter.
    pub resources: Vec<ResourceUse>,
    pub memory: MemoryUse,
    /// null without a GPU.
    pub device_memory: Option<DeviceMemoryUse>,
    /// Families with labels: what models count for themselves, in the order in which they made it, and ours around them.
    pub custom: Vec<CustomFamily>,
    /// Devices; null when the core is closed.
    pub gpu: Option<GpuStatus>,
    /// Log records of the core that were dropped because too many waited for this thread.
    pub log_records_dropped: f64,
    /// Traces that were dropped because too many waited for this thread.
    pub trace_records_dropped: f64,
}

/// A resource of the rate limiter: units that executions hold, and that there are.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct ResourceUse {
    pub name: String,
    /// null is a global one.
    pub device: Option<u32>,
    pub used: f64,
    pub capacity: f64,
}

/// The response cache since the start.
#[napi(object, object_from_js = false)]
pub struct CacheUse {
    pub entries: u64,
    pub lookups: u64,
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
    pub lookup_ns: u64,
    pub insertion_ns: u64,
    /// Part of its size in use, 0 to 1.
    pub utilisation: f64,
}

#[napi(object, object_from_js = false)]
pub struct KindUse {
    /// `bodies`, `heads`, `answers`.
    pub kind: String,
    pub bytes: f64,
}

/// What requests and answers in flight hold, beside what they may, and the pool of their buffers.
#[napi(object, object_from_js = false)]
pub struct MemoryUse {
    pub limit_bytes: f64,
    pub used: Vec<KindUse>,
    /// Requests that wait for memory.
    pub waiting: f64,
    /// Requests and answers refused for lack of memory.
    pub refused: u64,
    pub pool_live_bytes: f64,
    pub pool_retained_bytes: f64,
    pub pool_retained_bytes_max: f64,
}

/// Memory for GPUs and of them.
#[napi(object, object_from_js = false)]
pub struct DeviceMemoryUse {
    pub pinned: PoolUse,
    /// By ordinal.
    pub devices: Vec<OneDeviceMemoryUse>,
    /// Regions of system shared memory whose pages are locked.
    pub locked_region_bytes: f64,
    pub locked_region_bytes_max: f64,
    /// What bodies of requests have of the pinned pool.
    pub pinned_body_bytes: f64,
    pub pinned_body_bytes_max: f64,
    /// Bytes that the processor copied to or from page-locked memory for the sake of a GPU.
    pub staged_bytes: u64,
}

#[napi(object, object_from_js = false)]
pub struct OneDeviceMemoryUse {
    pub device: u32,
    pub pool: PoolUse,
    /// What models that are loaded need, as far as their backends say.
    pub promised_bytes: f64,
    pub promised_bytes_max: f64,
}

#[napi(object, object_from_js = false)]
pub struct PoolUse {
    pub bytes_max: f64,
    pub used_bytes: f64,
    /// How often it had no room.
    pub exhausted: u64,
}

#[napi(object, object_from_js = false)]
pub struct CustomFamily {
    pub name: String,
    pub help: String,
    #[napi(ts_type = "'counter' | 'gauge' | 'histogram'")]
    pub kind: &'static str,
    pub series: Vec<CustomSeries>,
}

#[napi(object, object_from_js = false, use_nullable = true)]
pub struct CustomSeries {
    pub labels: HashMap<String, String>,
    /// 0 where there is a histogram.
    pub value: f64,
    pub histogram: Option<Histogram>,
}

/// Whether this process has a GPU, and what its devices did lately.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct GpuStatus {
    /// Why it has none; null when it has one.
    pub unavailable: Option<String>,
    /// In the order of ordinals, of the devices that were asked and answered.
    pub usage: Vec<GpuUsage>,
    /// By ordinal, of the devices whose metrics are shown, whether or not they answer now; '' of others.
    pub uuids: Vec<String>,
}

/// What a device does not say is null.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct GpuUsage {
    /// `GPU-…`, and `MIG-…` of an instance.
    pub uuid: String,
    /// 0 to 1.
    pub utilization: Option<f64>,
    pub memory_total_bytes: Option<f64>,
    pub memory_used_bytes: Option<f64>,
    pub power_watts: Option<f64>,
    pub power_limit_watts: Option<f64>,
    /// Since it was first asked.
    pub energy_joules: Option<f64>,
}

/// The devices of this process, as CUDA's driver describes them; what it does not say is null.
#[napi(object, object_from_js = false, use_nullable = true)]
#[derive(Default)]
pub struct DeviceList {
    /// Why there is none; null when there is one.
    pub unavailable: Option<String>,
    /// The highest version of CUDA that the driver is made for, such as `13.0`.
    pub cuda_version: Option<String>,
    pub devices: Vec<Device>,
}

#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Device {
    /// From 0, in the order of CUDA_VISIBLE_DEVICES.
    pub ordinal: u32,
    /// Empty where the driver does not say.
    pub name: String,
    /// Without `GPU-` or `MIG-`; of an instance its own.
    pub uuid: Option<String>,
    /// Such as `0000:17:00.0`; of an instance that of the device it is part of.
    pub pci_address: Option<String>,
    /// Such as `9.0`.
    pub compute_capability: Option<String>,
    pub memory_bytes: Option<f64>,
    /// Ordinals of the devices whose memory it can read.
    pub peers: Vec<u32>,
}

/// The devices of the machine, also those that this process does not have.
#[napi(object, object_from_js = false, use_nullable = true)]
#[derive(Default)]
pub struct MachineDevices {
    /// Why they cannot be listed.
    pub unavailable: Option<String>,
    pub driver_version: Option<String>,
    pub devices: Vec<MachineDevice>,
    /// The first entry of CUDA_VISIBLE_DEVICES that chooses no device: those behind it choose none either.
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
    /// Owned by the caller again when the promise settles; the core copies it on the way in.
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

/// Responses of one request, and whether they are the last.
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
    pub message: String,
}

/// A request that another server of this process received.
#[napi(object, object_to_js = false, use_nullable = true)]
pub struct EmbeddedRequest {
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// Names and values by turns, as sent.
    pub fields: Vec<String>,
    /// `address:port` of the other end of the connection; null where it is not known, which counts as a network.
    pub peer: Option<String>,
    /// This end.
    pub local: Option<String>,
    /// null = not read yet.
    pub body: Option<Buffer>,
}

/// What a call about such a request is told: the bytes of body that are wanted at most, a reply, or events.
#[napi(object, object_from_js = false, use_nullable = true)]
#[derive(Default)]
pub struct EmbeddedAnswer {
    /// Give at most so many bytes to `body`; null in the other cases.
    pub wanted: Option<f64>,
    pub status: Option<u32>,
    /// Names and values by turns; length and connection are the other server's.
    pub fields: Option<Vec<String>>,
    /// Whole, owned by the caller, who may give it back to `replies` when it is written.
    pub body: Option<Buffer>,
    /// Instead of `body`, the bytes it has: `embedTake` writes it.
    pub large: Option<f64>,
    /// Events follow: `next`.
    pub more: Option<bool>,
    /// The length of the body is told; else, and where events follow, it is sent in chunks.
    pub sized: Option<bool>,
}

/// A gRPC call that another server of this process received.
#[napi(object, object_to_js = false, use_nullable = true)]
pub struct EmbeddedCall {
    pub path: String,
    /// Metadata, names and values by turns; binary values in base64.
    pub fields: Vec<String>,
    /// As in `EmbeddedRequest`.
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
    /// Names and values by turns.
    pub trailers: Vec<String>,
}

/// What there is of the answer of a gRPC call.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct EmbeddedCallAnswer {
    /// The response begins: initial metadata may leave.
    pub begun: bool,
    /// Whole, owned by the caller.
    pub messages: Vec<Buffer>,
    pub end: Option<EmbeddedCallEnd>,
}

/// What decides which requests are traced. Replacing one restarts its counters; requests in flight finish under the one they were
/// sampled with, and when the last of them ended `Core.takeTraces` names it in `ended`, behind all of its records.
#[napi(object, object_to_js = false)]
pub struct TraceSetting {
    /// Chosen by the caller, never used twice; 0 is none.
    pub setting: u32,
    #[napi(ts_type = "TraceMode")]
    pub mode: String,
    pub timestamps: bool,
    pub tensors: bool,
    /// Every n-th request; 0 = only those with a W3C context (mode opentelemetry).
    pub rate: u32,
    /// How many may still be sampled; -1 = any number. A W3C context is traced whatever this says.
    pub count: i32,
}

/// As they came in the headers `traceparent` and `tracestate`; of several `tracestate`, joined by commas; empty without.
#[napi(object, object_from_js = false)]
pub struct TraceContext {
    /// `00-<32 hex digits>-<16 hex digits>-<2 hex digits>`, in lower case, ids not zero. Also of a higher version: its first 55 characters.
    pub traceparent: String,
    pub tracestate: String,
}

#[napi(object, object_from_js = false)]
pub struct TraceActivity {
    pub name: String,
    /// CLOCK_MONOTONIC, the clock of `process.hrtime.bigint()`: not since the epoch.
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
    /// From 1, never used twice in a process.
    pub id: f64,
    /// Id of the call it was made for; 0 = none, which is so for the client's.
    pub parent_id: f64,
    pub model: String,
    pub version: i64,
    /// As the client sent it, any characters; empty = none.
    pub request_id: String,
    /// 16 hex digits that its model was told as those of its span (`trace::Trace::context`); empty = none.
    pub span_id: String,
    /// In the order of time: REQUEST_START, QUEUE_START, COMPUTE_START, COMPUTE_INPUT_END, COMPUTE_OUTPUT_START, COMPUTE_END, REQUEST_END. What
    /// a backend reported (CUSTOM_…) stands in its own order before the four of COMPUTE: compare times. The four of COMPUTE are missing for
    /// ensembles, cache hits and requests that left their queue without running; REQUEST_END for a request refused by its queue. A call
    /// without level TIMESTAMPS has none.
    pub activities: Vec<TraceActivity>,
    /// Of level TENSORS, in mode triton; a long tensor is cut (`TRACE_TENSOR_BYTES_MAX`).
    pub tensors: Vec<TraceTensor>,
    /// Why it failed, if it did.
    pub error: Option<Failure>,
}

/// What was traced of one request of a client: the call of the model it asked for, and every call made for that (steps of an ensemble).
///
/// Records come out of a bounded queue of the core: `Core.takeTraces` gives those that are complete, in the order in which they ended, and
/// `onTraces` is called when the queue is no longer empty, once until it was emptied. A record is there when the last byte of the answer
/// was written and the last call ended, whichever is later; also when the request failed, was cancelled or its client left. When the
/// queue is full (`TRACES_WAITING_MAX` records, or `TRACES_WAITING_BYTES_MAX` of tensors) a record is dropped and counted in
/// `nereid_trace_records_lost_total`; none is ever waited for. Nothing of it is shared with the core: it may be kept and changed.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct TraceRecord {
    /// Where it goes: that of the server, at the time of the request.
    #[napi(ts_type = "TraceMode")]
    pub mode: &'static str,
    /// Number of the setting that sampled it, as it was given to `Core.setTraceSetting`.
    pub setting: u32,
    /// The caller's W3C context: only in mode opentelemetry, and only a valid one.
    pub context: Option<TraceContext>,
    /// 32 hex digits that a model was told as those of the trace; empty = none was told any, or they are those of `context`.
    pub trace_id: String,
    /// The client's call first; the parent of each other one stands before it. Empty in one case: an HTTP body that is no JSON, which has
    /// `activities` and no call.
    pub calls: Vec<TraceCall>,
    /// Activities of the front end, `HTTP_…` or `GRPC_…` and INFER_RESPONSE_COMPLETE, in the order in which they were noted. They have no
    /// place in the order of activities of `calls[0]`: compare times. Empty without level TIMESTAMPS.
    pub activities: Vec<TraceActivity>,
    /// Id of the client's call, also when `calls` is empty.
    pub id: f64,
}

#[napi(object, object_from_js = false)]
pub struct TakenTraces {
    pub records: Vec<TraceRecord>,
    /// Settings of which no record follows: all of them were taken, with this call or before.
    pub ended: Vec<u32>,
    /// No more are there; `onTraces` will be called.
    pub is_all: bool,
}

/// A setting that all servers of a process share.
#[napi(object)]
pub struct SharedSetting {
    /// Equal values are the same setting.
    pub value: String,
    /// What a server with this value has, for the text of a refusal.
    pub has: String,
    /// What the other wants instead, in the same sentence; empty where `has` says all.
    pub instead: String,
}
