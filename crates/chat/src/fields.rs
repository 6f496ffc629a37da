//! Fields of requests: their types and limits, and how they are used. The table of docs/chat.md is made of [`FIELDS`].

/// Endpoints that take a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum On {
    Both,
    Chat,
    Completions,
}

/// Type of a value. `null` is the same as an absent field.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum FieldKind {
    Text,
    /// A text or a list of texts.
    Texts,
    Flag,
    /// An integer from the first to the second number.
    Integer(i64, i64),
    /// A number from the first to the second number.
    Number(f64, f64),
    Object,
    List,
    Any,
}

/// Use of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Decided by the server.
    Here,
    /// Passed to the model. One that has no place for it does not get it, and the reply names the field in
    /// `nereid-ignored`.
    Model,
    /// Accepted without effect on the text.
    Nothing,
    /// Rejected, unless its value changes nothing.
    Rejected,
}

/// A field of a request.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Name in the body.
    pub name: &'static str,
    /// Endpoints that take it.
    pub on: On,
    /// Type of its value.
    pub kind: FieldKind,
    /// How it is used.
    pub used: Use,
    /// Whether Triton's front end takes it; with `--openai-errors=triton` others are unknown.
    pub in_triton: bool,
    /// Sentence for people.
    pub meaning: &'static str,
}

pub(crate) const fn field(
    name: &'static str,
    on: On,
    kind: FieldKind,
    used: Use,
    in_triton: bool,
    meaning: &'static str,
) -> Field {
    Field { name, on, kind, used, in_triton, meaning }
}

pub(crate) const COUNT: FieldKind = FieldKind::Integer(0, i32::MAX as i64);
const ANY_NUMBER: FieldKind = FieldKind::Number(f64::MIN, f64::MAX);
pub(crate) const ANY_INTEGER: FieldKind = FieldKind::Integer(i64::MIN, i64::MAX);

/// Most choices of a request.
pub const CHOICES_MAX: i64 = 128;

