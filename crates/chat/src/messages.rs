//! Messages of a conversation, as templates see them.

use crate::body::{BodyMembers, cut, shown};
use crate::template::Json as Value;
use protocol::text::FormError;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Most messages of a conversation.
pub const MESSAGES_MAX: usize = 16_384;

/// Roles of messages. `developer` is what `system` was.
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

/// The messages of a body.
///
/// # Errors
/// INVALID_ARG, as a [`FormError`]: none or too many, or one of another form.
pub(crate) fn messages(members: &BodyMembers<'_>) -> Result<Vec<Value>, FormError> {
    let wrong = |text: String| FormError::of("messages", text);
    let Some(all) = members.read::<Vec<&RawValue>>("messages")? else { return Err(FormError::missing("messages")) };
    if all.is_empty() {
        return Err(FormError {
            is_empty: true,
            ..wrong("List should have at least 1 item after validation, not 0".to_owned())
        });
    }
    if all.len() > MESSAGES_MAX {
        return Err(wrong(format!("{} messages: at most {MESSAGES_MAX} are supported", all.len())));
    }
    all.into_iter().enumerate().map(|(at, raw)| message(at, raw)).collect()
}

/// One message as templates see it: text parts joined, arguments of calls as objects.
fn message(at: usize, raw: &RawValue) -> Result<Value, FormError> {
    let wrong = |text: String| FormError::of("messages", format!("message {at}: {text}"));
    let members: BodyMembers<'_> = serde_json::from_str(raw.get()).map_err(|error| wrong(shown(&error)))?;
    let role: Option<String> = members.read("role").map_err(|e| wrong(format!("role: {}", e.text)))?;
    let Some(role) = role else { return Err(wrong("role: Field required".to_owned())) };
    if !ROLES.contains(&&*role) {
        return Err(wrong(format!("role is one of {}, got '{}'", ROLES.join(", "), cut(&role))));
    }
    let mut made = Vec::with_capacity(members.0.len());
    for (name, value) in &members.0 {
        let value = match &**name {
            "role" => Value::from(if role == "developer" { "system" } else { &*role }),
            "content" => content(at, value)?,
            "tool_calls" => calls(at, value)?,
            _ => parsed(at, value)?,
        };
        made.push((name.to_string(), value));
    }
    if members.given("content").is_none() {
        if role != "assistant" {
            return Err(wrong("content: Field required".to_owned()));
        }
        made.push(("content".to_owned(), Value::from(())));
    }
    Ok(Value::from_pairs(made))
}

fn parsed(at: usize, value: &RawValue) -> Result<Value, FormError> {
    serde_json::from_str(value.get())
        .map_err(|error| FormError::of("messages", format!("message {at}: {}", shown(&error))))
}

#[derive(Deserialize)]
struct ContentPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    refusal: Option<String>,
}

/// A text, or text parts joined by line breaks.
fn content(at: usize, value: &RawValue) -> Result<Value, FormError> {
    let text = value.get();
    if text == "null" {
        return Ok(Value::from(()));
    }
    if text.starts_with('"') {
        return parsed(at, value);
    }
    let wrong = |text: String| FormError::of("messages", format!("message {at}: content: {text}"));
    if !text.starts_with('[') {
        return Err(wrong(format!("a text or a list of parts was expected, got {}", cut(text))));
    }
    let parts: Vec<ContentPart> = serde_json::from_str(text).map_err(|error| wrong(shown(&error)))?;
    let mut joined = String::new();
    for (place, part) in parts.into_iter().enumerate() {
        let found = match &*part.kind {
            "text" | "input_text" | "output_text" => part.text,
            "refusal" => part.refusal,
            other => {
                let text = format!("only text message is supported, but got {}", cut(other));
                return Err(FormError::of("messages", text));
            }
        };
        let found = found.ok_or_else(|| wrong(format!("part {place} has no text")))?;
        if place > 0 {
            joined.push('\n');
        }
        joined += &found;
    }
    Ok(Value::from(joined))
}

/// Calls of an assistant, whose arguments are JSON in a text: templates print objects.
fn calls(at: usize, value: &RawValue) -> Result<Value, FormError> {
    let wrong = |text: String| FormError::of("messages", format!("message {at}: tool_calls: {text}"));
    if value.get() == "null" {
        return Ok(Value::from(()));
    }
    let all: Vec<BodyMembers<'_>> = serde_json::from_str(value.get()).map_err(|error| wrong(shown(&error)))?;
    let call = |call: BodyMembers<'_>| -> Result<Value, FormError> {
        let mut made = Vec::with_capacity(call.0.len());
        for (name, value) in call.0 {
            let value = if name == "function" { function(at, value)? } else { parsed(at, value)? };
            made.push((name.into_owned(), value));
        }
        Ok(Value::from_pairs(made))
    };
    all.into_iter().map(call).collect::<Result<Vec<Value>, _>>().map(Value::from)
}

fn function(at: usize, value: &RawValue) -> Result<Value, FormError> {
    let wrong = |text: String| FormError::of("messages", format!("message {at}: tool_calls: function: {text}"));
    let members: BodyMembers<'_> = serde_json::from_str(value.get()).map_err(|error| wrong(shown(&error)))?;
    let mut made = Vec::with_capacity(members.0.len());
    for (name, value) in &members.0 {
        let value = match &**name {
            "arguments" if value.get().starts_with('"') => {
                let text: String = serde_json::from_str(value.get()).map_err(|error| wrong(shown(&error)))?;
                let empty = text.trim().is_empty();
                serde_json::from_str(if empty { "{}" } else { &text })
                    .map_err(|error| wrong(format!("arguments must be JSON: {error}")))?
            }
            _ => parsed(at, value)?,
        };
        made.push((name.to_string(), value));
    }
    Ok(Value::from_pairs(made))
}
