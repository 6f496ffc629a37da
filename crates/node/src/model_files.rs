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

/// The folder of a text model, as a load reads it.
#[napi(object, object_from_js = false)]
pub struct TextFolder {
    /// `embed`, `rerank` or `classify`.
    pub role: String,
    /// The file of the graph.
    pub file: String,
    /// Values that a configuration can override, each with its source.
    pub guesses: Vec<TextGuess>,
}

/// A value that was read or assumed.
#[napi(object, object_from_js = false)]
pub struct TextGuess {
    /// The parameter of the configuration that overrides it.
    pub name: String,
    pub value: String,
    /// The file and the key that it is from, or why there is none.
    pub from: String,
}

/// Reads the folder of a model of the backend `text` and its tokenizer, without the graph and the weights, as a load
/// does; throws its error. `config` is a binary ModelConfig.
#[napi]
pub fn read_text_folder(config: Buffer, version_directory: String) -> Result<TextFolder> {
    let config = Bytes::copy_from_slice(&config);
    let folder = backend_onnx::read_text_folder(&config, Path::new(&version_directory)).map_err(|e| thrown(&e))?;
    Ok(TextFolder {
        role: folder.role.name().to_owned(),
        file: folder.file.to_string_lossy().into_owned(),
        guesses: folder
            .guesses
            .into_iter()
            .map(|guess| TextGuess { name: guess.name.to_owned(), value: guess.value, from: guess.from })
            .collect(),
    })
}
