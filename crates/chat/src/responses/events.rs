//! The object `response`, and the events of a stream of it.
//!
//! A response is a list of items: messages and calls, in the order in which the model said them. The text and the
//! calls are kept by the caller, and items refer to them.

use super::RepeatedSettings;
use crate::tools::{TextPiece, ToolCall};
use serde::Serialize;
use std::fmt;
use std::io::Write;
use std::ops::Range;
use tensor::{Code, Error, Result, allowance};

/// Words of the model so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spoken<'s> {
    pub text: &'s str,
    pub calls: &'s [ToolCall],
    /// Ids of the calls.
    pub ids: &'s [String],
}

/// How a response is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ResponseStatus<'e> {
    InProgress,
    Completed,
    /// There are no more tokens.
    Incomplete,
    Failed(&'e Error),
}

/// Tokens of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tokens {
    pub input: u64,
    pub output: u64,
}

/// Prints a response.
#[derive(Debug)]
pub(crate) struct ResponsePrinter {
    /// The object up to its status.
    head: String,
    settings: String,
    streams: bool,
    fresh: fn() -> String,
    /// Number of the next event.
    sequence: u64,
    items: Vec<Item>,
    /// Bytes of the text that were said, and those that are in items. Blanks before an item wait for their use.
    said: usize,
    taken: usize,
}

#[derive(Debug)]
struct Item {
    id: String,
    of: Of,
    status: &'static str,
}

#[derive(Debug, Clone)]
enum Of {
    /// A message, with its part of the text.
    Message(Range<usize>),
    /// A call, by its number.
    Call(usize),
}

const OPEN: &str = "in_progress";

impl ResponsePrinter {
    pub(crate) fn new(
        settings: &RepeatedSettings,
        (id, created, model): (&str, u64, &str),
        streams: bool,
        fresh: fn() -> String,
    ) -> Self {
        Self {
            head: format!(
                r#"{{"id":{},"object":"response","created_at":{created},"model":{}"#,
                JsonText(&id),
                JsonText(&model)
            ),
            settings: settings.members.clone(),
            streams,
            fresh,
            sequence: 0,
            items: Vec::new(),
            said: 0,
            taken: 0,
        }
    }

