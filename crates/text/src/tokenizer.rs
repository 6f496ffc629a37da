//! The tokenizer of a model.

use std::path::Path;
use tensor::{Error, Result};

/// A loaded tokenizer.
pub struct Tokenizer {}

/// The side that is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum Side {
    Left,
    #[default]
    Right,
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
pub struct Piece {
    /// Its id.
    pub id: u32,
    /// Its part of the text; the name of a special token.
    pub text: String,
    /// Whether the tokenizer added it.
    pub is_special: bool,
    /// Its place in the text, in characters; `None` for a special token.
    pub place: Option<(u32, u32)>,
}

impl Tokenizer {
    /// Reads `tokenizer.json` of a folder, with truncation and padding switched off, and what `tokenizer_config.json` adds.
    ///
    /// # Errors
    /// NOT_FOUND without the file; INVALID_ARG for a file that is none, or above a named limit.
    pub fn open(folder: &Path) -> Result<Self> {
        Err(Error::unsupported(format!("tokenizer of {}", folder.display())))
    }

    /// Tokenises a text, or a pair, as `transformers.AutoTokenizer(folder)(text, pair, truncation, max_length)`.
    ///
    /// # Errors
    /// INVALID_ARG: longer than a limit; longer than `truncation` where that rejects (the text names both numbers).
    pub fn encode(&self, text: &str, pair: Option<&str>, truncation: Truncation) -> Result<Tokens> {
        let _ = (text, pair, truncation);
        Err(Error::unsupported("tokenizers"))
    }

    /// Token ids that a client sent as this tokenizer's: cut like a text. With `declared`, special tokens are added if
    /// they are missing; without, ids that do not begin and end as a text of this tokenizer are rejected.
    ///
    /// # Errors
    /// INVALID_ARG: undeclared ids of another tokenizer, or an id above the vocabulary.
    pub fn own_ids(&self, ids: &[u32], declared: bool, truncation: Truncation) -> Result<Tokens> {
        let _ = (ids, declared, truncation);
        Err(Error::unsupported("tokenizers"))
    }

    /// The tokens of a text with their places, without truncation.
    ///
    /// # Errors
    /// INVALID_ARG: longer than a limit.
    pub fn pieces(&self, text: &str, has_special: bool) -> Result<Vec<Piece>> {
        let _ = (text, has_special);
        Err(Error::unsupported("tokenizers"))
    }

    /// Id of padding; 0 if the tokenizer has none.
    pub fn padding_id(&self) -> u32 {
        0
    }

    /// Side that the files name for truncation; right if they name none.
    pub fn truncation_side(&self) -> Side {
        Side::Right
    }
}
