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

/// Labels or prompts that a line shows.
const NAMES_SHOWN: usize = 20;

/// The folder of a text model, as a load reads it.
#[napi(object, object_from_js = false)]
pub struct TextFolder {
    /// `embed`, `rerank` or `classify`.
    pub role: String,
    /// The file of the graph.
    pub file: String,
    /// Values with their sources.
    pub guesses: Vec<TextGuess>,
}

/// A value that was read or assumed.
#[napi(object, object_from_js = false)]
pub struct TextGuess {
    pub name: String,
    /// Whether a parameter of that name overrides it.
    pub is_parameter: bool,
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
    let guesses = folder.guesses.into_iter().map(|guess| TextGuess {
        name: guess.name.to_owned(),
        is_parameter: true,
        value: guess.value,
        from: guess.from,
    });
    let names = |name: &str, names: Vec<String>, from: &str| {
        let value = match names.get(NAMES_SHOWN..) {
            Some(more @ [_, ..]) => format!("{} and {} more", names[..NAMES_SHOWN].join(", "), more.len()),
            _ => names.join(", "),
        };
        let has_any = !names.is_empty();
        has_any.then(|| TextGuess { name: name.to_owned(), is_parameter: false, value, from: from.to_owned() })
    };
    let labels = names("labels", folder.labels, "config.json: id2label");
    let prompts = folder.prompts.into_keys().collect();
    let prompts = names("prompts", prompts, "config_sentence_transformers.json: prompts");
    Ok(TextFolder {
        role: folder.role.name().to_owned(),
        file: folder.file.to_string_lossy().into_owned(),
        guesses: guesses.chain(labels).chain(prompts).collect(),
    })
}
