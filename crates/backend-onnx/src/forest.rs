//! Tree ensembles (backend `fil`): reads the configuration, and runs batches on the CPU. The crate `trees` reads the
//! files and evaluates the trees.

use crate::execute::execute;
use crate::ffi::GraphTensor;
use crate::file::model_file;
use crate::graph::Graph;
use crate::model::cancelled;
use crate::open::places_of;
use crate::outputs::{Produced, distribute};
use crate::{check, options};
use backend::gather::{batch_slab, frozen, gather, stage};
use backend::{
    Backend, Batch, BatchEntry, Capabilities, Marks, Model, ModelIo, OpenSpec, Opened, RunControl, helpers, now_ns,
};
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use tensor::{Code, DataType, Error, Result, Shape};
use trees::limits::FILE_BYTES_MAX;
use trees::{Ensemble, Evaluator, INPUT, OUTPUT, OutputKind, Parameters, ROWS_PER_BLOCK, RawFloat, SHAP_OUTPUT};

/// If the most comparisons of a row are up to this many times the fewest, the cost is learned from shapes: a run that
/// was learned as 25 µs then holds a reactor for less than 1 ms.
const COMPARISONS_RATIO_MAX: u64 = 16;

/// Minimum comparisons of a run for each of its threads: a millisecond, while a thread starts in some 50 microseconds.
const THREAD_COMPARISONS_MIN: u64 = 1 << 20;

/// Backend `fil`.
pub struct ForestBackend;

impl Backend for ForestBackend {
    fn name(&self) -> &'static str {
        "fil"
    }

    fn open(&self, spec: &OpenSpec) -> Result<Box<dyn Opened>> {
        let config = ModelConfig::parse(&spec.config)?;
        if places_of(&config).iter().any(Option::is_some) {
            return Err(Error::invalid(
                "trees are evaluated on the CPU: set the kind of the instance group to KIND_CPU",
            ));
        }
        // The options of ONNX Runtime are read too: a configuration is valid for both, or for none.
        let threads_of_session = options::read(&config, &spec.model_directory, &spec.settings)?.session.threads;
        let parameters = parameters(&config)?;
        if !parameters.ignored.is_empty() {
            let (model, names) = (&config.name, parameters.ignored.join(", "));
            log::debug!("model '{model}': the parameters {names} have no effect: trees have a single layout");
        }
        let ensemble = ensemble(&config, &parameters, &spec.version_directory)?;
        let evaluator = Evaluator::new(&ensemble, output_kind(&config, &parameters, &ensemble));
        let threads = threads_of_session.map(|(within, _)| within).or(threads(&config, &parameters)?);
        let threads = threads.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        Ok(Box::new(OpenedForest { evaluator, threads: threads.unwrap_or(usize::MAX) }))
    }
}

struct OpenedForest {
    evaluator: Evaluator,
    /// Maximum threads of a run.
    threads: usize,
}

impl OpenedForest {
    fn graph(&self) -> Graph {
        graph(self.evaluator.features(), self.evaluator.columns())
    }
}

impl Opened for OpenedForest {
    fn io(&self) -> Option<ModelIo> {
        Some(self.graph().io())
    }

    fn finish(self: Box<Self>, config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
        check::check(config, &signature, &self.graph())?;
        let Self { evaluator, threads } = *self;
        Ok(Arc::new(ForestModel { signature, evaluator, threads }))
    }
}

struct ForestModel {
    signature: Arc<Signature>,
    evaluator: Evaluator,
    threads: usize,
}

impl ForestModel {
    fn run(&self, entries: &mut [BatchEntry], control: &RunControl, marks: &mut Marks) -> Result<()> {
        stage(entries, &self.signature, |_| false);
        let Some(input) = gather(entries, 0)? else { return Ok(()) };
        let bytes = input.host().ok_or_else(|| Error::internal("the rows of trees are not in memory of the host"))?;
        let rows = bytes.as_chunks().0;
        let count = rows.len() / self.evaluator.features();
        let columns = self.evaluator.columns();
        let (mut slab, charge) = batch_slab(count * columns * size_of::<RawFloat>())?;
        marks.inputs_ready = now_ns();
        self.evaluate(rows, slab.as_chunks_mut().0, control);
        marks.inference_end = now_ns();
        if control.is_stopped() {
            return Err(cancelled());
        }
        // As in Triton, an output with dims [1] has the shape [rows]; a reshape expects the second dimension.
        let is_flat = columns == 1 && self.signature.outputs.first().is_some_and(|output| output.reshape.is_none());
        let shape = [count as i64, columns as i64].into_iter().take(if is_flat { 1 } else { 2 }).collect();
        let produced = Produced::Bytes { shape, bytes: frozen(slab, charge) };
        distribute(&[], &self.signature, entries, &[0], &mut [produced]);
        Ok(())
    }

