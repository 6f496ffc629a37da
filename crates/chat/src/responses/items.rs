//! Items of `input` as messages of a chat.

use crate::body::{BodyMembers, cut, shown};

use protocol::text::FormError;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt::Write;

/// Types of parts that hold a text.
const PARTS: [&str; 4] = ["input_text", "output_text", "text", "refusal"];

/// A list of messages as JSON.
#[derive(Default)]
pub(super) struct Messages<'b> {
    json: String,
    /// The turn of the assistant that later calls belong to: templates want them in one message.
    turn: Option<Turn<'b>>,
}

struct Turn<'b> {
    content: Option<&'b RawValue>,
    /// Elements of `tool_calls`.
    calls: String,
}

#[derive(Deserialize)]
struct ContentPart<'b> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'b, str>,
}

impl<'b> Messages<'b> {
    /// Adds the system message that `instructions` are.
    pub(super) fn instruct(&mut self, text: &RawValue) {
        self.put("system", None, text);
    }

    /// Adds `input`.
    ///
    /// # Errors
    /// INVALID_ARG, as a [`FormError`]: `input` is neither a text nor a list, or an item has an unsupported form.
    pub(super) fn read(&mut self, input: &'b RawValue) -> Result<(), FormError> {
        let text = input.get();
        if text.starts_with('"') {
            self.put("user", None, input);
            return Ok(());
        }
        if !text.starts_with('[') {
            let text = format!("Input should be a valid string, or a list of items, got {}", cut(text));
            return Err(FormError::of("input", text));
        }
        let items: Vec<&RawValue> = serde_json::from_str(text).map_err(|e| FormError::of("input", shown(&e)))?;
        if items.is_empty() {
            return Err(FormError::empty("input"));
        }
        items.into_iter().enumerate().try_for_each(|(at, item)| self.item(&Item::read(at, item)?))
    }

    fn item(&mut self, item: &Item<'b>) -> Result<(), FormError> {
        match &*item.kind {
            "message" => {
                let role: Cow<'_, str> = item.text("role").and_then(|role| item.parsed("role", role))?;
                let content = item.content("content")?;
                match &*role {
                    "assistant" => {
                        self.end_turn();
                        self.turn = Some(Turn { content: Some(content), calls: String::new() });
                    }
                    "user" | "system" | "developer" => self.put(&role, None, content),
                    other => {
                        let roles = "user, system, developer or assistant";
                        return Err(item.wrong("role", format!("should be {roles}, got '{}'", cut(other))));
                    }
                }
            }
            "function_call" => {
                let (id, name) = (item.text("call_id")?.get(), item.text("name")?.get());
                let arguments = item.text("arguments")?;
                let inner: Cow<'_, str> = item.parsed("arguments", arguments)?;
                if !inner.trim().is_empty() {
                    let read = serde_json::from_str::<serde::de::IgnoredAny>(&inner);
                    read.map_err(|error| item.wrong("arguments", format!("should be JSON in a string: {error}")))?;
                }
                let turn = self.turn.get_or_insert(Turn { content: None, calls: String::new() });
                let comma = if turn.calls.is_empty() { "" } else { "," };
                let arguments = arguments.get();
                // A string takes all that is written.
                let _ = write!(
                    turn.calls,
                    r#"{comma}{{"id":{id},"type":"function","function":{{"name":{name},"arguments":{arguments}}}}}"#
                );
            }
            "function_call_output" => self.put("tool", Some(item.text("call_id")?), item.content("output")?),
            "item_reference" => {
                return Err(item.wrong("type", "is 'item_reference', and nothing is stored: send the item itself"));
            }
            other => {
                let known = "'message', 'function_call' and 'function_call_output'";
                return Err(item.wrong("type", format!("is '{}'; supported are {known}", cut(other))));
            }
        }
        Ok(())
    }

    fn put(&mut self, role: &str, call: Option<&RawValue>, content: &RawValue) {
        self.end_turn();
        self.comma();
        let _ = write!(self.json, r#"{{"role":"{role}""#);
        if let Some(call) = call {
            let _ = write!(self.json, r#","tool_call_id":{}"#, call.get());
        }
        let _ = write!(self.json, r#","content":{}}}"#, content.get());
    }

    fn end_turn(&mut self) {
        let Some(Turn { content, calls }) = self.turn.take() else { return };
        self.comma();
        let _ = write!(self.json, r#"{{"role":"assistant","content":{}"#, content.map_or("null", RawValue::get));
        if !calls.is_empty() {
            let _ = write!(self.json, r#","tool_calls":[{calls}]"#);
        }
        self.json.push('}');
    }

    fn comma(&mut self) {
        self.json.push(if self.json.is_empty() { '[' } else { ',' });
    }

    /// The list.
    pub(super) fn finish(mut self) -> String {
        self.end_turn();
        self.json.push(']');
        self.json
    }
}

/// An item of `input`.
struct Item<'b> {
    at: usize,
    kind: Cow<'b, str>,
    members: BodyMembers<'b>,
}

impl<'b> Item<'b> {
    fn read(at: usize, item: &'b RawValue) -> Result<Self, FormError> {
        let members: BodyMembers<'b> = serde_json::from_str(item.get())
            .map_err(|error| FormError::of("input", format!("input[{at}]: {}", shown(&error))))?;
        let mut read = Self { at, kind: "message".into(), members };
        // A message may leave its type out.
        if read.members.get("type").is_some() {
            read.kind = read.text("type").and_then(|kind| read.parsed("type", kind))?;
        }
        Ok(read)
    }

    fn wrong(&self, member: &str, text: impl AsRef<str>) -> FormError {
        FormError::of("input", format!("input[{}].{member} {}", self.at, text.as_ref()))
    }

    fn parsed<T: Deserialize<'b>>(&self, member: &str, value: &'b RawValue) -> Result<T, FormError> {
        serde_json::from_str(value.get()).map_err(|error| self.wrong(member, format!("is wrong: {}", shown(&error))))
    }

    fn text(&self, member: &str) -> Result<&'b RawValue, FormError> {
        match self.members.get(member) {
            None => Err(self.wrong(member, "is missing")),
            Some(value) if value.get().starts_with('"') => Ok(value),
            Some(value) => Err(self.wrong(member, format!("should be a string, got {}", cut(value.get())))),
        }
    }

    /// A text or text parts.
    fn content(&self, member: &str) -> Result<&'b RawValue, FormError> {
        let value = self.members.get(member).ok_or_else(|| self.wrong(member, "is missing"))?;
        match value.get().as_bytes().first() {
            Some(b'"') => return Ok(value),
            Some(b'[') => {}
            _ => {
                let text = format!("should be a string or a list of parts, got {}", cut(value.get()));
                return Err(self.wrong(member, text));
            }
        }
        let parts: Vec<ContentPart<'b>> = self.parsed(member, value)?;
        match parts.iter().enumerate().find(|(_, part)| !PARTS.contains(&&*part.kind)) {
            Some((place, ContentPart { kind })) => {
                let text = format!("has the type '{}': only texts are supported, as 'input_text'", cut(kind));
                Err(self.wrong(&format!("{member}[{place}]"), text))
            }
            None => Ok(value),
        }
    }
}
