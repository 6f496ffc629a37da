//! OpenAI's forms, and what vLLM has beside them: embeddings, models, classes, scores.

use super::rows::{Embedding, RowValues};
use super::{FormError, TextOptions, Texts, cut, given, string};
use serde::{Deserialize, Serialize};

/// Body of `POST /v1/embeddings`.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EmbeddingsRequest {
    /// A model, `model:version`, or an alias.
    #[serde(default, deserialize_with = "string")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub model: Option<String>,
    /// A text, texts, token ids of a text, or lists of token ids.
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(test, schemars(with = "super::schema::Input"))]
    pub input: Option<Texts>,
    /// The form of each embedding; a list of numbers if absent.
    pub encoding_format: Option<EncodingFormat>,
    /// Values of each embedding, for a model that was trained to be cut.
    pub dimensions: Option<i64>,
    /// False rejects a text that is longer than the model takes.
    pub truncate: Option<bool>,
    /// The side that is cut, `left` or `right`.
    pub truncation_side: Option<String>,
    /// Cut at this number of tokens; -1 = the model's maximum.
    pub truncate_prompt_tokens: Option<i64>,
    /// Whether embeddings have length 1; the model's own way if absent.
    pub normalize: Option<bool>,
    /// Name of a prompt of the model, which is put before each text.
    pub prompt_name: Option<String>,
}

/// Form of embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum EncodingFormat {
    Float,
    Base64,
}

impl EmbeddingsRequest {
    /// The fields that Triton's front end takes.
    pub const TRITON_FIELDS: [&str; 5] = ["input", "model", "dimensions", "encoding_format", "user"];

    /// Options of the request.
    ///
    /// # Errors
    /// A value that no model takes.
    pub fn options(&self) -> Result<TextOptions, FormError> {
        let dimensions = self.dimensions.map(|n| match u32::try_from(n) {
            Ok(n) if n > 0 => Ok(n),
            _ => Err(FormError::of("dimensions", format!("{n} is not a number of values: the minimum is 1"))),
        });
        Ok(TextOptions {
            dimensions: dimensions.transpose()?,
            normalize: self.normalize,
            prompt: self.prompt_name.clone(),
            ..cut(self.truncate, self.truncation_side.as_deref(), self.truncate_prompt_tokens)?
        })
    }
}

/// Answer of `POST /v1/embeddings`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EmbeddingsAnswer<'a> {
    /// `list`.
    pub object: &'static str,
    /// An embedding for each text, in their order.
    pub data: Vec<EmbeddingItem<'a>>,
    /// The name that the request has.
    pub model: &'a str,
    /// The tokens that ran.
    pub usage: Usage,
}

impl EmbeddingsAnswer<'_> {
    /// The answer as JSON of about `bytes` bytes. Compiled in this crate: one with less optimisation takes 0.1 ms for a
    /// vector.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED without memory.
    pub fn print(&self, bytes: usize) -> tensor::Result<Vec<u8>> {
        super::print(self, bytes)
    }
}

/// An embedding.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EmbeddingItem<'a> {
    /// `embedding`.
    pub object: &'static str,
    /// Place of its text in the request.
    pub index: usize,
    /// Numbers, or base64 of them as FP32, little-endian.
    #[cfg_attr(test, schemars(with = "super::schema::Vector"))]
    pub embedding: Embedding<'a>,
}

/// Tokens that ran; 0 for models that do not say.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(missing_docs)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub total_tokens: u64,
}

impl Usage {
    /// The usage of a request without a completion.
    pub fn of(tokens: u64) -> Self {
        Self { prompt_tokens: tokens, total_tokens: tokens }
    }
}

/// Answer of `GET /v1/models`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ModelList<'a> {
    /// `list`.
    pub object: &'static str,
    /// Models with a role, and aliases, by their names.
    pub data: Vec<ModelItem<'a>>,
}

/// A model, or an alias.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ModelItem<'a> {
    /// Name of the model.
    pub id: &'a str,
    /// `model`.
    pub object: &'static str,
    /// When this server started, in seconds since 1970.
    pub created: u64,
    /// Name of the server.
    pub owned_by: &'a str,
    /// The model that an alias means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<&'a str>,
}

/// Answer of `POST /v1/models/{model}/unload`.
#[derive(Debug, Serialize)]
#[allow(missing_docs)]
pub struct Unloaded<'a> {
    pub status: &'static str,
    pub model: &'a str,
}

