//! The flat objects of src/native/contract.ts, field by field.

use napi::bindgen_prelude::{BigInt, Buffer};
use napi_derive::napi;
use std::collections::HashMap;

#[napi(object)]
pub struct CoreOptions {
    pub server_id: String,
    pub server_version: String,
    pub extensions: Vec<String>,
    pub strict_readiness: bool,
    pub exit_on_device_error: bool,
    pub onnxruntime_library: Option<String>,
    pub strict_batching_delay: bool,
    pub summary_latencies: bool,
    pub histogram_latencies: bool,
    pub summary_quantiles: Vec<SummaryQuantile>,
    pub http_input_bytes_max: i64,
    pub allow_client_shm: bool,
    pub memory_limit_bytes: i64,
    pub device_memory: DeviceMemoryOptions,
    pub sequence_limit: u32,
    pub response_cache_bytes: Option<i64>,
    pub response_cache_redis: Option<RedisOptions>,
    pub rate_limit: Option<RateLimit>,
    pub custom_metrics: bool,
    pub gpu_metrics_interval_ms: Option<u32>,
    pub python_runtime: String,
    pub python_unpack_prefix: String,
    pub python_environment_roots: Option<Vec<String>>,
}

#[napi(object)]
pub struct DeviceMemoryOptions {
    pub pinned_pool_bytes: i64,
    pub device_pools: Vec<DevicePool>,
    pub locked_region_bytes_max: i64,
    pub load_limits: Vec<LoadLimit>,
    pub peer_access: bool,
}

#[napi(object)]
pub struct DevicePool {
    pub device: u32,
    pub bytes: i64,
}

#[napi(object)]
pub struct LoadLimit {
    pub device: u32,
    pub fraction: f64,
}

#[napi(object)]
pub struct DeviceMemoryUse {
    pub pinned: PoolUse,
    pub devices: Vec<OneDeviceMemoryUse>,
    pub locked_region_bytes: f64,
    pub locked_region_bytes_max: f64,
    pub pinned_body_bytes: f64,
    pub pinned_body_bytes_max: f64,
    pub staged_bytes: BigInt,
}

#[napi(object)]
pub struct PoolUse {
    pub bytes_max: f64,
    pub used_bytes: f64,
    pub exhausted: BigInt,
}

#[napi(object)]
pub struct OneDeviceMemoryUse {
    pub device: u32,
    pub pool: PoolUse,
    pub promised_bytes: f64,
    pub promised_bytes_max: f64,
}

#[napi(object)]
pub struct RedisOptions {
    pub host: String,
    pub port: u16,
    pub user: Option<String>,
    pub password: Option<String>,
    pub database: u32,
    pub connect_timeout_ms: u32,
    pub socket_timeout_ms: u32,
    pub wait_timeout_ms: u32,
    pub pool_size: u32,
}

#[napi(object)]
pub struct RateLimit {
    pub resources: Vec<AvailableResource>,
}

#[napi(object)]
pub struct AvailableResource {
    pub name: String,
    pub count: u32,
    pub device: Option<u32>,
}

#[napi(object)]
pub struct SummaryQuantile {
    pub quantile: f64,
    pub error: f64,
}

#[napi(object)]
pub struct Setting {
    pub key: String,
    pub value: String,
}

#[napi(object)]
pub struct ProviderReport {
    pub library: Option<String>,
    pub release: Option<String>,
    pub directory: Option<String>,
    pub cuda: Provider,
    pub tensorrt: Provider,
}

#[napi(object)]
pub struct Provider {
    pub file: Option<String>,
    pub usable: bool,
    pub libraries: Vec<ProviderLibrary>,
    pub problems: Vec<String>,
    pub command: Option<String>,
}

#[napi(object)]
pub struct ProviderLibrary {
    pub name: String,
    pub file: Option<String>,
    pub optional: bool,
}

#[napi(object)]
pub struct OpenSpec {
    pub name: String,
    pub version: i64,
    pub model_directory: String,
    pub version_directory: String,
    pub backend: String,
    pub config: Buffer,
    pub settings: Vec<Setting>,
    pub config_json: String,
    pub completes: bool,
    pub code_directory: Option<String>,
}

#[napi(object)]
pub struct TensorIo {
    pub name: String,
    pub datatype: i32,
    pub shape: Vec<i64>,
    pub optional: bool,
}

#[napi(object)]
pub struct ModelIo {
    pub inputs: Vec<TensorIo>,
    pub outputs: Vec<TensorIo>,
}

