//! Calls of tools in the text of a model: parsers by the format that a family of models was trained on.

/// Format of calls of tools in the text of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolParser {
    /// A JSON object `{"name", "parameters"}`, after `<|python_tag|>` or alone, several with `;` between.
    Llama3,
    /// `[TOOL_CALLS]` and a JSON array of `{"name", "arguments"}`.
    Mistral,
    /// `<tool_call>{"name", "arguments"}</tool_call>`, as Hermes and Qwen 2.5 write them.
    Hermes,
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
pub struct ToolStream {
    parser: ToolParser,
}

impl ToolParser {
    /// All parsers.
    pub const ALL: [Self; 3] = [Self::Llama3, Self::Mistral, Self::Hermes];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama3 => "llama3",
            Self::Mistral => "mistral",
            Self::Hermes => "hermes",
        }
    }

    /// Divides a whole text. A text that has no well-formed call is content.
    pub fn parse(self, text: &str) -> Parsed {
        Parsed { content: text.to_owned(), calls: Vec::new() }
    }

    /// Divides a text that arrives in pieces. `bytes_max`: more of a call than this is content.
    pub fn stream(self, _bytes_max: usize) -> ToolStream {
        ToolStream { parser: self }
    }
}

impl ToolStream {
    /// Adds a piece of text.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        let _ = self.parser;
        vec![Piece::Content(text.to_owned())]
    }

    /// The text is over: returns what was held back.
    pub fn end(&mut self) -> Vec<Piece> {
        Vec::new()
    }
}
