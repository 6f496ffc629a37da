//! Text models as endpoints see them: the role of a model, its facts, and the parameters of a request to one.
//!
//! A text model takes BYTES texts (pairs of texts, for a cross-encoder) and returns one row of FP32 for each. A model
//! of the backend `text` has its facts from its files; any other model has the role that its configuration declares.
//!
//! [`openai`], [`cohere`] and [`tei`] have the bodies of the endpoints, both ways.

pub mod cohere;
pub mod openai;
mod options;
pub mod rows;
#[cfg(test)]
mod schema;
pub mod tei;
mod texts;

pub use options::TextOptions;
pub use texts::Texts;

use crate::Parameter;
use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use tensor::{Error, allowance};

/// Texts of a request.
pub const TEXTS_MAX: usize = 65_536;

/// Use of a model by endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Text to a vector.
    Embed,
    /// A pair of texts to a score.
    Rerank,
    /// Text to a value per class.
    Classify,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Embed, Self::Rerank, Self::Classify];

    /// Name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::Rerank => "rerank",
            Self::Classify => "classify",
        }
    }
}

/// The facts of a text model on which endpoints rely.
#[derive(Debug, Clone, PartialEq)]
pub struct TextFacts {
    /// The role.
    pub role: Role,
    /// Values of a row: dimensions of an embedding, 1 for a score, classes. `None` if the configuration does not say.
    pub width: Option<u32>,
    /// Values of `dimensions` that a request may name.
    pub dimensions: Dimensions,
    /// Maximum of tokens that run, special tokens included; `None` if unknown.
    pub tokens_max: Option<u32>,
    /// Names of classes, in order; empty if unknown.
    pub labels: Vec<String>,
    /// Whether it is a model of the backend `text`, which knows the parameters of [`parameters`].
    pub is_native: bool,
}

/// Values of `dimensions` that a request may name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Dimensions {
    /// Only its own number: the model was not trained to be cut.
    #[default]
    Fixed,
    /// From 1 to its own number.
    Any,
    /// These, ascending.
    Listed(Vec<u32>),
}

impl Dimensions {
    /// Whether an embedding of `width` values may be cut to `wanted`.
    pub fn allows(&self, wanted: u32, width: u32) -> bool {
        match self {
            _ if wanted == width => true,
            Self::Fixed => false,
            Self::Any => (1..width).contains(&wanted),
            Self::Listed(all) => all.contains(&wanted),
        }
    }
}

/// Tokenizer of token ids that a client sends in place of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenIds {
    /// Unknown: taken only if they begin and end as this model's tokenizer begins and ends a text.
    Undeclared,
    /// The model's own.
    Own,
    /// OpenAI's `cl100k_base`: decoded, and tokenised again.
    Cl100kBase,
    /// OpenAI's `o200k_base`, likewise.
    O200kBase,
}

impl TokenIds {
    /// The declarations of an alias.
    pub const DECLARED: [Self; 3] = [Self::Own, Self::Cl100kBase, Self::O200kBase];

    /// Name in aliases and parameters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Undeclared => "undeclared",
            Self::Own => "own",
            Self::Cl100kBase => "cl100k_base",
            Self::O200kBase => "o200k_base",
        }
    }
}

/// Names of the parameters of a request to a model of the backend `text`. Any client may send them over the v2 API.
pub mod parameters {
    /// Integer: values of each embedding.
    pub const DIMENSIONS: &str = "dimensions";
    /// Boolean: whether a text that is too long is cut; true if absent. Else it is rejected.
    pub const TRUNCATE: &str = "truncate";
    /// String, `left` or `right`: the side that is cut.
    pub const TRUNCATION_SIDE: &str = "truncation_side";
    /// Integer: cut at this number of tokens, if the model's own maximum is not less.
    pub const TOKENS_MAX: &str = "max_tokens";
    /// Boolean: whether embeddings are normalised, instead of the model's default.
    pub const NORMALIZE: &str = "normalize";
    /// Boolean: scores and classes without sigmoid or softmax.
    pub const RAW_SCORES: &str = "raw_scores";
    /// String: the name of a prompt of the model, put before each text.
    pub const PROMPT: &str = "prompt_name";
    /// String, a name of [`TokenIds`](super::TokenIds): the elements are token ids, as little-endian `u32`.
    pub const TOKEN_IDS: &str = "token_ids";
    /// Boolean: the response has the parameter [`TOKENS`].
    pub const USAGE: &str = "usage";
    /// Integer, of a response: the tokens that ran, over all texts.
    pub const TOKENS: &str = "tokens";
}

/// The value of a parameter.
pub fn parameter<'p>(parameters: &'p [(tensor::Name, Parameter)], name: &str) -> Option<&'p Parameter> {
    parameters.iter().find(|(n, _)| **n == *name).map(|(_, value)| value)
}

/// Parameters of configurations that any model may have.
pub mod configuration {
    use super::TokenIds;

    /// The role: a name of [`Role`](super::Role).
    pub const ROLE: &str = "nereid.text";
    /// Names by which clients of text endpoints know the model: `name`, or `name tokens=cl100k_base`, with `;` between.
    pub const ALIAS: &str = "nereid.alias";