/// Body of `POST /classify`.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassifyRequest {
    /// A model, `model:version`, or an alias; absent: the only model that classifies.
    pub model: Option<String>,
    /// A text, texts, token ids of a text, or lists of token ids.
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(test, schemars(with = "super::schema::Input"))]
    pub input: Option<Texts>,
    /// False rejects a text that is longer than the model takes.
    pub truncate: Option<bool>,
    /// The side that is cut, `left` or `right`.
    pub truncation_side: Option<String>,
    /// Cut at this number of tokens; -1 = the model's maximum.
    pub truncate_prompt_tokens: Option<i64>,
}

impl ClassifyRequest {
    /// Options of the request.
    ///
    /// # Errors
    /// A value that no model takes.
    pub fn options(&self) -> Result<TextOptions, FormError> {
        cut(self.truncate, self.truncation_side.as_deref(), self.truncate_prompt_tokens)
    }
}

/// Answer of `POST /classify`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassifyAnswer<'a> {
    /// Id of the request.
    pub id: &'a str,
    /// `list`.
    pub object: &'static str,
    /// Time of the answer, in seconds since 1970.
    pub created: u64,
    /// The name that the request has.
    pub model: &'a str,
    /// The classes of each text, in their order.
    pub data: Vec<ClassifyItem<'a>>,
    /// The tokens that ran.
    pub usage: Usage,
}

/// The classes of a text.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClassifyItem<'a> {
    /// Place of the text in the request.
    pub index: usize,
    /// Name of the greatest class.
    pub label: String,
    /// The value of each class.
    #[cfg_attr(test, schemars(with = "Vec<f32>"))]
    pub probs: RowValues<'a>,
    /// Number of classes.
    pub num_classes: usize,
}

/// Body of `POST /score`.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScoreRequest {
    /// A model, `model:version`, or an alias; absent: the only model that scores, or else that embeds.
    pub model: Option<String>,
    /// A text, or texts. `queries` and `data_1` mean the same.
    #[serde(default, alias = "queries", alias = "data_1", deserialize_with = "given")]
    #[cfg_attr(test, schemars(with = "super::schema::TextOrTexts"))]
    pub text_1: Option<Texts>,
    /// The other texts: as many, or one. `documents`, `items` and `data_2` mean the same.
    #[serde(default, alias = "documents", alias = "items", alias = "data_2", deserialize_with = "given")]
    #[cfg_attr(test, schemars(with = "super::schema::TextOrTexts"))]
    pub text_2: Option<Texts>,
    /// False rejects a pair that is longer than the model takes.
    pub truncate: Option<bool>,
    /// The side that is cut, `left` or `right`.
    pub truncation_side: Option<String>,
    /// Cut at this number of tokens; -1 = the model's maximum.
    pub truncate_prompt_tokens: Option<i64>,
}

impl ScoreRequest {
    /// Options of the request.
    ///
    /// # Errors
    /// A value that no model takes.
    pub fn options(&self) -> Result<TextOptions, FormError> {
        cut(self.truncate, self.truncation_side.as_deref(), self.truncate_prompt_tokens)
    }
}

/// Answer of `POST /score`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScoreAnswer<'a> {
    /// Id of the request.
    pub id: &'a str,
    /// `list`.
    pub object: &'static str,
    /// Time of the answer, in seconds since 1970.
    pub created: u64,
    /// The name that the request has.
    pub model: &'a str,
    /// The score of each pair, in their order.
    pub data: Vec<ScoreItem>,
    /// The tokens that ran.
    pub usage: Usage,
}

/// The score of a pair.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScoreItem {
    /// Place of the pair.
    pub index: usize,
    /// `score`.
    pub object: &'static str,
    /// Score of the pair; of a model that embeds, the cosine.
    pub score: f32,
}

/// An error in OpenAI's form, with the field of Triton's front end beside it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorAnswer<'a> {
    /// OpenAI's form.
    pub error: ErrorItem<'a>,
    /// The same text, where clients of Triton's front end look for it.
    pub detail: &'a str,
}

/// An error.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ErrorItem<'a> {
    /// Text for people.
    pub message: &'a str,
    /// Kind of the error: `invalid_request_error`, `authentication_error`, `rate_limit_error`, `server_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The field that is wrong.
    pub param: Option<&'a str>,
    /// Short name: `model_not_found`, `context_length_exceeded`, `invalid_api_key`, `rate_limit_exceeded`.
    pub code: Option<&'a str>,
}