#[napi(object)]
pub struct Opened {
    pub handle: u32,
    pub io: Option<ModelIo>,
    pub completed: Option<String>,
}

#[napi(object)]
pub struct OutputLabels {
    pub output: String,
    pub text: Buffer,
}

#[napi(object)]
pub struct PublishSpec {
    pub config: Buffer,
    pub config_json: String,
    pub labels: Vec<OutputLabels>,
    pub platform: String,
}

#[napi(object)]
pub struct Restriction {
    pub apis: Vec<String>,
    pub key: String,
    pub value: String,
}

#[napi(object)]
pub struct TlsOptions {
    pub certificate: String,
    pub key: String,
    pub roots: String,
    pub mutual: bool,
}

#[napi(object)]
pub struct HttpOptions {
    pub address: String,
    pub port: u16,
    pub reuse_port: bool,
    pub given_fd: Option<i32>,
    pub tls: Option<TlsOptions>,
    pub header_forward_pattern: String,
    pub restrictions: Vec<Restriction>,
    pub cors_origins: Vec<String>,
}

#[napi(object)]
pub struct GrpcOptions {
    pub address: String,
    pub port: u16,
    pub reuse_port: bool,
    pub given_fd: Option<i32>,
    pub tls: Option<TlsOptions>,
    pub header_forward_pattern: String,
    pub restrictions: Vec<Restriction>,
    pub infer_response_compression_level: String,
    pub keepalive_time_ms: i64,
    pub keepalive_timeout_ms: i64,
    pub keepalive_permit_without_calls: bool,
    pub http2_max_pings_without_data: i64,
    pub http2_min_recv_ping_interval_without_data_ms: i64,
    pub http2_max_ping_strikes: i64,
    pub max_connection_age_ms: i64,
    pub max_connection_age_grace_ms: i64,
}

#[napi(object)]
pub struct ControlOptions {
    pub address: String,
    pub port: u16,
    pub tls: Option<TlsOptions>,
}

#[napi(object)]
pub struct IssuerOptions {
    pub issuer: String,
    pub audience: String,
    pub claim: String,
    pub keys_file: Option<String>,
}

#[napi(object)]
pub struct ListenOptions {
    pub http: Option<HttpOptions>,
    pub grpc: Option<GrpcOptions>,
    pub control: Option<ControlOptions>,
    pub allow_remote_settings: bool,
    pub unix_socket_mode: u32,
    pub reactor_threads: u32,
}

#[napi(object)]
pub struct RequestLogOptions {
    pub access_log: String,
    pub access_log_rate: f64,
    pub audit_log: String,
    pub reactor_threads: u32,
}

#[napi(object)]
pub struct GivenSocket {
    pub family: String,
    pub is_stream: bool,
    pub is_listening: bool,
    pub port: u16,
}

#[napi(object)]
pub struct MetricsAddress {
    pub address: String,
    pub port: u16,
}

#[napi(object)]
#[derive(Default)]
pub struct BoundPorts {
    pub http_port: u16,
    pub grpc_port: u16,
    pub control_port: u16,
    pub metrics_port: u16,
    pub failures: Vec<BindFailure>,
}

#[napi(object)]
pub struct BindFailure {
    pub service: String,
    pub code: u32,
    pub message: String,
}

#[napi(object)]
pub struct ControlCall {
    pub id: u32,
    pub operation: String,
    pub argument: String,
    pub files: Vec<ControlFile>,
}

#[napi(object)]
pub struct ControlFile {
    pub parameter: String,
    pub contents: Buffer,
}

#[napi(object)]
pub struct LogRecord {
    pub level: u32,
    pub message: String,
    pub file: String,
    pub line: u32,
}

#[napi(object)]
pub struct Duration {
    pub count: BigInt,
    pub ns: BigInt,
}

#[napi(object)]
pub struct FirstResponse {
    pub bounds: Vec<f64>,
    pub counts: Vec<BigInt>,
    pub sum_ms: f64,
}

#[napi(object)]
pub struct QuantileValue {
    pub quantile: f64,
    pub value: f64,
}

#[napi(object)]
pub struct Summary {
    pub family: String,
    pub values: Vec<QuantileValue>,
    pub count: BigInt,
    pub sum_us: f64,
}

#[napi(object)]
pub struct Gauge {
    pub name: String,
    pub help: String,
    pub value: f64,
}

