//! The folder of a text model, as hubs have it.

use crate::files;
use crate::pooling::{Activation, Pooling};
use crate::sentences::OfSentences;
use protocol::text::{Dimensions, Role};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use tensor::{Error, Result};

/// The facts of a folder. What a configuration names in its parameters wins over files.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The role.
    pub role: Role,
    /// `model.onnx`, or the file below `onnx/`.
    pub file: PathBuf,
    /// How token states become a row; only for embeddings.
    pub pooling: Pooling,
    /// Whether embeddings have length 1.
    pub normalizes: bool,
    /// Activation of scores and classes.
    pub activation: Activation,
    /// Maximum of tokens, special tokens included.
    pub tokens_max: u32,
    /// Names of classes, in order.
    pub labels: Vec<String>,
    /// Values of `dimensions` that a request may name.
    pub dimensions: Dimensions,
    /// Prompts by name.
    pub prompts: BTreeMap<String, String>,
    /// The prompt of requests that name none.
    pub default_prompt: Option<String>,
    /// Each guess: the parameter's name, its value, and the file and key that it is from (or why there is none).
    pub guesses: Vec<Guess>,
}

/// A fact, and where it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guess {
    /// Name of the parameter that overrides it.
    pub name: &'static str,
    /// The value, as the parameter would be written.
    pub value: String,
    /// For example "1_Pooling/config.json: pooling_mode_mean_tokens".
    pub from: String,
}

/// Model parameters (`parameters { key: … }`) that override files. The names are those of [`Guess::name`].
pub mod overrides {
    /// `embed`, `rerank` or `classify`.
    pub const ROLE: &str = "nereid.text";
    /// A name of [`Pooling`](crate::pooling::Pooling).
    pub const POOLING: &str = "pooling";
    /// `true` or `false`.
    pub const NORMALIZE: &str = "normalize";
    /// A name of [`Activation`](crate::pooling::Activation).
    pub const ACTIVATION: &str = "activation";
    /// A number of tokens.
    pub const MAX_LENGTH: &str = "max_length";
    /// `any`, or numbers with commas.
    pub const DIMENSIONS: &str = "dimensions";
    /// The file of the model, below the version's directory.
    pub const FILE: &str = "file";
    /// A name of the folder's prompts, for requests that name none.
    pub const PROMPT: &str = "prompt";
    /// Maximum of tokens in a batch.
    pub const MAX_BATCH_TOKENS: &str = "max_batch_tokens";
    /// All of them.
    pub const ALL: [&str; 9] =
        [ROLE, POOLING, NORMALIZE, ACTIVATION, MAX_LENGTH, DIMENSIONS, FILE, PROMPT, MAX_BATCH_TOKENS];
}

/// Maximum of tokens of a model whose files name none: that of BERT.
const TOKENS_MAX_DEFAULT: u32 = 512;

/// Most classes of a model. Each has a name, and a value in each answer.
pub const LABELS_MAX: usize = 65_536;

const CONFIG: &str = "config.json";
const MODULES: &str = "modules.json";
const SENTENCES: &str = "config_sentence_transformers.json";

