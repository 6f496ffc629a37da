//! The JSON object of LOAD for a model of a library (shm/README.md).

use backend::{OpenSpec, Placement, all_placements};
use backend_process::JsonObject;
use options::LibrarySpec;
use protocol::Signature;
use protocol::json::{Value, write_string};
use protocol::pb::inference::ModelConfig;
use protocol::pb::inference::model_instance_group::{Kind, SecondaryDevice};
use std::fmt::Write as _;

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
    /// JSON array.
    secondary: String,
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
        let secondary = |device: &SecondaryDevice| format!(r#"{{"kind":"KIND_NVDLA","id":{}}}"#, device.device_id);
        let secondary: Vec<_> = group.secondary_devices.iter().map(secondary).collect();
        Self {
            name: format!("{}_{}", group.name, placed.index),
            kind,
            device,
            passive: group.passive,
            policy: if group.host_policy.is_empty() { policy } else { group.host_policy.clone() },
            profiles: group.profile.clone(),
            secondary: format!("[{}]", secondary.join(",")),
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
        json.text("instance", "");
        json.end()
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
        json.text("instance", &placed.name);
        json.texts("inputs", signature.inputs.iter().map(|input| input.name.as_str()));
        json.texts("outputs", signature.outputs.iter().map(|output| output.name.as_str()));
        json.raw("decoupled", truth(signature.decoupled));
        json.raw("iterative", truth(iterative));
        json.text("kind", placed.kind);
        json.raw("device", &placed.device.to_string());
        json.raw("passive", truth(placed.passive));
        json.text("host_policy", &policy(&placed.policy, &self.library.host_policies));
        json.texts("profiles", placed.profiles.iter().map(String::as_str));
        json.raw("secondary", &placed.secondary);
        json.end()
    }

    fn common(&self, config: &str) -> JsonObject {
        let mut json = JsonObject::default();
        json.text("model", &self.model);
        json.text("version", &self.version.to_string());
        json.text("model_directory", &self.model_directory);
        json.text("version_directory", &self.version_directory);
        json.text("config", config);
        json.text("backend", &self.library.backend);
        json.text("library", &self.library.path.to_string_lossy());
        json.text("backend_directory", &self.library.directory.to_string_lossy());
        json.text("backend_config", &self.backend_config);
        json.text("load", &self.load);
        json.raw("auto_complete", truth(self.completes));
        json.raw("default_groups", truth(self.library.default_groups));
        if let Some(strategy) = &self.library.strategy {
            json.text("strategy", &strategy.to_string_lossy());
        }
        json
    }
}

fn truth(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// The configuration of the backend, as its library reads it. Every value is a string. `min-compute-capability` is that
/// of a Triton without GPUs.
fn backend_config(settings: &[(String, String)], completes: bool, directory: &str) -> String {
    let mut all = vec![
        ("auto-complete-config", truth(completes)),
        ("backend-directory", directory),
        ("default-max-batch-size", "4"),
        ("min-compute-capability", "0.000000"),
    ];
    for (key, value) in settings {
        match all.iter_mut().find(|(known, _)| known == key) {
            // The server's own, whatever a user writes.
            Some((known, _)) if matches!(*known, "auto-complete-config" | "backend-directory") => {}
            Some((_, known)) => *known = value,
            None => all.push((key, value)),
        }
    }
    all.sort_unstable();
    let mut json = JsonObject::default();
    for (key, value) in all {
        json.text(key, value);
    }
    format!(r#"{{"cmdline":{}}}"#, json.end())
}

/// The policy of an instance, with its settings from `--host-policy`.
fn policy(name: &str, all: &str) -> String {
    let settings = Value::parse(all.as_bytes()).ok().and_then(|all| all.get(name));
    let settings = settings.map_or("{}".into(), |settings| String::from_utf8_lossy(settings.text()));
    let mut key = Vec::new();
    write_string(&mut key, name.as_bytes());
    let mut json = String::new();
    let _ = write!(json, "{{{}:{settings}}}", String::from_utf8_lossy(&key));
    json
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
