//! Inputs and outputs of the graph of a text model.

use crate::ffi::GraphTensor;
use crate::graph::Graph;
use protocol::text::Role;
use tensor::{DataType, Error, Result, ShapeDisplay};

/// An input that is made of the tokens of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Feed {
    Ids,
    /// 1 for a token, 0 for padding.
    Mask,
    /// 1 for the tokens of the second text of a pair.
    Types,
    Positions,
}

impl Feed {
    const ALL: [Self; 4] = [Self::Ids, Self::Mask, Self::Types, Self::Positions];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ids => "input_ids",
            Self::Mask => "attention_mask",
            Self::Types => "token_type_ids",
            Self::Positions => "position_ids",
        }
    }
}

/// The parts of a graph that a text model uses.
#[derive(Debug)]
pub(super) struct EncoderGraph {
    /// Inputs, and whether they are INT64 instead of INT32; those first, so that each is aligned behind the others.
    pub(super) feeds: Vec<(Feed, bool)>,
    /// Name of the output.
    pub(super) output: &'static str,
    /// The output has a row for each token instead of one for each text.
    pub(super) is_pooled: bool,
    /// Values of a row; `None` if the graph does not say.
    pub(super) width: Option<u32>,
}

impl EncoderGraph {
    /// # Errors
    /// INVALID_ARG: the text names what the graph has, and what a text model needs.
    pub(super) fn find(graph: &Graph, role: Role) -> Result<Self> {
        let mut feeds = Vec::new();
        for input in &graph.inputs {
            let feed = Feed::ALL.into_iter().find(|feed| feed.name() == input.name);
            match (feed, input.datatype, &input.shape[..]) {
                (Some(feed), Some(DataType::Int64), [-1, -1]) => feeds.push((feed, true)),
                (Some(feed), Some(DataType::Int32), [-1, -1]) => feeds.push((feed, false)),
                _ => return Err(unusable(graph, role)),
            }
        }
        feeds.sort_by_key(|&(_, is_wide)| !is_wide);
        if [Feed::Ids, Feed::Mask].iter().any(|needed| feeds.iter().all(|(feed, _)| feed != needed)) {
            return Err(unusable(graph, role));
        }
        let outputs: &[(&str, usize)] = match role {
            Role::Embed => &[("sentence_embedding", 2), ("last_hidden_state", 3), ("token_embeddings", 3)],
            Role::Rerank | Role::Classify => &[("logits", 2)],
        };
        let found = outputs.iter().find_map(|&(name, rank)| {
            let is_it =
                |o: &&GraphTensor| o.name == name && o.shape.len() == rank && o.datatype == Some(DataType::Fp32);
            Some((name, rank, graph.outputs.iter().find(is_it)?.shape.last().copied()?))
        });
        let (output, rank, width) = found.ok_or_else(|| unusable(graph, role))?;
        Ok(Self { feeds, output, is_pooled: rank == 3, width: u32::try_from(width).ok() })
    }

    pub(super) fn takes_types(&self) -> bool {
        self.feeds.iter().any(|(feed, _)| *feed == Feed::Types)
    }
}

#[cold]
fn unusable(graph: &Graph, role: Role) -> Error {
    let all = |tensors: &[GraphTensor]| {
        let one = |t: &GraphTensor| {
            format!("'{}' {} {}", t.name, t.datatype.map_or("of another type", DataType::name), ShapeDisplay(&t.shape))
        };
        if tensors.is_empty() { "none".to_owned() } else { tensors.iter().map(one).collect::<Vec<_>>().join(", ") }
    };
    let output = match role {
        Role::Embed => {
            "the FP32 output 'last_hidden_state' or 'token_embeddings' [batch,tokens,values], or 'sentence_embedding' \
             [batch,values]"
        }
        Role::Rerank | Role::Classify => "the FP32 output 'logits' [batch,classes]",
    };
    Error::invalid(format!(
        "the graph has the inputs {} and the outputs {}; the backend 'text' needs the inputs 'input_ids' and \
         'attention_mask', and takes 'token_type_ids' and 'position_ids', each INT64 or INT32 [-1,-1], and for the \
         role '{}' {output}",
        all(&graph.inputs),
        all(&graph.outputs),
        role.name(),
    ))
}
