//! OpenAI's tokenizers, to decode token ids that clients send in place of texts.
//!
//! Only the way from ids to bytes is here: a table for each tokenizer, which `ranks/make.mjs` packs.

use crate::tokenizer::TEXT_BYTES_MAX;
use flate2::read::ZlibDecoder;
use protocol::text::TokenIds;
use std::io::Read;
use std::sync::LazyLock;
use tensor::{Error, Result};

/// Bytes of tokens by id.
struct Ranks {
    /// Where each token begins, and the end of the last.
    places: Vec<u32>,
    bytes: Vec<u8>,
    special: &'static [(u32, &'static str)],
}

static CL100K: LazyLock<Ranks> = LazyLock::new(|| {
    const SPECIAL: &[(u32, &str)] = &[
        (100_257, "<|endoftext|>"),
        (100_258, "<|fim_prefix|>"),
        (100_259, "<|fim_middle|>"),
        (100_260, "<|fim_suffix|>"),
        (100_276, "<|endofprompt|>"),
    ];
    Ranks::unpack(include_bytes!("../ranks/cl100k_base.zlib"), 100_256, SPECIAL)
});

static O200K: LazyLock<Ranks> = LazyLock::new(|| {
    const SPECIAL: &[(u32, &str)] = &[(199_999, "<|endoftext|>"), (200_018, "<|endofprompt|>")];
    Ranks::unpack(include_bytes!("../ranks/o200k_base.zlib"), 199_998, SPECIAL)
});

impl Ranks {
    fn unpack(packed: &[u8], tokens: usize, special: &'static [(u32, &'static str)]) -> Self {
        let mut unpacked = Vec::new();
        ZlibDecoder::new(packed).read_to_end(&mut unpacked).expect("the file is part of this module");
        let bytes = unpacked.split_off(tokens);
        let ends = unpacked.iter().scan(0, |place, length| {
            *place += u32::from(*length);
            Some(*place)
        });
        Self { places: [0].into_iter().chain(ends).collect(), bytes, special }
    }

    fn token(&self, id: u32) -> Option<&[u8]> {
        let at = id as usize;
        match (self.places.get(at), self.places.get(at.saturating_add(1))) {
            (Some(from), Some(to)) => self.bytes.get(*from as usize..*to as usize),
            _ => self.special.iter().find(|(special, _)| *special == id).map(|(_, name)| name.as_bytes()),
        }
    }
}

/// The text of token ids. Bytes that are not UTF-8 become U+FFFD, as the client's own decoder does it.
///
/// # Errors
/// INVALID_ARG for an id that the tokenizer does not have, and for a text above [`TEXT_BYTES_MAX`].
pub fn decode(of: TokenIds, ids: &[u32]) -> Result<String> {
    let ranks = match of {
        TokenIds::Cl100kBase => &CL100K,
        TokenIds::O200kBase => &O200K,
        TokenIds::Own | TokenIds::Undeclared => {
            return Err(Error::internal(format!("token ids '{}' have no table", of.name())));
        }
    };
    let mut bytes = Vec::with_capacity(ids.len().min(TEXT_BYTES_MAX / 4) * 4);
    for id in ids {
        let token = ranks.token(*id).ok_or_else(|| {
            Error::invalid(format!("token id {id} is not in {}, the tokenizer that the alias declares", of.name()))
        })?;
        bytes.extend_from_slice(token);
        if bytes.len() > TEXT_BYTES_MAX {
            let ids = ids.len();
            return Err(Error::invalid(format!(
                "the text of {ids} token ids exceeds the limit of {TEXT_BYTES_MAX} bytes"
            )));
        }
    }
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}
