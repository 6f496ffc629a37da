//! Conversions between the flat objects of the boundary and the types of the crates.

use crate::objects as js;
use backend::metrics::{
    BYTES_MAX, CustomMetrics, FAMILIES_MAX, FamilySnapshot, HistogramSnapshot, Labels, SERIES_MAX, SeriesValue,
};
use engine::{PublishSpec, Snapshot, VersionStatistics};
use frontend::{HOLD_BOUNDS_NS, HoldTotals, IssuerOptions, LogCounts, OffloadStatus};
use memory::{Budget, Kind, SlabPool};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tensor::{Error, Result};

/// Builds an object of the boundary from equally named fields of a value, and others.
macro_rules! object {
    ($object:ident: $from:ident { $($same:ident),* $(,)? } $($name:ident: $value:expr),* $(,)?) => {
        js::$object { $($same: $from.$same.into(),)* $($name: $value,)* }
    };
}

pub fn engine_options(o: &js::CoreOptions) -> engine::EngineOptions {
    engine::EngineOptions {
        metadata: engine::ServerMetadata {
            name: o.server_id.clone(),
            version: o.server_version.clone(),
            extensions: o.extensions.clone(),
        },
        strict_readiness: o.strict_readiness,
        reasons_in_errors: o.reasons_in_errors,
        exit_on_device_error: o.exit_on_device_error,
        strict_batching_delay: o.strict_batching_delay,
        metrics: engine::MetricsOptions {
            summaries: o.summary_latencies,
            histograms: o.histogram_latencies,
            quantiles: o.summary_quantiles.iter().map(|q| (q.quantile, q.error)).collect(),
        },
        http_input_bytes_max: usize::try_from(o.http_input_bytes_max).unwrap_or(0),
        allow_client_shm: o.allow_client_shm,
        delay_scheduler: number_of("TRITONSERVER_DELAY_SCHEDULER"),
        backlog_delay_scheduler: number_of("TRITONSERVER_BACKLOG_DELAY_SCHEDULER"),
        sequences_max: o.sequence_limit,
        rate_limit: o.rate_limit.as_ref().map(|limit| {
            let available = |r: &js::AvailableResource| engine::Available {
                name: r.name.clone(),
                count: r.count,
                device: r.device,
            };
            limit.resources.iter().map(available).collect()
        }),
        response_cache_bytes: o.response_cache_bytes.map(|n| usize::try_from(n).unwrap_or(0)),
        ..engine::EngineOptions::default()
    }
}

/// Settings of the Redis response cache. Defaults come from the environment, as in Triton.
pub fn cache_library_settings(o: &js::CacheLibrary, process: &js::LibraryProcess) -> cache_library::LibrarySettings {
    cache_library::LibrarySettings {
        name: o.name.clone(),
        path: (&o.path).into(),
        config: o.config.clone(),
        program: (&process.program).into(),
        library: (&process.library).into(),
        user: process.user.clone(),
        environment: process.environment.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
    }
}

pub fn redis_settings(o: &js::RedisOptions) -> cache_redis::Settings {
    let environment = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let time = |ms: u32| Duration::from_millis(ms.into()).min(cache_redis::TIMEOUT_MAX);
    cache_redis::Settings {
        host: o.host.clone(),
        port: o.port,
        user: o.user.clone().or_else(|| environment("TRITONCACHE_REDIS_USERNAME")),
        password: o.password.clone().or_else(|| environment("TRITONCACHE_REDIS_PASSWORD")),
        database: o.database,
        connect_timeout: time(o.connect_timeout_ms),
        socket_timeout: time(o.socket_timeout_ms),
        wait_timeout: time(o.wait_timeout_ms),
        pool_size: usize::try_from(o.pool_size).unwrap_or(1).clamp(1, cache_redis::POOL_SIZE_MAX),
    }
}

/// An environment variable for tests; 0 if it is not a number.
fn number_of(variable: &str) -> u32 {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(0)
}

pub fn open_spec(s: &js::OpenSpec) -> backend::OpenSpec {
    backend::OpenSpec {
        model: s.name.as_str().into(),
        version: s.version,
        model_directory: s.model_directory.clone().into(),
        version_directory: s.version_directory.clone().into(),
        config: bytes::Bytes::copy_from_slice(&s.config),
        settings: s.settings.iter().map(|s| (s.key.clone(), s.value.clone())).collect(),
        config_json: s.config_json.clone(),
        completes: s.completes,
        code_directory: s.code_directory.clone().map(Into::into),
        library: s.library.as_ref().map(library_spec),
    }
}