impl Folder {
    /// Reads a folder; `parameters` are those of the model's configuration.
    ///
    /// # Errors
    /// NOT_FOUND without a model file; INVALID_ARG for files that contradict or exceed a limit, and for overrides.
    pub fn read(folder: &Path, parameters: &BTreeMap<String, String>) -> Result<Self> {
        let config: Config = files::json(folder, CONFIG)?.unwrap_or_default();
        let modules = Modules::read(folder)?;
        let tokenizer: TokenizerLimits = files::json(folder, "tokenizer_config.json")?.unwrap_or_default();
        let sentences: Sentences = files::json(folder, SENTENCES)?.unwrap_or_default();
        let mut choices = Choices { parameters, guesses: Vec::new() };

        let labels = config.labels(folder)?;
        let role = choices.named(overrides::ROLE, &Role::ALL, Role::name, || config.role(labels.len(), &modules))?;
        let pooling = match role {
            Role::Embed => {
                choices.named(overrides::POOLING, &Pooling::ALL, Pooling::name, || modules.pooling(folder))?
            }
            Role::Rerank | Role::Classify => Pooling::Cls,
        };
        let normalizes = role == Role::Embed && {
            let name = |is: bool| if is { "true" } else { "false" };
            choices.named(overrides::NORMALIZE, &[true, false], name, || Ok(modules.normalizes()))?
        };
        let activation = match role {
            Role::Embed => Activation::None,
            _ => {
                choices.named(overrides::ACTIVATION, &Activation::ALL, Activation::name, || config.activation(role))?
            }
        };
        let tokens_max = choices.take(
            overrides::MAX_LENGTH,
            |text| text.parse().ok().filter(|tokens| *tokens > 0),
            "a number of tokens above 0",
            || length(folder, &config, &tokenizer),
            u32::to_string,
        )?;
        if let Some(positions) = config.positions().filter(|positions| tokens_max > *positions) {
            return Err(Error::invalid(format!(
                "parameter '{}' is {tokens_max}, and the model has positions for {positions} tokens ({CONFIG}: \
                 max_position_embeddings)",
                overrides::MAX_LENGTH
            )));
        }
        let dimensions = match role {
            Role::Embed => choices.take(
                overrides::DIMENSIONS,
                parse_dimensions,
                "`any`, `fixed`, or numbers above 0 with commas",
                || Ok(sentences.dimensions(&config)),
                print_dimensions,
            )?,
            _ => Dimensions::Fixed,
        };
        let default_prompt = choices.take(
            overrides::PROMPT,
            |name| Some(Some(name.to_owned()).filter(|name| !name.is_empty())),
            "a name",
            || {
                Ok(match &sentences.default_prompt_name {
                    Some(name) => (Some(name.clone()), format!("{SENTENCES}: default_prompt_name")),
                    None => (None, "no file names one".into()),
                })
            },
            |name| name.clone().unwrap_or_default(),
        )?;
        if let Some(name) = default_prompt.as_ref().filter(|name| !sentences.prompts.contains_key(*name)) {
            let known: Vec<_> = sentences.prompts.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            return Err(files::invalid(folder, SENTENCES, format!("no prompt {name:?}, it has {known}")));
        }
        if let Some((file, of)) = &modules.pooling
            && of.include_prompt == Some(false)
            && !sentences.prompts.is_empty()
        {
            return Err(files::invalid(folder, file, "pooling without the tokens of prompts is not supported"));
        }
        let file = choices.file(folder)?;
        Ok(Self {
            role,
            file,
            pooling,
            normalizes,
            activation,
            tokens_max,
            labels: if role == Role::Classify { labels } else { Vec::new() },
            dimensions,
            prompts: sentences.prompts,
            default_prompt,
            guesses: choices.guesses,
        })
    }
}

/// Facts that the configuration may override.
struct Choices<'p> {
    parameters: &'p BTreeMap<String, String>,
    guesses: Vec<Guess>,
}

/// A fact that was found, and where.
type Sourced<T> = (T, String);

impl Choices<'_> {
    fn take<T>(
        &mut self,
        name: &'static str,
        parse: impl Fn(&str) -> Option<T>,
        expected: &str,
        guess: impl FnOnce() -> Result<Sourced<T>>,
        print: impl Fn(&T) -> String,
    ) -> Result<T> {
        if let Some(text) = self.parameters.get(name) {
            return parse(text).ok_or_else(|| {
                Error::invalid(format!(
                    "parameter '{name}' of a text model has the value '{text}', expected {expected}"
                ))
            });
        }
        let (value, from) = guess()?;
        self.guesses.push(Guess { name, value: print(&value), from });
        Ok(value)
    }

    fn named<T: Copy>(
        &mut self,
        name: &'static str,
        all: &[T],
        print: impl Fn(T) -> &'static str,
        guess: impl FnOnce() -> Result<Sourced<T>>,
    ) -> Result<T> {
        let expected = all.iter().map(|value| print(*value)).collect::<Vec<_>>().join(", ");
        let parse = |text: &str| all.iter().copied().find(|value| print(*value) == text);
        self.take(name, parse, &format!("one of {expected}"), guess, |value| print(*value).into())
    }

    /// The file of the model: `model.onnx`, `onnx/model.onnx`, or the only `onnx/model*.onnx`.
    fn file(&mut self, folder: &Path) -> Result<PathBuf> {
        let parse = |text: &str| Some(PathBuf::from(text)).filter(|path| !text.is_empty() && is_inside(path));
        let expected = "the path of a file below the version's directory";
        let file = self.take(overrides::FILE, parse, expected, || find(folder), |path| path.display().to_string())?;
        let path = folder.join(file);
        if path.is_file() { Ok(path) } else { Err(Error::not_found(format!("{} is missing", path.display()))) }
    }
}