    /// Reads the value of [`ALIAS`].
    ///
    /// # Errors
    /// A text for people: which part, and what it may be.
    pub fn aliases(text: &str) -> Result<Vec<(String, TokenIds)>, String> {
        let mut all = Vec::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let mut words = part.split_whitespace();
            let name = words.next().unwrap_or_default();
            let tokens = match words.next().map(|word| (word, word.strip_prefix("tokens="))) {
                None => TokenIds::Undeclared,
                Some((word, value)) => {
                    let known = TokenIds::DECLARED.into_iter().find(|known| value == Some(known.name()));
                    let names = TokenIds::DECLARED.map(TokenIds::name).join(", ");
                    known.filter(|_| words.next().is_none()).ok_or_else(|| {
                        format!(
                            "parameter '{ALIAS}' has '{part}', where '{word}' is invalid: after the name there may be \
                             tokens= with one of {names}, and ';' before the next name"
                        )
                    })?
                }
            };
            all.push((name.to_owned(), tokens));
        }
        Ok(all)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn aliases_have_names_and_tokenizers() {
            let read = aliases("text-embedding-3-small tokens=cl100k_base; other ;").unwrap();
            assert_eq!(
                read,
                [("text-embedding-3-small".into(), TokenIds::Cl100kBase), ("other".into(), TokenIds::Undeclared)]
            );
            let error = aliases("a tokens=gpt2").unwrap_err();
            assert!(error.contains("'a tokens=gpt2'") && error.contains("own, cl100k_base, o200k_base"), "{error}");
            assert!(aliases("a b").is_err() && aliases("a tokens=own x").is_err());
            assert_eq!(aliases(" ; ").unwrap(), []);
        }
    }
}
/// The side of a text that is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum CutSide {
    Left,
    #[default]
    Right,
}

impl CutSide {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Left, Self::Right];

    /// Name in configurations, parameters and forms.
    pub fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }
}

/// One token of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextToken {
    /// The id.
    pub id: u32,
    /// The part of the text that it stands for; the name of a special token.
    pub text: String,
    /// Whether the tokenizer added it.
    pub is_special: bool,
    /// The place in the text, in characters; `None` for a special token.
    pub place: Option<(u32, u32)>,
}

/// A body that has not the form of its endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormError {
    /// The field that is wrong.
    pub field: Option<&'static str>,
    /// Text for the client.
    pub text: Cow<'static, str>,
    /// The field has no content.
    pub is_empty: bool,
}

impl FormError {
    /// A wrong field.
    pub fn of(field: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        Self { field: Some(field), text: text.into(), is_empty: false }
    }

    /// A field that is missing, in the words of Triton's front end.
    pub fn missing(field: &'static str) -> Self {
        Self::of(field, "Field required")
    }

    /// A list or text without content, in the words of Triton's front end.
    pub fn empty(field: &'static str) -> Self {
        let text = "Value should have at least 1 item after validation, not 0";
        Self { is_empty: true, ..Self::of(field, text) }
    }
}

/// Reads a body.
///
/// # Errors
/// The body is not JSON, or has another form.
pub fn read<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, FormError> {
    serde_json::from_slice(body).map_err(|error| {
        let text = error.to_string();
        // The place helps where the body is no JSON. A value of a wrong type is found by its text.
        let place = format!(" at line {} column {}", error.line(), error.column());
        let text = match error.is_data() {
            true => text.strip_suffix(&place).unwrap_or(&text).to_owned(),
            false => format!("the body is not JSON: {text}"),
        };
        FormError { field: None, text: text.into(), is_empty: false }
    })
}

/// Prints an answer. `bytes`: a guess at its length.
///
/// # Errors
/// RESOURCE_EXHAUSTED.
pub fn print<T: Serialize>(answer: &T, bytes: usize) -> tensor::Result<Vec<u8>> {
    let mut out = Vec::new();
    allowance::grow_by(&mut out, bytes)?;
    serde_json::to_writer(&mut out, answer).map_err(|error| Error::internal(error.to_string()))?;
    Ok(out)
}

/// A member of a body that Triton's front end does not take.
///
/// # Errors
/// Names the first of them.
pub fn only(body: &[u8], fields: &[&str]) -> Result<(), FormError> {
    let members = crate::json::Value::parse(body).and_then(crate::json::Value::members);
    for (name, _) in members.into_iter().flatten() {
        let name = name.decode();
        if !fields.iter().any(|field| field.as_bytes() == &*name) {
            let text = format!("Extra inputs are not permitted: '{}'", String::from_utf8_lossy(&name));
            return Err(FormError { field: None, text: text.into(), is_empty: false });
        }
    }
    Ok(())
}

/// A member that is there, so that null is none of its values.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A string, with the words of Triton's front end for all others.
fn string<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    struct Text;
    impl Visitor<'_> for Text {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a valid string")
        }

        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_unit<E: serde::de::Error>(self) -> Result<String, E> {
            Err(E::custom(NO_STRING))
        }

        fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<String, E> {
            Err(E::custom(NO_STRING))
        }
    }
    deserializer.deserialize_any(Text).map(Some)
}

/// The words of Triton's front end.
const NO_STRING: &str = "Input should be a valid string";

/// The options that cut texts. `tokens`: -1 for the model's maximum.
fn cut(truncate: Option<bool>, side: Option<&str>, tokens: Option<i64>) -> Result<TextOptions, FormError> {
    let side = match side {
        None => None,
        Some("left") => Some(CutSide::Left),
        Some("right") => Some(CutSide::Right),
        Some(other) => return Err(FormError::of("truncation_side", format!("'{other}' is not left or right"))),
    };
    let tokens_max = match tokens {
        None | Some(-1) => None,
        Some(n) => match u32::try_from(n) {
            Ok(n) if n > 0 => Some(n),
            _ => return Err(FormError::of("truncate_prompt_tokens", format!("{n} is not a number of tokens"))),
        },
    };
    Ok(TextOptions { truncate, side, tokens_max, ..TextOptions::default() })
}