fn library_spec(l: &js::LibrarySpec) -> backend::LibrarySpec {
    backend::LibrarySpec {
        path: l.path.clone().into(),
        backend: l.backend.clone(),
        directory: l.directory.clone().into(),
        needs: l.needs.clone(),
        strategy: l.strategy.clone().map(Into::into),
        backend_directory: l.backend_directory.clone().into(),
        host_policies: l.host_policies.clone(),
        default_groups: l.default_groups,
        calls_models: l.calls_models,
    }
}

pub fn c_options(process: &js::LibraryProcess) -> backend_c::COptions {
    backend_c::COptions {
        program: process.program.clone().into(),
        library: process.library.clone().into(),
        links: process.links.clone().into(),
        environment: process.environment.clone().into_iter().collect(),
        per_model: process.per_model,
        user: process.user.clone(),
        missing: process.missing.clone(),
    }
}

/// Paths of our own files for the backend `python`.
pub fn javascript_options(process: &js::JavaScriptProcess) -> backend_javascript::JavaScriptOptions {
    backend_javascript::JavaScriptOptions {
        node: process.node.clone().into(),
        flags: process.flags.clone(),
        process_script: process.script.clone().into(),
        environment: process.environment.clone().into_iter().collect(),
    }
}

pub fn python_options(o: &js::CoreOptions) -> backend_python::PythonOptions {
    backend_python::PythonOptions {
        runtime: o.python_runtime.clone().into(),
        unpack_prefix: o.python_unpack_prefix.clone().into(),
        environment_roots: o.python_environment_roots.as_ref().map(|roots| roots.iter().map(Into::into).collect()),
    }
}

pub fn opened(o: engine::OpenedVersion) -> js::Opened {
    let tensors = |list: Vec<backend::TensorIo>| {
        list.into_iter()
            .map(|t| js::TensorIo {
                name: t.name,
                datatype: t.datatype.map_or(0, |d| d as i32),
                shape: t.shape.to_vec(),
                optional: t.optional,
            })
            .collect()
    };
    let io = o.io.map(|io| js::ModelIo { inputs: tensors(io.inputs), outputs: tensors(io.outputs) });
    js::Opened { handle: o.handle, io, completed: o.completed }
}

pub fn publish_spec(s: js::PublishSpec) -> PublishSpec {
    PublishSpec {
        config: bytes::Bytes::copy_from_slice(&s.config),
        config_json: s.config_json,
        labels: s.labels.into_iter().map(|l| (l.output, bytes::Bytes::copy_from_slice(&l.text))).collect(),
        platform: s.platform,
    }
}

/// Deserialises options that a crate defines.
///
/// # Errors
/// INTERNAL, with the path of a property that is missing, unknown or of another type.
pub fn read<T: DeserializeOwned>(options: serde_json::Value) -> Result<T> {
    serde_path_to_error::deserialize(options).map_err(|e| Error::internal(format!("options of the core: {e}")))
}

impl From<engine::Duration> for js::Duration {
    fn from(d: engine::Duration) -> Self {
        Self { count: d.count, ns: d.ns }
    }
}

fn gauges(list: Vec<(&'static str, &'static str, f64)>) -> Vec<js::Gauge> {
    list.into_iter().map(|(name, help, value)| js::Gauge { name: name.into(), help: help.into(), value }).collect()
}

pub fn snapshot(s: Snapshot) -> js::Snapshot {
    js::Snapshot {
        versions: s.versions.into_iter().map(version_statistics).collect(),
        gauges: gauges(s.gauges),
        cache: s.cache.map(cache_use),
        resources: s.resources.into_iter().map(resource_use).collect(),
        memory: memory_use(),
        device_memory: crate::device_memory::usage(),
        custom: Vec::new(),
        gpu: None,
        log_records_dropped: 0.0,
        trace_records_dropped: 0.0,
    }
}

/// Adds the metrics of models and their limits.
pub fn add_custom_metrics(snapshot: &mut js::Snapshot, metrics: &CustomMetrics) {
    let [families, series, bytes] = metrics.used().map(|n| n as f64);
    snapshot.gauges.extend(gauges(vec![
        ("nereid_model_metric_families", "Families of metrics that models made", families),
        ("nereid_model_metric_families_max", "The most of them there may be", FAMILIES_MAX as f64),
        ("nereid_model_metric_series", "Series of these families", series),
        ("nereid_model_metric_series_max", "The most of them there may be", SERIES_MAX as f64),
        ("nereid_model_metric_bytes", "Bytes of the names, labels and buckets of these families", bytes),
        ("nereid_model_metric_bytes_max", "The most of them there may be", BYTES_MAX as f64),
    ]));
    snapshot.custom = metrics.snapshot().into_iter().map(custom_family).collect();
}

