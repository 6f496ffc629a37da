//! Parts of the first message to a runner, the JSON of `LOAD` (shm/README.md), that do not depend on its language.

use protocol::json::write_string;
use protocol::pb::inference::{ModelConfig, model_instance_group::Kind};

/// One instance of a model, as its code sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedInstance {
    /// `<group>_<index>`.
    pub name: String,
    /// `CPU`, `GPU` or `MODEL`.
    pub kind: &'static str,
    /// Ordinal of its device; 0 without one.
    pub device: i32,
}

/// The instances that get requests, in the order of the engine's numbers.
pub fn instances(config: &ModelConfig) -> Vec<PlacedInstance> {
    let of = |placed: backend::Placement<'_>| PlacedInstance {
        name: format!("{}_{}", placed.group.name, placed.index),
        kind: match placed.group.kind() {
            Kind::Gpu => "GPU",
            Kind::Model => "MODEL",
            // AUTO was resolved with the configuration; without a GPU Triton reports CPU.
            Kind::Cpu | Kind::Auto => "CPU",
        },
        device: placed.device.and_then(|d| i32::try_from(d).ok()).unwrap_or(0),
    };
    let placed: Vec<_> = backend::placements(config).map(of).collect();
    if placed.is_empty() {
        return vec![PlacedInstance { name: format!("{}_0", config.name), kind: "CPU", device: 0 }];
    }
    placed
}

/// Builds a JSON object.
#[derive(Debug)]
pub struct JsonObject(Vec<u8>);

impl Default for JsonObject {
    fn default() -> Self {
        Self(vec![b'{'])
    }
}

impl JsonObject {
    fn key(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        write_string(&mut self.0, name.as_bytes());
        self.0.push(b':');
    }

    /// Adds a string.
    pub fn text(&mut self, name: &str, value: &str) {
        self.key(name);
        write_string(&mut self.0, value.as_bytes());
    }

    /// Adds an array of strings.
    pub fn texts<'a>(&mut self, name: &str, values: impl Iterator<Item = &'a str>) {
        self.key(name);
        self.0.push(b'[');
        for (i, value) in values.enumerate() {
            if i > 0 {
                self.0.push(b',');
            }
            write_string(&mut self.0, value.as_bytes());
        }
        self.0.push(b']');
    }

    /// Adds a value that is JSON already.
    pub fn raw(&mut self, name: &str, value: &str) {
        self.key(name);
        self.0.extend_from_slice(value.as_bytes());
    }

    /// The text of the object.
    pub fn end(mut self) -> String {
        self.0.push(b'}');
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::pb::inference::ModelInstanceGroup;

    fn group(name: &str, kind: Kind, count: i32) -> ModelInstanceGroup {
        ModelInstanceGroup { name: name.into(), kind: kind.into(), count, ..Default::default() }
    }

    #[test]
    fn b_py_02_instances_have_the_names_and_devices_of_the_configuration() {
        let mut config = ModelConfig { name: "m".into(), ..Default::default() };
        let names = |config: &ModelConfig| {
            instances(config).iter().map(|p| format!("{} {} {}", p.name, p.kind, p.device)).collect::<Vec<_>>()
        };
        assert_eq!(names(&config), ["m_0 CPU 0"]);
        config.instance_group = vec![group("m_0", Kind::Auto, 2), group("grp", Kind::Model, 1)];
        assert_eq!(names(&config), ["m_0_0 CPU 0", "m_0_1 CPU 0", "grp_0 MODEL 0"]);
        config.instance_group[0].passive = true;
        assert_eq!(names(&config), ["grp_0 MODEL 0"]);
    }
}
