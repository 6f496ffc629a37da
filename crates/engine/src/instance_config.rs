//! Instances of a configuration.

use backend::{Placement, placements};
use protocol::pb::inference::{ModelConfig, ModelInstanceGroup};

/// An instance of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InstanceConfig {
    pub(crate) name: String,
    pub(crate) device: Option<u32>,
    /// The group, without name, count and devices.
    settings: ModelInstanceGroup,
}

impl InstanceConfig {
    /// The instances that get requests, in the order of [`placements`].
    pub(crate) fn all(config: &ModelConfig) -> Vec<Self> {
        let of = |placed: Placement<'_>| {
            let mut group = placed.group.clone();
            group.name.clear();
            group.count = 0;
            group.gpus.clear();
            Self { name: placed.name(), device: placed.device, settings: group }
        };
        let all: Vec<_> = placements(config).map(of).collect();
        if all.is_empty() {
            return vec![Self {
                name: format!("{}_0", config.name),
                device: None,
                settings: ModelInstanceGroup::default(),
            }];
        }
        all
    }

    pub(crate) fn could_be(&self, other: &Self) -> bool {
        (self.device, &self.settings) == (other.device, &other.settings)
    }
}

/// `cores` if a model that divides them may have as many runs as pay: the configuration names no instances.
pub(crate) fn chosen_cores(cores: Option<u32>, config: &ModelConfig) -> Option<u32> {
    // Only the group that completes a configuration without groups has the name of the model.
    let is_default = match &config.instance_group[..] {
        [] => true,
        [only] => only.name == config.name && only.gpus.is_empty(),
        _ => false,
    };
    cores.filter(|&cores| cores > 1 && is_default)
}
