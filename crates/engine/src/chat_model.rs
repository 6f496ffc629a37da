//! A version that chats: its tensors, its template and its tokenizer.
//!
//! Templates and tokenizers are read from folders as hubs have them: the one that the configuration names below the
//! model's directory, else that of `--tokenizer`, else the first of the version's directory, the model's directory and
//! the model that `model.json` names, as backend `vllm` does.

use chat::places::{Holds, PARAMETER, Places};
use chat::template::{Conversation, FolderTemplates, Json, Template, of_folder};
use chat::tools::ToolParser;
use memory::beneath;
use options::{ChatOptions, OpenSpec};
use protocol::Signature;
use protocol::pb::inference::ModelConfig;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use tensor::{Error, Result};
use text::tokenizer::Tokenizer;

/// Parameter of a configuration: the folder of tokenizer and template, below the model's directory.
const TOKENIZER_PARAMETER: &str = "nereid.chat.tokenizer";
/// Parameter of a configuration: a file with a template, below the model's directory.
const TEMPLATE_PARAMETER: &str = "nereid.chat.template";
/// Parameter of a configuration: a name of [`ToolParser`].
const PARSER_PARAMETER: &str = "nereid.chat.tool_parser";

/// Longest file of a folder but for the tokenizer's, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// LoRAs of a model that are named.
const LORAS_MAX: usize = 1024;

/// Facts of a version that chats.
pub struct ChatModel {
    /// Tensors of the model.
    pub places: Places,
    /// Whether it has backend `vllm`.
    pub is_vllm: bool,
    /// Format of calls of tools in its text.
    pub parser: Option<ToolParser>,
    /// Names of its LoRAs; `None` if it does not say.
    pub loras: Option<Vec<String>>,
    templates: Result<Templates>,
    folder: Option<PathBuf>,
    /// Counts tokens, if the model does not.
    tokenizer: Option<Tokenizer>,
}

/// Compiled templates of a model.
pub struct Templates {
    default: Option<Template>,
    tool_use: Option<Template>,
    /// Special tokens by name.
    pub tokens: BTreeMap<String, Json>,
}

impl Templates {
    /// The template for a conversation, with or without tools.
    pub fn of(&self, has_tools: bool) -> Option<&Template> {
        self.tool_use.as_ref().filter(|_| has_tools).or(self.default.as_ref())
    }

