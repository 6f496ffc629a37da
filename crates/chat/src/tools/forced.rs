//! Calls that a request demands with `tool_choice`: the model is held to a JSON schema, and its whole text is calls.

use super::machine::{Body, Format, Machine};
use super::parsed::{Parsed, TextPiece};
use super::stream::ToolStream;
use serde_json::{Map, Value, json};
use tensor::{Error, Result};

/// Calls that a request demands.
#[derive(Debug, Clone, PartialEq)]
pub struct Forced {
    /// JSON schema of the text of the model.
    pub schema: Value,
    /// The function to call, whose arguments are the whole text. Without it the text is an array of
    /// `{"name", "parameters"}`, at least one.
    pub function: Option<String>,
}

const CALLS: Format = Format {
    name: "required",
    reads: r#"[{"name": …, "parameters": …}]"#,
    marker: "",
    is_anywhere: false,
    bare: Some(b'['),
    body: Body::Array,
    closing: "",
};

/// Reads `tool_choice` of a request beside its `tools`; `None` if the model is free not to call (`none`, `auto` or
/// null).
///
/// `required` with several tools lets the model choose among them. Triton forces the first of them.
///
/// # Errors
/// INVALID_ARG if there are no tools, the named one is not among them, two of them define a `$defs` entry differently,
/// or the choice or a tool has another form.
pub fn forced(choice: &Value, tools: &[Value]) -> Result<Option<Forced>> {
    let name = match choice {
        Value::Null => return Ok(None),
        Value::String(word) if word == "none" || word == "auto" => return Ok(None),
        Value::String(word) if word == "required" => None,
        _ => Some(choice["function"]["name"].as_str().filter(|_| choice["type"] == "function").ok_or_else(|| {
            Error::invalid(format!(
                "tool_choice is {choice}; it can be \"none\", \"auto\", \"required\" or \
                 {{\"type\": \"function\", \"function\": {{\"name\": \"…\"}}}}"
            ))
        })?),
    };
    if tools.is_empty() {
        let what = if name.is_some() { "Named" } else { "\"required\"" };
        return Err(Error::invalid(format!(
            "{what} tool choice requires CreateChatCompletionRequest.tools to be provided"
        )));
    }
    let functions = tools.iter().enumerate().map(function).collect::<Result<Vec<_>>>()?;
    let chosen = match (name, &functions[..]) {
        (None, [only]) => Some(only),
        (None, _) => None,
        (Some(name), _) => Some(
            // The last of several, like a dict of Python.
            functions
                .iter()
                .rev()
                .find(|(of, _)| *of == name)
                .ok_or_else(|| Error::invalid(format!("Tool '{name}' has not been passed in `tools`.")))?,
        ),
    };
    Ok(Some(match chosen {
        Some((name, parameters)) => Forced { schema: parameters.clone(), function: Some((*name).to_owned()) },
        None => Forced { schema: schema_of_any(functions)?, function: None },
    }))
}

/// Name and schema of the parameters of a tool. Without `parameters` a function takes none.
fn function((at, tool): (usize, &Value)) -> Result<(&str, Value)> {
    let function = &tool["function"];
    let name = function["name"].as_str().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Error::invalid(format!("tools[{at}].function.name must be a string")))?;
    match &function["parameters"] {
        Value::Null => Ok((name, json!({"type": "object", "properties": {}}))),
        parameters @ Value::Object(_) => Ok((name, parameters.clone())),
        other => Err(Error::invalid(format!("tools[{at}].function.parameters is {other}; it must be an object"))),
    }
}

fn schema_of_any(functions: Vec<(&str, Value)>) -> Result<Value> {
    // References in the schema of a tool begin at its root, which is not the root any more.
    let mut definitions = Map::new();
    let mut items = Vec::new();
    for (name, mut parameters) in functions {
        let own = parameters.as_object_mut().and_then(|members| members.remove("$defs"));
        if let Some(Value::Object(own)) = own {
            for (key, schema) in own {
                if definitions.get(&key).is_some_and(|other| *other != schema) {
                    return Err(Error::invalid(format!(
                        "tools define $defs.{key} differently; rename it in the parameters of '{name}'"
                    )));
                }
                definitions.insert(key, schema);
            }
        }
        items.push(json!({
            "type": "object",
            "properties": {"name": {"type": "string", "enum": [name]}, "parameters": parameters},
            "required": ["name", "parameters"],
            "additionalProperties": false,
        }));
    }
    let mut schema = json!({"type": "array", "minItems": 1, "items": {"anyOf": items}});
    if !definitions.is_empty() {
        schema["$defs"] = definitions.into();
    }
    Ok(schema)
}

impl Forced {
    /// Divides a whole text. Arguments of the one function are the text as it is, also if it was cut short; an array
    /// is read up to its last whole call, and the rest is content.
    pub fn parse(&self, text: &str) -> Parsed {
        match &self.function {
            Some(name) => Parsed::of([TextPiece::Begin(0, name.clone()), TextPiece::Arguments(0, text.to_owned())]),
            None => Machine::parse(&CALLS, text),
        }
    }

    /// Divides a text that arrives in pieces. `bytes_max`: longest call of an array in bytes.
    pub fn stream(&self, bytes_max: usize) -> ToolStream {
        match &self.function {
            Some(name) => ToolStream::arguments_of(name.clone()),
            None => ToolStream::marked(&CALLS, bytes_max),
        }
    }
}
