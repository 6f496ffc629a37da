//! Settings of an engine, fixed when it is made.

use scheduler::rate::Available;
use scheduler::sequence::SEQUENCES_MAX_DEFAULT;

/// Metadata of the server, as clients read it (protocol.md 1.4).
#[derive(Debug, Clone, Default)]
pub struct ServerMetadata {
    /// `--id`.
    pub name: String,
    /// Triton API level.
    pub version: String,
    /// Extensions, in the order in which they are reported.
    pub extensions: Vec<String>,
}

/// Latency families collected besides the counters (observability.md 1.1).
#[derive(Debug, Clone, Default)]
pub struct MetricsOptions {
    /// Quantile summaries over the last minute.
    pub summaries: bool,
    /// First-response histogram.
    pub histograms: bool,
    /// Quantiles to report, each with its allowed error.
    pub quantiles: Vec<(f64, f64)>,
}

/// Settings of the whole core.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Metadata of the server.
    pub metadata: ServerMetadata,
    /// Readiness requires that every known version is ready.
    pub strict_readiness: bool,
    /// Errors about a model that does not serve end with the reason, such as the error of its load.
    pub reasons_in_errors: bool,
    /// `--exit-on-device-error`: the server is not live after a device failed.
    pub exit_on_device_error: bool,
    /// Triton's literal batching timer instead of the work-conserving rule.
    pub strict_batching_delay: bool,
    /// Latency families.
    pub metrics: MetricsOptions,
    /// `--http-max-input-size`.
    pub http_input_bytes_max: usize,
    /// `--allow-client-shm`.
    pub allow_client_shm: bool,
    /// Maximum number of pool threads over all models; further batches wait for one.
    pub worker_threads_max: usize,
    /// Predicted cost in nanoseconds below which a request may run inline.
    pub inline_cost_max_ns: u64,
    /// Bytes of the response cache, over all models; `None` = no cache.
    pub response_cache_bytes: Option<usize>,
    /// `--rate-limit=execution_count` with these resources; `None` = executions are not limited.
    pub rate_limit: Option<Vec<Available>>,
    /// `TRITONSERVER_DELAY_SCHEDULER`: dynamic batchers first wait for this many requests; 0 = off (S-47).
    pub delay_scheduler: u32,
    /// `TRITONSERVER_BACKLOG_DELAY_SCHEDULER`: sequence batchers first wait for this backlog, too; 0 = off (S-47).
    pub backlog_delay_scheduler: u32,
    /// `--sequence-limit`: maximum number of sequences of a model in progress or waiting.
    pub sequences_max: u32,
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
            worker_threads_max: 256,
            inline_cost_max_ns: 25_000,
            response_cache_bytes: None,
            rate_limit: None,
            delay_scheduler: 0,
            backlog_delay_scheduler: 0,
            sequences_max: SEQUENCES_MAX_DEFAULT,
        }
    }
}
