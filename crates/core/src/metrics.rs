//! Families of metrics whose values the core has: all but those of versions, whose labels TypeScript knows.

use access::Access;
use backend::metrics::{
    BYTES_MAX, CustomMetrics, FAMILIES_MAX, FamilySnapshot, HistogramSnapshot, Kind as FamilyKind, Labels, SERIES_MAX,
    SeriesValue,
};
use device::{PoolUse, Status, Usage};
use engine::{CacheCounters, ResourceUse};
use frontend::{FrontEnd, HOLD_BOUNDS_NS, LogCounts};
use memory::{Budget, Kind, Ledger, SlabPool};

/// Families in the order in which a scrape has those of a type.
#[derive(Default)]
pub(crate) struct Families(pub Vec<FamilySnapshot>);

/// The labels of a series, and its value.
type Series = (Labels, SeriesValue);

fn series(labels: &[(&str, &str)], value: f64) -> Series {
    let labels = labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    (labels, SeriesValue::Number(value))
}

impl Families {
    fn add(&mut self, name: &str, kind: FamilyKind, help: &str, series: Vec<Series>) {
        self.0.push(FamilySnapshot { name: name.into(), description: help.into(), kind, series });
    }

    /// Adds a counter if its name ends in `_total`, which OpenMetrics wants of it and of nothing else; else a gauge.
    fn all(&mut self, name: &str, help: &str, series: Vec<Series>) {
        let is_counter = name.ends_with("_total");
        self.add(name, if is_counter { FamilyKind::Counter } else { FamilyKind::Gauge }, help, series);
    }

    /// Adds a family without labels.
    pub fn one(&mut self, name: &str, help: &str, value: f64) {
        self.all(name, help, vec![series(&[], value)]);
    }

    /// Adds families without labels: name, help, value.
    pub fn each(&mut self, list: impl IntoIterator<Item = (&'static str, &'static str, f64)>) {
        list.into_iter().for_each(|(name, help, value)| self.one(name, help, value));
    }

    /// Adds what GPUs report, with the label of Triton's families (O 1.8). Devices without a value are skipped.
    pub fn gpus(&mut self, usage: &[Usage]) {
        let mut add = |name: &str, kind: FamilyKind, help: &str, value: fn(&Usage) -> Option<f64>| {
            let of = |one: &Usage| Some(series(&[("gpu_uuid", &one.uuid)], value(one)?));
            self.add(name, kind, help, usage.iter().filter_map(of).collect());
        };
        add("nv_energy_consumption", FamilyKind::Counter, "Energy of the GPU since the start, in J.", |u| {
            u.energy_joules
        });
        add("nv_gpu_utilization", FamilyKind::Gauge, "Part of the time in which the GPU was busy, 0 to 1.", |u| {
            u.utilization
        });
        add("nv_gpu_memory_total_bytes", FamilyKind::Gauge, "Memory of the GPU, in bytes.", |u| {
            u.memory_total_bytes.map(|bytes| bytes as f64)
        });
        add("nv_gpu_memory_used_bytes", FamilyKind::Gauge, "Memory of the GPU in use, in bytes.", |u| {
            u.memory_used_bytes.map(|bytes| bytes as f64)
        });
        add("nv_gpu_power_usage", FamilyKind::Gauge, "Power of the GPU, in W.", |u| u.power_watts);
        add("nv_gpu_power_limit", FamilyKind::Gauge, "Limit of the power of the GPU, in W.", |u| u.power_limit_watts);
    }

    /// Adds whether there is a GPU.
    pub fn gpu_available(&mut self, status: &Status) {
        let available = f64::from(u8::from(status.unavailable.is_none()));
        let reason = status.unavailable.as_deref().unwrap_or_default();
        self.all(
            "nereid_gpu_available",
            "Whether this process has a GPU (0 or 1), and the reason if it has none.",
            vec![series(&[("reason", reason)], available)],
        );
    }

