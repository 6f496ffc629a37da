//! Tree ensembles (backend `fil`): converts a framework's file to an ONNX model in memory. The crate `trees` does the
//! conversion; this module reads the configuration.

use crate::file::model_file;
use crate::options;
use protocol::pb::inference::ModelConfig;
use std::io::Read;
use std::path::{Path, PathBuf};
use tensor::{Code, Error, Result};
use trees::limits::FILE_BYTES_MAX;
use trees::{Ensemble, Parameters, SHAP_OUTPUT, onnx};

/// Maximum comparisons per row for which the cost is learned from shapes. A comparison takes a few nanoseconds.
const ROW_COMPARISONS_MAX: u64 = 2048;

pub(crate) struct Forest {
    pub(crate) model: Vec<u8>,
    /// The converted file.
    pub(crate) file: PathBuf,
    /// Threads within and between operators.
    pub(crate) threads: Option<(i32, i32)>,
    /// Rows may need very different numbers of comparisons.
    pub(crate) cost_may_depend_on_data: bool,
}

/// Checks the parameters of a model, and its trees if the directory of a version is given, as a load does. Evaluates
/// nothing.
///
/// # Errors
/// Those of a load.
pub fn check(config: &bytes::Bytes, version_directory: Option<&Path>) -> Result<()> {
    let config = ModelConfig::parse(config)?;
    let parameters = parameters(&config)?;
    let Some(directory) = version_directory else { return Ok(()) };
    ensemble(&config, &parameters, directory).map(drop)
}

/// Reads a model of a version.
///
/// # Errors
/// The parameters or the file are invalid.
pub(crate) fn read(config: &ModelConfig, version_directory: &Path) -> Result<Forest> {
    let parameters = parameters(config)?;
    if !parameters.ignored.is_empty() {
        let (model, names) = (&config.name, parameters.ignored.join(", "));
        log::debug!("model '{model}': the parameters {names} change nothing: ONNX Runtime evaluates the trees");
    }
    let (file, ensemble) = ensemble(config, &parameters, version_directory)?;
    // A binary classifier returns one probability or two, depending on the output's dims.
    let output = config.output.iter().find(|output| output.name == onnx::OUTPUT);
    let columns = output.and_then(|output| match output.dims[..] {
        [columns] => Some(columns),
        _ => None,
    });
    let model = onnx::write(&ensemble, parameters.output_kind(&ensemble, columns));
    let comparisons: u64 = ensemble.trees.iter().map(|tree| u64::from(tree.depth)).sum();
    let cost_may_depend_on_data = comparisons > ROW_COMPARISONS_MAX;
    let threads = threads(config, &parameters)?;
    Ok(Forest { model, file, threads, cost_may_depend_on_data })
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

fn threads(config: &ModelConfig, parameters: &Parameters) -> Result<Option<(i32, i32)>> {
    let count = parameters.threads.map(i64::from);
    let threads = count.map(|_| options::threads("cpu_nthread", count, &format!("model '{}'", config.name)));
    Ok(threads.transpose()?.map(|n| (n, 1)))
}

/// Path and trees of a version's file.
fn ensemble(config: &ModelConfig, parameters: &Parameters, version_directory: &Path) -> Result<(PathBuf, Ensemble)> {
    let name = Some(config.default_model_filename.as_str()).filter(|name| !name.is_empty());
    let file = model_file(version_directory, name.unwrap_or_else(|| parameters.format.file_name()))?;
    let trees = trees::read(parameters.format, &contents(&file)?)?;
    Ok((file, trees))
}

fn contents(path: &Path) -> Result<Vec<u8>> {
    let cannot = |e: std::io::Error| Error::unavailable(format!("cannot read '{}': {e}", path.display()));
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    // One byte beyond the limit, so that `trees::read` reports it.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    Ok(bytes)
}