/// The file of the model, below its folder.
fn find(folder: &Path) -> Result<Sourced<PathBuf>> {
    for usual in ["model.onnx", "onnx/model.onnx"] {
        if folder.join(usual).is_file() {
            return Ok((usual.into(), "the file exists".into()));
        }
    }
    let listed = |below: &str, is_model: &dyn Fn(&str) -> bool| -> Vec<String> {
        let entries = std::fs::read_dir(folder.join(below)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| is_model(name)).take(64).collect();
        names.sort();
        names
    };
    let models = listed("onnx", &|name| name.starts_with("model") && name.ends_with(".onnx"));
    let place = folder.display();
    match &models[..] {
        [only] => Ok((Path::new("onnx").join(only), "the only model*.onnx in onnx".into())),
        [] if !listed("", &|name| name.ends_with(".safetensors")).is_empty() => Err(Error::not_found(format!(
            "{place} has weights as safetensors and no model.onnx or onnx/model.onnx: \
             `nereid init FOLDER --export` exports it"
        ))),
        [] => Err(Error::not_found(format!("{place} has no model.onnx and no onnx/model.onnx"))),
        several => Err(Error::invalid(format!(
            "{place} has several files onnx/model*.onnx and no model.onnx: choose one with \
             parameters {{ key: \"{}\" value {{ string_value: \"onnx/{}\" }} }}; there are {}",
            overrides::FILE,
            several[0],
            several.join(", ")
        ))),
    }
}

/// `config.json`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    architectures: Option<Vec<String>>,
    model_type: Option<String>,
    max_position_embeddings: Option<u32>,
    pad_token_id: Option<u32>,
    num_labels: Option<usize>,
    id2label: Option<BTreeMap<String, Value>>,
    problem_type: Option<String>,
    sentence_transformers: Option<OfSentenceTransformers>,
    sbert_ce_default_activation_function: Option<String>,
    is_matryoshka: Option<bool>,
    matryoshka_dimensions: Option<Vec<u32>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OfSentenceTransformers {
    activation_fn: Option<String>,
}

impl Config {
    fn labels(&self, folder: &Path) -> Result<Vec<String>> {
        let count = self.id2label.as_ref().map(BTreeMap::len).or(self.num_labels);
        // transformers writes neither of them for two classes without names.
        let count = count.unwrap_or(2);
        if count > LABELS_MAX {
            return Err(files::invalid(folder, CONFIG, format!("{count} labels, the limit is {LABELS_MAX}")));
        }
        let name = |id: usize| match &self.id2label {
            None => Some(format!("LABEL_{id}")),
            Some(all) => all.get(&id.to_string()).map(|name| name.as_str().map_or(name.to_string(), str::to_owned)),
        };
        let missing = |id| files::invalid(folder, CONFIG, format!("id2label has {count} labels and none for {id}"));
        (0..count).map(|id| name(id).ok_or_else(|| missing(id))).collect()
    }

    fn role(&self, labels: usize, modules: &Modules) -> Result<Sourced<Role>> {
        let architecture = self.architectures.iter().flatten().find(|name| name.ends_with("ForSequenceClassification"));
        Ok(match architecture {
            _ if modules.pooling.is_some() => (Role::Embed, format!("{MODULES}: a module Pooling")),
            Some(name) if labels == 1 => (Role::Rerank, format!("{CONFIG}: architectures, {name} with 1 label")),
            Some(name) => (Role::Classify, format!("{CONFIG}: architectures, {name} with {labels} labels")),
            None => (Role::Embed, "no file names a role".into()),
        })
    }

