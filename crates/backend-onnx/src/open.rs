//! Opens a version directory as sessions, and makes a model of the sessions and the final configuration.

use crate::ffi::{GraphLevel, Runtime, Session, SessionOptions, Side, devices};
use crate::file::model_file;
use crate::graph::Graph;
use crate::model::OnnxModel;
use crate::placed::PlacedModel;
use crate::provider::{Appended, Plugin, ProviderKind, Report};
use crate::{accelerators, cache, check, cost, failed, options, plan, proto};
use backend::{MemoryLocation, Model, ModelIo, Need, OpenSpec, Opened, file_bytes, placements};
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tensor::{DataType, Error, Result};

/// Limits below which a model may count as small: bytes of its files, and elements of an input's row.
const SMALL_MODEL_BYTES: u64 = 1 << 20;
const SMALL_ROW_ELEMENTS: i64 = 4096;

/// Thread counts of a session that runs only on the calling thread.
const CALLER_ONLY: (i32, i32) = (1, 1);

pub(crate) struct OpenedOnnx {
    /// Sessions that were loaded to read the graph; `finish` loads the rest.
    sessions: Vec<Session>,
    devices: Devices,
    pub(crate) graph: Graph,
    pub(crate) run_entries: Vec<(String, String)>,
    /// The run time may depend on more than shapes.
    cost_may_depend_on_data: bool,
}

pub(crate) fn open(library: Option<&Path>, spec: &OpenSpec) -> Result<OpenedOnnx> {
    let config = ModelConfig::parse(&spec.config)?;
    let file = model_file(&spec.version_directory, &config.default_model_filename);
    let mut opened = open_file(library, spec, &config, file)?;
    opened.cost_may_depend_on_data = cost_may_depend_on_data(&spec.model, &opened.devices.file, &opened.graph);
    Ok(opened)
}

/// Opens a file whose graph is what is served, or a part of it.
pub(crate) fn open_file(
    library: Option<&Path>,
    spec: &OpenSpec,
    config: &ModelConfig,
    file: Result<PathBuf>,
) -> Result<OpenedOnnx> {
    let options = options::read(config, &spec.model_directory, &spec.settings)?;
    let (library, providers) = usable_library(library, spec)?;
    let file = file?;
    let runtime = Runtime::get(&library, options::pool_threads(&spec.settings)?)?;
    let run_entries = options.run;
    let places = places_of(config);
    let (mut sessions, mut known) = (Vec::new(), None);
    if places.contains(&None) {
        let (session, graph) = load_on_host(runtime, &file, &options.session)?;
        known = Some(graph);
        sessions.push(session);
    }
    let devices = Devices {
        ordinals: places.into_iter().flatten().collect(),
        runtime,
        bytes: file.parent().map_or(0, file_bytes),
        file,
        options: options.session,
        model_directory: spec.model_directory.clone(),
        caches: Caches::of(spec, providers.as_ref()),
        plugin: options::setting(&spec.settings, "provider-library").map(PathBuf::from),
        plan: None,
    };
    devices.prepare(config, providers.as_ref())?;
    let graph = match known {
        Some(graph) => graph,
        // Loading on a device needs its memory to be granted first, for which the configuration must be complete.
        None => match look(runtime, &devices.file, &devices.options) {
            Ok(graph) => graph,
            Err(_) => {
                sessions.push(devices.load(config, devices.ordinals.first().copied().unwrap_or(0))?);
                sessions.first().map(graph_of).transpose()?.unwrap_or_default()
            }
        },
    };
    Ok(OpenedOnnx { sessions, devices, graph, run_entries, cost_may_depend_on_data: true })
}

