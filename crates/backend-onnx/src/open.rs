//! From a version directory to a session, and from a session and a final configuration to a model.

use crate::ffi::{GraphTensor, Runtime, Session, Side};
use crate::governor::{Governor, Weight};
use crate::model::OnnxModel;
use crate::{check, cost, options, proto};
use backend::{Model, ModelIo, OpenSpec, Opened, TensorIo};
use prost::Message;
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use tensor::{DataType, Error, Result};

/// Bytes of files, and elements of an input's row, up to which a model may count as small.
const SMALL_MODEL_BYTES: u64 = 1 << 20;
const SMALL_ROW_ELEMENTS: i64 = 4096;

/// Threads of a session that runs on the thread that calls it, and has none of its own.
const CALLER_ONLY: (i32, i32) = (1, 1);

/// A session and what its graph says.
pub(crate) struct OpenedOnnx {
    session: Session,
    graph: Graph,
    run_entries: Vec<(String, String)>,
    /// What a run costs may depend on more than shapes.
    cost_may_depend_on_data: bool,
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
    let mut options = options::read(&config, &spec.model_directory, &spec.settings)?;
    let library = match library {
        Some(path) if path.is_file() => path,
        Some(path) => return Err(no_library(&format!("there is no file '{}'", path.display()))),
        None => return Err(no_library("neither the package of this platform nor 'onnxruntime-node' is installed")),
    };
    let file = model_file(&spec.version_directory, &config.default_model_filename)?;
    let runtime = Runtime::get(library, options::pool_threads(&spec.settings)?)?;
    // A run of some microseconds takes longer, and three times the CPU, when it wakes a worker for half of a matrix.
    let may_be_small = options.session.threads.is_none() && has_small_files(&file);
    options.session.threads = options.session.threads.or(may_be_small.then_some(CALLER_ONLY));
    let mut session = Session::load(runtime, &file, &options.session)?;
    let graph = Graph {
        inputs: session.tensors(Side::Input)?,
        outputs: session.tensors(Side::Output)?,
        initializers: session.tensors(Side::Initializer)?,
    };
    if may_be_small && !has_small_rows(&graph) {
        options.session.threads = None;
        session = Session::load(runtime, &file, &options.session)?;
    }
    let cost_may_depend_on_data = cost_may_depend_on_data(&spec.model, &file, &graph);
    let shares = options.session.threads.is_none() && options::parks_workers(&spec.settings)?;
    let governor = shares.then(|| Governor::of(runtime)).flatten();
    Ok(OpenedOnnx { session, graph, run_entries: options.run, cost_may_depend_on_data, governor })
}

fn cost_may_depend_on_data(model: &str, file: &Path, graph: &Graph) -> bool {
    let has_strings = graph.inputs.iter().chain(&graph.initializers).any(|t| t.datatype == Some(DataType::Bytes));
    let read = std::fs::File::open(file).map_err(|_| "the file cannot be read").and_then(proto::Model::read);
    let follows = read.map_err(str::to_owned).and_then(|file| cost::follows_from_shapes(&file, has_strings));
    if let Err(why) = &follows {
        log::debug!("model '{model}' runs on worker threads only: what it costs may depend on data, as {why}");
    }
    follows.is_err()
}

/// Whether the model and whatever lies beside it, such as weights in files of their own, are small together.
fn has_small_files(file: &Path) -> bool {
    let Some(entries) = file.parent().and_then(|d| std::fs::read_dir(d).ok()) else { return false };
    let mut bytes = 0;
    for entry in entries {
        // What cannot be looked at, or into, may be anything.
        match entry.and_then(|e| std::fs::metadata(e.path())) {
            Ok(m) if m.is_file() => bytes += m.len(),
            _ => return false,
        }
    }
    bytes <= SMALL_MODEL_BYTES
}

/// Whether a row of every input is small and of a known size. Few weights over a large image, or a long text, are much to compute.
fn has_small_rows(graph: &Graph) -> bool {
    graph.inputs.iter().all(|input| {
        let row = input.shape.get(1..).unwrap_or_default();
        row.iter()
            .try_fold(1i64, |n, &d| if d >= 0 { n.checked_mul(d) } else { None })
            .is_some_and(|n| n <= SMALL_ROW_ELEMENTS)
    })
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
    // A configuration may come over the network; it must not name files outside its version (memory.md 5.2, R2).
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
        let depends = self.cost_may_depend_on_data;
        Ok(Arc::new(OnnxModel::new(self.session, &config, signature, &self.graph, self.run_entries, weight, depends)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_rows_are_known_and_short() {
        let check = |shapes: &[&[i64]], expected: bool| {
            let inputs = shapes
                .iter()
                .map(|s| GraphTensor { name: String::new(), datatype: None, shape: s.iter().copied().collect() })
                .collect();
            assert_eq!(has_small_rows(&Graph { inputs, ..Graph::default() }), expected, "{shapes:?}");
        };
        check(&[&[-1, 64]], true);
        check(&[&[-1, 16], &[-1, 16]], true);
        check(&[&[], &[-1], &[4096]], true);
        check(&[&[-1, 3, 32, 32]], true);
        check(&[&[-1, 3, 224, 224]], false);
        check(&[&[-1, 16], &[-1, -1]], false);
        check(&[&[-1, i64::MAX, 2]], false);
    }

    #[test]
    fn files_beside_the_model_count() {
        let directory = std::env::temp_dir().join(format!("nereid_small_{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (model, weights) = (directory.join("model.onnx"), directory.join("weights.bin"));
        std::fs::write(&model, [0; 1000]).unwrap();
        assert!(has_small_files(&model));
        std::fs::write(&weights, vec![0; SMALL_MODEL_BYTES as usize]).unwrap();
        assert!(!has_small_files(&model));
        std::fs::remove_file(&weights).unwrap();
        std::fs::create_dir(directory.join("external")).unwrap();
        assert!(!has_small_files(&model), "whatever is in there");
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(!has_small_files(&model));
    }
}