fn custom_family(family: FamilySnapshot) -> js::CustomFamily {
    let series = |(labels, value): (Labels, SeriesValue)| {
        let (value, histogram) = match value {
            SeriesValue::Number(value) => (value, None),
            SeriesValue::Histogram(HistogramSnapshot { bounds, counts, sum }) => {
                (0.0, Some(js::Histogram { bounds, counts, sum }))
            }
        };
        js::CustomSeries { labels: labels.into_iter().collect(), value, histogram }
    };
    js::CustomFamily {
        name: family.name,
        help: family.description,
        kind: family.kind.name(),
        series: family.series.into_iter().map(series).collect(),
    }
}

/// Adds the state of the offload pool.
pub fn add_offload(snapshot: &mut js::Snapshot, status: OffloadStatus) {
    snapshot.gauges.extend(gauges(vec![
        ("nereid_offload_threads", "Threads that read and write long requests", status.threads as f64),
        ("nereid_offload_threads_max", "The most of them there may be", status.threads_max as f64),
        ("nereid_offload_waiting", "Long requests that wait for one of them", status.waiting as f64),
        ("nereid_offload_waiting_max", "The most that may wait", status.waiting_max as f64),
    ]));
}

pub fn issuer_options(o: js::IssuerOptions) -> IssuerOptions {
    let issuer = access::Issuer { issuer: o.issuer, audience: o.audience, claim: o.claim };
    IssuerOptions { issuer, keys: o.keys_file.map(Into::into) }
}

fn series(labels: &[(&str, &str)], value: u64) -> js::CustomSeries {
    let labels = labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    js::CustomSeries { labels, value: value as f64, histogram: None }
}

fn family(name: &str, help: &str, kind: &'static str, series: Vec<js::CustomSeries>) -> js::CustomFamily {
    js::CustomFamily { name: name.into(), help: help.into(), kind, series }
}

/// Adds the usage by key.
pub fn add_keys(snapshot: &mut js::Snapshot, access: &access::Access) {
    let counts = access.counts();
    // Requests with an unknown key have no name.
    let mut requests = vec![series(&[("key", ""), ("result", "unknown")], access.unknown())];
    let (mut bytes, mut in_flight) = (Vec::new(), Vec::new());
    for (key, outcomes, used, held) in &counts {
        for (result, count) in access::RESULTS.iter().zip(outcomes) {
            requests.push(series(&[("key", key), ("result", result)], *count));
        }
        bytes.push(series(&[("key", key)], *used));
        in_flight.push(series(&[("key", key)], u64::from(*held)));
    }
    snapshot.custom.extend([
        family(
            "nereid_key_requests_total",
            "Requests by key and result: admitted, forbidden, exhausted, expired, or unknown without a name",
            "counter",
            requests,
        ),
        family("nereid_key_bytes_total", "Bytes of requests and answers, by the name of the key", "counter", bytes),
        family("nereid_key_requests_in_flight", "Requests in flight, by the name of their key", "gauge", in_flight),
    ]);
}

