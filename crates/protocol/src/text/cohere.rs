//! Cohere's forms, which Jina and vLLM have as well: embeddings by type, and rerank.

use super::openai::Usage;
use super::rows::RowValues;
use super::{CutSide, FormError, TextOptions, Texts, cut, given, tei};
use serde::{Deserialize, Serialize, Serializer};

/// Body of `POST /v2/embed`.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EmbedRequest {
    /// A model, `model:version`, or an alias.
    pub model: Option<String>,
    /// The texts.
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(test, schemars(with = "super::schema::TextOrTexts"))]
    pub texts: Option<Texts>,
    /// Forms of the embeddings: `float`, `base64`; `float` if absent.
    #[serde(default)]
    pub embedding_types: Vec<String>,
    /// `END` (if absent) and `START` cut a text that is too long, `NONE` rejects it.
    pub truncate: Option<String>,
    /// Cut at this number of tokens.
    pub max_tokens: Option<i64>,
    /// Values of each embedding, for a model that was trained to be cut.
    pub output_dimension: Option<u32>,
    /// Images, which no model here takes.
    #[serde(default)]
    #[cfg_attr(test, schemars(skip))]
    images: Option<serde::de::IgnoredAny>,
}

impl EmbedRequest {
    /// Options of the request.
    ///
    /// # Errors
    /// A value that no model takes.
    pub fn options(&self) -> Result<TextOptions, FormError> {
        if self.images.is_some() {
            return Err(FormError::of("images", "images are not supported: send texts"));
        }
        let (truncate, side) = match self.truncate.as_deref() {
            None => (None, None),
            Some("END") => (Some(true), Some(CutSide::Right)),
            Some("START") => (Some(true), Some(CutSide::Left)),
            Some("NONE") => (Some(false), None),
            Some(other) => return Err(FormError::of("truncate", format!("'{other}' is not START, END or NONE"))),
        };
        let cut = cut(truncate, None, self.max_tokens)?;
        Ok(TextOptions { side, dimensions: self.output_dimension, ..cut })
    }

    /// Whether the embeddings are wanted as numbers, and as base64.
    ///
    /// # Errors
    /// A type that is not made here.
    pub fn types(&self) -> Result<(bool, bool), FormError> {
        let mut types = (self.embedding_types.is_empty(), false);
        for wanted in &self.embedding_types {
            match wanted.as_str() {
                "float" => types.0 = true,
                "base64" => types.1 = true,
                other => {
                    let text = format!("'{other}' embeddings are not supported: expected float or base64");
                    return Err(FormError::of("embedding_types", text));
                }
            }
        }
        Ok(types)
    }
}

/// Answer of `POST /v2/embed`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EmbedAnswer<'a> {
    /// Id of the request.
    pub id: &'a str,
    /// The embeddings by type.
    pub embeddings: EmbedTypes<'a>,
    /// The texts of the request.
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub texts: TextList<'a>,
    /// Work of the request.
    pub meta: Meta,
}

impl EmbedAnswer<'_> {
    /// The answer as JSON, like [`EmbeddingsAnswer::print`](super::openai::EmbeddingsAnswer::print).
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED without memory.
    pub fn print(&self, bytes: usize) -> tensor::Result<Vec<u8>> {
        super::print(self, bytes)
    }
}

/// Embeddings by type, in the order of the texts.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EmbedTypes<'a> {
    /// Lists of numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<Vec<Vec<f32>>>"))]
    pub float: Option<Vec<RowValues<'a>>>,
    /// Base64 of FP32, little-endian.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<Vec<String>>"))]
    pub base64: Option<Vec<super::rows::Embedding<'a>>>,
}

/// The texts of a request.
#[derive(Debug)]
pub struct TextList<'a>(pub &'a Texts);

impl Serialize for TextList<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter())
    }
}

/// Work of the request.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Meta {
    /// Version of the form.
    pub api_version: ApiVersion,
    /// The work.
    pub billed_units: Units,
}

/// Version of a form.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ApiVersion {
    /// `2`.
    pub version: &'static str,
}

/// Work of a request.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Units {
    /// Tokens that ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Searches: 1 for a rerank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_units: Option<u64>,
}

impl Meta {
    /// Work of the request.
    pub fn new(input_tokens: Option<u64>, search_units: Option<u64>) -> Self {
        Self { api_version: ApiVersion { version: "2" }, billed_units: Units { input_tokens, search_units } }
    }
}

/// Body of `POST /rerank`, `/v1/rerank` and `/v2/rerank`.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RerankRequest {
    /// A model, `model:version`, or an alias; absent: the only model that reranks.
    pub model: Option<String>,
    /// The query.
    #[serde(default, deserialize_with = "super::string")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub query: Option<String>,
    /// The documents: texts, or objects with a `text`.
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(test, schemars(with = "super::schema::Documents"))]
    pub documents: Option<Texts>,
    /// The documents in the form of text-embeddings-inference, which has an answer and defaults of its own.
    #[serde(default, deserialize_with = "given")]
    #[cfg_attr(test, schemars(with = "Option<super::schema::TextOrTexts>"))]
    pub texts: Option<Texts>,
    /// With `texts`: whether results have them.
    #[serde(default)]
    pub return_text: bool,
    /// With `texts`: whether scores have no activation.
    pub raw_scores: Option<bool>,
    /// With `texts`: the side that is cut.
    pub truncation_direction: Option<tei::Direction>,
    /// Number of results; all if absent.
    pub top_n: Option<i64>,
    /// Whether results have their documents. Absent: false at `/v2/rerank`, else true.
    pub return_documents: Option<bool>,
    /// False rejects a document that is longer than the model takes.
    pub truncate: Option<bool>,
    /// The side that is cut, `left` or `right`.
    pub truncation_side: Option<String>,
    /// Cut at this number of tokens; -1 = the model's maximum.
    pub truncate_prompt_tokens: Option<i64>,
}

impl RerankRequest {
    /// Options of the request.
    ///
    /// # Errors
    /// A value that no model takes.
    pub fn options(&self) -> Result<TextOptions, FormError> {
        let cut = cut(self.truncate, self.truncation_side.as_deref(), self.truncate_prompt_tokens)?;
        let side = self.truncation_direction.map(CutSide::from).or(cut.side);
        Ok(TextOptions { side, raw_scores: self.raw_scores, ..cut })
    }

    /// Number of results of `documents` documents.
    ///
    /// # Errors
    /// A number below 1.
    pub fn results(&self, documents: usize) -> Result<usize, FormError> {
        match self.top_n.map(usize::try_from) {
            None => Ok(documents),
            Some(Ok(wanted)) if wanted > 0 => Ok(wanted.min(documents)),
            Some(_) => Err(FormError::of("top_n", "expected at least 1")),
        }
    }
}

/// Answer of `POST /rerank`, `/v1/rerank` and `/v2/rerank`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RerankAnswer<'a> {
    /// Id of the request.
    pub id: &'a str,
    /// The name that the request has.
    pub model: &'a str,
    /// The documents, that of the greatest score first.
    pub results: Vec<RerankItem<'a>>,
    /// The tokens that ran.
    pub usage: Usage,
    /// Work of the request, in Cohere's form.
    pub meta: Meta,
}

/// A document and its score.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RerankItem<'a> {
    /// Place of the document in the request.
    pub index: usize,
    /// The score.
    pub relevance_score: f32,
    /// The document, if it is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<Document<'a>>,
}

/// A document.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document<'a> {
    /// The text.
    pub text: std::borrow::Cow<'a, str>,
}
