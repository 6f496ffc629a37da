//! Calls of tools in the text of a model: parsers by the format that a family of models was trained on.
//!
//! A text is divided the same way whether it arrives whole or in pieces, as far as its calls are well-formed. Arguments
//! are the text that the model wrote: the order of keys and the digits of numbers stay. A call is well-formed if it is
//! strict JSON (of Python: literals and names only), nested at most [`DEPTH_MAX`] deep, with one name that is not empty
//! and one member `arguments` or `parameters`. Other text is content, whatever it resembles.

mod call;
mod forced;
pub mod fuzz;
mod held;
mod json;
mod machine;
mod parsed;
mod python;
mod stream;

pub use forced::{Forced, forced};
pub use json::DEPTH_MAX;
pub use parsed::{Parsed, TextPiece, ToolCall};
pub use stream::ToolStream;

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

impl ToolParser {
    /// All parsers.
    pub const ALL: [Self; 4] = [Self::Llama3, Self::Mistral, Self::Hermes, Self::Pythonic];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        self.format().name
    }

    /// Form of the calls, for help texts.
    pub fn reads(self) -> &'static str {
        self.format().reads
    }

    fn format(self) -> &'static Format {
        match self {
            Self::Llama3 => &Format {
                name: "llama3",
                reads: r#"{"name": …, "parameters": …}, perhaps after <|python_tag|>, several with ; between"#,
                marker: "<|python_tag|>",
                is_anywhere: false,
                bare: Some(b'{'),
                body: Body::Objects,
                // TensorRT-LLM may not stop at the end of a turn.
                closing: "assistant\n\n",
            },
            Self::Mistral => &Format {
                name: "mistral",
                reads: r#"[TOOL_CALLS][{"name": …, "arguments": …}], or [TOOL_CALLS]name[ARGS]{…}"#,
                marker: "[TOOL_CALLS]",
                is_anywhere: true,
                bare: Some(b'['),
                body: Body::Array,
                closing: "",
            },
            Self::Hermes => &Format {
                name: "hermes",
                reads: r#"<tool_call>{"name": …, "arguments": …}</tool_call>"#,
                marker: "<tool_call>",
                is_anywhere: true,
                bare: None,
                body: Body::Element,
                closing: "</tool_call>",
            },
            Self::Pythonic => &Format {
                name: "pythonic",
                reads: r#"[f(a=1), g(b="x")]"#,
                marker: "",
                is_anywhere: false,
                bare: Some(b'['),
                body: Body::Python,
                closing: "",
            },
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
