//! Reads model files as a load does, for commands.

use crate::convert::model_io;
use crate::failure::{Result, thrown};
use crate::objects::{ModelIo, Setting};
use bytes::Bytes;
use napi::bindgen_prelude::Buffer;
use napi_derive::napi;
use std::path::{Path, PathBuf};

/// Checks the parameters of a model of the backend `fil`, and its trees if the directory of a version is given, as a
/// load does; throws its error. Returns the inputs and outputs of the trees. `config` is a binary ModelConfig.
#[napi]
pub fn check_forest(config: Buffer, version_directory: Option<String>) -> Result<Option<ModelIo>> {
    let config = Bytes::copy_from_slice(&config);
    let io = backend_onnx::check_forest(&config, version_directory.map(PathBuf::from).as_deref());
    io.map(|io| io.map(model_io)).map_err(|e| thrown(&e))
}

/// Inputs and outputs of an ONNX file as ONNX Runtime reports them to a load; throws its error. Reads the weights, too.
/// `settings` are those of the backend `onnxruntime`.
#[napi]
pub fn read_onnx_graph(library: String, file: String, settings: Vec<Setting>) -> Result<ModelIo> {
    let settings: Vec<_> = settings.into_iter().map(|s| (s.key, s.value)).collect();
    let io = backend_onnx::read_graph(Path::new(&library), Path::new(&file), &settings);
    io.map(model_io).map_err(|e| thrown(&e))
}
