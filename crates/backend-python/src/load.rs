//! The first message to a runner: the JSON of `LOAD` (shm/README.md), except for properties of `backend_process`.

use crate::code::ModelCode;
use backend_process::{JsonObject, PlacedInstance};
use std::path::Path;

/// Content of LOAD that is the same for all instances of a model.
pub(crate) struct LoadContent<'a> {
    pub(crate) model: &'a str,
    pub(crate) version: i64,
    pub(crate) model_directory: &'a Path,
    pub(crate) version_directory: &'a Path,
    /// Directory of the model's file in it.
    pub(crate) file_directory: &'a Path,
    pub(crate) code: &'a ModelCode,
    /// In Triton's JSON form.
    pub(crate) config: &'a str,
    pub(crate) inputs: Vec<&'a str>,
    pub(crate) outputs: Vec<&'a str>,
    pub(crate) decoupled: bool,
    pub(crate) iterative: bool,
}

impl LoadContent<'_> {
    /// LOAD for an instance that runs requests.
    pub(crate) fn to_run(&self, instance: &PlacedInstance) -> String {
        let mut json = JsonObject::default();
        self.common(&mut json, &instance.name);
        let version = self.version.to_string();
        let device = instance.device.to_string();
        let directory = self.model_directory.to_string_lossy();
        // Seven strings (B-PY-02).
        let arguments = [
            ("model_config", self.config),
            ("model_instance_kind", instance.kind),
            ("model_instance_name", instance.name.as_str()),
            ("model_instance_device_id", device.as_str()),
            ("model_repository", directory.as_ref()),
            ("model_version", version.as_str()),
            ("model_name", self.model),
        ];
        let mut load_content = JsonObject::default();
        for (name, value) in arguments {
            load_content.text(name, value);
        }
        json.raw("arguments", &load_content.end());
        json.texts("inputs", self.inputs.iter().copied());
        json.texts("outputs", self.outputs.iter().copied());
        json.raw("decoupled", if self.decoupled { "true" } else { "false" });
        json.raw("iterative", if self.iterative { "true" } else { "false" });
        json.end()
    }

    /// LOAD for a process that only completes the configuration. It is no instance, and has no name.
    pub(crate) fn to_complete(&self) -> String {
        let mut json = JsonObject::default();
        self.common(&mut json, "");
        json.raw("arguments", "{}");
        json.raw("inputs", "[]");
        json.raw("outputs", "[]");
        json.raw("decoupled", "false");
        json.raw("iterative", "false");
        json.text("config", self.config);
        json.end()
    }

    fn common(&self, json: &mut JsonObject, instance: &str) {
        json.text("instance", instance);
        json.text("model", self.model);
        json.text("version", &self.version.to_string());
        json.text("model_directory", &self.model_directory.to_string_lossy());
        json.text("version_directory", &self.version_directory.to_string_lossy());
        json.text("file_directory", &self.file_directory.to_string_lossy());
        json.text("file", &self.code.file.to_string_lossy());
        json.text("package", &self.code.package);
        json.text("module", &self.code.module);
        let paths: Vec<_> = self.code.paths.iter().map(|p| p.to_string_lossy()).collect();
        json.texts("paths", paths.iter().map(AsRef::as_ref));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::json::Value;

    #[test]
    fn b_py_02_initialize_gets_seven_strings() {
        let code = ModelCode::of_version(Path::new("/r/m/1"), "", Path::new("/rt")).unwrap();
        let load_content = LoadContent {
            model: "m",
            version: 1,
            model_directory: Path::new("/r/m"),
            version_directory: Path::new("/r/m/1"),
            file_directory: Path::new("/r/m/1"),
            code: &code,
            config: "{\"name\":\"m\"}",
            inputs: vec!["A", "B\""],
            outputs: vec![],
            decoupled: true,
            iterative: false,
        };
        let text = load_content.to_run(&PlacedInstance { name: "m_0".into(), kind: "CPU", device: 0 });
        let json = Value::parse(text.as_bytes()).unwrap();
        let arguments = json.get("arguments").unwrap();
        let get = |name: &str| arguments.get(name).unwrap().as_string().unwrap();
        assert_eq!(get("model_config"), "{\"name\":\"m\"}");
        assert_eq!(get("model_repository"), "/r/m");
        assert_eq!(get("model_version"), "1");
        assert_eq!(get("model_instance_device_id"), "0");
        assert_eq!(arguments.members().unwrap().count(), 7);
        assert_eq!(json.get("file").unwrap().as_string().unwrap(), "/r/m/1/model.py");
        assert!(text.contains("\"inputs\":[\"A\",\"B\\\"\"],\"outputs\":[],\"decoupled\":true"), "{text}");
        let complete = load_content.to_complete();
        assert_eq!(
            Value::parse(complete.as_bytes()).unwrap().get("config").unwrap().as_string().unwrap(),
            "{\"name\":\"m\"}"
        );
    }
}