/// Opens a TensorRT plan, wrapped in an ONNX model, on devices only.
pub(crate) fn open_plan(library: Option<&Path>, spec: &OpenSpec) -> Result<OpenedOnnx> {
    let config = ModelConfig::parse(&spec.config)?;
    let graph = plan::graph(&config)?;
    let places = places_of(&config);
    if places.contains(&None) {
        let ways = plan::OTHER_WAYS;
        return Err(Error::unavailable(format!(
            "a TensorRT plan runs on GPUs only, and an instance is on the CPU. {ways}"
        )));
    }
    let options = options::read(&config, &spec.model_directory, &spec.settings)?;
    let name = Some(config.default_model_filename.as_str()).filter(|n| !n.is_empty()).unwrap_or("model.plan");
    let file = model_file(&spec.version_directory, name)?;
    let (library, providers) = usable_library(library, spec)?;
    let runtime = Runtime::get(&library, options::pool_threads(&spec.settings)?)?;
    let wrapped = devices::Wrapped::new((plan::WRAPPER, &plan::wrapper(&graph)), (plan::PLAN_LINK, &file))?;
    let devices = Devices {
        ordinals: places.into_iter().flatten().collect(),
        runtime,
        bytes: std::fs::metadata(&file).map_or(0, |m| m.len()),
        file: wrapped.path(plan::WRAPPER),
        options: options.session,
        model_directory: spec.model_directory.clone(),
        caches: Caches::of(spec, providers.as_ref()),
        plugin: options::setting(&spec.settings, "provider-library").map(PathBuf::from),
        plan: Some(wrapped),
    };
    devices.prepare(&config, providers.as_ref())?;
    let run_entries = options.run;
    Ok(OpenedOnnx { sessions: Vec::new(), devices, graph, run_entries, cost_may_depend_on_data: true })
}

/// The library to open, and the providers that were found for it.
fn usable_library(library: Option<&Path>, spec: &OpenSpec) -> Result<(PathBuf, Option<Report>)> {
    match devices::choose(library, &spec.settings)? {
        (Some(path), providers) if path.is_file() => Ok((path, providers)),
        (Some(path), _) => Err(no_library(&format!("there is no file '{}'", path.display()))),
        (None, _) => Err(no_library("neither the package of this platform nor 'onnxruntime-node' is installed")),
    }
}

/// Distinct locations of the instances; `None` is the host.
pub(crate) fn places_of(config: &ModelConfig) -> Vec<Option<u32>> {
    let mut places = Vec::new();
    for placed in placements(config) {
        if !places.contains(&placed.device) {
            places.push(placed.device);
        }
    }
    if places.is_empty() {
        places.push(None);
    }
    places
}

fn graph_of(session: &Session) -> Result<Graph> {
    Ok(Graph {
        inputs: session.tensors(Side::Input)?,
        outputs: session.tensors(Side::Output)?,
        initializers: session.tensors(Side::Initializer)?,
    })
}

/// Reads the graph with an unoptimised session. Fails for operators that only a device provides.
pub(crate) fn look(runtime: &'static Runtime, file: &Path, options: &SessionOptions) -> Result<Graph> {
    let options =
        SessionOptions { graph_level: GraphLevel::Off, arena: Some(false), has_helpers: false, ..options.clone() };
    graph_of(&Session::load(runtime, file, &options, None)?)
}

fn load_on_host(runtime: &'static Runtime, file: &Path, options: &SessionOptions) -> Result<(Session, Graph)> {
    let mut options = options.clone();
    // Waking a worker for half of a matrix makes a run of some microseconds slower and triples its CPU time.
    let may_be_small = options.threads.is_none() && has_small_files(file);
    options.threads = options.threads.or(may_be_small.then_some(CALLER_ONLY));
    let mut session = Session::load(runtime, file, &options, None)?;
    let graph = graph_of(&session)?;
    if may_be_small && !has_small_rows(&graph) {
        options.threads = None;
        session = Session::load(runtime, file, &options, None)?;
    }
    Ok((session, graph))
}

/// Everything needed to load the version on the devices of its instances.
struct Devices {
    ordinals: Vec<u32>,
    runtime: &'static Runtime,
    file: PathBuf,
    /// Bytes of the file and the files beside it, which approximate the memory of the weights.
    bytes: u64,
    options: SessionOptions,
    model_directory: PathBuf,
    caches: Caches,
    /// Replaces the CUDA provider (`--backend-config=onnxruntime,provider-library=…`).
    plugin: Option<PathBuf>,
    /// The directory with a plan and its generated model.
    plan: Option<devices::Wrapped>,
}

