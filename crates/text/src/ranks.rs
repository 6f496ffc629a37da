//! OpenAI's tokenizers, to decode token ids that clients send in place of texts.

use protocol::text::TokenIds;
use tensor::{Error, Result};

/// The text of token ids. Bytes that are not UTF-8 become U+FFFD, as the client's own decoder does it.
///
/// # Errors
/// INVALID_ARG for an id that the tokenizer does not have.
pub fn decode(of: TokenIds, ids: &[u32]) -> Result<String> {
    let _ = ids;
    Err(Error::unsupported(of.name()))
}
