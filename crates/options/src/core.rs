//! Options of the engine, its backends and caches.

use bytes::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
#[cfg(feature = "typescript")]
use ts_rs::TS;

/// Options of a server's core.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CoreOptions {
    /// Options of the engine.
    pub engine: EngineOptions,
    /// Absolute path of libonnxruntime.so; `None` if the package is missing: then only ONNX models fail.
    pub onnxruntime_library: Option<PathBuf>,
    /// `--memory-limit`: most bytes of bodies, heads and unread responses; 0 = half of the machine's or container's
    /// memory.
    pub memory_limit_bytes: usize,
    /// Memory pools of the devices, which are only made with a GPU.
    pub device_memory: DeviceMemoryOptions,
    /// Redis to use as the response cache; `None` = none.
    pub response_cache_redis: Option<RedisOptions>,
    /// Library to use as the response cache; `None` = none.
    pub response_cache_library: Option<LibraryCacheOptions>,
    /// Models may create metrics; otherwise their calls return an error.
    pub custom_metrics: bool,
    /// Interval of polling devices for metrics; `None` = never.
    pub gpu_metrics_interval_ms: Option<u32>,
    /// For Python models.
    pub python: PythonOptions,
    /// For JavaScript models that run in processes.
    pub javascript: JavaScriptOptions,
    /// For libraries of backends, which run in processes.
    pub libraries: LibraryProcess,
}

/// Metadata of the server, as clients read it (protocol.md 1.4).
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServerMetadata {
    /// `--id`.
    pub name: String,
    /// Triton API level.
    pub version: String,
    /// Extensions, in the order in which they are reported.
    pub extensions: Vec<String>,
}

/// An alias of a text model.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TextAliasOption {
    /// Name that clients send.
    pub alias: String,
    /// `model` or `model:version`.
    pub model: String,
    /// Tokenizer of the token ids that clients send under this name: `own`, `cl100k_base` or `o200k_base`; "" =
    /// undeclared.
    pub tokens: String,
}

/// Latency families collected besides the counters (observability.md 1.1).
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MetricsOptions {
    /// Quantile summaries over the last minute (`--metrics-config`).
    pub summary_latencies: bool,
    /// Histograms of the first response (`--metrics-config`).
    pub histogram_latencies: bool,
    /// Quantiles to report.
    pub summary_quantiles: Vec<Quantile>,
}

/// A quantile with its allowed error.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Quantile {
    pub quantile: f64,
    pub error: f64,
}

/// Default of `--sequence-limit`. A waiting sequence holds its requests in memory, and a client may open any number.
pub const SEQUENCES_MAX_DEFAULT: u32 = 65_536;

/// Options of the engine.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EngineOptions {
    /// Metadata of the server.
    pub metadata: ServerMetadata,
    /// Readiness requires that every known version is ready.
    pub strict_readiness: bool,
    /// Errors about a model that does not serve end with the reason, such as the error of its load.
    pub reasons_in_errors: bool,
    /// `--exit-on-device-error`: the server is not live after a device failed, and the process should end.
    pub exit_on_device_error: bool,
    /// Triton's literal batching timer instead of the work-conserving rule.
    pub strict_batching_delay: bool,
    /// Latency families.
    pub metrics: MetricsOptions,
    /// `--http-max-input-size`; the other body limits of the HTTP front end derive from it.
    pub http_input_bytes_max: usize,
    /// `--allow-client-shm`.
    pub allow_client_shm: bool,
    /// Bytes of the response cache, over all models; `None` = no cache.
    pub response_cache_bytes: Option<usize>,
    /// `--rate-limit=execution_count` with these resources; `None` = executions are not limited. A resource that is not
    /// listed has the most that an instance needs.
    pub rate_limit: Option<Vec<Available>>,
    /// `--sequence-limit`: maximum number of sequences of a model in progress or waiting.
    pub sequence_limit: u32,
    /// `--hang-warning-secs`: time without a response after which an execution is reported in the log; 0 = never.
    pub hang_warning_secs: u32,
    /// `--text-alias`: names by which clients of text endpoints know models.
    pub text_aliases: Vec<TextAliasOption>,
    /// Chat and completions.
    pub chat: ChatOptions,
    /// Maximum number of pool threads over all models; further batches wait for one.
    #[serde(skip, default = "worker_threads_max")]
    pub worker_threads_max: usize,
    /// Predicted cost in nanoseconds below which a request may run inline.
    #[serde(skip, default = "inline_cost_max_ns")]
    pub inline_cost_max_ns: u64,
    /// Number of requests that dynamic batchers first wait for (`TRITONSERVER_DELAY_SCHEDULER`), and backlog that
    /// sequence batchers wait for, too (`TRITONSERVER_BACKLOG_DELAY_SCHEDULER`); 0 = off (S-47).
    #[serde(skip)]
    pub delays: [u32; 2],
}

