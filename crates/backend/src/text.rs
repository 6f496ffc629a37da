//! Text models: requests that are divided into texts, each prepared, queued and batched by itself.
//!
//! Each text is an entry of its own in the queue of its version, so texts of different requests run together, in
//! batches by their number of tokens.

use crate::outcome::Outcome;
use protocol::text::{TextFacts, TextToken};
use protocol::{Checked, InferRequest, InferResponse, InputTensor};
use smallvec::SmallVec;
use tensor::Result;

/// The part of a model that knows texts. `Model::execute` of the same model runs texts that are prepared: batches whose
/// entries have one row each, of different lengths.
pub trait TextModel: Send + Sync {
    /// The role, lengths and labels.
    fn facts(&self) -> &TextFacts;

    /// Maximum of tokens in a batch of several texts, padding included.
    fn batch_tokens_max(&self) -> u32;

    /// Divides a request into texts. Fast enough for a reactor: it reads lengths, not texts.
    ///
    /// # Errors
    /// INVALID_ARG for parameters that the model does not take, and limits.
    fn divide(&self, request: &InferRequest, checked: &Checked) -> Result<Box<dyn Division>>;

    /// The tokens of one text, without truncation. Takes as long as the text is.
    ///
    /// # Errors
    /// INVALID_ARG for a text above the limit, or one that the tokenizer rejects.
    fn tokens(&self, text: &str, has_special: bool) -> Result<Vec<TextToken>>;
}

/// A request that was divided into texts.
pub trait Division: Send + Sync {
    /// Number of texts; 0 has a response, too.
    fn texts(&self) -> u32;

    /// Bytes of all texts.
    fn bytes(&self) -> usize;

    /// Tokenises one text. On a thread of the pool, or by the caller if all texts are short.
    ///
    /// # Errors
    /// INVALID_ARG: the text is too long, not UTF-8, or its token ids are not the model's.
    fn prepare(&self, text: u32) -> Result<PreparedText>;

    /// Takes the response to a prepared text, in any order, from any thread. Each text once.
    ///
    /// # Errors
    /// INTERNAL: an output has NaN or infinite values, or an unexpected shape.
    fn put(&self, text: u32, response: &InferResponse) -> Result<()>;

    /// The outcome of the request, once each text was put.
    ///
    /// # Errors
    /// INTERNAL for a text that was not put.
    fn join(&self) -> Result<Outcome>;
}

/// A tokenised text.
pub struct PreparedText {
    /// Inputs as `Model::execute` takes them, for example `input_ids`, INT32 [1, tokens].
    pub inputs: SmallVec<[InputTensor; 2]>,
    /// Length of the text, at least 1.
    pub tokens: u32,
}
