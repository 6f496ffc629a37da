//! The instances that a configuration declares, in the order of their numbers, with their locations (C-13, C-14). The
//! engine counts and names them; backends use them to create one session for each device.

use protocol::pb::inference::model_instance_group::Kind;
use protocol::pb::inference::{ModelConfig, ModelInstanceGroup};

/// An instance as the configuration declares it.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Placement<'a> {
    pub group: &'a ModelInstanceGroup,
    /// Number within the group; with several devices, each device has an instance with this number.
    pub index: i32,
    /// Device ordinal of this process; `None` is the host.
    pub device: Option<u32>,
}

impl Placement<'_> {
    /// `<group>_<index>`, equal on all devices.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}_{}", self.group.name, self.index)
    }
}

/// The instances that get requests, for a configuration with resolved groups: `count` on each device that a GPU group
/// lists, none for passive groups. A configuration without groups yields none, although it means one on the host.
pub fn placements(config: &ModelConfig) -> impl Iterator<Item = Placement<'_>> {
    all_placements(config).filter(|instance| !instance.group.passive)
}

/// All instances, including those of passive groups, which are loaded and get no requests (C-15).
pub fn all_placements(config: &ModelConfig) -> impl Iterator<Item = Placement<'_>> {
    config.instance_group.iter().flat_map(|group| {
        let on_devices = group.kind() == Kind::Gpu && !group.gpus.is_empty();
        let host: &[Option<u32>] = if on_devices { &[] } else { &[None] };
        let gpus: &[i32] = if on_devices { &group.gpus } else { &[] };
        (0..group.count.max(1)).flat_map(move |index| {
            let devices = gpus.iter().map(|&gpu| u32::try_from(gpu).ok());
            host.iter().copied().chain(devices).map(move |device| Placement { group, index, device })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, kind: Kind, count: i32, gpus: &[i32]) -> ModelInstanceGroup {
        ModelInstanceGroup { name: name.into(), kind: kind.into(), count, gpus: gpus.to_vec(), ..Default::default() }
    }

    fn printed(instance_group: Vec<ModelInstanceGroup>) -> Vec<String> {
        let config = ModelConfig { instance_group, ..ModelConfig::default() };
        let place = |p: Placement| p.device.map_or("host".to_owned(), |d| format!("device {d}"));
        placements(&config).map(|p| format!("{} {}", p.name(), place(p))).collect()
    }

    #[test]
    fn device_instances_are_so_many_on_each_device_of_a_group_c_14() {
        assert_eq!(printed(vec![]), [""; 0]);
        assert_eq!(printed(vec![group("a", Kind::Cpu, 2, &[])]), ["a_0 host", "a_1 host"]);
        assert_eq!(
            printed(vec![group("a", Kind::Gpu, 2, &[0, 3]), group("b", Kind::Cpu, 0, &[])]),
            ["a_0 device 0", "a_0 device 3", "a_1 device 0", "a_1 device 3", "b_0 host"]
        );
        let mut passive = group("a", Kind::Gpu, 2, &[0]);
        passive.passive = true;
        let config = ModelConfig { instance_group: vec![passive.clone()], ..ModelConfig::default() };
        assert_eq!(all_placements(&config).map(|p| p.name()).collect::<Vec<_>>(), ["a_0", "a_1"]);
        assert_eq!(printed(vec![passive, group("b", Kind::Gpu, 1, &[1])]), ["b_0 device 1"]);
        // Kinds are resolved before; a group that is not is on the host.
        assert_eq!(printed(vec![group("a", Kind::Auto, 1, &[0])]), ["a_0 host"]);
        assert_eq!(printed(vec![group("a", Kind::Model, 1, &[])]), ["a_0 host"]);
    }
}