    /// Adds the response cache. All are gauges, as in Triton, although most of them count.
    pub fn cache(&mut self, cache: &CacheCounters) {
        self.one("nv_cache_util", "Part of the response cache in use, 0 to 1.", cache.utilisation());
        self.one("nv_cache_num_entries", "Responses in the response cache.", cache.entries as f64);
        self.one("nv_cache_num_hits", "Lookups that found a response.", cache.hits as f64);
        self.one("nv_cache_num_misses", "Lookups that found no response.", cache.misses as f64);
        self.one("nv_cache_num_lookups", "Lookups in the response cache.", cache.lookups as f64);
        self.one("nv_cache_num_evictions", "Responses removed to make room.", cache.evictions as f64);
        self.one("nv_cache_lookup_duration", "Time of all lookups, in us.", (cache.lookup_ns / 1000) as f64);
        self.one("nv_cache_insertion_duration", "Time to store responses, in us.", (cache.insertion_ns / 1000) as f64);
    }

    /// Adds the rate limiter; nothing if it is off or no model needs resources.
    pub fn resources(&mut self, resources: &[ResourceUse]) {
        let mut add = |name, help, value: fn(&ResourceUse) -> u64| {
            let of = |r: &ResourceUse| {
                let device = r.device.map_or_else(|| "global".to_owned(), |device| device.to_string());
                series(&[("resource", &r.name), ("device", &device)], value(r) as f64)
            };
            self.all(name, help, resources.iter().map(of).collect());
        };
        add("nereid_rate_limiter_resource_units", "Units of a resource that executions use.", |r| r.used);
        add("nereid_rate_limiter_resource_units_max", "Available units of a resource.", |r| r.capacity);
    }

    /// Adds the memory of requests and responses in flight, and the pool of their buffers.
    pub fn memory(&mut self) {
        let (budget, pool) = (Budget::global().counters(), SlabPool::global().counters());
        let of = |(kind, bytes): (&Kind, usize)| series(&[("kind", kind.name())], bytes as f64);
        let used = Kind::ALL.iter().zip(budget.used_bytes).map(of).collect();
        let limit = budget.limit_bytes as f64;
        self.one("nereid_memory_limit_bytes", "Limit of nereid_memory_used_bytes, all kinds together.", limit);
        self.all("nereid_memory_used_bytes", "Bytes of requests and responses in flight, by kind.", used);
        let other = "Other memory of the container in use, which counts against the limit, in bytes.";
        self.one("nereid_memory_other_bytes", other, budget.other_bytes as f64);
        self.one("nereid_memory_waiting", "Requests that wait for memory.", budget.waiting as f64);
        let refused = budget.refused as f64;
        self.one("nereid_memory_refused_total", "Requests and responses rejected for lack of memory.", refused);
        let live = pool.live_bytes as f64;
        self.one("nereid_slab_live_bytes", "Bytes of pooled buffers in use, as address space.", live);
        self.one("nereid_slab_retained_bytes", "Bytes of buffers kept for reuse.", pool.retained_bytes as f64);
        let most = pool.retained_bytes_max as f64;
        self.one("nereid_slab_retained_bytes_max", "Limit of nereid_slab_retained_bytes.", most);
    }

    /// Adds the pinned memory pool, under Triton's names. Without a GPU nothing uses it.
    pub fn pinned_pool(&mut self) {
        let size = device::pinned_pool_size();
        let used = device::pool_uses().first().map_or(0, |pinned| pinned.used_bytes);
        self.one("nv_pinned_memory_pool_total_bytes", "Size of the pinned memory pool, in bytes.", size as f64);
        self.one("nv_pinned_memory_pool_used_bytes", "Pinned memory in use, in bytes.", used as f64);
    }