#[napi(object)]
pub struct VersionStatistics {
    pub name: String,
    pub namespace: String,
    pub version: i64,
    pub inference_count: BigInt,
    pub execution_count: BigInt,
    pub last_inference_ms: BigInt,
    pub success: Duration,
    pub fail: Duration,
    pub queue: Duration,
    pub compute_input: Duration,
    pub compute_infer: Duration,
    pub compute_output: Duration,
    pub cache_hit: Duration,
    pub cache_miss: Duration,
    pub cached: bool,
    pub failures: Vec<BigInt>,
    pub pending: BigInt,
    pub inflight: BigInt,
    pub execution_ns: BigInt,
    pub cancelled: BigInt,
    pub first_response: Option<FirstResponse>,
    pub summaries: Option<Vec<Summary>>,
    pub custom: Vec<Gauge>,
    pub on_devices: Vec<Executions>,
}

#[napi(object)]
pub struct Executions {
    pub device: u32,
    pub inference_count: BigInt,
    pub execution_count: BigInt,
    pub success: Duration,
    pub queue: Duration,
    pub compute_input: Duration,
    pub compute_infer: Duration,
    pub compute_output: Duration,
    pub failures: BigInt,
}

#[napi(object)]
pub struct Histogram {
    pub name: String,
    pub help: String,
    pub bounds: Vec<f64>,
    pub counts: Vec<BigInt>,
    pub sum: f64,
}

#[napi(object)]
pub struct KindUse {
    pub kind: String,
    pub bytes: f64,
}

#[napi(object)]
pub struct ResourceUse {
    pub name: String,
    pub device: Option<u32>,
    pub used: f64,
    pub capacity: f64,
}

#[napi(object)]
pub struct CacheUse {
    pub entries: BigInt,
    pub lookups: BigInt,
    pub hits: BigInt,
    pub misses: BigInt,
    pub evictions: BigInt,
    pub lookup_ns: BigInt,
    pub insertion_ns: BigInt,
    pub utilisation: f64,
}

#[napi(object)]
pub struct MemoryUse {
    pub limit_bytes: f64,
    pub used: Vec<KindUse>,
    pub waiting: f64,
    pub refused: BigInt,
    pub pool_live_bytes: f64,
    pub pool_retained_bytes: f64,
    pub pool_retained_bytes_max: f64,
}

#[napi(object)]
pub struct CustomHistogram {
    pub bounds: Vec<f64>,
    pub counts: Vec<BigInt>,
    pub sum: f64,
}

#[napi(object)]
pub struct CustomSeries {
    pub labels: HashMap<String, String>,
    pub value: f64,
    pub histogram: Option<CustomHistogram>,
}

#[napi(object)]
pub struct CustomFamily {
    pub name: String,
    pub help: String,
    pub kind: String,
    pub series: Vec<CustomSeries>,
}

#[napi(object)]
pub struct Snapshot {
    pub versions: Vec<VersionStatistics>,
    pub gauges: Vec<Gauge>,
    pub cache: Option<CacheUse>,
    pub resources: Vec<ResourceUse>,
    pub memory: MemoryUse,
    pub device_memory: Option<DeviceMemoryUse>,
    pub histograms: Vec<Histogram>,
    pub custom: Vec<CustomFamily>,
    pub gpu: Option<GpuStatus>,
    pub log_records_dropped: f64,
    pub trace_records_dropped: f64,
}

#[napi(object)]
pub struct GpuUsage {
    pub uuid: String,
    pub utilization: Option<f64>,
    pub memory_total_bytes: Option<f64>,
    pub memory_used_bytes: Option<f64>,
    pub power_watts: Option<f64>,
    pub power_limit_watts: Option<f64>,
    pub energy_joules: Option<f64>,
}

#[napi(object)]
pub struct GpuStatus {
    pub unavailable: Option<String>,
    pub usage: Vec<GpuUsage>,
    pub uuids: Vec<String>,
}

#[napi(object)]
pub struct Device {
    pub ordinal: u32,
    pub name: String,
    pub uuid: Option<String>,
    pub pci_address: Option<String>,
    pub compute_capability: Option<String>,
    pub memory_bytes: Option<f64>,
    pub peers: Vec<u32>,
}

#[napi(object)]
pub struct DeviceList {
    pub unavailable: Option<String>,
    pub cuda_version: Option<String>,
    pub devices: Vec<Device>,
}

#[napi(object)]
pub struct MachineDevice {
    pub uuid: String,
    pub name: String,
    pub pci_address: Option<String>,
    pub instances: Vec<String>,
}

#[napi(object)]
pub struct IgnoredEntry {
    pub entry: String,
    pub why: String,
}

#[napi(object)]
pub struct MachineDevices {
    pub unavailable: Option<String>,
    pub driver_version: Option<String>,
    pub devices: Vec<MachineDevice>,
    pub ignored: Option<IgnoredEntry>,
}

