//! A tokenised text, and where a text is cut.

/// The side that is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum Side {
    Left,
    #[default]
    Right,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Left, Self::Right];

    /// Name in configurations and requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }
}

/// Where a text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// Maximum of tokens, special tokens included.
    pub tokens_max: usize,
    /// The side that is cut.
    pub side: Side,
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

/// A token with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenPiece {
    /// Id of the token.
    pub id: u32,
    /// Text of the token in the request; the name of a special token.
    pub text: String,
    /// Whether the tokenizer added it.
    pub is_special: bool,
    /// Place in the text, in characters; `None` for a special token.
    pub place: Option<(u32, u32)>,
}
