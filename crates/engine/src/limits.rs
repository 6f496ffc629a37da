//! What a configuration may ask for. Whatever is sized by a number of a configuration is checked here first: a configuration may
//! come over the network, and a number in it must not end the process.
//!
//! Not limited here, because nothing is sized by them: `max_batch_size`, `max_queue_size`, delays and timeouts are only compared;
//! priority levels are made when a request uses one (`scheduler::queue`). Thread counts of ONNX sessions are limited in
//! `backend_onnx::options`.

use protocol::pb::inference::ModelConfig;
use tensor::{Error, Result};

/// Instances of a model, all its groups together.
pub const INSTANCES_MAX: u64 = 4096;
/// Bytes of a request's inputs whose key is made on a reactor, which takes 0.4 ms. Those of larger ones are made on a worker thread.
pub const CACHE_KEY_BYTES_MAX: usize = 1 << 20;
/// Nanoseconds between two lines of the log, for one version, which say that the response cache did not keep an answer. Clients decide how
/// large answers are, and must not fill the log with them.
pub const CACHE_FAILURE_LINES_NS_MIN: u64 = 10_000_000_000;
/// Models that may call one another for one request.
pub const MODEL_CALLS_DEPTH_MAX: u32 = 32;
/// Nanoseconds that a call waits for an instance where instances wait for one another and none will come free; then one of their calls fails.
pub const MODEL_CYCLE_WAIT_NS_MAX: u64 = 10_000_000_000;
/// `preferred_batch_size` entries: each batch that is formed is compared with them.
pub const PREFERRED_BATCH_SIZES_MAX: usize = 1024;
/// Buckets of a histogram a model sets for itself: each response is compared with them.
pub const HISTOGRAM_BUCKETS_MAX: usize = 1024;
/// `batch_size` of a warm-up sample: so many requests are made and run together.
pub const WARMUP_BATCH_SIZE_MAX: u32 = 16_384;
/// `count` of a warm-up sample: the model is not ready before all of them ran.
pub const WARMUP_COUNT_MAX: u32 = 100_000;
/// Bytes of a warm-up sample, its inputs times its `batch_size`; and not more than a quarter of `--memory-limit`, to which they are
/// charged, as those of a client's request.
pub const WARMUP_BYTES_MAX: u64 = 1 << 30;
/// How long a load waits for the memory of a warm-up sample, which requests in flight may have.
pub const WARMUP_MEMORY_WAIT: std::time::Duration = std::time::Duration::from_secs(5);
/// Bytes of an implicit state, a fresh one and one that a model gave back: each sequence has one.
pub const STATE_BYTES_MAX: u64 = 256 << 20;
/// Bytes of a state that is not charged to the memory of the server. Sequences live long, and there may be very many of them.
pub const STATE_UNCHARGED_BYTES_MAX: usize = 1 << 10;
/// Replaced versions of a model whose sequences go on. One more ends those of the oldest: reloads must not fill the memory.
pub const CONTINUING_VERSIONS_MAX: usize = 4;
/// Microseconds that a sequence may be idle once its server exits: its client has so long to go on, and does not keep the server.
pub const EXIT_SEQUENCE_IDLE_US_MAX: u64 = 10_000_000;
/// How long a model may work for requests that nobody waits for once its server exits. An unloaded one has the grace of its backend.
pub const EXIT_ABANDONED_MAX: std::time::Duration = std::time::Duration::from_secs(10);
/// Answers that other threads may leave behind one of the same request that is being handed out.
pub const ANSWERS_WAITING_MAX: usize = 1024;
/// How long a thread that gave one more waits for them to leave, before the request is given up. Far longer than the thread that hands them out is without a
/// core on a machine that has too much to do.
pub const ANSWERS_WAITING_NS_MAX: u64 = 250_000_000;
/// Answers that requests of one model may give before it is their turn, where the model preserves order; last ones are not counted.
pub const ANSWERS_HELD_MAX: usize = 4096;
/// Bytes of such answers.
pub const ANSWERS_HELD_BYTES_MAX: usize = 64 << 20;
/// Responses of a request that are counted by their index; later ones are not.
pub const RESPONSE_STATISTICS_MAX: usize = 1024;
/// Nanoseconds during which the steps of an ensemble may run on the thread that brings a request, or an answer; then the next one
/// is queued. A reactor does not even start another one then: a thread of the pool goes on.
pub const ENSEMBLE_INLINE_NS_MAX: u64 = 250_000;
/// Nanoseconds of steps and of batches that the end of a turn, or answers handed out together, set going on a reactor; what is left then
/// goes on later, or elsewhere. Half of what a reactor may be held for: the rest is for what has begun, and for handing over.
pub const TURN_END_NS_MAX: u64 = 500_000;
/// Nanoseconds that a model may take to say whether it is ready; then it is not, as in Triton.
pub const READY_NS_MAX: u64 = 5_000_000_000;
/// Nanoseconds during which a thread starts batches of models that answer later, one after the other; then the pool starts the rest. The
/// thread may be one of the front end.
pub const STARTS_NS_MAX: u64 = 250_000;
/// Requests of ensembles that one thread of the pool takes over from a reactor at once.
pub const FLOWS_TOGETHER_MAX: usize = 16;
/// Bytes of an ensemble's outputs that a reactor copies into regions, or out of them; more are copied by a thread of the pool.
pub const ENSEMBLE_COPY_BYTES_ON_REACTOR_MAX: usize = 256 << 10;
/// Requests in a queue that is searched at once for one that was given up. In a longer one those that are given up together are found
/// together, by the thread of the timer.
pub const QUEUE_SEARCHED_AT_ONCE_MAX: usize = 64;
/// Requests that leave a queue together and are answered by the thread that finds them; of more, the thread of the timer answers so many
/// at a time.
pub const REMOVED_AT_ONCE_MAX: usize = 128;
/// Errors of a failed warm-up sample that are repeated in its text.
pub(crate) const WARMUP_ERRORS_MAX: usize = 16;

/// # Errors
/// INVALID_ARG with the model, the field, its number and the limit.
pub(crate) fn check(config: &ModelConfig) -> Result<()> {
    let model = &config.name;
    let mut instances = 0u64;
    for group in &config.instance_group {
        let count = u64::try_from(group.count).unwrap_or(0);
        // So many on each device that is listed.
        instances = instances.saturating_add(count.max(1).saturating_mul(group.gpus.len().max(1) as u64));
        if instances > INSTANCES_MAX {
            return Err(Error::invalid(format!(
                "instance group '{}' of model '{model}' has count {count}: at most {INSTANCES_MAX} instances per model are supported, and its groups ask for {instances}",
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
    fn numbers_that_would_be_allocated_are_refused_by_field_number_and_limit() {
        let groups = |counts: &[i32]| ModelConfig {
            instance_group: counts
                .iter()
                .map(|&count| ModelInstanceGroup { name: "g".into(), count, ..Default::default() })
                .collect(),
            ..Default::default()
        };
        refused(
            groups(&[i32::MAX]),
            "instance group 'g' of model 'm' has count 2147483647: at most 4096 instances per model are supported, and its groups ask for 2147483647",
        );
        refused(
            groups(&[4000, 97]),
            "instance group 'g' of model 'm' has count 97: at most 4096 instances per model are supported, and its groups ask for 4097",
        );
        // A group whose count is left out has an instance.
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