    /// Writes the output of each row, with several threads if there is enough to do.
    fn evaluate(&self, rows: &[RawFloat], to: &mut [RawFloat], control: &RunControl) {
        let (features, columns) = (self.evaluator.features(), self.evaluator.columns());
        let comparisons = self.evaluator.comparisons().end().saturating_mul((rows.len() / features) as u64);
        let blocks = rows.chunks(ROWS_PER_BLOCK * features).zip(to.chunks_mut(ROWS_PER_BLOCK * columns));
        let threads = (comparisons / THREAD_COMPARISONS_MIN).min(self.threads.min(blocks.len()) as u64);
        helpers::each("nereid-trees", threads as usize, blocks, control, |(rows, to)| {
            self.evaluator.evaluate(rows, to)
        });
    }
}

impl Model for ForestModel {
    fn capabilities(&self) -> Capabilities {
        let (fewest, most) = self.evaluator.comparisons().clone().into_inner();
        Capabilities {
            instances_are_permits: true,
            cost_may_depend_on_data: most / COMPARISONS_RATIO_MAX > fewest,
            ..Capabilities::default()
        }
    }

    fn execute(&self, _instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Marks {
        execute(self.signature.max_batch_size > 0, batch, |entries, marks| self.run(entries, control, marks))
    }
}

/// Checks the parameters of a model, and its trees if the directory of a version is given, as a load does. Returns the
/// inputs and outputs of the trees, and evaluates nothing.
///
/// # Errors
/// INVALID_ARG for a damaged file or parameters that do not fit, UNSUPPORTED for a model that cannot be evaluated.
pub fn check(config: &bytes::Bytes, version_directory: Option<&Path>) -> Result<Option<ModelIo>> {
    let config = ModelConfig::parse(config)?;
    let parameters = parameters(&config)?;
    let Some(directory) = version_directory else { return Ok(None) };
    let ensemble = ensemble(&config, &parameters, directory)?;
    let columns = output_kind(&config, &parameters, &ensemble).columns(&ensemble);
    Ok(Some(graph(ensemble.features as usize, columns as usize).io()))
}

fn graph(features: usize, columns: usize) -> Graph {
    let tensor = |name: &str, columns: usize| GraphTensor {
        name: name.to_owned(),
        datatype: Some(DataType::Fp32),
        shape: Shape::from_slice(&[-1, columns as i64]),
    };
    Graph { inputs: vec![tensor(INPUT, features)], outputs: vec![tensor(OUTPUT, columns)], initializers: Vec::new() }
}

/// A binary classifier returns one probability or two, depending on the output's dims.
fn output_kind(config: &ModelConfig, parameters: &Parameters, ensemble: &Ensemble) -> OutputKind {
    let output = config.output.iter().find(|output| output.name == OUTPUT);
    let columns = output.and_then(|output| match output.dims[..] {
        [columns] => Some(columns),
        _ => None,
    });
    parameters.output_kind(ensemble, columns)
}

fn parameters(config: &ModelConfig) -> Result<Parameters> {
    let parameters = Parameters::read(|name| config.parameters.get(name).map(|p| p.string_value.as_str()))?;
    threads(config, &parameters)?;
    if config.output.iter().any(|output| output.name == SHAP_OUTPUT) {
        return Err(Error::new(
            Code::Unsupported,
            format!(
                "the output '{SHAP_OUTPUT}' is not supported: remove it from the configuration, and compute \
                 contributions with the framework (pred_contribs of XGBoost, pred_contrib of LightGBM)"
            ),
        ));
    }
    Ok(parameters)
}

fn threads(config: &ModelConfig, parameters: &Parameters) -> Result<Option<i32>> {
    let count = parameters.threads.map(i64::from);
    count.map(|_| options::threads("cpu_nthread", count, &format!("model '{}'", config.name))).transpose()
}

/// The trees of a version's file.
fn ensemble(config: &ModelConfig, parameters: &Parameters, version_directory: &Path) -> Result<Ensemble> {
    let name = Some(config.default_model_filename.as_str()).filter(|name| !name.is_empty());
    let file = model_file(version_directory, name.unwrap_or_else(|| parameters.format.file_name()))?;
    trees::read(parameters.format, &contents(&file)?)
}

fn contents(path: &Path) -> Result<Vec<u8>> {
    let cannot = |e: std::io::Error| Error::environment(format!("cannot read '{}': {e}", path.display()));
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    // One byte beyond the limit, so that `trees::read` reports it.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    Ok(bytes)
}
