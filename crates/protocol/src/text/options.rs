//! Options of a request to a text model, whatever form it came in.

use super::{CutSide, parameters};
use crate::Parameter;
use tensor::Name;

/// Wishes of a request; `None` leaves the model's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// Values of each embedding.
    pub dimensions: Option<u32>,
    /// Whether a text that is too long is cut, or rejected.
    pub truncate: Option<bool>,
    /// The side that is cut.
    pub side: Option<CutSide>,
    /// Maximum of tokens, if less than the model's.
    pub tokens_max: Option<u32>,
    /// Whether embeddings have length 1.
    pub normalize: Option<bool>,
    /// Whether scores and classes have no activation.
    pub raw_scores: Option<bool>,
    /// Name of a prompt of the model.
    pub prompt: Option<String>,
}

impl TextOptions {
    /// The parameters of a request to a model of the backend `text`.
    pub fn parameters(&self) -> Vec<(Name, Parameter)> {
        let text = |text: &str| Parameter::String(Name::from(text.to_owned()));
        let all = [
            (parameters::DIMENSIONS, self.dimensions.map(|n| Parameter::Int(n.into()))),
            (parameters::TRUNCATE, self.truncate.map(Parameter::Bool)),
            (parameters::TRUNCATION_SIDE, self.side.map(|side| text(side.name()))),
            (parameters::TOKENS_MAX, self.tokens_max.map(|n| Parameter::Int(n.into()))),
            (parameters::NORMALIZE, self.normalize.map(Parameter::Bool)),
            (parameters::RAW_SCORES, self.raw_scores.map(Parameter::Bool)),
            (parameters::PROMPT, self.prompt.as_deref().map(text)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((Name::from_static(name), value?))).collect()
    }

    /// The first wish that a model of another backend cannot fulfil. Such a model cuts texts, or does not, by itself.
    pub fn only_native(&self) -> Option<&'static str> {
        let wishes = [
            (parameters::TRUNCATE, self.truncate == Some(false)),
            (parameters::TRUNCATION_SIDE, self.side == Some(CutSide::Left)),
            (parameters::TOKENS_MAX, self.tokens_max.is_some()),
            (parameters::NORMALIZE, self.normalize.is_some()),
            (parameters::RAW_SCORES, self.raw_scores == Some(true)),
            (parameters::PROMPT, self.prompt.is_some()),
        ];
        wishes.into_iter().find_map(|(name, is_wanted)| is_wanted.then_some(name))
    }
}
