//! A tokenised text, and where a text is cut.

use protocol::text::CutSide;

/// Where a text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// Maximum of tokens, special tokens included.
    pub tokens_max: usize,
    /// The side that is cut.
    pub side: CutSide,
    /// A text that is longer is rejected.
    pub rejects: bool,
}

/// A tokenised text, or pair of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Ids, special tokens included.
    pub ids: Vec<u32>,
    /// Types of the tokens: 1 for the second text of a pair, where the tokenizer says so.
    pub types: Vec<u32>,
}
