//! Statistics as JSON and as protobuf (observability.md 2.2, 2.5). Numbers are integers, because they exceed 2^53.

use crate::executions::Duration;
use crate::response_statistics::ResponseStatistics;
use crate::statistics::VersionStatistics;
use protocol::pb::inference as pb;
use std::fmt::Write;

/// Body of GET …/stats.
pub fn statistics_json(models: &[VersionStatistics]) -> String {
    let mut out = String::with_capacity(64 + 1024 * models.len());
    out.push_str("{\"model_stats\":[");
    for (i, m) in models.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        one(&mut out, m);
        out.push('}');
    }
    out.push_str("]}");
    out
}

/// A row of [`statistics_json`] with `more` members.
pub(crate) fn statistics_row(m: &VersionStatistics, more: &[(&str, u64)]) -> String {
    let mut out = String::with_capacity(1024);
    one(&mut out, m);
    for (name, value) in more {
        let _ = write!(out, ",\"{name}\":{value}");
    }
    out.push('}');
    out
}

/// Writes a row without its closing brace.
fn one(out: &mut String, m: &VersionStatistics) {
    let mut name = Vec::new();
    protocol::json::write_string(&mut name, m.name.as_bytes());
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "{{\"name\":{},\"version\":\"{}\",\"last_inference\":{},\
         \"inference_count\":{},\"execution_count\":{},\"inference_stats\":{{",
        String::from_utf8_lossy(&name),
        m.version,
        m.last_inference_ms,
        m.inference_count,
        m.execution_count
    );
    durations(
        out,
        &[
            ("success", m.success),
            ("fail", m.fail),
            ("queue", m.queue),
            ("compute_input", m.compute_input),
            ("compute_infer", m.compute_infer),
            ("compute_output", m.compute_output),
            ("cache_hit", m.cache_hit),
            ("cache_miss", m.cache_miss),
        ],
    );
    out.push_str("},\"response_stats\":{");
    for (i, r) in m.responses.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        let _ = write!(out, "{comma}\"{i}\":{{");
        durations(
            out,
            &[
                ("compute_infer", r.compute_infer),
                ("compute_output", r.compute_output),
                ("success", r.success),
                ("fail", r.fail),
                ("empty_response", r.empty),
                ("cancel", r.cancel),
            ],
        );
        out.push('}');
    }
    out.push_str("},\"batch_stats\":[");
    for (i, &(size, input, infer, output)) in m.batches.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        let _ = write!(out, "{{\"batch_size\":{size},");
        durations(out, &[("compute_input", input), ("compute_infer", infer), ("compute_output", output)]);
        out.push('}');
    }
    out.push_str("],\"memory_usage\":[]");
}

fn durations(out: &mut String, items: &[(&str, Duration)]) {
    for (i, (name, d)) in items.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        let _ = write!(out, "{comma}\"{name}\":{{\"count\":{},\"ns\":{}}}", d.count, d.ns);
    }
}

impl From<Duration> for pb::StatisticDuration {
    fn from(d: Duration) -> Self {
        Self { count: d.count, ns: d.ns }
    }
}

impl From<&ResponseStatistics> for pb::InferResponseStatistics {
    fn from(r: &ResponseStatistics) -> Self {
        Self {
            compute_infer: Some(r.compute_infer.into()),
            compute_output: Some(r.compute_output.into()),
            success: Some(r.success.into()),
            fail: Some(r.fail.into()),
            empty_response: Some(r.empty.into()),
            cancel: Some(r.cancel.into()),
        }
    }
}

impl From<&VersionStatistics> for pb::ModelStatistics {
    fn from(m: &VersionStatistics) -> Self {
        Self {
            name: m.name.clone(),
            version: m.version.to_string(),
            last_inference: m.last_inference_ms,
            inference_count: m.inference_count,
            execution_count: m.execution_count,
            inference_stats: Some(pb::InferStatistics {
                success: Some(m.success.into()),
                fail: Some(m.fail.into()),
                queue: Some(m.queue.into()),
                compute_input: Some(m.compute_input.into()),
                compute_infer: Some(m.compute_infer.into()),
                compute_output: Some(m.compute_output.into()),
                cache_hit: Some(m.cache_hit.into()),
                cache_miss: Some(m.cache_miss.into()),
            }),
            batch_stats: m
                .batches
                .iter()
                .map(|&(size, input, infer, output)| pb::InferBatchStatistics {
                    batch_size: size,
                    compute_input: Some(input.into()),
                    compute_infer: Some(infer.into()),
                    compute_output: Some(output.into()),
                })
                .collect(),
            memory_usage: Vec::new(),
            response_stats: m.responses.iter().enumerate().map(|(i, r)| (i.to_string(), r.into())).collect(),
        }
    }
}
