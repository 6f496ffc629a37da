//! What the requests and the runs of a text model share.

use super::graph::EncoderGraph;
use backend::{PreparedText, TextToken};
use bytes::Bytes;
use protocol::text::TextFacts;
use protocol::{InputSpec, InputTensor, OutputSpec, Signature};
use smallvec::smallvec;
use std::sync::Arc;
use tensor::{Data, DataType, Result, Shape};
use text::folder::Folder;
use text::tokenizer::{Tokenizer, Tokens};

pub(super) struct TextCore {
    pub(super) folder: Folder,
    pub(super) tokenizer: Tokenizer,
    pub(super) facts: TextFacts,
    pub(super) signature: Arc<Signature>,
    /// The signature of prepared texts.
    pub(super) prepared: Arc<Signature>,
    /// Values of a row of the graph's output.
    pub(super) width: usize,
    /// Each text is a pair.
    pub(super) has_pairs: bool,
    pub(super) batch_tokens_max: u32,
}

impl TextCore {
    /// The signature of prepared texts. A text has one token at least, so no batch has more texts than tokens.
    pub(super) fn prepared(signature: &Signature, graph: &EncoderGraph, width: usize, tokens_max: u32) -> Signature {
        let input = |name: &str, optional| InputSpec {
            name: name.into(),
            datatype: DataType::Int32,
            dims: Shape::from_slice(&[-1]),
            reshape: None,
            optional,
            allow_ragged_batch: true,
        };
        let types = graph.takes_types().then(|| input("token_type_ids", true));
        let output = OutputSpec {
            name: "row".into(),
            datatype: DataType::Fp32,
            dims: Shape::from_slice(&[i64::try_from(width).unwrap_or(i64::MAX)]),
            reshape: None,
            labels: Default::default(),
        };
        Signature {
            model: signature.model.clone(),
            version: signature.version.clone(),
            max_batch_size: tokens_max,
            inputs: std::iter::once(input("input_ids", false)).chain(types).collect(),
            outputs: vec![output],
            decoupled: false,
        }
    }

    /// Tokens as the inputs of a run. Types that are all 0 are left out.
    pub(super) fn inputs(&self, tokens: &Tokens) -> PreparedText {
        let tensor = |spec: &InputSpec, values: &[u32]| InputTensor {
            name: spec.name.clone(),
            datatype: Some(spec.datatype),
            shape: Shape::from_slice(&[1, i64::try_from(values.len()).unwrap_or(i64::MAX)]),
            data: Data::Bytes(values.iter().flat_map(|v| v.to_le_bytes()).collect::<Bytes>()),
        };
        let mut inputs = smallvec![];
        for (spec, values) in self.prepared.inputs.iter().zip([&tokens.ids, &tokens.types]) {
            if !spec.optional || values.iter().any(|&value| value != 0) {
                inputs.push(tensor(spec, values));
            }
        }
        PreparedText { inputs, tokens: u32::try_from(tokens.ids.len()).unwrap_or(u32::MAX) }
    }

    pub(super) fn tokens(&self, text: &str, has_special: bool) -> Result<Vec<TextToken>> {
        let pieces = self.tokenizer.pieces(text, has_special)?;
        let token =
            |p: text::tokenizer::Piece| TextToken { id: p.id, text: p.text, is_special: p.is_special, place: p.place };
        Ok(pieces.into_iter().map(token).collect())
    }
}
