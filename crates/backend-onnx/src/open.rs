//! From a version directory to a session, and from a session and a final configuration to a model.

use crate::ffi::{GraphTensor, Runtime, Session, Side};
use crate::governor::{Governor, Weight};
use crate::model::OnnxModel;
use crate::{check, options};
use backend::{Model, ModelIo, OpenSpec, Opened, TensorIo};
use prost::Message;
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use tensor::{Error, Result};

/// A session and what its graph says.
pub(crate) struct OpenedOnnx {
    session: Session,
    graph: Graph,
    run_entries: Vec<(String, String)>,
    /// `None`: its runs do not compete for the shared pool.
    governor: Option<&'static Governor>,
}

/// The tensors of a graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) inputs: Vec<GraphTensor>,
    pub(crate) outputs: Vec<GraphTensor>,
    pub(crate) initializers: Vec<GraphTensor>,
}

pub(crate) fn open(library: Option<&Path>, spec: &OpenSpec) -> Result<OpenedOnnx> {
    let config = decode(&spec.config)?;
    let options = options::read(&config, &spec.model_directory, &spec.settings)?;
    let library = match library {
        Some(path) if path.is_file() => path,
        Some(path) => return Err(no_library(&format!("there is no file '{}'", path.display()))),
        None => return Err(no_library("the package 'onnxruntime-node' was not found")),
    };
    let file = model_file(&spec.version_directory, &config.default_model_filename)?;
    let runtime = Runtime::get(library, options::pool_threads(&spec.settings)?)?;
    let session = Session::load(runtime, &file, &options.session)?;
    let graph = Graph {
        inputs: session.tensors(Side::Input)?,
        outputs: session.tensors(Side::Output)?,
        initializers: session.tensors(Side::Initializer)?,
    };
    let shares = options.session.threads.is_none();
    let governor = shares.then(|| Governor::of(runtime)).flatten();
    Ok(OpenedOnnx { session, graph, run_entries: options.run, governor })
}

fn no_library(why: &str) -> Error {
    Error::unavailable(format!("ONNX Runtime is not available: {why}; install it with `npm install onnxruntime-node`"))
}

fn decode(config: &bytes::Bytes) -> Result<ModelConfig> {
    ModelConfig::decode(config.clone())
        .map_err(|e| Error::internal(format!("failed to read the model configuration: {e}")))
}

/// The model's file: `model.onnx` or the configured name, or the file of that kind in a directory of that name.
fn model_file(directory: &Path, configured: &str) -> Result<PathBuf> {
    let name = Path::new(if configured.is_empty() { "model.onnx" } else { configured });
    // A configuration may come over the network; it must not name files outside its version (R2).
    if name.components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir)) {
        return Err(Error::invalid(format!("model file name '{configured}' must stay inside the version directory")));
    }
    let path = directory.join(name);
    if path.is_dir() { stat(path.join("model.onnx")) } else { stat(path) }
}

fn stat(path: PathBuf) -> Result<PathBuf> {
    if path.is_file() { Ok(path) } else { Err(Error::internal(format!("failed to stat file {}", path.display()))) }
}

impl Opened for OpenedOnnx {
    fn io(&self) -> Option<ModelIo> {
        let io = |t: &GraphTensor, optional| TensorIo {
            name: t.name.clone(),
            datatype: t.datatype,
            shape: t.shape.clone(),
            optional,
        };
        let inputs = self.graph.inputs.iter().map(|t| io(t, false));
        Some(ModelIo {
            inputs: inputs.chain(self.graph.initializers.iter().map(|t| io(t, true))).collect(),
            outputs: self.graph.outputs.iter().map(|t| io(t, false)).collect(),
        })
    }

    fn finish(self: Box<Self>, config: &bytes::Bytes, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
        let config = decode(config)?;
        check::check(&config, &signature, &self.graph)?;
        let weight = Weight::new(self.governor);
        Ok(Arc::new(OnnxModel::new(self.session, &config, signature, &self.graph, self.run_entries, weight)?))
    }
}
