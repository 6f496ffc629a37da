//! Compiles a completed configuration into what the hot path uses: a signature and a scheduler configuration.
//! Validation happened before; numbers that cannot be used here are clamped, not judged.

use backend::{Placement, placements};
use bytes::Bytes;
use protocol::pb::inference::model_config::SchedulingChoice;
use protocol::pb::inference::model_queue_policy::TimeoutAction;
use protocol::pb::inference::{ModelConfig, ModelQueuePolicy, ModelTensorReshape};
use protocol::{InputSpec, Labels, OutputSpec, Signature};
use scheduler::rate::{Limited, Resource};
use scheduler::{Config, Dynamic, Policy};
use tensor::{DataType, Error, Name, Result, Shape};

pub(crate) fn signature(config: &ModelConfig, version: i64, labels: &[(String, Bytes)]) -> Result<Signature> {
    let datatype = |number: i32, what: &str, name: &str| {
        DataType::from_number(number)
            .ok_or_else(|| Error::invalid(format!("model {what} '{name}' must specify 'data_type'")))
    };
    let reshape = |r: &Option<ModelTensorReshape>| r.as_ref().map(|r| Shape::from_slice(&r.shape));
    Ok(Signature {
        model: Name::from(config.name.as_str()),
        version: Name::from(version.to_string()),
        max_batch_size: u32::try_from(config.max_batch_size).unwrap_or(0),
        inputs: config
            .input
            .iter()
            .map(|i| {
                Ok(InputSpec {
                    name: Name::from(i.name.as_str()),
                    datatype: datatype(i.data_type, "input", &i.name)?,
                    dims: Shape::from_slice(&i.dims),
                    reshape: reshape(&i.reshape),
                    optional: i.optional,
                    allow_ragged_batch: i.allow_ragged_batch,
                })
            })
            .collect::<Result<_>>()?,
        outputs: config
            .output
            .iter()
            .map(|o| {
                Ok(OutputSpec {
                    name: Name::from(o.name.as_str()),
                    datatype: datatype(o.data_type, "output", &o.name)?,
                    dims: Shape::from_slice(&o.dims),
                    reshape: reshape(&o.reshape),
                    labels: labels
                        .iter()
                        .find(|l| l.0 == o.name)
                        .map(|l| Labels::read(l.1.clone()))
                        .unwrap_or_default(),
                })
            })
            .collect::<Result<_>>()?,
        decoupled: config.model_transaction_policy.as_ref().is_some_and(|p| p.decoupled),
    })
}

pub(crate) fn scheduling(config: &ModelConfig, strict_delay: bool, delay_scheduler: u32) -> Config {
    let dynamic = match &config.scheduling_choice {
        Some(SchedulingChoice::DynamicBatching(d)) => Some(Dynamic {
            preferred: d.preferred_batch_size.iter().filter_map(|&n| u32::try_from(n).ok()).collect(),
            max_queue_delay_us: d.max_queue_delay_microseconds,
            preserve_ordering: d.preserve_ordering,
            priority_levels: u32::try_from(d.priority_levels).unwrap_or(u32::MAX),
            default_priority_level: u32::try_from(d.default_priority_level).unwrap_or(u32::MAX),
            default_policy: policy(d.default_queue_policy.as_ref()),
            level_policies: d
                .priority_queue_policy
                .iter()
                .filter_map(|(&level, p)| Some((u32::try_from(level).ok()?, policy(Some(p)))))
                .collect(),
        }),
        _ => None,
    };
    Config {
        max_batch_size: u32::try_from(config.max_batch_size).unwrap_or(0),
        dynamic,
        instances: u32::try_from(instance_names(config).len()).unwrap_or(u32::MAX),
        strict_delay,
        delay_scheduler,
        tokens_max: None,
        cores: None,
    }
}

/// Resources that each instance takes to execute, in the order of `instance_names`.
pub(crate) fn limited(config: &ModelConfig) -> Vec<Limited> {
    let of = |placed: Placement<'_>| {
        let limiter = placed.group.rate_limiter.clone().unwrap_or_default();
        let resources = limiter.resources.into_iter();
        let resources = resources.map(|r| Resource { name: r.name, global: r.global, count: r.count }).collect();
        Limited { device: placed.device.unwrap_or(0), priority: limiter.priority, resources }
    };
    let all: Vec<_> = placements(config).map(of).collect();
    if all.is_empty() { vec![Limited::default()] } else { all }
}

/// Names of the instances that get requests, `<group>_<index>`, per device. Passive groups are not used (C-15).
pub(crate) fn instance_names(config: &ModelConfig) -> Vec<String> {
    let names: Vec<_> = placements(config).map(|p| p.name()).collect();
    if names.is_empty() { vec![format!("{}_0", config.name)] } else { names }
}

fn policy(p: Option<&ModelQueuePolicy>) -> Policy {
    let Some(p) = p else { return Policy::default() };
    Policy {
        timeout_action: match p.timeout_action() {
            TimeoutAction::Reject => scheduler::TimeoutAction::Reject,
            TimeoutAction::Delay => scheduler::TimeoutAction::Delay,
        },
        default_timeout_us: p.default_timeout_microseconds,
        allow_timeout_override: p.allow_timeout_override,
        max_queue_size: p.max_queue_size,
    }
}

/// Buckets of the first-response histogram that the model configures (observability.md 1.6).
pub(crate) fn histogram_buckets_ms(config: &ModelConfig) -> Option<Vec<f64>> {
    use protocol::pb::inference::model_metrics::metric_control::MetricOptions;
    config.model_metrics.as_ref()?.metric_control.iter().find_map(|c| {
        let family = c.metric_identifier.as_ref()?;
        let Some(MetricOptions::HistogramOptions(h)) = &c.metric_options else { return None };
        (family.family == "nv_inference_first_response_histogram_ms").then(|| h.buckets.clone())
    })
}
