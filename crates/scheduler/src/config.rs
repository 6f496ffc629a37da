//! Scheduling options of a model configuration, checked by the code that read it.

use std::collections::BTreeMap;

/// Scheduling of one model.
#[derive(Debug, Clone)]
pub struct Config {
    /// 0 is treated as 1: every request runs alone.
    pub max_batch_size: u32,
    /// `None` is the default scheduler: one request per execution, one shared FIFO, no policies (S-01).
    pub dynamic: Option<Dynamic>,
    /// Instances of the model. Only limits how many batches the strict mode forms ahead (S-07).
    pub instances: u32,
    /// Triton's literal timer instead of the work-conserving rule.
    pub strict_delay: bool,
    /// Nothing runs until this many requests have been queued, once (S-47); 0 = off. Dynamic batcher only.
    pub delay_scheduler: u32,
    /// Set for texts: maximum of tokens of several in a batch, padding included. Dynamic batcher only, and not with
    /// `strict_delay`.
    pub tokens_max: Option<u32>,
    /// Set if the number of runs in progress is chosen, at most one for each core (`cores`): there are as many
    /// instances.
    pub cores: Option<u32>,
}

/// `dynamic_batching`.
#[derive(Debug, Clone, Default)]
pub struct Dynamic {
    /// `preferred_batch_size`; empty means `max_batch_size` alone.
    pub preferred: Vec<u32>,
    /// `max_queue_delay_microseconds`.
    pub max_queue_delay_us: u64,
    /// The scheduler ignores this: the order of responses is the caller's.
    pub preserve_ordering: bool,
    /// 0 = no priorities: one level, and the `priority` parameter is ignored.
    pub priority_levels: u32,
    /// Level of requests whose `priority` is absent or out of range.
    pub default_priority_level: u32,
    /// Policy of every level without an entry in `level_policies`.
    pub default_policy: Policy,
    /// `priority_queue_policy`, by level.
    pub level_policies: BTreeMap<u32, Policy>,
}

/// `ModelQueuePolicy`: limits on waiting, never on running.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Action on a request that waited too long.
    pub timeout_action: TimeoutAction,
    /// 0 = requests never expire, and then no override applies either (S-06).
    pub default_timeout_us: u64,
    /// Lets a request's own timeout apply if it is shorter than the default.
    pub allow_timeout_override: bool,
    /// Maximum number of requests waiting in the level; 0 = unlimited.
    pub max_queue_size: u32,
}

/// Action on a request that waited longer than its timeout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TimeoutAction {
    /// Reject it.
    #[default]
    Reject,
    /// Move it behind all unexpired requests of its level; it never expires again.
    Delay,
}

impl Policy {
    /// How long a request with this `timeout` parameter may wait, in ns; `None` = without limit.
    ///
    /// An override can only shorten, and a default of 0 disables it, as in Triton (S-06).
    pub(crate) fn timeout_ns(&self, requested_us: u64) -> Option<u64> {
        let default_us = self.default_timeout_us;
        let shortened = self.allow_timeout_override && requested_us != 0 && requested_us < default_us;
        let us = if shortened { requested_us } else { default_us };
        (us != 0).then(|| us.saturating_mul(1000))
    }
}

impl Dynamic {
    /// Level in which a request with this `priority` parameter waits (S-04).
    pub(crate) fn level(&self, priority: u64) -> u32 {
        let levels = self.priority_levels;
        match u32::try_from(priority) {
            _ if levels == 0 => 0,
            Ok(level) if (1..=levels).contains(&level) => level,
            _ => self.default_priority_level.clamp(1, levels),
        }
    }

    pub(crate) fn policy(&self, level: u32) -> Policy {
        // Without priorities, level 0 is the only level and has no entry of its own.
        self.level_policies.get(&level).filter(|_| level != 0).unwrap_or(&self.default_policy).clone()
    }

    /// S-07: batches may be formed ahead only where no policy needs requests to stay in the queue as long as possible.
    pub(crate) fn may_prefetch(&self) -> bool {
        self.priority_levels == 0
            && self.default_policy.default_timeout_us == 0
            && !self.default_policy.allow_timeout_override
            && self.default_policy.max_queue_size == 0
    }
}
