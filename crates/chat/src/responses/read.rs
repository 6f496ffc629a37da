//! A body to the body of a chat. The JSON of its parts is copied, so that the order of keys and the digits of numbers
//! stay.

use super::RepeatedSettings;
use super::fields::{FIELDS, name_of, passed};
use super::items::Messages;
use crate::body::{BodyMembers, cut, shown};
use crate::fields::{On, Use};
use crate::request::{ChatRequest, check};
use protocol::text::FormError;
use serde_json::value::RawValue;
use std::fmt::Write;

/// Bytes of a request that its response repeats.
const REPEATED_BYTES_MAX: usize = 256 << 10;

/// Reads a body as a chat whose reply is an object `response`.
///
/// # Errors
/// A text for the client, with the field that is wrong.
pub fn read(body: &[u8]) -> Result<ChatRequest, FormError> {
    let members: BodyMembers<'_> = protocol::text::read(body)?;
    for field in FIELDS {
        let Some(value) = members.get(field.name) else { continue };
        check(field, value.get())?;
        if field.used == Use::Rejected && !is_harmless(field.name, value.get()) {
            return Err(FormError::of(field.name, format!("{} is not supported: {}", field.name, field.meaning)));
        }
    }
    let mut chat = Object(String::new());
    let mut settings = Object(String::new());
    for name in passed() {
        if let Some(value) = members.given(name) {
            chat.put(name, value.get());
        }
    }
    if let Some(value) = members.given("max_output_tokens") {
        chat.put("max_tokens", value.get());
    }
    let effort = reasoning(&members)?.map_or("null", RawValue::get);
    chat.put("reasoning_effort", effort);
    settings.put("reasoning", &format!(r#"{{"effort":{effort},"summary":null}}"#));
    let format = format(&members)?;
    if let Some((format, of_chat)) = &format {
        chat.put("response_format", of_chat);
        settings.put("text", &format!(r#"{{"format":{}}}"#, format.get()));
    } else {
        settings.put("text", r#"{"format":{"type":"text"}}"#);
    }
    let tools = tools(&members)?;
    if !tools.of_chat.is_empty() {
        chat.put("tools", &format!("[{}]", tools.of_chat));
    }
    settings.put("tools", &format!("[{}]", tools.repeated));
    if let Some(choice) = tool_choice(&members)? {
        chat.put("tool_choice", &choice);
    }
    let mut messages = Messages::default();
    if let Some(text) = members.get("instructions") {
        messages.instruct(text);
    }
    messages.read(members.get("input").ok_or_else(|| FormError::missing("input"))?)?;
    chat.put("messages", &messages.finish());
    let mut request = ChatRequest::read(format!("{{{}}}", chat.0).as_bytes(), On::Chat, false)
        .map_err(|error| FormError { field: error.field.map(name_of), ..error })?;
    let or = |name: &str, absent: &'static str| members.given(name).map_or(absent, RawValue::get);
    for (name, absent) in [
        ("instructions", "null"),
        ("max_output_tokens", "null"),
        ("temperature", "1.0"),
        ("top_p", "1.0"),
        ("user", "null"),
    ] {
        settings.put(name, or(name, absent));
    }
    for (name, absent) in [("metadata", "{}"), ("parallel_tool_calls", "true"), ("tool_choice", "\"auto\"")] {
        settings.put(name, members.get(name).map_or(absent, RawValue::get));
    }
    settings.0.push_str(
        r#","background":false,"previous_response_id":null,"store":false,"top_logprobs":0,"truncation":"disabled""#,
    );
    // An event is one line. A text has no line breaks of its own, as JSON escapes them.
    let members = settings.0.replace(['\n', '\r'], " ");
    if members.len() > REPEATED_BYTES_MAX {
        let text = format!(
            "instructions, metadata, tools and text.format have {} bytes, which the response repeats: at most \
             {REPEATED_BYTES_MAX} are supported; long instructions can be a message of the role 'system'",
            members.len()
        );
        return Err(FormError { field: None, text: text.into(), is_empty: false });
    }
    request.reply.has_usage = true;
    request.responses = Some(RepeatedSettings { members });
    Ok(request)
}

/// Whether the value of a rejected field changes nothing.
fn is_harmless(name: &str, value: &str) -> bool {
    match name {
        "background" => value == "false",
        "include" | "context_management" => value.bytes().filter(|b| !b.is_ascii_whitespace()).eq(*b"[]"),
        "top_logprobs" => value == "0",
        "n" => value == "1",
        _ => false,
    }
}

/// Members of an object as JSON.
struct Object(String);

impl Object {
    fn put(&mut self, name: &str, json: &str) {
        let comma = if self.0.is_empty() { "" } else { "," };
        // A string takes all that is written.
        let _ = write!(self.0, "{comma}\"{name}\":{json}");
    }
}

/// The object that a field is; empty if it is absent.
fn object<'b>(members: &BodyMembers<'b>, name: &'static str) -> Result<BodyMembers<'b>, FormError> {
    Ok(members.read(name)?.unwrap_or_default())
}

fn reasoning<'b>(members: &BodyMembers<'b>) -> Result<Option<&'b RawValue>, FormError> {
    Ok(object(members, "reasoning")?.get("effort"))
}

/// The form of the text: as the response repeats it, and as chats have it.
fn format<'b>(members: &BodyMembers<'b>) -> Result<Option<(&'b RawValue, String)>, FormError> {
    let Some(format) = object(members, "text")?.get("format") else { return Ok(None) };
    let wrong = |error: serde_json::Error| FormError::of("text.format", shown(&error));
    let inner: BodyMembers<'b> = serde_json::from_str(format.get()).map_err(wrong)?;
    if inner.get("type").is_none_or(|kind| kind.get() != "\"json_schema\"") {
        return Ok(Some((format, format.get().to_owned())));
    }
    let mut schema = Object(String::new());
    for name in ["name", "description", "schema", "strict"] {
        if let Some(value) = inner.get(name) {
            schema.put(name, value.get());
        }
    }
    Ok(Some((format, format!(r#"{{"type":"json_schema","json_schema":{{{}}}}}"#, schema.0))))
}

/// Functions, each list without its brackets.
#[derive(Default)]
struct Tools {
    /// The tools in the form of chats.
    of_chat: String,
    /// The tools in the form in which the response repeats them.
    repeated: String,
}

fn tools(members: &BodyMembers<'_>) -> Result<Tools, FormError> {
    let mut tools = Tools::default();
    let all: Vec<&RawValue> = members.read("tools")?.unwrap_or_default();
    for (at, raw) in all.into_iter().enumerate() {
        let wrong = |text: String| FormError::of("tools", format!("tools[{at}]{text}"));
        let tool: BodyMembers<'_> = serde_json::from_str(raw.get()).map_err(|e| wrong(format!(": {}", shown(&e))))?;
        match tool.get("type").map(RawValue::get) {
            Some("\"function\"") => {}
            kind => {
                let kind = cut(kind.unwrap_or("null"));
                return Err(wrong(format!(
                    ".type is {kind}; only \"function\" is supported: run the tool in the client, as a function"
                )));
            }
        }
        if tool.get("name").is_none_or(|name| !name.get().starts_with('"')) {
            return Err(wrong(
                ".name should be a string; here name, description and parameters are beside the type".to_owned(),
            ));
        }
        let (mut function, mut repeated) = (Object(String::new()), Object(String::new()));
        for (name, value) in &tool.0 {
            let name = serde_json::to_string(name).unwrap_or_default();
            let name = name.trim_matches('"');
            repeated.put(name, value.get());
            // A template would print a null.
            if name != "type" && value.get() != "null" {
                function.put(name, value.get());
            }
        }
        for (name, absent) in [("parameters", "null"), ("strict", "false")] {
            if tool.given(name).is_none() {
                repeated.put(name, absent);
            }
        }
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(tools.of_chat, r#"{comma}{{"type":"function","function":{{{}}}}}"#, function.0);
        let _ = write!(tools.repeated, "{comma}{{{}}}", repeated.0);
    }
    Ok(tools)
}

/// The choice as chats have it.
fn tool_choice(members: &BodyMembers<'_>) -> Result<Option<String>, FormError> {
    let Some(choice) = members.get("tool_choice") else { return Ok(None) };
    let text = choice.get();
    if matches!(text, "\"none\"" | "\"auto\"" | "\"required\"") {
        return Ok(Some(text.to_owned()));
    }
    let inner: BodyMembers<'_> =
        if text.starts_with('{') { object(members, "tool_choice")? } else { BodyMembers::default() };
    let name = inner.get("name").filter(|name| name.get().starts_with('"'));
    match (inner.get("type").map(RawValue::get), name) {
        (Some("\"function\""), Some(name)) => {
            Ok(Some(format!(r#"{{"type":"function","function":{{"name":{}}}}}"#, name.get())))
        }
        _ => {
            let form = r#"{"type": "function", "name": "…"}"#;
            let text = format!("Input should be 'none', 'auto', 'required', or {form}, got {}", cut(text));
            Err(FormError::of("tool_choice", text))
        }
    }
}
