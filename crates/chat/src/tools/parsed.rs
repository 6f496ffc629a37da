//! Content and calls of a text, whole or in pieces.

/// A call of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCall {
    /// Name of the function.
    pub name: String,
    /// Arguments as JSON text.
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
pub enum TextPiece {
    /// Text that is no call.
    Content(String),
    /// A call begins; its number among the calls, and its name.
    Begin(usize, String),
    /// More of the arguments of a call.
    Arguments(usize, String),
}

impl Parsed {
    /// Joins pieces.
    pub fn of(pieces: impl IntoIterator<Item = TextPiece>) -> Self {
        let mut parsed = Self::default();
        for piece in pieces {
            match piece {
                TextPiece::Content(text) => parsed.content.push_str(&text),
                TextPiece::Begin(_, name) => parsed.calls.push(ToolCall { name, arguments: String::new() }),
                TextPiece::Arguments(index, text) => parsed.calls[index].arguments.push_str(&text),
            }
        }
        parsed
    }
}
