//! Conversions between the flat objects of the boundary and the types of the crates.

use crate::objects as js;
use engine::{PublishSpec, VersionStatistics};

/// Builds an object of the boundary from equally named fields of a value, and others.
macro_rules! object {
    ($object:ident: $from:ident { $($same:ident),* $(,)? } $($name:ident: $value:expr),* $(,)?) => {
        js::$object { $($same: $from.$same.into(),)* $($name: $value,)* }
    };
}

pub fn opened(o: engine::OpenedVersion) -> js::Opened {
    js::Opened { handle: o.handle, io: o.io.map(model_io), completed: o.completed }
}

pub fn model_io(io: backend::ModelIo) -> js::ModelIo {
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
    js::ModelIo { inputs: tensors(io.inputs), outputs: tensors(io.outputs) }
}

pub fn publish_spec(s: js::PublishSpec) -> PublishSpec {
    PublishSpec {
        config: bytes::Bytes::copy_from_slice(&s.config),
        config_json: s.config_json,
        labels: s.labels.into_iter().map(|l| (l.output, bytes::Bytes::copy_from_slice(&l.text))).collect(),
        platform: s.platform,
    }
}

impl From<engine::VersionRow> for js::VersionRow {
    fn from((model, version, state, reason): engine::VersionRow) -> Self {
        Self { model, version, state: state.name(), reason }
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

pub fn version_statistics(v: VersionStatistics) -> js::VersionStatistics {
    object!(VersionStatistics: v {
        name, namespace, version, inference_count, execution_count, last_inference_ms, success, fail, queue,
        compute_input, compute_infer, compute_output, cache_hit, cache_miss, cached, failures, pending, inflight,
        execution_ns, cancelled,
    }
        histograms: v.histograms.into_iter().map(histogram).collect(),
        first_response: v.first_response.map(|(bounds, counts, sum)| js::Histogram { bounds, counts, sum: sum as f64 }),
        summaries: v.summaries.map(|list| list.into_iter().map(summary).collect()),
        custom: gauges(v.custom),
        on_devices: v.on_devices.into_iter().map(executions).collect(),
    )
}

fn histogram(h: engine::VersionHistogram) -> js::VersionHistogram {
    js::VersionHistogram {
        family: h.family,
        histogram: js::Histogram { bounds: h.bounds, counts: h.counts, sum: h.sum },
        exemplars: h.exemplars.into_iter().map(|e| object!(Exemplar: e { bucket, trace, value, time })).collect(),
    }
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