    /// Adds memory of and for GPUs; nothing without one, or before one was looked for.
    pub fn device_memory(&mut self) {
        let uses = device::pool_uses();
        let Some((pinned, devices)) = uses.split_first() else { return };
        let (locked, locked_max) = device::locked_bytes();
        let (bodies, bodies_max) = device::pinned_bodies();
        let exhausted = pinned.exhausted as f64;
        self.one("nereid_pinned_pool_exhausted_total", "How often the pinned memory pool had no room.", exhausted);
        let help = "Bytes of the pinned memory pool that bodies of requests use.";
        self.one("nereid_pinned_body_bytes", help, bodies as f64);
        self.one("nereid_pinned_body_bytes_max", "Limit of nereid_pinned_body_bytes.", bodies_max as f64);
        let help = "Bytes of registered system shared memory whose pages are locked.";
        self.one("nereid_pinned_region_bytes", help, locked as f64);
        self.one("nereid_pinned_region_bytes_max", "Limit of nereid_pinned_region_bytes.", locked_max as f64);
        let help = "Bytes copied to or from page-locked memory, so that a GPU could copy them.";
        self.one("nereid_staged_bytes_total", help, backend::copy::staged_bytes() as f64);
        let mut each = |name, help, value: &dyn Fn(u32, &PoolUse) -> f64| {
            let of = |pool: &PoolUse| {
                let device = pool.device.unwrap_or(0);
                series(&[("device", &device.to_string())], value(device, pool))
            };
            self.all(name, help, devices.iter().map(of).collect());
        };
        each("nereid_device_pool_bytes", "Bytes of the memory pool of a GPU in use.", &|_, pool| {
            pool.used_bytes as f64
        });
        each("nereid_device_pool_bytes_max", "Limit of nereid_device_pool_bytes.", &|_, pool| pool.bytes_max as f64);
        let help = "How often the memory pool of a GPU had no room.";
        each("nereid_device_pool_exhausted_total", help, &|_, pool| pool.exhausted as f64);
        let row = |device, pool: &PoolUse| Ledger::global().device(device, pool.device_bytes);
        let help = "Bytes of a GPU that loaded models need, as far as their backends report it.";
        each("nereid_device_promised_bytes", help, &|device, pool| row(device, pool).promised_bytes as f64);
        let help = "Limit of nereid_device_promised_bytes.";
        each("nereid_device_promised_bytes_max", help, &|device, pool| row(device, pool).limit_bytes as f64);
    }

    /// Adds what the reactors did, the threads for long requests, and failed TLS handshakes if TLS is used.
    pub fn front_end(&mut self, running: &FrontEnd) {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let holds = running.holds();
        self.one(
            "nereid_reactor_hold_seconds_max",
            "Longest time a reactor worked for one client at a stretch since the start, in CPU seconds",
            seconds(holds.max_ns),
        );
        let histogram = HistogramSnapshot {
            bounds: HOLD_BOUNDS_NS.iter().copied().map(seconds).collect(),
            counts: holds.counts.to_vec(),
            sum: seconds(holds.sum_ns),
        };
        self.add(
            "nereid_reactor_hold_seconds",
            FamilyKind::Histogram,
            "Times a reactor worked for one client at a stretch, in CPU seconds",
            vec![(Labels::new(), SeriesValue::Histogram(histogram))],
        );
        let offload = frontend::offload_status();
        self.one("nereid_offload_threads", "Threads that read and write long requests", offload.threads as f64);
        self.one("nereid_offload_threads_max", "Limit of nereid_offload_threads", offload.threads_max as f64);
        self.one("nereid_offload_waiting", "Long requests that wait for one of these threads", offload.waiting as f64);
        self.one("nereid_offload_waiting_max", "Limit of nereid_offload_waiting", offload.waiting_max as f64);
        for (name, help, value) in running.gauges() {
            self.one(name, help, value as f64);
        }
        self.all(
            "nereid_request_failures_total",
            "Failed requests of clients by whose fault it is: client, model, server or environment",
            frontend::failure::counts().map(|(fault, count)| series(&[("fault", fault)], count as f64)).into(),
        );
        let of = |(reason, count)| series(&[("reason", reason)], count as f64);
        self.all(
            "nereid_connections_short_total",
            "Connections closed because a body arrived, or a response was read, too slowly \
             (--slow-client-bytes-per-sec), and accepted for health checks only, because all others were in use",
            running.shortages().into_iter().map(of).collect(),
        );
        if let Some(expiries) = running.expiries() {
            self.all(
                "nereid_tls_handshakes_failed_total",
                "Failed TLS handshakes by reason: timeout, no TLS, a certificate of either side, busy threads, or \
                 another",
                running.failed_handshakes().into_iter().map(of).collect(),
            );
            let ends = expiries.iter().map(|(listener, file, end)| {
                series(&[("listener", listener), ("file", &file.display().to_string())], *end as f64)
            });
            self.all(
                "nereid_tls_certificate_expires_seconds",
                "When the first certificate of a file of TLS expires, in seconds since 1970",
                ends.collect(),
            );
        }
    }

