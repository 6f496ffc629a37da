//! Decodes the configuration of a model.

use crate::pb::inference::{ModelConfig, model_config::SchedulingChoice};
use prost::Message;
use tensor::{Error, Result};

impl ModelConfig {
    /// Decodes a configuration that TypeScript has completed. Not generic, so that the decoder of its many messages is
    /// compiled here and not again in each crate that needs it.
    ///
    /// # Errors
    /// INTERNAL if the bytes are not a message `ModelConfig`.
    pub fn parse(encoded: &bytes::Bytes) -> Result<Self> {
        let invalid = |e| Error::internal(format!("the encoded configuration of the model cannot be decoded: {e}"));
        Self::decode(encoded.clone()).map_err(invalid)
    }

    /// Whether requests run one by one, in their order, on one instance that waits for nothing else.
    pub fn runs_one_by_one(&self) -> bool {
        self.scheduling_choice.is_none() && self.has_one_queue()
    }

    /// Whether one instance that waits for nothing else takes requests from one queue in their order: one by one, or as
    /// batches without a queue delay, priorities or a queue policy.
    pub fn has_one_queue(&self) -> bool {
        let [group] = &self.instance_group[..] else { return false };
        let is_plain = match &self.scheduling_choice {
            None => true,
            Some(SchedulingChoice::DynamicBatching(batching)) => {
                let policy = batching.default_queue_policy.as_ref();
                batching.max_queue_delay_microseconds == 0
                    && batching.priority_levels == 0
                    && policy.is_none_or(|policy| *policy == Default::default())
            }
            Some(_) => false,
        };
        is_plain && group.count == 1 && group.rate_limiter.is_none()
    }

    /// Whether a sequence may ask for another step of its own request (`sequence_batching.iterative_sequence`).
    pub fn is_iterative(&self) -> bool {
        matches!(&self.scheduling_choice, Some(SchedulingChoice::SequenceBatching(s)) if s.iterative_sequence)
    }
}