    /// Renders a message of a user, because functions and filters are looked up only then.
    fn try_out(&self) -> Result<()> {
        for template in [&self.default, &self.tool_use].into_iter().flatten() {
            template.render(&Conversation {
                messages: vec![serde_json::json!({ "role": "user", "content": "Hello" })],
                add_generation_prompt: true,
                variables: self.tokens.clone(),
                ..Conversation::default()
            })?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct ModelJson {
    model: Option<String>,
    tokenizer: Option<String>,
    enable_lora: Option<Value>,
}

impl ChatModel {
    /// `None` for a version that does not chat.
    ///
    /// # Errors
    /// INVALID_ARG for parameters that do not fit the model.
    pub(crate) fn of(
        config: &ModelConfig,
        signature: &Signature,
        open: &OpenSpec,
        options: &ChatOptions,
    ) -> Result<Option<Self>> {
        let value = |key| config.parameters.get(key).map(|parameter| parameter.string_value.as_str());
        let Some(places) = Places::of(signature, value(PARAMETER))? else {
            if value(PARAMETER).is_some() {
                return Err(Error::invalid(format!(
                    "the parameter '{PARAMETER}' of model '{}' must name an input for the prompt and an output for \
                     the text, such as prompt=Q text=A",
                    signature.model
                )));
            }
            return Ok(None);
        };
        let parser = value(PARSER_PARAMETER).map(|name| parser(name, PARSER_PARAMETER)).transpose()?;
        let parser = parser.map_or_else(|| parser_of(options), |given| Ok(Some(given)))?;
        let about = model_json(open);
        let is_vllm = config.backend == "vllm";
        // Other backends have other files of this name, which would lead out of the model's directory.
        let named = about.as_ref().filter(|_| is_vllm);
        let folder = folder(open, value(TOKENIZER_PARAMETER), options, named)?;
        let templates = templates(open, value(TEMPLATE_PARAMETER), options, folder.as_deref());
        let cannot = |error: Error| {
            // The operator's files, and not the request, are wrong.
            Error::internal(format!("model '{}' cannot chat: {}", signature.model, error.message()))
        };
        let templates = templates.map_err(cannot).inspect_err(|error| log::warn!("{}", error.message()));
        if value(TEMPLATE_PARAMETER).is_some() || options.is_strict {
            templates.as_ref().map_err(Clone::clone)?;
        }
        if let (Ok(templates), true) = (&templates, options.is_strict) {
            templates.try_out().map_err(cannot)?;
        }
        let counts = places.has(Holds::PromptTokens) && places.has(Holds::TextTokens);
        let tokenizer = folder.as_deref().filter(|_| !counts).and_then(|folder| tokenizer(open, folder));
        let loras = loras(open, is_vllm || places.has(Holds::Sampling), about.as_ref());
        Ok(Some(Self { places, is_vllm, parser, loras, templates, folder, tokenizer }))
    }

    /// The templates.
    ///
    /// # Errors
    /// Why there are none.
    pub fn templates(&self) -> Result<&Templates> {
        self.templates.as_ref().map_err(Clone::clone)
    }

    /// The tokenizer, of a model that does not count its tokens; `None` if there is none that can be read.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer.as_ref()
    }

    /// Whether there are files of a tokenizer, or a template without one.
    pub fn has_template(&self) -> bool {
        self.folder.is_some() || self.templates.as_ref().is_ok_and(|templates| templates.default.is_some())
    }
}

/// Checks what options name, so that a server which could not chat does not start.
///
/// # Errors
/// INVALID_ARG that names the option, and what it has to be.
pub(crate) fn check(options: &ChatOptions) -> Result<()> {
    parser_of(options)?;
    folder_of(options)?;
    if let Some((source, from)) = template_of(options)? {
        compile(&source, &from)?;
    }
    Ok(())
}

fn parser_of(options: &ChatOptions) -> Result<Option<ToolParser>> {
    let name = Some(options.tool_parser.as_str()).filter(|name| !name.is_empty());
    name.map(|name| parser(name, "--tool-call-parser")).transpose()
}

/// The folder of `--tokenizer`.
fn folder_of(options: &ChatOptions) -> Result<Option<PathBuf>> {
    let name = Some(options.tokenizer.as_str()).filter(|name| !name.is_empty());
    let unknown = |name| {
        Error::invalid(format!(
            "--tokenizer is '{name}', where a folder or a model in the cache of Hugging Face is expected. \
             `hf download {name}` fills that cache; the server downloads nothing"
        ))
    };
    name.map(|name| on_this_machine(name).ok_or_else(|| unknown(name))).transpose()
}

/// The template of `--chat-template`, and where it is from.
fn template_of(options: &ChatOptions) -> Result<Option<(String, String)>> {
    let path = Some(&options.template).filter(|path| !path.as_os_str().is_empty());
    path.map(|path| {
        let from = format!("--chat-template is '{}'", path.display());
        let source = read(path)?.ok_or_else(|| Error::invalid(format!("{from}, where a file is expected")))?;
        Ok((source, from))
    })
    .transpose()
}

/// Compiles a template, whose place errors name.
fn compile(source: &str, from: &str) -> Result<Template> {
    Template::compile(source).map_err(|error| Error::invalid(format!("{from}: {}", error.message())))
}

fn parser(name: &str, of: &str) -> Result<ToolParser> {
    ToolParser::ALL.into_iter().find(|parser| parser.name() == name).ok_or_else(|| {
        let names = ToolParser::ALL.map(ToolParser::name).join(", ");
        Error::invalid(format!("{of} is '{name}', which is not a parser of tool calls: use one of {names}"))
    })
}

/// The tokenizer of a folder, with a warning if it cannot be read.
fn tokenizer(open: &OpenSpec, folder: &Path) -> Option<Tokenizer> {
    const FILE: &str = "tokenizer.json";
    if folder.starts_with(&open.model_directory) {
        beneath::open(&open.model_directory, &folder.join(FILE)).ok()?;
    } else if !folder.join(FILE).is_file() {
        return None;
    }
    let warn = |error: &Error| log::warn!("model '{}': tokens are not counted: {}", open.model, error.message());
    Tokenizer::open(folder).inspect_err(warn).ok()
}

/// `model.json` of the version, as the backend `vllm` reads it.
fn model_json(open: &OpenSpec) -> Option<ModelJson> {
    let text = read_below(&open.model_directory, &open.version_directory.join("model.json")).ok()??;
    serde_json::from_str(&text).ok()
}

/// The folder of tokenizer and template.
fn folder(
    open: &OpenSpec,
    named: Option<&str>,
    options: &ChatOptions,
    about: Option<&ModelJson>,
) -> Result<Option<PathBuf>> {
    if let Some(named) = named {
        let path = open.model_directory.join(named);
        return match beneath::contains(&open.model_directory, &path) {
            Ok(()) if path.is_dir() => Ok(Some(path)),
            _ => Err(Error::invalid(format!(
                "the parameter '{TOKENIZER_PARAMETER}' of model '{}' is '{named}', where a folder below \
                 the model's directory is expected",
                open.model
            ))),
        };
    }
    if let Some(folder) = folder_of(options)? {
        return Ok(Some(folder));
    }
    let has = |folder: &Path| {
        ["chat_template.jinja", "tokenizer_config.json", "tokenizer.json"]
            .iter()
            .any(|name| folder.join(name).is_file())
    };
    let own = [&open.version_directory, &open.model_directory].into_iter().find(|folder| has(folder));
    let named = about.and_then(|about| about.tokenizer.as_deref().or(about.model.as_deref()));
    Ok(own.cloned().or_else(|| on_this_machine(named?)))
}

/// A folder, or a model of the cache that Hugging Face's tools fill.
fn on_this_machine(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(name);
    if path.is_dir() {
        return Some(path);
    }
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let cache = variable("HF_HUB_CACHE")
        .or_else(|| variable("HF_HOME").map(|home| home.join("hub")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/huggingface/hub")))?;
    let is_name = name.split('/').count() <= 2 && !name.contains("..") && !name.starts_with('/');
    let model = cache.join(format!("models--{}", name.replace('/', "--")));
    let revision = std::fs::read_to_string(model.join("refs/main")).ok().filter(|_| is_name)?;
    Some(model.join("snapshots").join(revision.trim())).filter(|folder| folder.is_dir())
}

fn templates(open: &OpenSpec, named: Option<&str>, options: &ChatOptions, folder: Option<&Path>) -> Result<Templates> {
    // Links out of the model's directory are not followed.
    let file = |folder: &Path, name: &str| match folder.starts_with(&open.model_directory) {
        true => read_below(&open.model_directory, &folder.join(name)),
        false => read(&folder.join(name)),
    };
    let text = |name| folder.map(|folder| file(folder, name)).transpose().map(Option::flatten);
    let config = text("tokenizer_config.json")?;
    let tokens = text("special_tokens_map.json")?;
    let named = match named {
        Some(named) => {
            let from = format!("the parameter '{TEMPLATE_PARAMETER}' of model '{}' is '{named}'", open.model);
            let source = read_below(&open.model_directory, &open.model_directory.join(named))?.ok_or_else(|| {
                Error::invalid(format!("{from}, where a file below the model's directory is expected"))
            })?;
            Some((source, from))
        }
        None => template_of(options)?,
    };
    let (source, tool_use, from) = match named {
        Some((source, from)) => (Some(source), None, from),
        None => {
            let from = folder.map(|it| it.display().to_string()).unwrap_or_default();
            (text("chat_template.jinja")?, text("additional_chat_templates/tool_use.jinja")?, from)
        }
    };
    let FolderTemplates { default, tool_use, tokens } =
        of_folder(config.as_deref(), source.as_deref(), tool_use.as_deref(), tokens.as_deref())?;
    let compiled = |source: Option<String>| source.map(|source| compile(&source, &from)).transpose();
    Ok(Templates { default: compiled(default)?, tool_use: compiled(tool_use)?, tokens })
}

/// Names of LoRAs, as Triton finds them: the keys of `multi_lora.json` of the version. A model with vLLM's tensors has
/// any name without a `model.json`, and none if that does not enable them.
fn loras(open: &OpenSpec, is_vllm: bool, about: Option<&ModelJson>) -> Option<Vec<String>> {
    let is_on = |value: &Value| *value == Value::Bool(true) || value.as_str() == Some("true");
    if is_vllm && !about?.enable_lora.as_ref().is_some_and(is_on) {
        return Some(Vec::new());
    }
    let path = open.version_directory.join("multi_lora.json");
    let Ok(Some(text)) = read_below(&open.model_directory, &path) else {
        return if is_vllm { None } else { Some(Vec::new()) };
    };
    let all: Map<String, Value> = serde_json::from_str(&text).ok()?;
    Some(all.into_iter().map(|(name, _)| name).take(LORAS_MAX).collect())
}

/// Text of a file; `None` if there is no such file.
fn read(path: &Path) -> Result<Option<String>> {
    // To open a pipe waits for its writer.
    if std::fs::metadata(path).is_ok_and(|about| !about.is_file()) {
        return Err(Error::invalid(format!("{} is not a file", path.display())));
    }
    match std::fs::File::open(path) {
        Ok(file) => read_open(path, file).map(Some),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::invalid(format!("cannot read {}: {error}", path.display()))),
    }
}

/// Text of a file of the model; `None` if there is none.
fn read_below(root: &Path, path: &Path) -> Result<Option<String>> {
    match beneath::open(root, path) {
        Ok(file) => read_open(path, file).map(Some),
        Err(_) => Ok(None),
    }
}

fn read_open(path: &Path, file: std::fs::File) -> Result<String> {
    let failed = |error: std::io::Error| Error::invalid(format!("cannot read {}: {error}", path.display()));
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() || about.len() > FILE_BYTES_MAX {
        let path = path.display();
        return Err(Error::invalid(format!("{path} must be a file of at most {FILE_BYTES_MAX} bytes")));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}