    /// Adds the usage by key. Requests with an unknown key have no name.
    pub fn keys(&mut self, access: &Access) {
        let mut requests = vec![series(&[("key", ""), ("result", "unknown")], access.unknown() as f64)];
        let (mut bytes, mut in_flight, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for (key, outcomes, used, held, end) in &access.counts() {
            ends.extend(end.map(|end| series(&[("key", key)], end as f64)));
            for (result, count) in access::RESULTS.iter().zip(outcomes) {
                requests.push(series(&[("key", key), ("result", result)], *count as f64));
            }
            bytes.push(series(&[("key", key)], *used as f64));
            in_flight.push(series(&[("key", key)], f64::from(*held)));
        }
        self.all(
            "nereid_key_requests_total",
            "Requests by key and result: admitted, forbidden, exhausted, expired, or unknown without a name",
            requests,
        );
        self.all("nereid_key_bytes_total", "Bytes of requests and responses, by the name of the key", bytes);
        self.all("nereid_key_expires_seconds", "When a key expires, in seconds since 1970", ends);
        self.all("nereid_key_requests_in_flight", "Requests in flight, by the name of their key", in_flight);
    }

    /// Adds the log `name`, which is `access` or `audit`.
    pub fn log(&mut self, name: &str, counts: &LogCounts) {
        self.one(
            &format!("nereid_{name}_log_lines_total"),
            &format!("Lines of the {name} log that were written"),
            counts.written as f64,
        );
        self.all(
            &format!("nereid_{name}_log_lines_lost_total"),
            &format!("Lost lines of the {name} log by reason: the queue was full, or the system returned an error"),
            vec![
                series(&[("reason", "queue_full")], counts.lost_full as f64),
                series(&[("reason", "error")], counts.lost_error as f64),
            ],
        );
        self.one(
            &format!("nereid_{name}_log_waiting_bytes"),
            &format!("Bytes of lines of the {name} log that wait to be written"),
            counts.waiting_bytes as f64,
        );
        let most = counts.waiting_bytes_max as f64;
        self.one(&format!("nereid_{name}_log_waiting_bytes_max"), "Limit of waiting bytes", most);
    }

    /// Adds the metrics of models and their limits. Last: a family of a model is merged into one of this name.
    pub fn models(&mut self, metrics: &CustomMetrics) {
        let [families, series, bytes] = metrics.used().map(|n| n as f64);
        self.one("nereid_model_metric_families", "Families of metrics that models made", families);
        self.one("nereid_model_metric_families_max", "Limit of nereid_model_metric_families", FAMILIES_MAX as f64);
        self.one("nereid_model_metric_series", "Series of these families", series);
        self.one("nereid_model_metric_series_max", "Limit of nereid_model_metric_series", SERIES_MAX as f64);
        let help = "Bytes of the names, labels and buckets of these families";
        self.one("nereid_model_metric_bytes", help, bytes);
        self.one("nereid_model_metric_bytes_max", "Limit of nereid_model_metric_bytes", BYTES_MAX as f64);
        self.0.extend(metrics.snapshot());
    }
}