const fn worker_threads_max() -> usize {
    256
}

const fn inline_cost_max_ns() -> u64 {
    25_000
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            metadata: ServerMetadata::default(),
            strict_readiness: true,
            reasons_in_errors: false,
            exit_on_device_error: false,
            strict_batching_delay: false,
            metrics: MetricsOptions::default(),
            http_input_bytes_max: 64 << 20,
            allow_client_shm: false,
            response_cache_bytes: None,
            rate_limit: None,
            sequence_limit: SEQUENCES_MAX_DEFAULT,
            hang_warning_secs: 60,
            worker_threads_max: worker_threads_max(),
            inline_cost_max_ns: inline_cost_max_ns(),
            text_aliases: Vec::new(),
            chat: ChatOptions::default(),
            delays: [0, 0],
        }
    }
}

/// Options of chat and completions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChatOptions {
    /// `--tokenizer`: a folder, or a model in the cache of Hugging Face; empty = that of each model.
    pub tokenizer: String,
    /// `--chat-template`: a file; empty = that of the tokenizer.
    pub template: PathBuf,
    /// `--tool-call-parser`; empty = none.
    pub tool_parser: String,
    /// `--max-tool-call-parse-bytes`.
    pub call_bytes_max: u32,
    /// `--default-max-tokens`.
    pub max_tokens_default: u32,
    /// `--lora-separator`; empty = none.
    pub lora_separator: String,
    /// `--model-control-mode=explicit`: clients may load and unload models.
    pub is_explicit: bool,
    /// `nereid check --load`: a template that cannot be read, or that renders no message of a user, fails the load.
    pub is_strict: bool,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self {
            tokenizer: String::new(),
            template: PathBuf::new(),
            tool_parser: String::new(),
            call_bytes_max: 131_072,
            max_tokens_default: 16,
            lora_separator: String::new(),
            is_explicit: false,
            is_strict: false,
        }
    }
}

/// `--rate-limit-resource`: how much of a resource is available.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Available {
    /// Name of the resource.
    pub name: String,
    /// Units.
    pub count: u32,
    /// Ordinal of the device of the resource; `None` = each device.
    pub device: Option<u32>,
}

/// Limits of memory of and for GPUs, in bytes.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceMemoryOptions {
    /// `--pinned-memory-pool-byte-size`; 0 = no pool.
    pub pinned_pool_bytes: usize,
    /// `--cuda-memory-pool-byte-size`: the last entry of a device applies; other devices have 64 MiB.
    pub device_pools: Vec<DevicePool>,
    /// `--pinned-region-byte-size`: all regions of system shared memory together.
    pub locked_region_bytes_max: usize,
    /// `--model-load-gpu-limit`: the last entry of a device applies.
    pub load_limits: Vec<LoadLimit>,
    /// `--enable-peer-access`.
    pub peer_access: bool,
}

/// Size of the memory pool of a device.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct DevicePool {
    pub device: u32,
    pub bytes: usize,
}

/// The part of the memory of a device that models may need.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LoadLimit {
    pub device: u32,
    pub fraction: f64,
}

/// A Redis and its timeouts. Has a password, so it cannot be printed.
#[derive(Clone, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RedisOptions {
    /// Host name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Redis ACL user, only used with a password; `None` = `TRITONCACHE_REDIS_USERNAME`.
    pub user: Option<String>,
    /// Password of the user, or of Redis; `None` = `TRITONCACHE_REDIS_PASSWORD`.
    pub password: Option<String>,
    /// Number of the database.
    pub database: u32,
    /// Timeout to connect, authentication included.
    pub connect_timeout_ms: u32,
    /// Timeout of a command.
    pub socket_timeout_ms: u32,
    /// Timeout to wait for a connection that accepts another command.
    pub wait_timeout_ms: u32,
    /// Number of connections.
    pub pool_size: usize,
}

