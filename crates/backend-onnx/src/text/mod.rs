//! Models that take texts: the folder of a text model, its tokenizer, and its graph in ONNX Runtime.
//!
//! A request is divided into texts (`division`); each is tokenised, and runs in batches of prepared texts (`run`). The
//! engine has the queue between them. Sessions, devices and settings are those of the backend `onnxruntime`.

mod core;
mod division;
mod graph;
mod request;
mod run;

use self::core::TextCore;
use crate::execute::execute;
use crate::open::{OpenedOnnx, open_file};
use ::text::folder::{Folder, overrides};
use ::text::tokenizer::{Tokenizer, Truncation};
use backend::{
    Backend, Batch, Capabilities, Division, Marks, Model, ModelIo, Need, OpenSpec, Opened, RunControl, TensorIo,
    TextModel, scatter,
};
use bytes::Bytes;
use graph::EncoderGraph;
use protocol::pb::inference::ModelConfig;
use protocol::text::{Role, TextFacts, TextToken};
use protocol::{Checked, InferRequest, Signature};
use run::Encoder;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tensor::{DataType, Error, Result, Shape, ShapeDisplay};

/// Tokens of a batch, padding included, unless the parameter `max_batch_tokens` says otherwise.
const BATCH_TOKENS: u32 = 256;
/// Maximum of that parameter.
const BATCH_TOKENS_MAX: u32 = 1 << 20;

/// Backend `text`.
pub struct TextBackend {
    library: Option<PathBuf>,
}

impl TextBackend {
    /// Takes the path of ONNX Runtime's shared library, as [`OnnxBackend::new`](crate::OnnxBackend::new) does.
    pub fn new(library: Option<PathBuf>) -> Self {
        Self { library }
    }
}

impl Backend for TextBackend {
    fn name(&self) -> &'static str {
        "text"
    }

    fn open(&self, spec: &OpenSpec) -> Result<Box<dyn Opened>> {
        let config = ModelConfig::parse(&spec.config)?;
        let (folder, batch_tokens_max) = read(&config, &spec.version_directory)?;
        let tokenizer = Tokenizer::open(&spec.version_directory)?;
        let onnx = open_file(self.library.as_deref(), spec, &config, Ok(folder.file.clone()))?;
        let graph = EncoderGraph::find(&onnx.graph, folder.role)?;
        Ok(Box::new(OpenedText { folder, tokenizer, onnx, graph, batch_tokens_max }))
    }
}

/// The facts of a folder that a load takes from its files and from a configuration; the graph and the weights are not
/// read.
///
/// # Errors
/// NOT_FOUND without a file; INVALID_ARG for files that contradict or exceed a limit, and for invalid parameters.
pub fn read_text_folder(config: &Bytes, version_directory: &Path) -> Result<Folder> {
    let (folder, _) = read(&ModelConfig::parse(config)?, version_directory)?;
    Tokenizer::open(version_directory)?;
    Ok(folder)
}

/// The facts, and the tokens of a batch.
fn read(config: &ModelConfig, version_directory: &Path) -> Result<(Folder, u32)> {
    let parameters = config.parameters.iter().map(|(key, p)| (key.clone(), p.string_value.clone())).collect();
    let folder = Folder::read(version_directory, &parameters)?;
    Ok((folder, batch_tokens_max(parameters.get(overrides::MAX_BATCH_TOKENS))?))
}

fn batch_tokens_max(parameter: Option<&String>) -> Result<u32> {
    let Some(text) = parameter else { return Ok(BATCH_TOKENS) };
    let tokens = text.parse().ok().filter(|tokens| (1..=BATCH_TOKENS_MAX).contains(tokens));
    tokens.ok_or_else(|| {
        let name = overrides::MAX_BATCH_TOKENS;
        Error::invalid(format!("parameter '{name}' is '{text}': it is a number from 1 to {BATCH_TOKENS_MAX}"))
    })
}

/// Bytes of a model with its external data. Hubs have several models in one directory.
fn weight_bytes(file: &Path) -> u64 {
    let name = file.file_name().unwrap_or_default().as_encoded_bytes();
    let beside = file.parent().and_then(|directory| std::fs::read_dir(directory).ok()).into_iter().flatten().flatten();
    let own = beside.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(name));
    own.filter_map(|entry| std::fs::metadata(entry.path()).ok()).map(|meta| meta.len()).sum()
}

