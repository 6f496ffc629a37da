//! Models of trees, for commands.

use crate::failure::{Result, thrown};
use bytes::Bytes;
use napi::bindgen_prelude::Buffer;
use napi_derive::napi;
use std::path::PathBuf;

/// Checks the parameters of a model of the backend `fil`, and its trees if the directory of a version is given, as a
/// load does; throws its error. `config` is a binary ModelConfig.
#[napi]
pub fn check_forest(config: Buffer, version_directory: Option<String>) -> Result<()> {
    let config = Bytes::copy_from_slice(&config);
    backend_onnx::check_forest(&config, version_directory.map(PathBuf::from).as_deref()).map_err(|e| thrown(&e))
}