    fn activation(&self, role: Role) -> Result<Sourced<Activation>> {
        let of_sentences = self.sentence_transformers.as_ref().and_then(|of| of.activation_fn.as_deref());
        let old = self.sbert_ce_default_activation_function.as_deref();
        let named = of_sentences.map(|name| (name, "sentence_transformers.activation_fn"));
        if let Some((name, key)) = named.or(old.map(|name| (name, "sbert_ce_default_activation_function"))) {
            let activation = match name.rsplit('.').next() {
                Some("Identity") => Activation::None,
                Some("Sigmoid") => Activation::Sigmoid,
                Some("Softmax") => Activation::Softmax,
                _ => {
                    return Err(Error::invalid(format!(
                        "{CONFIG}: {key} is {name}, which is not supported: choose another with the parameter '{}'",
                        overrides::ACTIVATION
                    )));
                }
            };
            return Ok((activation, format!("{CONFIG}: {key}")));
        }
        let problem = self.problem_type.as_deref();
        let activation = match (role, problem) {
            (Role::Rerank, _) => {
                return Ok((Activation::Sigmoid, "no file sets it: usual for one label".into()));
            }
            (_, Some("multi_label_classification")) => Activation::Sigmoid,
            (_, Some("regression")) => Activation::None,
            (_, Some(_)) => Activation::Softmax,
            (_, None) => return Ok((Activation::Softmax, "no file sets it: usual for several labels".into())),
        };
        Ok((activation, format!("{CONFIG}: problem_type")))
    }

    /// Positions that the model has for tokens.
    fn positions(&self) -> Option<u32> {
        // Models that descend from RoBERTa count positions from the one after that of padding.
        let is_shifted = matches!(
            self.model_type.as_deref(),
            Some("roberta" | "xlm-roberta" | "xlm-roberta-xl" | "camembert" | "mpnet" | "longformer" | "data2vec-text")
        );
        let shift = if is_shifted { self.pad_token_id.unwrap_or(1).saturating_add(1) } else { 0 };
        self.max_position_embeddings.map(|all| all.saturating_sub(shift)).filter(|positions| *positions > 0)
    }
}

/// `tokenizer_config.json`, as far as it is about lengths.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenizerLimits {
    // Numbers such as 1e30, which mean that there is none.
    model_max_length: Option<f64>,
}

/// `config_sentence_transformers.json`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Sentences {
    prompts: BTreeMap<String, String>,
    default_prompt_name: Option<String>,
    is_matryoshka: Option<bool>,
    matryoshka_dimensions: Option<Vec<u32>>,
}

impl Sentences {
    fn dimensions(&self, config: &Config) -> Sourced<Dimensions> {
        let of = [
            (SENTENCES, &self.matryoshka_dimensions, self.is_matryoshka),
            (CONFIG, &config.matryoshka_dimensions, config.is_matryoshka),
        ];
        for (file, listed, is_any) in of {
            let mut listed = listed.clone().unwrap_or_default();
            listed.retain(|dimensions| *dimensions > 0);
            listed.sort_unstable();
            listed.dedup();
            match is_any {
                _ if !listed.is_empty() => {
                    return (Dimensions::Listed(listed), format!("{file}: matryoshka_dimensions"));
                }
                Some(true) => return (Dimensions::Any, format!("{file}: is_matryoshka")),
                _ => {}
            }
        }
        (Dimensions::Fixed, "no file declares others that the model was trained for".into())
    }
}

fn parse_dimensions(text: &str) -> Option<Dimensions> {
    match text {
        "any" => Some(Dimensions::Any),
        "fixed" => Some(Dimensions::Fixed),
        _ => {
            let number = |text: &str| text.trim().parse().ok().filter(|number| *number > 0);
            let mut all: Vec<u32> = text.split(',').map(number).collect::<Option<_>>()?;
            all.sort_unstable();
            all.dedup();
            Some(Dimensions::Listed(all))
        }
    }
}

fn print_dimensions(dimensions: &Dimensions) -> String {
    match dimensions {
        Dimensions::Any => "any".into(),
        Dimensions::Fixed => "fixed".into(),
        Dimensions::Listed(all) => all.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
    }
}

/// The first length of: sentence-transformers' file, the tokenizer, the model; but not above that of the model.
fn length(folder: &Path, config: &Config, tokenizer: &TokenizerLimits) -> Result<Sourced<u32>> {
    let found = OfSentences::read(folder)?.and_then(|(name, of)| {
        let length = of.max_seq_length.filter(|length| *length > 0);
        length.map(|length| (length, format!("{name}: max_seq_length")))
    });
    let of_tokenizer = tokenizer.model_max_length.filter(|length| (1.0..1e9).contains(length));
    let found = found.or(of_tokenizer.map(|length| (length as u32, "tokenizer_config.json: model_max_length".into())));
    let of_model = config.positions().map(|positions| (positions, format!("{CONFIG}: max_position_embeddings")));
    Ok(match (found, of_model) {
        (Some(found), Some(of_model)) if found.0 > of_model.0 => of_model,
        (found, of_model) => {
            found.or(of_model).unwrap_or_else(|| (TOKENS_MAX_DEFAULT, "no file sets it: that of BERT".into()))
        }
    })
}

