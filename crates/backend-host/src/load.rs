//! The JSON of LOAD.

use serde::Deserialize;

/// The text that all connections of a load of a model get.
#[derive(Deserialize)]
pub(crate) struct LoadContent {
    /// Names the load.
    pub(crate) load: String,
    /// `complete` for the connection of the model, else that of an instance.
    pub(crate) mode: String,
    pub(crate) model: String,
    pub(crate) version: String,
    pub(crate) model_directory: String,
    pub(crate) config: String,
    pub(crate) backend: String,
    pub(crate) library: String,
    pub(crate) backend_directory: String,
    #[serde(default)]
    pub(crate) backend_config: String,
    #[serde(default)]
    pub(crate) auto_complete: bool,
    /// Path of a batching library, or "".
    #[serde(default)]
    pub(crate) strategy: String,
    #[serde(flatten)]
    pub(crate) instance: InstanceContent,
}

/// The further text that the connection of an instance gets.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct InstanceContent {
    #[serde(rename = "instance")]
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) device: i32,
    #[serde(rename = "passive")]
    pub(crate) is_passive: bool,
    pub(crate) host_policy: String,
    pub(crate) profiles: Vec<String>,
    pub(crate) secondary: Vec<SecondaryDevice>,
}

#[derive(Deserialize)]
pub(crate) struct SecondaryDevice {
    pub(crate) kind: String,
    pub(crate) id: i64,
}
