//! Calls of tools in the text of a model: the entry point is in the crate, beside what it tests.

/// A text in pieces, whose first bytes choose the parser, the pieces and the longest call.
pub fn chat_tools(data: &[u8]) -> bool {
    chat::tools::fuzz::tools(data)
}
