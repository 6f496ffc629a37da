//! State that the requests and the runs of a text model share.

use super::graph::Feed;
use backend::PreparedText;
use bytes::Bytes;
use protocol::text::{TextFacts, TextToken};
use protocol::{InputTensor, Signature};
use smallvec::smallvec;
use std::sync::Arc;
use tensor::{Data, DataType, Name, Result, Shape};
use text::folder::Folder;
use text::tokenizer::{Tokenizer, Tokens};

pub(super) struct TextCore {
    pub(super) folder: Folder,
    pub(super) tokenizer: Tokenizer,
    pub(super) facts: TextFacts,
    pub(super) signature: Arc<Signature>,
    /// The graph tells the texts of a pair apart.
    pub(super) takes_types: bool,
    /// Values of a row of the graph's output.
    pub(super) width: usize,
    pub(super) has_pairs: bool,
    pub(super) batch_tokens_max: u32,
}

impl TextCore {
    /// Tokens as the inputs of a run. Types that are all 0, or that the graph does not take, are left out.
    pub(super) fn inputs(&self, tokens: &Tokens) -> PreparedText {
        let tensor = |feed: Feed, values: &[u32]| InputTensor {
            name: Name::from_static(feed.name()),
            datatype: Some(DataType::Int32),
            shape: Shape::from_slice(&[1, i64::try_from(values.len()).unwrap_or(i64::MAX)]),
            data: Data::Bytes(values.iter().flat_map(|v| v.to_le_bytes()).collect::<Bytes>()),
        };
        let mut inputs = smallvec![tensor(Feed::Ids, &tokens.ids)];
        if self.takes_types && tokens.types.iter().any(|&kind| kind != 0) {
            inputs.push(tensor(Feed::Types, &tokens.types));
        }
        PreparedText { inputs, tokens: u32::try_from(tokens.ids.len()).unwrap_or(u32::MAX) }
    }

    pub(super) fn tokens(&self, text: &str, has_special: bool) -> Result<Vec<TextToken>> {
        self.tokenizer.pieces(text, has_special)
    }
}
