//! Limits of configurations. These may come over the network, so numbers that size allocations are checked here first.
//!
//! Not limited, because nothing is sized by them: `max_batch_size`, `max_queue_size`, delays and timeouts; priority
//! levels, which are created on use (`scheduler::queue`). `backend_onnx::options` limits the threads of ONNX sessions.

use protocol::pb::inference::ModelConfig;
use tensor::{Error, Result};

/// Instances of a model, over all its groups.
pub const INSTANCES_MAX: u64 = 4096;
/// Bytes of inputs up to which a reactor makes the cache key, which takes 0.4 ms. Above, a pool thread does.
pub const CACHE_KEY_BYTES_MAX: usize = 1 << 20;
/// Nanoseconds between two log lines of a version about responses that the cache did not store. Clients decide how
/// large responses are, and must not fill the log.
pub const CACHE_FAILURE_LINES_NS_MIN: u64 = 10_000_000_000;
/// Depth of calls between models for one request.
pub const MODEL_CALLS_DEPTH_MAX: u32 = 32;
/// Nanoseconds that a call waits before it may fail because instances wait for one another.
pub const MODEL_CYCLE_WAIT_NS_MAX: u64 = 10_000_000_000;
/// Entries of `preferred_batch_size`, each of which is compared with every batch.
pub const PREFERRED_BATCH_SIZES_MAX: usize = 1024;
/// Histogram buckets that a model configures, each of which is compared with every response.
pub const HISTOGRAM_BUCKETS_MAX: usize = 1024;
/// `batch_size` of a warmup sample, whose requests are made and run together.
pub const WARMUP_BATCH_SIZE_MAX: u32 = 16_384;
/// `count` of a warmup sample, all of whose runs delay the readiness of the model.
pub const WARMUP_COUNT_MAX: u32 = 100_000;
/// Bytes of a warmup sample: its inputs times its `batch_size`. They are charged like those of a client's request, and
/// at most a quarter of `--memory-limit`.
pub const WARMUP_BYTES_MAX: u64 = 1 << 30;
/// How long a load waits for the memory of a warmup sample, which requests in flight may use.
pub const WARMUP_MEMORY_WAIT: std::time::Duration = std::time::Duration::from_secs(5);
/// Bytes of an implicit state, new or returned by a model. Each sequence has one.
pub const STATE_BYTES_MAX: u64 = 256 << 20;
/// Bytes up to which a state is not charged to the memory budget. Sequences live long, and there may be very many.
pub const STATE_UNCHARGED_BYTES_MAX: usize = 1 << 10;
/// Replaced versions of a model whose sequences go on. Another one ends those of the oldest, to limit memory.
pub const CONTINUING_VERSIONS_MAX: usize = 4;
/// Microseconds that a sequence may be idle while its server exits.
pub const EXIT_SEQUENCE_IDLE_US_MAX: u64 = 10_000_000;
/// How long a model may work on cancelled requests while its server exits (unloaded: the grace of its backend).
pub const EXIT_ABANDONED_MAX: std::time::Duration = std::time::Duration::from_secs(10);
/// Responses that other threads may queue behind one of the same request that is being delivered.
pub const ANSWERS_WAITING_MAX: usize = 1024;
/// How long a thread with one more response waits before the request is cancelled. Far longer than a delivering thread
/// is without a core on an overloaded machine.
pub const ANSWERS_WAITING_NS_MAX: u64 = 250_000_000;
/// Non-final responses per model that may be kept until it is their turn, if the model preserves order.
pub const ANSWERS_HELD_MAX: usize = 4096;
/// Bytes of such responses.
pub const ANSWERS_HELD_BYTES_MAX: usize = 64 << 20;
/// Responses of a request that are counted by their index; later ones are not.
pub const RESPONSE_STATISTICS_MAX: usize = 1024;
/// Batch sizes with statistics of their own, of models that report them.
pub const BATCH_SIZES_MAX: usize = 4096;
/// Time by which a reported time may be later than now: an hour.
pub const REPORTED_FUTURE_NS_MAX: u64 = 3_600_000_000_000;
/// Nanoseconds that steps of an ensemble may run inline; then they are queued, and a reactor leaves them to the pool.
pub const ENSEMBLE_INLINE_NS_MAX: u64 = 250_000;
/// Nanoseconds of steps and batches that a reactor starts at the end of a turn or of a delivery; the rest runs later or
/// on the pool. Half of what a reactor may be held, to leave time for what has begun and for the handover.
pub const TURN_END_NS_MAX: u64 = 500_000;
/// Nanoseconds after which a model that did not answer a readiness query is not ready, as in Triton.
pub const READY_NS_MAX: u64 = 5_000_000_000;
/// Nanoseconds that a thread, perhaps a reactor, spends on starting batches of remote models; then the pool does.
pub const STARTS_NS_MAX: u64 = 250_000;
/// Flows that a pool thread takes over from a reactor at once.
pub const FLOWS_TOGETHER_MAX: usize = 16;
/// Bytes of an ensemble's outputs that a reactor copies from or to regions; a pool thread copies more.
pub const ENSEMBLE_COPY_BYTES_ON_REACTOR_MAX: usize = 256 << 10;
/// Length up to which a queue is searched at once for a cancelled request. In a longer one the timer thread finds
/// requests that are cancelled together in one pass.
pub const QUEUE_SEARCHED_AT_ONCE_MAX: usize = 64;
/// Removed requests to which one thread responds at once; the timer thread takes the others in parts of this size.
pub const REMOVED_AT_ONCE_MAX: usize = 128;
/// Texts of a request that are tokenised and not answered. As many as the scheduler compares.
pub const TEXTS_AHEAD_MAX: u32 = scheduler::padding::REACH_MAX as u32;
/// Waiting texts of a model, above which a request has at most [`TEXTS_AHEAD_MIN`] such texts.
pub const TEXTS_WAITING_MAX: u64 = 4096;
/// See [`TEXTS_WAITING_MAX`]; as many as a batch usually has.
pub const TEXTS_AHEAD_MIN: u32 = 16;
/// Nanoseconds of tokenising in one job of the pool.
pub const TEXT_JOB_NS_MAX: u64 = 1_000_000;
/// Texts in a run of a text model whose configuration does not limit them.
pub const TEXTS_PER_BATCH_MAX: u32 = 1024;
/// Errors of failed warmup requests that are repeated in the error text.
pub(crate) const WARMUP_ERRORS_MAX: usize = 16;

