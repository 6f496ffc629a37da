//! Name, origin and configuration of a version, as clients read them.

use arc_swap::ArcSwap;
use bytes::Bytes;
use cache::Fingerprint;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Identity of a loaded version. Only the configuration changes while it serves.
pub struct Identity {
    /// Version number.
    pub number: i64,
    /// `platform` of the metadata.
    pub platform: String,
    /// Name of the model's repository if repositories are namespaces, else "".
    pub(crate) namespace: String,
    /// Directory of the model, which contains the version directories.
    pub(crate) model_directory: PathBuf,
    /// Configuration as clients read it; replaced when the number of instances changes.
    pub(crate) config: ArcSwap<ConfigTexts>,
    /// Hash of the files and settings that responses depend on. Only computed if servers share a response cache.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Unique id of this load.
    pub load: u64,
    /// Bytes of its files, once somebody asked.
    pub(crate) file_bytes: OnceLock<u64>,
}

/// A configuration in the two forms that clients read.
pub(crate) struct ConfigTexts {
    pub(crate) json: Bytes,
    /// An encoded `inference.ModelConfig`.
    pub(crate) pb: Bytes,
}

impl Identity {
    /// Body of GET …/config.
    pub fn config_json(&self) -> Bytes {
        self.config.load().json.clone()
    }

    /// The configuration as an encoded `inference.ModelConfig`.
    pub fn config_pb(&self) -> Bytes {
        self.config.load().pb.clone()
    }
}
