//! The JSON object of LOAD for a model of a library (shm/README.md).

use backend::{OpenSpec, Placement, all_placements};
use options::LibrarySpec;
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use protocol::pb::inference::model_instance_group::{Kind, SecondaryDevice};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The members of LOAD that all connections of one load of a model have.
#[derive(Debug, Clone)]
pub(crate) struct LoadContent {
    /// Differs between two loads of a version.
    pub(crate) load: String,
    pub(crate) model: String,
    pub(crate) version: i64,
    pub(crate) model_directory: String,
    pub(crate) version_directory: String,
    pub(crate) library: LibrarySpec,
    pub(crate) backend_config: String,
    pub(crate) completes: bool,
}

/// An instance of a model, as its library sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostedInstance {
    pub(crate) name: String,
    kind: &'static str,
    device: i32,
    passive: bool,
    policy: String,
    profiles: Vec<String>,
    secondary: Value,
}

impl HostedInstance {
    fn of(placed: &Placement<'_>) -> Self {
        let group = placed.group;
        let device = placed.device.and_then(|d| i32::try_from(d).ok()).unwrap_or(0);
        let (kind, policy) = match group.kind() {
            Kind::Gpu => ("GPU", format!("gpu_{device}")),
            Kind::Model => ("MODEL", "model".to_owned()),
            // AUTO was resolved with the configuration.
            Kind::Cpu | Kind::Auto => ("CPU", "cpu".to_owned()),
        };
        // The only kind that there is.
        let secondary = |device: &SecondaryDevice| json!({ "kind": "KIND_NVDLA", "id": device.device_id });
        Self {
            name: format!("{}_{}", group.name, placed.index),
            kind,
            device,
            passive: group.passive,
            policy: if group.host_policy.is_empty() { policy } else { group.host_policy.clone() },
            profiles: group.profile.clone(),
            secondary: group.secondary_devices.iter().map(secondary).collect(),
        }
    }
}

/// All instances: those that get requests in the order of the engine's numbers, then those of passive groups.
pub(crate) fn instances(config: &ModelConfig) -> Vec<HostedInstance> {
    let (active, passive): (Vec<_>, Vec<_>) = all_placements(config).partition(|placed| !placed.group.passive);
    active.iter().chain(&passive).map(HostedInstance::of).collect()
}

impl LoadContent {
    pub(crate) fn new(spec: &OpenSpec, library: &LibrarySpec, load: String) -> Self {
        Self {
            load,
            // With namespaces, the model's name has two parts; its library sees its own.
            model: spec.model.as_str().rsplit('/').next().unwrap_or_default().to_owned(),
            version: spec.version,
            model_directory: spec.model_directory.to_string_lossy().into_owned(),
            version_directory: spec.version_directory.to_string_lossy().into_owned(),
            library: library.clone(),
            backend_config: backend_config(
                &spec.settings,
                spec.completes,
                &library.backend_directory.to_string_lossy(),
            ),
            completes: spec.completes,
        }
    }

    /// The object of the model's own connection.
    pub(crate) fn to_complete(&self, config: &str) -> String {
        let mut json = self.common(config);
        json["instance"] = "".into();
        json.to_string()
    }

    /// The object of an instance.
    pub(crate) fn to_run(
        &self,
        config: &str,
        signature: &Signature,
        iterative: bool,
        placed: &HostedInstance,
    ) -> String {
        let mut json = self.common(config);
        let of_instance = json!({
            "instance": placed.name,
            "inputs": signature.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>(),
            "outputs": signature.outputs.iter().map(|output| output.name.as_str()).collect::<Vec<_>>(),
            "decoupled": signature.decoupled,
            "iterative": iterative,
            "kind": placed.kind,
            "device": placed.device,
            "passive": placed.passive,
            "host_policy": policy(&placed.policy, &self.library.host_policies),
            "profiles": placed.profiles,
            "secondary": placed.secondary,
        });
        if let (Some(all), Value::Object(more)) = (json.as_object_mut(), of_instance) {
            all.extend(more);
        }
        json.to_string()
    }

    fn common(&self, config: &str) -> Value {
        json!({
            "model": self.model,
            "version": self.version.to_string(),
            "model_directory": self.model_directory,
            "version_directory": self.version_directory,
            "config": config,
            "backend": self.library.backend,
            "library": self.library.path.to_string_lossy(),
            "backend_directory": self.library.directory.to_string_lossy(),
            "backend_config": self.backend_config,
            "load": self.load,
            "auto_complete": self.completes,
            "default_groups": self.library.default_groups,
            "strategy": self.library.strategy.as_ref().map_or("".into(), |path| path.to_string_lossy()),
        })
    }
}

/// The configuration of the backend, as its library reads it. Every value is a string. `min-compute-capability` is that
/// of a Triton without GPUs.
fn backend_config(settings: &[(String, String)], completes: bool, directory: &str) -> String {
    let mut all = BTreeMap::from([("default-max-batch-size", "4"), ("min-compute-capability", "0.000000")]);
    all.extend(settings.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    // The server's own, whatever a user writes.
    all.insert("auto-complete-config", if completes { "true" } else { "false" });
    all.insert("backend-directory", directory);
    json!({ "cmdline": all }).to_string()
}

/// The policy of an instance, with its settings from `--host-policy`.
fn policy(name: &str, all: &str) -> String {
    let all: Value = serde_json::from_str(all).unwrap_or_default();
    json!({ name: all.get(name).cloned().unwrap_or_else(|| json!({})) }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::pb::inference::ModelInstanceGroup;

    #[test]
    fn the_configuration_of_a_backend_has_four_common_keys_and_its_own() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let settings = [pair("colour", "blue"), pair("default-max-batch-size", "7"), pair("backend-directory", "/x")];
        assert_eq!(
            backend_config(&settings, false, "/b"),
            concat!(
                r#"{"cmdline":{"auto-complete-config":"false","backend-directory":"/b","colour":"blue","#,
                r#""default-max-batch-size":"7","min-compute-capability":"0.000000"}}"#
            )
        );
    }

    #[test]
    fn a_policy_without_settings_is_empty() {
        let all = r#"{"probe":{"cpu-cores":"0-1"}}"#;
        assert_eq!(policy("probe", all), all);
        assert_eq!(policy("cpu", all), r#"{"cpu":{}}"#);
        assert_eq!(policy("a\"", ""), r#"{"a\"":{}}"#);
    }

    #[test]
    fn passive_instances_come_last() {
        let group = |name: &str, passive| ModelInstanceGroup {
            name: name.into(),
            kind: Kind::Cpu.into(),
            count: 1,
            passive,
            ..Default::default()
        };
        let config =
            ModelConfig { instance_group: vec![group("idle", true), group("busy", false)], ..Default::default() };
        let names: Vec<_> = instances(&config).into_iter().map(|placed| placed.name).collect();
        assert_eq!(names, ["busy_0", "idle_0"]);
    }
}