/// All fields, in the order of the page.
#[rustfmt::skip]
pub const FIELDS: &[Field] = &{
    use FieldKind::*;
    use On::*;
    use Use::*;
    [
        field("model", Both, Text, Here, true,
            "A model, `model:version`, an alias, or `model` with the name of a LoRA. Without it, that \
             of `?model=`, else the only model that chats."),
        field("messages", Chat, List, Here, true, "The conversation. Contents are texts or lists of text parts."),
        field("prompt", Completions, Any, Here, true, "A text, or a list of texts. Token ids are rejected."),
        field("stream", Both, Flag, Here, true, "Send the text as server-sent events while it is made."),
        field("stream_options", Both, Object, Here, true, "`include_usage`: a last chunk with the usage."),
        field("n", Both, Integer(1, CHOICES_MAX), Here, true,
            "Number of choices: each is a request to the model. A `seed` grows by one for each."),
        field("best_of", Completions, Integer(1, CHOICES_MAX), Rejected, true, "Only 1."),
        field("echo", Completions, Flag, Here, true, "Put the prompt before the text."),
        field("suffix", Completions, Text, Rejected, true, "Only empty."),
        field("max_tokens", Both, COUNT, Model, true, "Most tokens of a choice; `--default-max-tokens` if absent."),
        field("max_completion_tokens", Chat, COUNT, Model, true, "The same under its newer name, which wins."),
        field("min_tokens", Both, COUNT, Model, true, "Fewest tokens of a choice."),
        field("stop", Both, Texts, Model, true,
            "Texts before which a choice ends. Done here for a model without a place for it."),
        field("seed", Both, ANY_INTEGER, Model, true, "Seed of the random numbers."),
        field("temperature", Both, Number(0.0, 2.0), Model, true, "Temperature."),
        field("top_p", Both, Number(0.0, 1.0), Model, true, "Share of the probability from which tokens are drawn."),
        field("top_k", Both, Integer(-1, i32::MAX as i64), Model, false,
            "Number of tokens from which the next is drawn."),
        field("min_p", Both, Number(0.0, 1.0), Model, false,
            "Smallest probability of a token, relative to the most probable one."),
        field("frequency_penalty", Both, Number(-2.0, 2.0), Model, true, "Penalty by how often a token occurred."),
        field("presence_penalty", Both, Number(-2.0, 2.0), Model, true, "Penalty for a token that occurred."),
        field("repetition_penalty", Both, ANY_NUMBER, Model, false, "Factor of penalty for a token that occurred."),
        field("length_penalty", Both, ANY_NUMBER, Model, false, "Penalty by length."),
        field("logit_bias", Both, Object, Model, true,
            "Bias by token id. With `--openai-errors=triton` it is rejected."),
        field("stop_token_ids", Both, List, Model, false, "Tokens at which a choice ends."),
        field("ignore_eos", Both, Flag, Model, true, "Go on after the token that ends a text."),
        field("include_stop_str_in_output", Both, Flag, Model, false, "Keep the text at which a choice ended."),
        field("skip_special_tokens", Both, Flag, Model, false, "Leave special tokens out of the text."),
        field("spaces_between_special_tokens", Both, Flag, Model, false, "Put spaces between special tokens."),
        field("logprobs", Chat, Flag, Here, true,
            "Return log probabilities, of a model that has the output `logprobs`."),
        field("top_logprobs", Chat, Integer(0, 20), Here, true, "Number of the most probable tokens at each place."),
        field("logprobs", Completions, Integer(0, 5), Here, true, "Number of the most probable tokens at each place."),
        field("tools", Chat, List, Here, true, "Functions that the model may call."),
        field("tool_choice", Chat, Any, Here, true, "`none`, `auto`, `required`, or a function by its name."),
        field("parallel_tool_calls", Chat, Flag, Here, false, "`false` keeps the first call only."),
        field("response_format", Chat, Object, Model, true,
            "`json_schema` and `json_object`, for models that have a place for structured outputs; else rejected."),
        field("structured_outputs", Both, Object, Model, false, "Passed on as vLLM takes it."),
        field("chat_template_kwargs", Chat, Object, Here, false,
            "Further variables of the template, such as `enable_thinking`."),
        field("add_generation_prompt", Chat, Flag, Here, false,
            "Whether the prompt ends where the assistant begins; true if absent."),
        field("reasoning_effort", Chat, Text, Here, false, "A variable of the template."),
        field("user", Both, Text, Nothing, true, "No effect."),
        field("metadata", Both, Object, Nothing, false, "No effect."),
        field("store", Both, Flag, Nothing, false, "Nothing is stored."),
        field("service_tier", Both, Text, Nothing, false, "No effect."),
        field("safety_identifier", Both, Text, Nothing, false, "No effect."),
        field("prompt_cache_key", Both, Text, Nothing, false, "No effect."),
        field("prompt_cache_retention", Both, Text, Nothing, false, "No effect."),
        field("prediction", Chat, Object, Nothing, false, "No effect."),
        field("verbosity", Chat, Text, Nothing, false, "No effect."),
        field("modalities", Chat, List, Rejected, false, "Only `[\"text\"]`."),
        field("audio", Chat, Object, Rejected, false, "No model speaks."),
        field("web_search_options", Chat, Object, Rejected, false, "The server searches nothing."),
        field("functions", Chat, List, Rejected, true, "Use `tools`."),
        field("function_call", Chat, Any, Rejected, true, "Use `tool_choice`."),
        field("chat_template", Chat, Text, Rejected, false,
            "A template is the operator's to choose: `--chat-template`."),
    ]
};

impl Field {
    /// The field of an endpoint with this name.
    pub fn find(name: &str, on: On) -> Option<&'static Self> {
        FIELDS.iter().find(|field| field.name == name && (field.on == On::Both || field.on == on))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responses::FIELDS as RESPONSES;
    use serde_json::{Map, Value, json};