struct OpenedText {
    folder: Folder,
    tokenizer: Tokenizer,
    onnx: OpenedOnnx,
    graph: EncoderGraph,
    batch_tokens_max: u32,
}

impl Opened for OpenedText {
    fn io(&self) -> Option<ModelIo> {
        let io = |name: &str, datatype, shape: &[i64]| TensorIo {
            name: name.to_owned(),
            datatype: Some(datatype),
            shape: Shape::from_slice(shape),
            optional: false,
        };
        let (texts, output) = match self.folder.role {
            Role::Embed => (1, "embedding"),
            Role::Rerank => (2, "score"),
            Role::Classify => (1, "probabilities"),
        };
        let width = self.graph.width.map_or(-1, i64::from);
        Some(ModelIo {
            inputs: vec![io("text", DataType::Bytes, &[-1, texts])],
            outputs: vec![io(output, DataType::Fp32, &[-1, width])],
        })
    }

    fn needs(&self) -> Result<Vec<Need>> {
        let bytes = weight_bytes(&self.folder.file);
        Ok(self.onnx.needs()?.into_iter().map(|need| Need { bytes, ..need }).collect())
    }

    fn finish(mut self: Box<Self>, config: &ModelConfig, signature: Arc<Signature>) -> Result<Arc<dyn Model>> {
        let (has_pairs, width) = check(&signature, self.folder.role, self.graph.width)?;
        let facts = TextFacts {
            role: self.folder.role,
            width: Some(width),
            dimensions: self.folder.dimensions.clone(),
            tokens_max: Some(self.folder.tokens_max),
            labels: self.folder.labels.clone(),
            is_native: true,
        };
        let (tokens_max, side) = (self.folder.tokens_max as usize, self.tokenizer.truncation_side());
        let most = Truncation { tokens_max, side, rejects: false };
        self.tokenizer.encode("a", has_pairs.then_some("a"), most).map_err(|why| {
            let (model, why) = (&signature.model, why.message());
            Error::invalid(format!("unable to load model '{model}', no text fits into it: {why}"))
        })?;
        let width = width as usize;
        let takes_types = self.graph.takes_types();
        let (sessions, of_instance) = self.onnx.sessions(config)?;
        let is_on_host = sessions.iter().all(|session| session.device().is_none());
        let encoder = |session| Encoder::new(session, &self.onnx.graph, &self.graph, &self.onnx.run_entries);
        let encoders = sessions.into_iter().map(encoder).collect::<Result<_>>()?;
        let Self { folder, tokenizer, batch_tokens_max, .. } = *self;
        let core = TextCore { folder, tokenizer, facts, signature, takes_types, width, has_pairs, batch_tokens_max };
        Ok(Arc::new(OnnxText { core: Arc::new(core), encoders, of_instance, is_on_host }))
    }
}