struct Caches {
    root: PathBuf,
    model: String,
    version: i64,
    release: String,
}

impl Caches {
    fn of(spec: &OpenSpec, found: Option<&Report>) -> Self {
        Self {
            root: cache::root(&spec.settings, |name| std::env::var_os(name)),
            model: spec.model.to_string(),
            version: spec.version,
            release: found.and_then(|f| f.release.clone()).unwrap_or_default(),
        }
    }
}

impl Devices {
    /// Opens the libraries of the configured providers.
    fn prepare(&self, config: &ModelConfig, found: Option<&Report>) -> Result<()> {
        for &device in &self.ordinals {
            let Some(found) = found else {
                let why = device::driver().err().map(|why| format!("no GPU: {why}"));
                return Err(devices::unusable(ProviderKind::Cuda, &why.unwrap_or_default()));
            };
            for provider in self.providers(config, device)? {
                devices::open_libraries(found.of(provider.kind)).map_err(|e| self.with_other_ways(e))?;
            }
        }
        Ok(())
    }

    fn load(&self, config: &ModelConfig, device: u32) -> Result<Session> {
        device::stand_apart();
        let mut providers = self.providers(config, device)?;
        for tensorrt in providers.iter_mut().filter(|p| p.kind == ProviderKind::Tensorrt) {
            self.give_cache(tensorrt, device)?;
        }
        let options = SessionOptions { providers, has_helpers: false, ..self.options.clone() };
        let loaded = Session::load(self.runtime, &self.file, &options, Some(device));
        loaded.map_err(|e| failed::noticed(device, e)).map_err(|e| {
            let why = format!("unable to load the model on GPU {device}: {}", e.message());
            self.with_other_ways(Error::environment(why))
        })
    }

    /// Always includes TensorRT for a plan.
    fn providers(&self, config: &ModelConfig, device: u32) -> Result<Vec<Appended>> {
        let mut providers = accelerators::providers(config, &self.model_directory, device)?;
        if self.plan.is_some() && providers.iter().all(|p| p.kind != ProviderKind::Tensorrt) {
            let options = vec![("device_id".to_owned(), device.to_string())];
            providers.insert(0, Appended::new(ProviderKind::Tensorrt, options));
        }
        if let Some(library) = &self.plugin {
            for cuda in providers.iter_mut().filter(|p| p.kind == ProviderKind::Cuda) {
                cuda.options.retain(|(key, _)| key != "device_id");
                cuda.plugin = Some(Plugin { library: library.clone(), device });
            }
        }
        Ok(providers)
    }

    /// Sets the cache paths of options that write files.
    fn give_cache(&self, tensorrt: &mut Appended, device: u32) -> Result<()> {
        let writes =
            ["trt_engine_cache_enable", "trt_timing_cache_enable", "trt_dump_ep_context_model", "trt_dump_subgraphs"];
        if !tensorrt.options.iter().any(|(k, v)| writes.contains(&k.as_str()) && v == "1") {
            return Ok(());
        }
        let known = device::devices().ok().and_then(|all| all.iter().find(|d| d.ordinal == device));
        let of = cache::Of {
            model: &self.caches.model,
            version: self.caches.version,
            file: &self.file,
            device: known.map(|d| format!("{} {:?}", d.name, d.compute_capability)).unwrap_or_default(),
            release: &self.caches.release,
        };
        cache::prune(&self.caches.root);
        let directory = cache::directory(&self.caches.root, &of, &self.model_directory)?;
        let path = directory.to_string_lossy().into_owned();
        for key in ["trt_engine_cache_path", "trt_timing_cache_path", "trt_ep_context_file_path"] {
            tensorrt.options.push((key.to_owned(), path.clone()));
        }
        Ok(())
    }

    fn with_other_ways(&self, error: Error) -> Error {
        match self.plan {
            Some(_) => error.with_text(format!("{}. {}", error.message(), plan::OTHER_WAYS)),
            None => error,
        }
    }
}

