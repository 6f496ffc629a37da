//! Where the file of a model is.

use std::path::{Component, Path, PathBuf};
use tensor::{Error, Result};

/// Path of the model: `model.onnx` or the configured name, or `model.onnx` in a directory of that name.
pub(crate) fn model_file(directory: &Path, configured: &str) -> Result<PathBuf> {
    let name = Path::new(if configured.is_empty() { "model.onnx" } else { configured });
    // Configurations may come from the network and must not name files outside the version (memory.md 5.2, R2).
    if name.components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir)) {
        return Err(Error::invalid(format!("model file name '{configured}' must stay inside the version directory")));
    }
    let path = directory.join(name);
    if path.is_dir() { stat(path.join("model.onnx")) } else { stat(path) }
}

fn stat(path: PathBuf) -> Result<PathBuf> {
    if path.is_file() { Ok(path) } else { Err(Error::internal(format!("failed to stat file {}", path.display()))) }
}