/// `modules.json`: the steps of sentence-transformers.
#[derive(Default)]
struct Modules {
    exists: bool,
    /// File of the module that pools, and what it says.
    pooling: Option<(String, OfPooling)>,
    normalizes: bool,
}

/// `config.json` of the directory of a module that pools.
#[derive(Default, Deserialize)]
#[serde(default)]
struct OfPooling {
    pooling_mode: Option<Value>,
    include_prompt: Option<bool>,
    #[serde(flatten)]
    old: BTreeMap<String, Value>,
}

impl Modules {
    fn read(folder: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Module {
            #[serde(default)]
            path: String,
            r#type: String,
        }
        let Some(all) = files::json::<Vec<Module>>(folder, MODULES)? else { return Ok(Self::default()) };
        let mut modules = Self { exists: true, ..Self::default() };
        let invalid = |why: String| files::invalid(folder, MODULES, why);
        for Module { path, r#type } in all {
            if !is_inside(Path::new(&path)) {
                return Err(invalid(format!("the path {path:?} is outside of the folder")));
            }
            match r#type.rsplit('.').next().unwrap_or_default() {
                "Transformer" if path.is_empty() => {}
                "Transformer" => {
                    return Err(invalid(format!("the transformer is in {path}: move its files beside {MODULES}")));
                }
                "Pooling" if modules.pooling.is_some() => return Err(invalid("two modules of type Pooling".into())),
                "Pooling" => {
                    let name = if path.is_empty() { CONFIG.into() } else { format!("{path}/{CONFIG}") };
                    let of = files::json(folder, &name)?;
                    modules.pooling = Some((name, of.ok_or_else(|| invalid(format!("{path}/{CONFIG} is missing")))?));
                }
                "Normalize" => modules.normalizes = true,
                other => {
                    return Err(invalid(format!(
                        "a module {other} is not supported; Transformer, Pooling and Normalize are"
                    )));
                }
            }
        }
        Ok(modules)
    }

    fn pooling(&self, folder: &Path) -> Result<Sourced<Pooling>> {
        let Some((file, of)) = &self.pooling else {
            let why = if self.exists { "modules.json has no module Pooling" } else { "no modules.json" };
            return Ok((Pooling::Mean, format!("{why}: sentence-transformers takes the mean")));
        };
        let modes: Vec<(&str, &str)> = match &of.pooling_mode {
            Some(Value::String(mode)) => vec![("pooling_mode", mode)],
            Some(Value::Array(modes)) => {
                modes.iter().filter_map(|mode| Some(("pooling_mode", mode.as_str()?))).collect()
            }
            _ => {
                let set = of.old.iter().filter(|(_, is)| **is == Value::Bool(true));
                set.filter_map(|(key, _)| Some((key.as_str(), key.strip_prefix("pooling_mode_")?))).collect()
            }
        };
        let unsupported = |what: &str| {
            let why = format!("{what} is not supported; mean, cls, lasttoken or max alone is (parameter 'pooling')");
            Err(files::invalid(folder, file, why))
        };
        let (key, mode) = match modes[..] {
            [] => return Ok((Pooling::Mean, format!("{file}: no mode is set; the mean is the default"))),
            [one] => one,
            _ => return unsupported(&modes.iter().map(|(_, mode)| *mode).collect::<Vec<_>>().join(" with ")),
        };
        let pooling = match mode {
            "mean" | "mean_tokens" => Pooling::Mean,
            "cls" | "cls_token" => Pooling::Cls,
            "max" | "max_tokens" => Pooling::Max,
            "lasttoken" => Pooling::LastToken,
            other => return unsupported(other),
        };
        Ok((pooling, format!("{file}: {key}")))
    }

    /// Whether embeddings are normalised: as sentence-transformers, only with such a module.
    fn normalizes(&self) -> Sourced<bool> {
        let from = match (self.exists, self.normalizes) {
            (true, true) => "modules.json: a module Normalize",
            (true, false) => "modules.json: no module Normalize",
            (false, _) => "no modules.json: sentence-transformers does not normalise then",
        };
        (self.normalizes, from.into())
    }
}

/// Whether a path stays below the folder.
fn is_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}
