//! Scheduling of a version, from its configuration and model. Does not change while the version serves.

use crate::batch_key::ShapeRule;
use crate::order::ResponseOrder;
use crate::rate_limit::Registered;
use crate::sequence::Sequencing;
use backend::{BatchEntry, Capabilities, Model};
use protocol::Signature;
use tensor::DataType;

/// Scheduling of a version. A graph only uses `sequencing` and `order`, with the values of a model without either.
pub(crate) struct Scheduling {
    /// Capabilities of the model; the default for a graph.
    pub(crate) capabilities: Capabilities,
    pub(crate) shape_rule: ShapeRule,
    /// Control inputs, states and null rows of sequences.
    pub(crate) sequencing: Option<Sequencing>,
    /// Set if requests are divided into texts (`texts`).
    pub(crate) texts: Option<TextRule>,
    /// Delivers responses in the order of their requests.
    pub(crate) line: Option<ResponseOrder>,
    /// Present if instances need grants of the rate limiter.
    pub(crate) limited: Option<Registered>,
    /// Requests that arrive together may share a batch.
    pub(crate) batches: bool,
    /// Requests may run inline. False if order is kept, with Triton's timer, if requests may have several responses,
    /// and if the model's cost does not follow from shapes.
    pub(crate) may_inline: bool,
    /// Requests end through responders: several responses, steps of sequences, or batches in other processes.
    pub(crate) answers_later: bool,
    /// An instance was on a device when the version was loaded.
    pub(crate) on_device: bool,
    /// `ModelVersion::unlocked` has work to do, because executions are limited or batches run in other processes.
    pub(crate) acts_unlocked: bool,
    /// The cost of a run also depends on the bytes of its inputs, which do not follow from shapes.
    pub(crate) sized: bool,
    /// Order in which ensembles have to call the version for their iterations.
    pub(crate) order: CallOrder,
    /// The configuration of the scheduler, for replays.
    pub(crate) config: scheduler::Config,
    /// Number of priority levels, 0 for none, and the level of requests without a priority.
    pub(crate) priorities: (u32, u32),
}

#[derive(Clone, Copy)]
pub(crate) struct TextRule {
    pub(crate) batches: TextBatches,
    /// Texts of a request that may be prepared and not answered.
    pub(crate) ahead_max: u32,
}

/// Texts that may run together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextBatches {
    /// Texts of any length, padded, under a budget of tokens.
    ByTokens,
    /// Texts of one length: Triton's timer knows no padding.
    OfOneLength,
}

/// Order in which consecutive calls run.
#[derive(Clone, Copy)]
pub(crate) enum CallOrder {
    Any,
    Kept,
    /// The order of the calls, as long as there is one instance.
    OneByOne,
}

impl Scheduling {
    /// `model` is `None` for a graph.
    pub(crate) fn new(
        config: &scheduler::Config,
        signature: &Signature,
        model: Option<&dyn Model>,
        on_device: bool,
        sequencing: Option<Sequencing>,
        limited: Option<Registered>,
    ) -> Self {
        let is_remote = model.is_some_and(|model| model.remote().is_some());
        let line = ResponseOrder::of(config, sequencing.as_ref());
        let is_iterative = sequencing.as_ref().is_some_and(|s| s.schedule.iterative);
        // With a queue limit, a request that finds an idle instance must not use a place in the queue.
        let unlimited = |d: &scheduler::Dynamic| {
            d.default_policy.max_queue_size == 0 && d.level_policies.values().all(|p| p.max_queue_size == 0)
        };
        let in_order = line.is_some() || config.strict_delay || config.delay_scheduler > 0;
        let is_kept = line.is_some() || signature.decoupled || sequencing.is_some();
        let order = match (model, is_kept, config.dynamic.is_none()) {
            (Some(_), true, _) => CallOrder::Kept,
            (Some(_), false, true) => CallOrder::OneByOne,
            _ => CallOrder::Any,
        };
        let mut capabilities = model.map(|model| model.capabilities()).unwrap_or_default();
        // Nothing is chosen where something else decides which instance runs.
        _ = capabilities.cores.take_if(|_| limited.is_some() || sequencing.is_some() || config.strict_delay);
        let batches = if config.strict_delay { TextBatches::OfOneLength } else { TextBatches::ByTokens };
        // The texts of one request must not fill a queue that is limited.
        let policies = config.dynamic.iter().flat_map(|d| d.level_policies.values().chain([&d.default_policy]));
        let places = policies.map(|policy| policy.max_queue_size).filter(|&size| size > 0).min();
        let texts = TextRule { batches, ahead_max: places.unwrap_or(u32::MAX) };
        Self {
            texts: model.and_then(Model::text).map(|_| texts),
            shape_rule: ShapeRule::of(signature),
            batches: config.max_batch_size > 1 && config.dynamic.as_ref().is_some_and(unlimited),
            // Not on a device, where a run waits for the device, also for the work of others.
            may_inline: !(on_device || in_order || sequencing.is_some() || limited.is_some())
                && !(signature.decoupled || is_remote || capabilities.cost_may_depend_on_data),
            answers_later: signature.decoupled || is_iterative || is_remote,
            acts_unlocked: limited.is_some() || is_remote,
            sized: signature.inputs.iter().any(|i| i.datatype == DataType::Bytes || i.allow_ragged_batch),
            priorities: config
                .dynamic
                .as_ref()
                .map_or((0, 0), |dynamic| (dynamic.priority_levels, dynamic.default_priority_level)),
            config: config.clone(),
            order,
            on_device,
            capabilities,
            sequencing,
            line,
            limited,
        }
    }

    /// True if the model has the dynamic batcher.
    pub(crate) fn has_batcher(&self) -> bool {
        self.config.dynamic.is_some()
    }

    /// Bytes of the requests' inputs; 0 if they follow from shapes.
    pub(crate) fn bytes_of<'e>(&self, entries: impl Iterator<Item = &'e BatchEntry>) -> u64 {
        if !self.sized {
            return 0;
        }
        entries.flat_map(|e| &e.request.inputs).map(|i| i.data.len() as u64).sum()
    }
}
