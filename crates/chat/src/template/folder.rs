//! The template and the special tokens of a model folder, from the texts of its files.

use super::Json;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use tensor::{Error, Result};

/// Special tokens that a tokenizer names, in the order of transformers.
const TOKENS: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Templates of a model and what they see besides the conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FolderTemplates {
    /// Source of the template for a conversation without tools, or for every one.
    pub default: Option<String>,
    /// Source of the template for a conversation with tools, if it is another.
    pub tool_use: Option<String>,
    /// Special tokens by name: `bos_token`, `eos_token` and others.
    pub tokens: BTreeMap<String, Json>,
}

impl FolderTemplates {
    /// The source for a conversation.
    pub fn source(&self, has_tools: bool) -> Option<&str> {
        let tool_use = self.tool_use.as_deref().filter(|_| has_tools);
        tool_use.or(self.default.as_deref())
    }
}

/// Templates and special tokens from the texts of `tokenizer_config.json`, `chat_template.jinja`,
/// `additional_chat_templates/tool_use.jinja` and `special_tokens_map.json`, each `None` if there is no such file. The
/// files of templates take precedence over the configuration.
///
/// # Errors
/// INVALID_ARG that names the file and the key of what cannot be read.
pub fn of_folder(
    tokenizer_config: Option<&str>,
    chat_template: Option<&str>,
    tool_use: Option<&str>,
    special_tokens_map: Option<&str>,
) -> Result<FolderTemplates> {
    let mut found = FolderTemplates::default();
    if let Some(text) = special_tokens_map {
        tokens_of(&object("special_tokens_map.json", text)?, &mut found.tokens);
    }
    if let Some(text) = tokenizer_config {
        let config = object("tokenizer_config.json", text)?;
        tokens_of(&config, &mut found.tokens);
        match config.get("chat_template") {
            None | Some(Value::Null) => {}
            Some(Value::String(source)) => found.default = Some(source.clone()),
            Some(Value::Array(list)) => templates_of(list, &mut found)?,
            Some(other) => return Err(wrong("chat_template", "a string or a list", other)),
        }
    }
    if let Some(source) = chat_template {
        (found.default, found.tool_use) = (Some(source.to_owned()), None);
    }
    if let Some(source) = tool_use {
        found.tool_use = Some(source.to_owned());
    }
    Ok(found)
}

fn object(file: &str, text: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(text).map_err(|error| Error::invalid(format!("{file} is not a JSON object: {error}")))
}

fn wrong(key: &str, expected: &str, got: &Value) -> Error {
    let kind = match got {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    Error::invalid(format!("{key} of tokenizer_config.json is {kind}, expected {expected}"))
}

fn templates_of(list: &[Value], found: &mut FolderTemplates) -> Result<()> {
    for (index, entry) in list.iter().enumerate() {
        let text = |key: &str| match &entry[key] {
            Value::String(text) => Ok(text.clone()),
            other => Err(wrong(&format!("chat_template[{index}].{key}"), "a string", other)),
        };
        let source = text("template")?;
        match text("name")?.as_str() {
            "default" => found.default = Some(source),
            "tool_use" => found.tool_use = Some(source),
            _ => {}
        }
    }
    Ok(())
}

/// A token is a string, or an object whose `content` is the string.
fn tokens_of(config: &Map<String, Value>, tokens: &mut BTreeMap<String, Json>) {
    for name in TOKENS {
        let token = config.get(name).map(|token| token.get("content").unwrap_or(token));
        if let Some(Value::String(token)) = token {
            tokens.insert(name.to_owned(), token.clone().into());
        }
    }
}
