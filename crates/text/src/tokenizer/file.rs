//! `tokenizer.json` as it is written.

use serde::Deserialize;
use tokenizers::{ModelWrapper, PostProcessorWrapper, TruncationDirection};

/// `tokenizer.json`, without its truncation and padding.
#[derive(Deserialize)]
pub(super) struct TokenizerFile {
    #[serde(default)]
    pub added_tokens: Vec<tokenizers::AddedToken>,
    #[serde(default)]
    pub normalizer: Option<serde_json::Value>,
    #[serde(default)]
    pub pre_tokenizer: Option<serde_json::Value>,
    #[serde(default)]
    pub post_processor: Option<PostProcessorWrapper>,
    pub model: ModelWrapper,
    #[serde(default)]
    pub truncation: Option<FileTruncation>,
    #[serde(default)]
    pub padding: Option<FilePadding>,
}

#[derive(Deserialize)]
pub(super) struct FileTruncation {
    #[serde(default)]
    pub direction: TruncationDirection,
}

#[derive(Deserialize)]
pub(super) struct FilePadding {
    #[serde(default)]
    pub pad_id: u32,
}
