//! Settings of an engine, fixed when it is made.

use scheduler::rate::Available;
use scheduler::sequence::SEQUENCES_MAX_DEFAULT;

/// What the server says about itself (protocol.md 1.4).
#[derive(Debug, Clone, Default)]
pub struct ServerMetadata {
    /// `--id`.
    pub name: String,
    /// Triton API level implemented.
    pub version: String,
    /// Extension strings, in the order they are reported.
    pub extensions: Vec<String>,
}

/// Which latency families are kept besides the counters (observability.md 1.1).
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
    /// What the server says about itself.
    pub metadata: ServerMetadata,
    /// Ready means every known version is ready, not only the server.
    pub strict_readiness: bool,
    /// `--exit-on-device-error`: the server is not live once a device failed.
    pub exit_on_device_error: bool,
    /// Triton's literal batching timer instead of the rule that an idle instance takes what is queued.
    pub strict_batching_delay: bool,
    /// Latency families.
    pub metrics: MetricsOptions,
    /// `--http-max-input-size`.
    pub http_input_bytes_max: usize,
    /// `--allow-client-shm`.
    pub allow_client_shm: bool,
    /// Most worker threads alive at once over all models; batches wait for one beyond that.
    pub worker_threads_max: usize,
    /// A request whose predicted cost is below this may run on the thread that brought it, in nanoseconds.
    pub inline_cost_max_ns: u64,
    /// Bytes of the response cache, all models together; `None` = there is none.
    pub response_cache_bytes: Option<usize>,
    /// `--rate-limit=execution_count` with these resources; `None` = executions are not limited.
    pub rate_limit: Option<Vec<Available>>,
    /// `TRITONSERVER_DELAY_SCHEDULER`: dynamic batchers wait for this many requests before they do anything; 0 = off (S-47).
    pub delay_scheduler: u32,
    /// `TRITONSERVER_BACKLOG_DELAY_SCHEDULER`: sequence batchers wait for this many requests in their backlog, too; 0 = off (S-47).
    pub backlog_delay_scheduler: u32,
    /// `--sequence-limit`: sequences of a model in progress or waiting; more are refused.
    pub sequences_max: u32,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            metadata: ServerMetadata::default(),
            strict_readiness: true,
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
