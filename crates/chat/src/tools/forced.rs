//! Calls that a request demands with `tool_choice`: the model is held to a JSON schema, and its whole text is calls.

use super::machine::{Body, Format, Machine};
use super::parsed::{Parsed, TextPiece};
use super::stream::ToolStream;
use crate::body::BodyMembers;
use crate::request::ToolChoice;
use crate::wire::printed;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use tensor::{Error, Result};

/// Calls that a request demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forced {
    /// JSON schema of the text of the model, with its members in the order of the client: models write them in it.
    pub schema: String,
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

#[derive(Deserialize)]
struct Tool<'t> {
    #[serde(borrow)]
    function: Function<'t>,
}

#[derive(Deserialize)]
struct Function<'t> {
    #[serde(borrow)]
    name: Cow<'t, str>,
    #[serde(borrow)]
    parameters: Option<&'t RawValue>,
}

impl Function<'_> {
    /// Without `parameters` a function takes none.
    fn schema(&self) -> &str {
        self.parameters.map_or(r#"{"type":"object","properties":{}}"#, RawValue::get)
    }
}

/// Reads `tool_choice` of a request beside its `tools`, a JSON list; `None` if the model is free not to call.
///
/// `required` with several tools lets the model choose among them. Triton forces the first of them.
///
/// # Errors
/// INVALID_ARG if there are no tools, the named one is not among them, two of them define a `$defs` entry differently,
/// or a tool has another form.
pub fn forced(choice: &ToolChoice, tools: &str) -> Result<Option<Forced>> {
    let name = match choice {
        ToolChoice::Absent | ToolChoice::Auto | ToolChoice::None => return Ok(None),
        ToolChoice::Required => None,
        ToolChoice::Named(name) => Some(name),
    };
    let tools: Vec<Tool<'_>> =
        serde_json::from_str(tools).map_err(|error| Error::invalid(format!("tools: {error}")))?;
    if tools.is_empty() {
        let what = if name.is_some() { "Named" } else { "\"required\"" };
        return Err(Error::invalid(format!(
            "{what} tool choice requires CreateChatCompletionRequest.tools to be provided"
        )));
    }
    for (at, Tool { function }) in tools.iter().enumerate() {
        let schema = function.schema();
        if !schema.starts_with('{') {
            let text = format!("tools[{at}].function.parameters is {schema}; it must be an object");
            return Err(Error::invalid(text));
        }
    }
    let chosen = match (name, &tools[..]) {
        (None, [only]) => Some(only),
        (None, _) => None,
        (Some(name), _) => Some(
            // The last of several, like a dict of Python.
            tools
                .iter()
                .rev()
                .find(|tool| tool.function.name == *name)
                .ok_or_else(|| Error::invalid(format!("Tool '{name}' has not been passed in `tools`.")))?,
        ),
    };
    Ok(Some(match chosen {
        Some(Tool { function }) => {
            Forced { schema: function.schema().to_owned(), function: Some(function.name.clone().into_owned()) }
        }
        None => Forced { schema: schema_of_any(&tools)?, function: None },
    }))
}

fn schema_of_any(tools: &[Tool<'_>]) -> Result<String> {
    // References in the schema of a tool begin at its root, which is not the root any more.
    let mut definitions: Vec<(Cow<'_, str>, &RawValue)> = Vec::new();
    let mut items = Vec::new();
    for Tool { function } in tools {
        let wrong = |error| Error::invalid(format!("parameters of '{}': {error}", function.name));
        let BodyMembers(mut members) = serde_json::from_str(function.schema()).map_err(wrong)?;
        for (_, own) in members.extract_if(.., |(name, own)| name == "$defs" && own.get().starts_with('{')) {
            let BodyMembers(own) = serde_json::from_str(own.get()).map_err(wrong)?;
            for (name, schema) in own {
                match definitions.iter().find(|(other, _)| *other == name) {
                    None => definitions.push((name, schema)),
                    Some((_, other)) if is_same(other, schema) => {}
                    Some(_) => {
                        return Err(Error::invalid(format!(
                            "tools define $defs.{name} differently; rename it in the parameters of '{}'",
                            function.name
                        )));
                    }
                }
            }
        }
        let (name, parameters) = (printed(&function.name), object(&members));
        let properties = format!(r#"{{"name":{{"type":"string","enum":[{name}]}},"parameters":{parameters}}}"#);
        let required = r#""required":["name","parameters"],"additionalProperties":false"#;
        items.push(format!(r#"{{"type":"object","properties":{properties},{required}}}"#));
    }
    let definitions =
        if definitions.is_empty() { String::new() } else { format!(r#","$defs":{}"#, object(&definitions)) };
    let items = items.join(",");
    Ok(format!(r#"{{"type":"array","minItems":1,"items":{{"anyOf":[{items}]}}{definitions}}}"#))
}

/// Whether two schemas say the same, in whatever order.
fn is_same(one: &RawValue, other: &RawValue) -> bool {
    let read = |json: &RawValue| serde_json::from_str::<Value>(json.get()).ok();
    one.get() == other.get() || read(one) == read(other)
}

fn object(members: &[(Cow<'_, str>, &RawValue)]) -> String {
    let members: Vec<_> = members.iter().map(|(name, value)| format!("{}:{}", printed(name), value.get())).collect();
    format!("{{{}}}", members.join(","))
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
