//! Calls of tools in the text of a model: parsers by the format that a family of models was trained on.
//!
//! A text is divided the same way whether it arrives whole or in pieces, as far as its calls are well-formed. Arguments
//! are the text that the model wrote: the order of keys and the digits of numbers stay. A call is well-formed if it is
//! strict JSON (of Python: literals and names only), nested at most [`DEPTH_MAX`] deep, with one name that is not empty
//! and one member `arguments` or `parameters`. Other text is content, whatever it resembles.

mod call;
mod forced;
pub mod fuzz;
mod json;
mod machine;
mod python;
mod source;

pub use forced::{Forced, forced};
pub use json::DEPTH_MAX;

use machine::{Body, Format, Machine};

/// Format of calls of tools in the text of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolParser {
    /// A JSON object `{"name", "parameters"}`, after `<|python_tag|>` or alone, several with `;` between.
    Llama3,
    /// `[TOOL_CALLS]` and a JSON array of `{"name", "arguments"}`, or a name and its arguments; or the array alone.
    Mistral,
    /// `<tool_call>{"name", "arguments"}</tool_call>`, as Hermes and Qwen 2.5 write them.
    Hermes,
    /// `[f(a=1), g(b="x")]`, as Llama 3.2 and Llama 4 write them.
    Pythonic,
}

/// A call of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCall {
    /// Name of the function.
    pub name: String,
    /// Its arguments, as JSON text.
    pub arguments: String,
}

/// Text of a model, divided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parsed {
    /// Text that is no call; empty if there is none.
    pub content: String,
    /// The calls, in order.
    pub calls: Vec<ToolCall>,
}

/// A part of a streamed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text that is no call.
    Content(String),
    /// A call begins; its number among the calls, and its name.
    Begin(usize, String),
    /// More of the arguments of a call.
    Arguments(usize, String),
}

/// Divides a text that arrives in pieces.
#[derive(Debug)]
pub struct ToolStream(Reader);

#[derive(Debug)]
enum Reader {
    Marked(Box<Machine>),
    /// The text is the arguments of one function, whose name is here until it is given.
    Arguments(Option<String>),
}

impl ToolParser {
    /// All parsers.
    pub const ALL: [Self; 4] = [Self::Llama3, Self::Mistral, Self::Hermes, Self::Pythonic];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama3 => "llama3",
            Self::Mistral => "mistral",
            Self::Hermes => "hermes",
            Self::Pythonic => "pythonic",
        }
    }

    fn format(self) -> &'static Format {
        match self {
            Self::Llama3 => &Format {
                marker: "<|python_tag|>",
                is_anywhere: false,
                bare: Some(b'{'),
                body: Body::Objects,
                // TensorRT-LLM may not stop at the end of a turn.
                closing: "assistant\n\n",
            },
            Self::Mistral => {
                &Format { marker: "[TOOL_CALLS]", is_anywhere: true, bare: Some(b'['), body: Body::Array, closing: "" }
            }
            Self::Hermes => &Format {
                marker: "<tool_call>",
                is_anywhere: true,
                bare: None,
                body: Body::Element,
                closing: "</tool_call>",
            },
            Self::Pythonic => {
                &Format { marker: "", is_anywhere: false, bare: Some(b'['), body: Body::Python, closing: "" }
            }
        }
    }

    /// Divides a whole text. A text that has no well-formed call is content.
    pub fn parse(self, text: &str) -> Parsed {
        Machine::parse(self.format(), text)
    }

    /// Divides a text that arrives in pieces. `bytes_max`: longest call in bytes, with its marker; more of it is
    /// content, and so is all that follows.
    pub fn stream(self, bytes_max: usize) -> ToolStream {
        ToolStream::marked(self.format(), bytes_max)
    }
}

impl ToolStream {
    fn marked(format: &'static Format, bytes_max: usize) -> Self {
        Self(Reader::Marked(Box::new(Machine::new(format, false, bytes_max))))
    }

    /// Adds a piece of text. A call that has begun may still turn out to be malformed: then its arguments end early,
    /// and the rest is content.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        match &mut self.0 {
            Reader::Marked(machine) => machine.push(text),
            Reader::Arguments(name) => {
                let begin = name.take().map(|name| Piece::Begin(0, name));
                let more = (!text.is_empty()).then(|| Piece::Arguments(0, text.to_owned()));
                begin.into_iter().chain(more).collect()
            }
        }
    }

    /// The text is over: returns what was held back.
    pub fn end(&mut self) -> Vec<Piece> {
        match &mut self.0 {
            Reader::Marked(machine) => machine.end(),
            Reader::Arguments(_) => self.push(""),
        }
    }

    /// Whether a call was longer than `bytes_max`. Triton ends such a response, with the reason `length`.
    pub fn is_exceeded(&self) -> bool {
        matches!(&self.0, Reader::Marked(machine) if machine.is_exceeded())
    }
}
