//! Conversions between the flat objects of the boundary and the types of the crates.

use crate::objects as js;
use backend::metrics::{
    BYTES_MAX, CustomMetrics, FAMILIES_MAX, FamilySnapshot, HistogramSnapshot, Labels, SERIES_MAX, SeriesValue,
};
use engine::{PublishSpec, Snapshot, VersionStatistics};
use frontend::{HOLD_BOUNDS_NS, HoldTotals, LogCounts, OffloadStatus};
use memory::{Budget, Kind, SlabPool};

/// Builds an object of the boundary from equally named fields of a value, and others.
macro_rules! object {
    ($object:ident: $from:ident { $($same:ident),* $(,)? } $($name:ident: $value:expr),* $(,)?) => {
        js::$object { $($same: $from.$same.into(),)* $($name: $value,)* }
    };
}

pub fn open_spec(s: js::OpenSpec) -> backend::OpenSpec {
    backend::OpenSpec {
        model: s.name.as_str().into(),
        version: s.version,
        model_directory: s.model_directory.into(),
        version_directory: s.version_directory.into(),
        config: bytes::Bytes::copy_from_slice(&s.config),
        settings: s.settings.into_iter().map(|s| (s.key, s.value)).collect(),
        config_json: s.config_json,
        completes: s.completes,
        code_directory: s.code_directory.map(Into::into),
        library: s.library.0,
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
pub fn limit_memory(limit: usize) {
    if limit == 0 {
        return;
    }
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