    /// The first events.
    pub(crate) fn begin(&mut self, spoken: Spoken<'_>, out: &mut Vec<u8>) {
        for name in ["response.created", "response.in_progress"] {
            self.event(name, out, |printer, out| {
                put(out, format_args!(r#","response":"#));
                printer.object(spoken, ResponseStatus::InProgress, None, out);
            });
        }
    }

    /// Adds a piece, which `spoken` has already.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED without memory for the events that repeat a text.
    pub(crate) fn add(&mut self, piece: &TextPiece, spoken: Spoken<'_>, out: &mut Vec<u8>) -> Result<()> {
        match piece {
            TextPiece::Content(more) => {
                self.said += more.len();
                if let Some(Item { of: Of::Message(range), .. }) = self.open() {
                    range.end += more.len();
                    self.taken = self.said;
                    self.delta("response.output_text", r#","content_index":0,"logprobs":[]"#, more, out);
                    return Ok(());
                }
                self.close_item("completed", spoken, out)?;
                // Blanks between calls are no message.
                let text = spoken.text.get(self.taken..self.said).unwrap_or_default();
                if !text.trim().is_empty() {
                    self.open_message(text, spoken, out);
                }
            }
            TextPiece::Begin(call, _) => {
                self.close_item("completed", spoken, out)?;
                self.taken = self.said;
                self.open_item("fc", Of::Call(*call), spoken, out);
            }
            TextPiece::Arguments(_, more) if more.is_empty() => {}
            TextPiece::Arguments(_, more) => self.delta("response.function_call_arguments", "", more, out),
        }
        Ok(())
    }

    /// The model has said all.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED without memory for the events that repeat a text.
    pub(crate) fn end(&mut self, is_cut: bool, spoken: Spoken<'_>, out: &mut Vec<u8>) -> Result<()> {
        if self.items.is_empty() {
            self.open_message(spoken.text, spoken, out);
        }
        self.close_item(if is_cut { "incomplete" } else { "completed" }, spoken, out)
    }

    /// The last event.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED without memory.
    pub(crate) fn close(
        &mut self,
        status: ResponseStatus<'_>,
        tokens: Option<Tokens>,
        spoken: Spoken<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        allowance::grow_by(out, spoken.bytes() + self.settings.len())?;
        if let (ResponseStatus::Failed(_), Some(item)) = (status, self.open()) {
            item.status = "incomplete";
        }
        let name = match status {
            ResponseStatus::Incomplete => "response.incomplete",
            ResponseStatus::Failed(_) => "response.failed",
            _ => "response.completed",
        };
        self.event(name, out, |printer, out| {
            put(out, format_args!(r#","response":"#));
            printer.object(spoken, status, tokens, out);
        });
        Ok(())
    }

    /// The object `response`.
    pub(crate) fn object(
        &self,
        spoken: Spoken<'_>,
        status: ResponseStatus<'_>,
        tokens: Option<Tokens>,
        out: &mut Vec<u8>,
    ) {
        let name = match status {
            ResponseStatus::InProgress => OPEN,
            ResponseStatus::Completed => "completed",
            ResponseStatus::Incomplete => "incomplete",
            ResponseStatus::Failed(_) => "failed",
        };
        put(out, format_args!(r#"{},"status":"{name}","error":"#, self.head));
        match status {
            ResponseStatus::Failed(error) => {
                let code = match error.code() {
                    Code::InvalidArg => "invalid_prompt",
                    Code::ResourceExhausted => "rate_limit_exceeded",
                    _ => "server_error",
                };
                put(out, format_args!(r#"{{"code":"{code}","message":{}}}"#, JsonText(&error.message())));
            }
            _ => put(out, format_args!("null")),
        }
        let details = match status {
            ResponseStatus::Incomplete => r#"{"reason":"max_output_tokens"}"#,
            _ => "null",
        };
        put(out, format_args!(r#","incomplete_details":{details},"output":["#));
        for (at, item) in self.items.iter().enumerate() {
            put(out, format_args!("{}", if at == 0 { "" } else { "," }));
            item.print(spoken, out);
        }
        put(out, format_args!(r#"],"usage":"#));
        match tokens {
            // The types of OpenAI's client want the details. No model says them.
            Some(Tokens { input, output }) => put(
                out,
                format_args!(
                    "{{\"input_tokens\":{input},\"input_tokens_details\":{{\"cached_tokens\":0,\
                     \"cache_write_tokens\":0}},\"output_tokens\":{output},\"output_tokens_details\":\
                     {{\"reasoning_tokens\":0}},\"total_tokens\":{}}}",
                    input.saturating_add(output)
                ),
            ),
            None => put(out, format_args!("null")),
        }
        put(out, format_args!(",{}}}", self.settings));
    }

    fn open(&mut self) -> Option<&mut Item> {
        self.items.last_mut().filter(|item| item.status == OPEN)
    }

    fn open_message(&mut self, text: &str, spoken: Spoken<'_>, out: &mut Vec<u8>) {
        self.open_item("msg", Of::Message(self.taken..self.said), spoken, out);
        self.taken = self.said;
        let place = self.place();
        self.event("response.content_part.added", out, |_, out| {
            put(out, format_args!(r#"{place},"content_index":0,"part":{}"#, Escaped("")));
        });
        if !text.is_empty() {
            self.delta("response.output_text", r#","content_index":0,"logprobs":[]"#, text, out);
        }
    }

    fn open_item(&mut self, prefix: &str, of: Of, spoken: Spoken<'_>, out: &mut Vec<u8>) {
        let id = format!("{prefix}_{}", (self.fresh)());
        // It begins without content.
        let empty = Item { id: id.clone(), of: of.clone(), status: OPEN };
        let at = self.items.len();
        self.items.push(Item { id, of, status: OPEN });
        self.event("response.output_item.added", out, |_, out| {
            put(out, format_args!(r#","output_index":{at},"item":"#));
            empty.print_empty(spoken, out);
        });
    }

    fn close_item(&mut self, status: &'static str, spoken: Spoken<'_>, out: &mut Vec<u8>) -> Result<()> {
        let Some(item) = self.open() else { return Ok(()) };
        item.status = status;
        let (of, place, at) = (item.of.clone(), self.place(), self.items.len() - 1);
        match of {
            Of::Message(range) => {
                let text = spoken.text.get(range).unwrap_or_default();
                if self.streams {
                    allowance::grow_by(out, text.len() * 3 + 1024)?;
                }
                self.event("response.output_text.done", out, |_, out| {
                    put(out, format_args!(r#"{place},"content_index":0,"text":{},"logprobs":[]"#, JsonText(&text)));
                });
                self.event("response.content_part.done", out, |_, out| {
                    put(out, format_args!(r#"{place},"content_index":0,"part":{}"#, Escaped(text)));
                });
            }
            Of::Call(call) => {
                let Some(ToolCall { name, arguments }) = spoken.calls.get(call) else { return Ok(()) };
                self.event("response.function_call_arguments.done", out, |_, out| {
                    put(out, format_args!(r#"{place},"name":{},"arguments":{}"#, JsonText(name), JsonText(arguments)));
                });
            }
        }
        self.event("response.output_item.done", out, |printer, out| {
            put(out, format_args!(r#","output_index":{at},"item":"#));
            if let Some(item) = printer.items.last() {
                item.print(spoken, out);
            }
        });
        Ok(())
    }

    fn delta(&mut self, of: &str, more: &str, text: &str, out: &mut Vec<u8>) {
        let place = self.place();
        self.event(format_args!("{of}.delta"), out, |_, out| {
            put(out, format_args!(r#"{place}{more},"delta":{}"#, JsonText(&text)));
        });
    }

    /// Where the last item is.
    fn place(&self) -> String {
        let id = self.items.last().map_or("", |item| &item.id);
        format!(r#","item_id":"{id}","output_index":{}"#, self.items.len().saturating_sub(1))
    }

    fn event(&mut self, name: impl fmt::Display, out: &mut Vec<u8>, write: impl FnOnce(&Self, &mut Vec<u8>)) {
        if !self.streams {
            return;
        }
        let number = self.sequence;
        self.sequence += 1;
        put(out, format_args!("event: {name}\ndata: {{\"type\":\"{name}\",\"sequence_number\":{number}"));
        write(self, out);
        out.extend_from_slice(b"}\n\n");
    }
}

impl Spoken<'_> {
    fn bytes(&self) -> usize {
        self.text.len() + self.calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
    }
}

impl Item {
    fn print(&self, spoken: Spoken<'_>, out: &mut Vec<u8>) {
        match &self.of {
            Of::Message(range) => {
                let text = spoken.text.get(range.clone()).unwrap_or_default();
                self.message(format_args!("{}", Escaped(text)), out);
            }
            Of::Call(call) => self.call(*call, spoken, spoken.calls.get(*call).map_or("", |c| &c.arguments), out),
        }
    }

    fn print_empty(&self, spoken: Spoken<'_>, out: &mut Vec<u8>) {
        match &self.of {
            Of::Message(_) => self.message(format_args!(""), out),
            Of::Call(call) => self.call(*call, spoken, "", out),
        }
    }

    fn message(&self, content: fmt::Arguments<'_>, out: &mut Vec<u8>) {
        let Self { id, status, .. } = self;
        put(
            out,
            format_args!(
                r#"{{"id":"{id}","type":"message","status":"{status}","role":"assistant","content":[{content}]}}"#
            ),
        );
    }

    fn call(&self, call: usize, spoken: Spoken<'_>, arguments: &str, out: &mut Vec<u8>) {
        let Self { id, status, .. } = self;
        let name = spoken.calls.get(call).map_or("", |call| &call.name);
        let call = spoken.ids.get(call).map_or("", String::as_str);
        put(
            out,
            format_args!(
                r#"{{"id":"{id}","type":"function_call","status":"{status}","call_id":{},"name":{},"arguments":{}}}"#,
                JsonText(&call),
                JsonText(&name),
                JsonText(&arguments)
            ),
        );
    }
}

/// A value as JSON.
struct JsonText<'v, T>(&'v T);

impl<T: Serialize> fmt::Display for JsonText<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self.0).map_err(|_| fmt::Error)?)
    }
}

/// A part of a message.
struct Escaped<'t>(&'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#"{{"type":"output_text","text":{},"annotations":[],"logprobs":[]}}"#, JsonText(&self.0))
    }
}

fn put(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    // A vector takes all that is written.
    let _ = out.write_fmt(text);
}
