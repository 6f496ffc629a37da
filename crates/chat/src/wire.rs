//! Messages, pieces of them and calls of functions as JSON, in OpenAI's form.

use crate::tools::{TextPiece, ToolCall};
use serde::Serialize;

/// The message of a choice; each call has its id.
pub(crate) fn message<'a>(text: &'a str, calls: impl Iterator<Item = (&'a ToolCall, &'a String)>) -> String {
    let calls = calls.map(|(call, id)| Called {
        id,
        kind: "function",
        function: CalledFunction { name: &call.name, arguments: &call.arguments },
    });
    let calls: Vec<_> = calls.collect();
    let tool_calls = (!calls.is_empty()).then_some(calls);
    printed(&Message { role: "assistant", content: Some(text), tool_calls })
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<Called<'a>>>,
}

#[derive(Serialize)]
struct Called<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: CalledFunction<'a>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

#[derive(Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[DeltaCall<'a>; 1]>,
}

#[derive(Serialize)]
struct DeltaCall<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: DeltaFunction<'a>,
}

#[derive(Serialize)]
struct DeltaFunction<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

/// A piece as the delta of a chunk.
pub(crate) fn delta(piece: &TextPiece, ids: &[String]) -> String {
    let call = |index, id, name, arguments: &str| {
        printed(&Delta {
            content: None,
            tool_calls: Some([DeltaCall {
                index,
                id,
                kind: id.map(|_| "function"),
                function: DeltaFunction { name, arguments },
            }]),
        })
    };
    match piece {
        TextPiece::Content(text) => printed(&Delta { content: Some(text), tool_calls: None }),
        TextPiece::Begin(index, name) => call(*index, ids.get(*index).map(String::as_str), Some(name.as_str()), ""),
        TextPiece::Arguments(index, more) => call(*index, None, None, more),
    }
}

/// The JSON of a value.
pub(crate) fn printed(value: &impl Serialize) -> String {
    // Types whose keys are texts: this cannot fail.
    serde_json::to_string(value).unwrap_or_default()
}