/// A response cache in a library of Triton's C API, which runs in a process.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LibraryCacheOptions {
    /// Name of the cache.
    pub name: String,
    /// Absolute path of its library.
    pub path: PathBuf,
    /// Settings of the library as a JSON object whose values are texts.
    pub config: String,
}

/// Options of the backend `python`.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PythonOptions {
    /// Directory of our Python modules, including `triton_python_backend_utils.py`.
    pub runtime: PathBuf,
    /// Prefix of directories for unpacked environments: the core appends a number, creates and fills them.
    pub unpack_prefix: PathBuf,
    /// Directories that may contain environments, beside a model's own; `None` = any: no models come over the network.
    pub environment_roots: Option<Vec<PathBuf>>,
}

/// The start of a process for an instance of a JavaScript model.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JavaScriptOptions {
    /// Absolute path of Node.
    pub node: PathBuf,
    /// Flags of Node.
    pub flags: Vec<String>,
    /// Absolute path of the script that such a process runs.
    pub script: PathBuf,
    /// The whole environment of the process: the server's, such as keys, is not for models.
    pub environment: BTreeMap<String, String>,
}

/// The start of a process for libraries that were written for Triton's C API.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LibraryProcess {
    /// Absolute path of `nereid-backend-host`.
    pub program: PathBuf,
    /// Absolute path of our `libtritonserver.so`.
    pub library: PathBuf,
    /// Prefix of the directory for links to it, which is made when it is needed.
    pub links: PathBuf,
    /// The whole environment of the processes: the server's, such as keys, is not for libraries.
    pub environment: BTreeMap<String, String>,
    /// `--host-per-model`: one process per model instead of one per library.
    pub per_model: bool,
    /// `<uid>:<gid>` that the processes take before they open a library of others; `None` = the server's.
    pub user: Option<String>,
    /// Why the programs are missing on this platform; `None` if they are there.
    pub missing: Option<String>,
}

/// A version to open, before its configuration is completed.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct OpenSpec {
    pub model: String,
    pub version: i64,
    /// Contains `config.pbtxt`.
    pub model_directory: PathBuf,
    pub version_directory: PathBuf,
    /// The user's `inference.ModelConfig` with normalised defaults, before completion, protobuf-encoded.
    #[serde(skip)]
    pub config: Bytes,
    /// `--backend-config=<backend>,<key>=<value>` pairs of this backend, in command-line order.
    pub settings: Vec<(String, String)>,
    /// `config` in Triton's JSON form, for the code of a model; empty for backends without.
    pub config_json: String,
    /// Whether models may complete their configuration.
    pub completes: bool,
    /// Directory with the code of a backend that is itself written in Python (the backend is then `python`).
    pub code_directory: Option<PathBuf>,
    /// For a model of a library that was written for Triton's C API (the backend is then `c`).
    pub library: Option<LibrarySpec>,
    /// The batching library of a model with another backend than `c`: it is its own `strategy`.
    pub batching: Option<LibrarySpec>,
}

/// The library of a backend, and what else it needs to know of the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "typescript", derive(TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LibrarySpec {
    /// Absolute path.
    pub path: PathBuf,
    /// Name of its backend.
    pub backend: String,
    /// Directory that holds it.
    pub directory: PathBuf,
    /// Name under which the library needs `libtritonserver.so`; `None` if it is that one.
    pub needs: Option<String>,
    /// Absolute path of the library that decides which requests come into a batch.
    pub strategy: Option<PathBuf>,
    /// `--backend-directory`.
    pub backend_directory: PathBuf,
    /// `--host-policy` as JSON: settings by the name of their policy.
    pub host_policies: String,
    /// The configuration has no instance groups of its own: those that the library prefers apply.
    pub default_groups: bool,
    /// The library can call other models: then a request of it may not lie behind another.
    pub calls_models: bool,
}