#[napi(object)]
pub struct NativeTensor {
    pub name: String,
    pub datatype: String,
    pub shape: Vec<i64>,
    pub data: Buffer,
}

#[napi(object)]
pub struct NativeParameter {
    pub key: String,
    /// Exactly one of the four is set.
    pub string_value: Option<String>,
    pub int_value: Option<BigInt>,
    pub double_value: Option<f64>,
    pub bool_value: Option<bool>,
}

#[napi(object)]
pub struct RequestedOutput {
    pub name: String,
    pub classification: u32,
}

#[napi(object)]
pub struct NativeInferRequest {
    pub model: String,
    pub version: String,
    pub id: String,
    pub inputs: Vec<NativeTensor>,
    pub outputs: Vec<RequestedOutput>,
    pub parameters: Vec<NativeParameter>,
    pub priority: BigInt,
    pub timeout_us: BigInt,
}

#[napi(object)]
pub struct NativeInferResponse {
    pub model: String,
    pub version: String,
    pub id: String,
    pub parameters: Vec<NativeParameter>,
    pub outputs: Vec<NativeTensor>,
}

/// How one call ended. `error_code` is the number of `tensor::Code`, or -1 and at most one value.
#[napi(object)]
pub struct Settlement {
    pub ticket: u32,
    pub error_code: i32,
    pub message: String,
    pub opened: Option<Opened>,
    pub count: Option<i64>,
    pub response: Option<NativeInferResponse>,
    pub responses: Option<Vec<NativeInferResponse>>,
    pub done: Option<bool>,
    pub embedded: Option<EmbeddedAnswer>,
    pub embedded_call: Option<EmbeddedCallAnswer>,
}

#[napi(object)]
pub struct EmbeddedRequest {
    pub method: String,
    pub target: String,
    pub fields: Vec<String>,
    pub peer: Option<String>,
    pub local: Option<String>,
    pub body: Option<Buffer>,
}

#[napi(object)]
pub struct EmbeddedAnswer {
    pub wanted: Option<f64>,
    pub status: Option<u32>,
    pub fields: Option<Vec<String>>,
    pub body: Option<Buffer>,
    pub large: Option<f64>,
    pub more: Option<bool>,
    pub sized: Option<bool>,
}

#[napi(object)]
pub struct EmbeddedCall {
    pub path: String,
    pub fields: Vec<String>,
    pub peer: Option<String>,
    pub local: Option<String>,
    pub message: Option<Buffer>,
}

#[napi(object)]
pub struct EmbeddedCallEnd {
    pub code: u32,
    pub text: String,
    pub trailers: Vec<String>,
}

#[napi(object)]
pub struct EmbeddedCallAnswer {
    pub begun: bool,
    pub messages: Vec<Buffer>,
    pub end: Option<EmbeddedCallEnd>,
}

#[napi(object)]
pub struct Unready {
    pub model: String,
    pub version: i64,
    pub reason: String,
}

#[napi(object)]
pub struct TraceSetting {
    pub setting: u32,
    pub mode: String,
    pub timestamps: bool,
    pub tensors: bool,
    pub rate: u32,
    pub count: i32,
}

#[napi(object)]
pub struct TraceContext {
    pub traceparent: String,
    pub tracestate: String,
}

#[napi(object)]
pub struct TraceActivity {
    pub name: String,
    pub ns: BigInt,
}

#[napi(object)]
pub struct TraceTensor {
    pub activity: String,
    pub name: String,
    pub datatype: String,
    pub shape: Vec<i64>,
    pub data: String,
}

/// `code` is the number of `tensor::Code`.
#[napi(object)]
pub struct TraceError {
    pub code: u32,
    pub message: String,
}

#[napi(object)]
pub struct TraceCall {
    pub id: f64,
    pub parent_id: f64,
    pub model: String,
    pub version: i64,
    pub request_id: String,
    pub span_id: String,
    pub activities: Vec<TraceActivity>,
    pub tensors: Vec<TraceTensor>,
    pub error: Option<TraceError>,
}

#[napi(object)]
pub struct TraceRecord {
    pub mode: String,
    pub setting: u32,
    pub context: Option<TraceContext>,
    pub trace_id: String,
    pub calls: Vec<TraceCall>,
    pub activities: Vec<TraceActivity>,
    pub id: f64,
}

#[napi(object)]
pub struct TakenTraces {
    pub records: Vec<TraceRecord>,
    pub ended: Vec<u32>,
    pub is_all: bool,
}