fn cost_may_depend_on_data(model: &str, file: &Path, graph: &Graph) -> bool {
    let has_strings = graph.inputs.iter().chain(&graph.initializers).any(|t| t.datatype == Some(DataType::Bytes));
    let read = std::fs::File::open(file).map_err(|_| "the file cannot be read").and_then(proto::GraphFacts::read);
    let follows = read.map_err(str::to_owned).and_then(|file| cost::follows_from_shapes(&file, has_strings));
    if let Err(why) = &follows {
        log::debug!("model '{model}' runs on worker threads only: what it costs may depend on data, as {why}");
    }
    follows.is_err()
}

/// Whether the model and all files beside it, such as external weights, are small together.
fn has_small_files(file: &Path) -> bool {
    let Some(entries) = file.parent().and_then(|d| std::fs::read_dir(d).ok()) else { return false };
    let mut bytes = 0;
    for entry in entries {
        // Unreadable entries and directories may be of any size.
        match entry.and_then(|e| std::fs::metadata(e.path())) {
            Ok(m) if m.is_file() => bytes += m.len(),
            _ => return false,
        }
    }
    bytes <= SMALL_MODEL_BYTES
}

/// Whether every input has rows of known, small size. A few weights over a large image or a long text can take long.
fn has_small_rows(graph: &Graph) -> bool {
    graph.inputs.iter().all(|input| {
        let row = input.shape.get(1..).unwrap_or_default();
        row.iter()
            .try_fold(1i64, |n, &d| if d >= 0 { n.checked_mul(d) } else { None })
            .is_some_and(|n| n <= SMALL_ROW_ELEMENTS)
    })
}

fn no_library(why: &str) -> Error {
    Error::environment(format!("ONNX Runtime is not available: {why}; install it with `npm install onnxruntime-node`"))
}

impl Opened for OpenedOnnx {
    fn io(&self) -> Option<ModelIo> {
        // For a plan, only the configuration declares tensors.
        if self.devices.plan.is_some() {
            return None;
        }
        Some(self.graph.io())
    }

    fn needs(&self) -> Result<Vec<Need>> {
        let need = |&ordinal: &u32| Need { place: MemoryLocation::Device(ordinal), bytes: self.devices.bytes };
        Ok(self.devices.ordinals.iter().map(need).collect())
    }

    fn finish(mut self: Box<Self>, config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
        check::check(config, &signature, &self.graph)?;
        let (sessions, of_instance) = self.sessions(config)?;
        let depends = self.cost_may_depend_on_data;
        let mut models = Vec::with_capacity(sessions.len());
        for session in sessions {
            let signature = signature.clone();
            let captures = match session.device() {
                Some(device) => accelerators::captures(&self.devices.providers(config, device)?),
                None => None,
            };
            let model = OnnxModel::new(session, config, signature, &self.graph, &self.run_entries, depends)?;
            models.push(match captures {
                // TensorRT's provider has a single CUDA graph and ignores the graph id of a run.
                Some(kind) => model.by_graphs(config, kind == ProviderKind::Tensorrt)?,
                None => model,
            });
        }
        Ok(PlacedModel::or_plain(models, of_instance))
    }
}

impl OpenedOnnx {
    /// A session for each place of an instance, and the index of each instance's session.
    pub(crate) fn sessions(&mut self, config: &ModelConfig) -> Result<(Vec<Session>, Vec<usize>)> {
        let mut sessions = std::mem::take(&mut self.sessions);
        for &device in &self.devices.ordinals {
            if sessions.iter().all(|s| s.device() != Some(device)) {
                sessions.push(self.devices.load(config, device)?);
            }
        }
        // Completing a configuration does not change the instance groups that the sessions were loaded for.
        let of = |device: Option<u32>| sessions.iter().position(|s| s.device() == device);
        let of_instance = placements(config).map(|p| of(p.device)).collect::<Option<Vec<_>>>();
        let of_instance = of_instance.ok_or_else(|| Error::internal("an instance is where there is no session"))?;
        Ok((sessions, of_instance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::GraphTensor;

    #[test]
    fn a_row_is_small_only_if_its_size_is_known() {
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
    fn files_beside_the_model_count_as_its_size() {
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
