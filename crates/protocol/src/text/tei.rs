//! The forms of text-embeddings-inference. Its routes have no model; the field `model` is an addition.

use super::{CutSide, TextOptions, Texts, given};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Body of `POST /embed`, `/predict` and `/tokenize`.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InputsRequest {
    /// A model, `model:version`, or an alias; absent: the only model of the role.
    pub model: Option<String>,
    /// A text, texts, or token ids.
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(test, schemars(with = "super::schema::Input"))]
    pub inputs: Option<Texts>,
    /// False, as if absent, rejects a text that is longer than the model takes.
    pub truncate: Option<bool>,
    /// The side that is cut.
    pub truncation_direction: Option<Direction>,
    /// Whether embeddings have length 1; true if absent.
    pub normalize: Option<bool>,
    /// Values of each embedding, for a model that was trained to be cut.
    pub dimensions: Option<u32>,
    /// Name of a prompt of the model, which is put before each text.
    pub prompt_name: Option<String>,
    /// Whether classes have no activation.
    pub raw_scores: Option<bool>,
    /// Whether tokens have the special ones of the tokenizer; true if absent.
    pub add_special_tokens: Option<bool>,
}

/// Side of a text that is cut.
#[derive(Debug, Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(missing_docs)]
pub enum Direction {
    #[serde(alias = "left")]
    Left,
    #[serde(alias = "right")]
    Right,
}

impl From<Direction> for CutSide {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::Left => Self::Left,
            Direction::Right => Self::Right,
        }
    }
}

impl InputsRequest {
    /// Options of the request.
    pub fn options(&self) -> TextOptions {
        TextOptions {
            dimensions: self.dimensions,
            truncate: self.truncate,
            side: self.truncation_direction.map(CutSide::from),
            normalize: self.normalize,
            raw_scores: self.raw_scores,
            prompt: self.prompt_name.clone(),
            tokens_max: None,
        }
    }
}

/// A text and its score, of `POST /rerank` with `texts`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rank<'a> {
    /// Place of the text in the request.
    pub index: usize,
    /// The text, if it is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Cow<'a, str>>,
    /// The score.
    pub score: f32,
}

/// A class and its value, of `POST /predict`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Prediction {
    /// Value of the class.
    pub score: f32,
    /// Name of the class.
    pub label: String,
}

/// A token, of `POST /tokenize`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Token {
    /// Id of the token.
    pub id: u32,
    /// Part of the text; the name of a special token.
    pub text: String,
    /// Whether the tokenizer added it.
    pub special: bool,
    /// First character; null for a special token.
    pub start: Option<u32>,
    /// The character behind its last; null for a special token.
    pub stop: Option<u32>,
}

/// Answer of `GET /info`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Info<'a> {
    /// Name of the model.
    pub model_id: &'a str,
    /// Version of the model.
    pub model_sha: &'a str,
    /// `float32`.
    pub model_dtype: &'static str,
    /// Role of the model: `embedding`, `reranker` or `classifier`.
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, serde_json::Value>"))]
    pub model_type: ModelType<'a>,
    /// Maximum of tokens of a text; null if unknown.
    pub max_input_length: Option<u32>,
    /// Maximum of texts in a request.
    pub max_client_batch_size: usize,
    /// Whether texts that are too long are cut unless a request says otherwise.
    pub auto_truncate: bool,
    /// Version of the server.
    pub version: &'a str,
}

/// Role of a model.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum ModelType<'a> {
    Embedding {},
    Reranker {
        #[serde(serialize_with = "numbered")]
        id2label: &'a [String],
    },
    Classifier {
        #[serde(serialize_with = "numbered")]
        id2label: &'a [String],
    },
}

fn numbered<S: serde::Serializer>(labels: &&[String], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(labels.iter().enumerate().map(|(at, label)| (at.to_string(), label)))
}

/// An error in TEI's form.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorAnswer<'a> {
    /// Text for people.
    pub error: &'a str,
    /// `Validation`, `Empty`, `Tokenizer`, `Overloaded`, `Unhealthy`, `Backend`.
    pub error_type: &'a str,
}