/// Whether each text is a pair, and the number of values of a row.
///
/// # Errors
/// INVALID_ARG: the text names what is configured and what is possible.
fn check(signature: &Signature, role: Role, width: Option<u32>) -> Result<(bool, u32)> {
    let is_batching = signature.max_batch_size > 0;
    let ([input], [output]) = (&signature.inputs[..], &signature.outputs[..]) else {
        return Err(Error::invalid(format!(
            "unable to load model '{}', the configuration has {} inputs and {} outputs: a model of the backend 'text' \
             has one of each",
            signature.model,
            signature.inputs.len(),
            signature.outputs.len()
        )));
    };
    let wrong = |what: &str, name: &str, datatype: DataType, dims: &[i64], needed: &str| {
        Error::invalid(format!(
            "unable to load model '{}', {what} '{name}' is {} {} with max_batch_size {}: a text model with the role \
             '{}' has {needed}",
            signature.model,
            datatype.config_name(),
            ShapeDisplay(dims),
            signature.max_batch_size,
            role.name()
        ))
    };
    let has_pairs = input.dims.last() == Some(&2);
    let fits = matches!((&input.dims[..], is_batching), ([1 | 2], true) | ([-1] | [-1, 1 | 2], false));
    let pairs_fit = match role {
        Role::Embed => !has_pairs,
        Role::Rerank => has_pairs,
        Role::Classify => true,
    };
    if !fits || !pairs_fit || input.datatype != DataType::Bytes || input.reshape.is_some() {
        let needed = match role {
            Role::Embed => "TYPE_STRING [1], or [-1] with max_batch_size 0",
            Role::Rerank => "TYPE_STRING [2], or [-1,2] with max_batch_size 0: pairs of texts",
            Role::Classify => "TYPE_STRING [1] or [2], or [-1] or [-1,2] with max_batch_size 0",
        };
        return Err(wrong("input", &input.name, input.datatype, &input.dims, needed));
    }
    let configured = match (&output.dims[..], is_batching) {
        ([width], true) | ([-1, width], false) => Some(*width),
        _ => None,
    };
    let known = width.map(i64::from).or(configured.filter(|&width| width > 0));
    let fits = configured.is_some_and(|width| width == -1 || Some(width) == known);
    let known =
        known.and_then(|width| u32::try_from(width).ok()).filter(|&n| n > 0 && (n == 1 || role != Role::Rerank));
    match known {
        Some(width) if fits && output.datatype == DataType::Fp32 && output.reshape.is_none() => Ok((has_pairs, width)),
        _ => {
            let row = match (role, width) {
                (Role::Rerank, _) => "1".to_owned(),
                (_, Some(width)) => width.to_string(),
                (_, None) => "the number of values of a row, which the graph does not declare".to_owned(),
            };
            let needed = format!("TYPE_FP32 [{row}], or [-1,{row}] with max_batch_size 0");
            Err(wrong("output", &output.name, output.datatype, &output.dims, &needed))
        }
    }
}

struct OnnxText {
    core: Arc<TextCore>,
    /// One for each place of an instance.
    encoders: Vec<Encoder>,
    /// Index into `encoders` by instance number.
    of_instance: Vec<usize>,
    is_on_host: bool,
}

impl Model for OnnxText {
    fn execute(&self, instance: u32, batch: &mut Batch<'_>, control: &RunControl) -> Marks {
        // All instances on the host share one session.
        let at = if self.is_on_host { Some(0) } else { self.of_instance.get(instance as usize).copied() };
        let Some(encoder) = at.and_then(|at| self.encoders.get(at)) else {
            scatter::fail_all(batch.requests, &Error::internal(format!("there is no instance {instance}")));
            return Marks::default();
        };
        execute(true, batch, |entries, marks| encoder.run(&self.core, entries, control, marks))
    }

    fn capabilities(&self) -> Capabilities {
        let cores = self.encoders.first().filter(|_| self.is_on_host).and_then(Encoder::cores);
        Capabilities { instances_are_permits: self.is_on_host, cores, ..Capabilities::default() }
    }

    fn text(&self) -> Option<&dyn TextModel> {
        Some(self)
    }
}

impl TextModel for OnnxText {
    fn facts(&self) -> &TextFacts {
        &self.core.facts
    }

    fn batch_tokens_max(&self) -> u32 {
        self.core.batch_tokens_max
    }

    fn divide(&self, request: &InferRequest, checked: &Checked) -> Result<Box<dyn Division>> {
        Ok(Box::new(division::Texts::divide(&self.core, request, checked)?))
    }

    fn tokens(&self, text: &str, has_special: bool) -> Result<Vec<TextToken>> {
        self.core.tokens(text, has_special)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_those_of_the_chosen_file() {
        let directory = std::env::temp_dir().join(format!("nereid_weights_{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        for (name, len) in [("model.onnx", 10), ("model.onnx_data", 100), ("model_fp16.onnx", 1000)] {
            std::fs::write(directory.join(name), vec![0; len]).expect("written");
        }
        assert_eq!(weight_bytes(&directory.join("model.onnx")), 110);
        assert_eq!(weight_bytes(&directory.join("model_fp16.onnx")), 1000);
        std::fs::remove_dir_all(directory).expect("removed");
    }
}