/// # Errors
/// INVALID_ARG with the model, the field, its number and the limit.
pub(crate) fn check(config: &ModelConfig) -> Result<()> {
    let model = &config.name;
    let mut instances = 0u64;
    for group in &config.instance_group {
        let count = u64::try_from(group.count).unwrap_or(0);
        // That many on each listed device.
        instances = instances.saturating_add(count.max(1).saturating_mul(group.gpus.len().max(1) as u64));
        if instances > INSTANCES_MAX {
            return Err(Error::invalid(format!(
                "instance group '{}' of model '{model}' has count {count}: at most {INSTANCES_MAX} instances per \
                 model are supported, and its groups have {instances}",
                group.name
            )));
        }
    }
    let within = |field: &str, number: u64, max: u64| {
        if number <= max {
            return Ok(());
        }
        Err(Error::invalid(format!("{field} of model '{model}' is {number}: at most {max} is supported")))
    };
    use protocol::pb::inference::model_config::SchedulingChoice as Choice;
    use protocol::pb::inference::model_sequence_batching::StrategyChoice;
    let preferred = match &config.scheduling_choice {
        Some(Choice::DynamicBatching(d)) => d.preferred_batch_size.len(),
        Some(Choice::SequenceBatching(s)) => match &s.strategy_choice {
            Some(StrategyChoice::Oldest(o)) => o.preferred_batch_size.len(),
            _ => 0,
        },
        _ => 0,
    };
    within("the number of preferred batch sizes", preferred as u64, PREFERRED_BATCH_SIZES_MAX as u64)?;
    use protocol::pb::inference::model_metrics::metric_control::MetricOptions;
    for control in config.model_metrics.iter().flat_map(|m| &m.metric_control) {
        if let Some(MetricOptions::HistogramOptions(h)) = &control.metric_options {
            within("the number of histogram buckets", h.buckets.len() as u64, HISTOGRAM_BUCKETS_MAX as u64)?;
        }
    }
    for sample in &config.model_warmup {
        let field = format!("the count of warmup sample '{}'", sample.name);
        within(&field, sample.count.into(), WARMUP_COUNT_MAX.into())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::pb::inference::model_config::SchedulingChoice;
    use protocol::pb::inference::{ModelDynamicBatching, ModelInstanceGroup, ModelWarmup};

    fn refused(config: ModelConfig, text: &str) {
        assert_eq!(check(&ModelConfig { name: "m".into(), ..config }), Err(Error::invalid(text.to_owned())));
    }

    #[test]
    fn numbers_above_the_limits_are_rejected_with_field_number_and_limit() {
        let groups = |counts: &[i32]| ModelConfig {
            instance_group: counts
                .iter()
                .map(|&count| ModelInstanceGroup { name: "g".into(), count, ..Default::default() })
                .collect(),
            ..Default::default()
        };
        refused(
            groups(&[i32::MAX]),
            "instance group 'g' of model 'm' has count 2147483647: at most 4096 instances per model are supported, \
             and its groups have 2147483647",
        );
        refused(
            groups(&[4000, 97]),
            "instance group 'g' of model 'm' has count 97: at most 4096 instances per model are supported, \
             and its groups have 4097",
        );
        // A group without count has one instance.
        assert_eq!(check(&groups(&[4000, 95, -1])), Ok(()));

        let dynamic = ModelDynamicBatching { preferred_batch_size: vec![1; 1025], ..Default::default() };
        refused(
            ModelConfig { scheduling_choice: Some(SchedulingChoice::DynamicBatching(dynamic)), ..Default::default() },
            "the number of preferred batch sizes of model 'm' is 1025: at most 1024 is supported",
        );
        let warmup = ModelWarmup { name: "w".into(), count: u32::MAX, ..Default::default() };
        refused(
            ModelConfig { model_warmup: vec![warmup], ..Default::default() },
            "the count of warmup sample 'w' of model 'm' is 4294967295: at most 100000 is supported",
        );
    }
}