    fn schema(field: &Field) -> Value {
        let mut schema = match field.kind {
            FieldKind::Text => json!({ "type": "string" }),
            FieldKind::Texts => {
                json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
            }
            FieldKind::Flag => json!({ "type": "boolean" }),
            FieldKind::Integer(least, most) => {
                // A bound that is none of the meaning, but of the type of the number.
                let is_own = |bound: i64| bound.unsigned_abs() < i32::MAX as u64;
                let mut schema = json!({ "type": "integer" });
                if is_own(least) {
                    schema["minimum"] = least.into();
                }
                if is_own(most) {
                    schema["maximum"] = most.into();
                }
                schema
            }
            FieldKind::Number(f64::MIN, _) => json!({ "type": "number" }),
            FieldKind::Number(least, most) => json!({ "type": "number", "minimum": least, "maximum": most }),
            FieldKind::Object => json!({ "type": "object" }),
            FieldKind::List => json!({ "type": "array" }),
            FieldKind::Any => json!({}),
        };
        schema["description"] = field.meaning.replace('`', "").into();
        schema
    }

    fn of(on: On) -> impl Iterator<Item = &'static Field> {
        FIELDS.iter().filter(move |field| field.on == On::Both || field.on == on)
    }

    fn request(fields: impl Iterator<Item = &'static Field>, required: &str) -> Value {
        let known = fields.filter(|field| field.used != Use::Rejected);
        let properties: Map<String, Value> = known.map(|field| (field.name.to_owned(), schema(field))).collect();
        json!({ "type": "object", "properties": properties, "required": [required] })
    }

    fn answer(said: &str, of: &Value) -> Value {
        let count = json!({ "type": "integer", "minimum": 0 });
        let usage = ["prompt_tokens", "total_tokens", "completion_tokens"];
        let usage: Map<String, Value> = usage.map(|name| (name.to_owned(), count.clone())).into_iter().collect();
        let text = json!({ "type": "string" });
        json!({
            "type": "object",
            "properties": {
                "id": text, "object": text, "created": count, "model": text,
                "choices": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "index": count, said: of, "logprobs": { "type": ["object", "null"] },
                            "finish_reason": { "type": "string", "enum": ["stop", "length", "tool_calls"] },
                        },
                    },
                },
                "usage": { "type": ["object", "null"], "properties": usage },
            },
            "required": ["id", "object", "created", "model", "choices", "usage"],
        })
    }

    fn response() -> Value {
        let count = json!({ "type": "integer", "minimum": 0 });
        let usage = ["input_tokens", "output_tokens", "total_tokens"];
        let usage: Map<String, Value> = usage.map(|name| (name.to_owned(), count.clone())).into_iter().collect();
        let text = json!({ "type": "string" });
        json!({
            "type": "object",
            "properties": {
                "id": text, "object": text, "created_at": count, "model": text,
                "status": { "type": "string", "enum": ["completed", "incomplete"] },
                "incomplete_details": { "type": ["object", "null"], "properties": { "reason": text } },
                "output": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": text, "type": { "type": "string", "enum": ["message", "function_call"] },
                            "status": text, "role": text, "content": { "type": "array" },
                            "call_id": text, "name": text, "arguments": text,
                        },
                        "required": ["id", "type", "status"],
                    },
                },
                "usage": { "type": ["object", "null"], "properties": usage },
            },
            "required": ["id", "object", "created_at", "model", "status", "output", "usage"],
        })
    }

    fn limits(kind: FieldKind) -> String {
        let is_own = |bound: i64| bound.unsigned_abs() < i32::MAX as u64;
        match kind {
            FieldKind::Text => "text".to_owned(),
            FieldKind::Texts => "text or list of texts".to_owned(),
            FieldKind::Flag => "boolean".to_owned(),
            FieldKind::Integer(least, most) if is_own(least) && is_own(most) => format!("integer, {least} to {most}"),
            FieldKind::Integer(least, _) if is_own(least) => format!("integer, {least} or more"),
            FieldKind::Integer(..) => "integer".to_owned(),
            FieldKind::Number(f64::MIN, _) => "number".to_owned(),
            FieldKind::Number(least, most) => format!("number, {least} to {most}"),
            FieldKind::Object => "object".to_owned(),
            FieldKind::List => "list".to_owned(),
            FieldKind::Any => "see right".to_owned(),
        }
    }

    fn used(field: &Field) -> &'static str {
        match field.used {
            Use::Here => "by the server",
            Use::Model => "by the model",
            Use::Nothing => "ignored",
            Use::Rejected => "rejected",
        }
    }

    fn table() -> String {
        let mut text = "| field | of | value | used | |\n|---|---|---|---|---|\n".to_owned();
        for field in FIELDS {
            let on = match field.on {
                On::Both => "both",
                On::Chat => "chat",
                On::Completions => "completions",
            };
            let of = if field.in_triton { "" } else { " Not in Triton." };
            let (name, kind, used) = (field.name, limits(field.kind), used(field));
            text += &format!("| `{name}` | {on} | {kind} | {used} | {}{of} |\n", field.meaning);
        }
        text
    }

    fn responses_table() -> String {
        let mut text = "| field | value | used | |\n|---|---|---|---|\n".to_owned();
        for field in RESPONSES {
            text += &format!("| `{}` | {} | {} | {} |\n", field.name, limits(field.kind), used(field), field.meaning);
        }
        text
    }

    /// Compares a file that is made of the table, or writes it.
    fn check(path: &str, made: impl FnOnce(&str) -> String) {
        let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        let made = made(&written);
        if std::env::var_os("NEREID_UPDATE").is_some() {
            std::fs::write(&path, &made).unwrap();
        } else {
            assert_eq!(written, made, "NEREID_UPDATE=1 cargo test -p nereid-chat fields writes it");
        }
    }

    #[test]
    fn what_is_made_of_the_fields_is_up_to_date() {
        check("src/api/openapi/generated/chat.ts", |_| {
            format!(
                "// Made by `NEREID_UPDATE=1 cargo test -p nereid-chat fields` of crates/chat/src/fields.rs.\n\
                 import type {{ Schema }} from '../schemas.js'\n\n/** Schemas of the bodies of chats, completions \
                 and responses. */\nexport const CHAT_SCHEMAS: Schema = {{\n  ChatRequest: {},\n  \
                 CompletionRequest: {},\n  ChatAnswer: {},\n  CompletionAnswer: {},\n  ResponsesRequest: {},\n  \
                 ResponsesAnswer: {},\n}}\n",
                request(of(On::Chat), "messages"),
                request(of(On::Completions), "prompt"),
                answer("message", &json!({ "type": "object" })),
                answer("text", &json!({ "type": "string" })),
                request(RESPONSES.iter(), "input"),
                response(),
            )
        });
        check("docs/chat.md", |page| {
            let put = |page: String, begin: &str, end: &str, table: String| {
                let Some((before, rest)) = page.split_once(begin) else { return page };
                let after = rest.split_once(end).map_or("", |(_, after)| after);
                format!("{before}{begin}{table}{end}{after}")
            };
            let page = put(page.to_owned(), "<!-- fields -->\n", "<!-- end of fields -->\n", table());
            put(page, "<!-- responses -->\n", "<!-- end of responses -->\n", responses_table())
        });
    }

    #[test]
    fn an_endpoint_has_each_field_once() {
        for on in [On::Chat, On::Completions] {
            let names: Vec<_> = of(on).map(|field| field.name).collect();
            let unique: std::collections::HashSet<_> = names.iter().collect();
            assert_eq!(unique.len(), names.len(), "{names:?}");
        }
    }
}