/// Adds failed TLS handshakes, if TLS is used.
pub fn add_handshakes(snapshot: &mut js::Snapshot, failed: impl Iterator<Item = (&'static str, u64)>) {
    snapshot.custom.push(family(
        "nereid_tls_handshakes_failed_total",
        "Failed TLS handshakes by reason: timeout, no TLS, a certificate of either side, busy threads, or another",
        "counter",
        failed.map(|(reason, count)| series(&[("reason", reason)], count)).collect(),
    ));
}

/// Adds the counters of the log `name`, which is `access` or `audit`.
pub fn add_log(snapshot: &mut js::Snapshot, name: &str, counts: LogCounts) {
    let lost =
        vec![series(&[("reason", "queue_full")], counts.lost_full), series(&[("reason", "error")], counts.lost_error)];
    snapshot.custom.extend([
        family(
            &format!("nereid_{name}_log_lines_total"),
            &format!("Lines of the {name} log that were written"),
            "counter",
            vec![series(&[], counts.written)],
        ),
        family(
            &format!("nereid_{name}_log_lines_lost_total"),
            &format!("Lost lines of the {name} log by reason: the queue was full, or the system returned an error"),
            "counter",
            lost,
        ),
    ]);
    let gauge = |suffix: &str, help: String, value: u64| js::Gauge {
        name: format!("nereid_{name}_log_waiting_bytes{suffix}"),
        help,
        value: value as f64,
    };
    snapshot.gauges.extend([
        gauge("", format!("Bytes of lines of the {name} log that wait to be written"), counts.waiting_bytes),
        gauge("_max", "The most there may be".into(), counts.waiting_bytes_max),
    ]);
}

fn resource_use(r: engine::ResourceUse) -> js::ResourceUse {
    js::ResourceUse { name: r.name, device: r.device, used: r.used as f64, capacity: r.capacity as f64 }
}

fn cache_use(c: engine::CacheCounters) -> js::CacheUse {
    object!(CacheUse: c { entries, lookups, hits, misses, evictions, lookup_ns, insertion_ns }
        utilisation: c.utilisation())
}

fn memory_use() -> js::MemoryUse {
    let (budget, pool) = (Budget::global().counters(), SlabPool::global().counters());
    js::MemoryUse {
        limit_bytes: budget.limit_bytes as f64,
        used: Kind::ALL
            .iter()
            .zip(budget.used_bytes)
            .map(|(kind, bytes)| js::KindUse { kind: kind.name().into(), bytes: bytes as f64 })
            .collect(),
        waiting: budget.waiting as f64,
        refused: budget.refused,
        pool_live_bytes: pool.live_bytes as f64,
        pool_retained_bytes: pool.retained_bytes as f64,
        pool_retained_bytes_max: pool.retained_bytes_max as f64,
    }
}

/// Sets the memory limit of requests of this process; 0 leaves it unchanged.
pub fn limit_memory(bytes: i64) {
    let Some(limit) = usize::try_from(bytes).ok().filter(|&n| n > 0) else { return };
    Budget::global().set_limit(limit);
    // Free buffers are not counted as in use and should not outweigh it.
    SlabPool::global().retain_at_most(limit / 4);
}

/// Adds how long reactors worked for one client at a stretch.
pub fn add_holds(snapshot: &mut js::Snapshot, holds: &HoldTotals) {
    let seconds = |ns: u64| ns as f64 / 1e9;
    snapshot.gauges.push(js::Gauge {
        name: "nereid_reactor_hold_seconds_max".into(),
        help: "Longest time a reactor worked for one client at a stretch since the start, in CPU seconds".into(),
        value: seconds(holds.max_ns),
    });
    let histogram = js::Histogram {
        bounds: HOLD_BOUNDS_NS.iter().copied().map(seconds).collect(),
        counts: holds.counts.to_vec(),
        sum: seconds(holds.sum_ns),
    };
    // Before the families of models: a model family of this name is merged into it, or left out.
    snapshot.custom.insert(
        0,
        family(
            "nereid_reactor_hold_seconds",
            "Times a reactor worked for one client at a stretch, in CPU seconds",
            "histogram",
            vec![js::CustomSeries { histogram: Some(histogram), ..series(&[], 0) }],
        ),
    );
}

fn version_statistics(v: VersionStatistics) -> js::VersionStatistics {
    object!(VersionStatistics: v {
        name, namespace, version, inference_count, execution_count, last_inference_ms, success, fail, queue,
        compute_input, compute_infer, compute_output, cache_hit, cache_miss, cached, failures, pending, inflight,
        execution_ns, cancelled,
    }
        first_response: v.first_response.map(|(bounds, counts, sum)| js::Histogram { bounds, counts, sum: sum as f64 }),
        summaries: v.summaries.map(|list| list.into_iter().map(summary).collect()),
        custom: gauges(v.custom),
        on_devices: v.on_devices.into_iter().map(executions).collect(),
    )
}

fn summary(s: engine::Summary) -> js::Summary {
    let values = s.values.into_iter().map(|(quantile, value)| js::QuantileValue { quantile, value }).collect();
    js::Summary { family: s.family.into(), values, count: s.count, sum_us: s.sum_us as f64 }
}

fn executions((device, e): (u32, engine::Executions)) -> js::Executions {
    object!(Executions: e {
        inference_count, execution_count, success, queue, compute_input, compute_infer, compute_output, failures,
    } device: device)
}
