//! The other files of a folder, as far as transformers' `AutoTokenizer` reads them.
//!
//! Its classes make some steps anew from `tokenizer_config.json`, and name special tokens that `tokenizer.json` need
//! not have.

use super::file::TokenizerFile;
use crate::files;
use crate::sentences::OfSentences;
use protocol::text::CutSide;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use tensor::Result;
use tokenizers::AddedToken;

/// The attributes of special tokens, in transformers' order.
const SPECIAL: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// `tokenizer_config.json`, with what `special_tokens_map.json` and `config.json` add.
#[derive(Default)]
pub(super) struct TokenizerConfig {
    values: serde_json::Map<String, Value>,
    class: Class,
    /// sentence-transformers lowers texts.
    lowers: bool,
    /// The side that is cut, if a file says so.
    pub side: Option<CutSide>,
}

/// Classes of transformers that make steps of their own.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Class {
    #[default]
    Other,
    Bert,
    Roberta,
    XlmRoberta,
}

impl Class {
    fn of(name: &str) -> Self {
        match name.strip_suffix("Fast").unwrap_or(name) {
            "BertTokenizer" | "DistilBertTokenizer" | "ElectraTokenizer" | "MPNetTokenizer" | "MobileBertTokenizer" => {
                Self::Bert
            }
            "RobertaTokenizer" => Self::Roberta,
            "XLMRobertaTokenizer" => Self::XlmRoberta,
            _ => Self::Other,
        }
    }

    fn of_model(kind: &str) -> Self {
        match kind {
            "bert" | "distilbert" | "electra" | "mpnet" | "mobilebert" | "nomic_bert" => Self::Bert,
            "roberta" => Self::Roberta,
            "xlm-roberta" => Self::XlmRoberta,
            _ => Self::Other,
        }
    }

    /// Special tokens that the class has without a file that names them, in the order of [`SPECIAL`].
    fn special(self) -> [Option<&'static str>; 7] {
        match self {
            Self::Other => [None; 7],
            Self::Bert => [None, None, Some("[UNK]"), Some("[SEP]"), Some("[PAD]"), Some("[CLS]"), Some("[MASK]")],
            Self::Roberta | Self::XlmRoberta => ["<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"].map(Some),
        }
    }
}

#[derive(Deserialize)]
struct ModelType {
    #[serde(default)]
    model_type: String,
    #[serde(default)]
    tokenizer_class: Option<String>,
}

impl TokenizerConfig {
    pub fn read(folder: &Path) -> Result<Self> {
        let mut values: serde_json::Map<String, Value> =
            files::json(folder, "tokenizer_config.json")?.unwrap_or_default();
        if !values.contains_key("added_tokens_decoder") {
            let special: Option<serde_json::Map<String, Value>> = files::json(folder, "special_tokens_map.json")?;
            values.extend(special.into_iter().flatten());
        }
        let model: Option<ModelType> = files::json(folder, "config.json")?;
        let name = values.get("tokenizer_class").and_then(Value::as_str).map(str::to_owned);
        let class = match (name.or(model.as_ref().and_then(|model| model.tokenizer_class.clone())), model) {
            (Some(name), _) => Class::of(&name),
            (None, Some(model)) => Class::of_model(&model.model_type),
            (None, None) => Class::Other,
        };
        let side = values.get("truncation_side").and_then(Value::as_str);
        let side = CutSide::ALL.into_iter().find(|known| Some(known.name()) == side);
        let lowers = OfSentences::read(folder)?.is_some_and(|(_, of)| of.do_lower_case);
        Ok(Self { values, class, lowers, side })
    }

    fn is(&self, key: &str, default: bool) -> bool {
        self.values.get(key).and_then(Value::as_bool).unwrap_or(default)
    }

    /// Makes the steps that the class makes.
    pub fn apply(&self, file: &mut TokenizerFile) {
        let prefixes = |default| self.is("add_prefix_space", default);
        match self.class {
            Class::Bert => {
                if let Some(step) = &mut file.normalizer
                    && step["type"] == "BertNormalizer"
                {
                    step["lowercase"] = self.is("do_lower_case", true).into();
                    step["handle_chinese_chars"] = self.is("tokenize_chinese_chars", true).into();
                    step["strip_accents"] = self.values.get("strip_accents").cloned().unwrap_or_default();
                }
            }
            Class::Roberta => {
                if let Some(step) = &mut file.pre_tokenizer
                    && step["type"] == "ByteLevel"
                {
                    step["add_prefix_space"] = prefixes(false).into();
                }
            }
            Class::XlmRoberta => {
                let scheme = if prefixes(true) { "always" } else { "never" };
                let words = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": true});
                let steps = json!([{"type": "WhitespaceSplit"}, words]);
                file.pre_tokenizer = Some(json!({"type": "Sequence", "pretokenizers": steps}));
                // The class keeps only the normalizer of SentencePiece.
                let all = match file.normalizer.take() {
                    Some(mut value) if value["type"] == "Sequence" => value["normalizers"].take(),
                    value => Value::Array(value.into_iter().collect()),
                };
                let all = if let Value::Array(all) = all { all } else { Vec::new() };
                file.normalizer = all.into_iter().find(|step| step["type"] == "Precompiled");
            }
            Class::Other => {}
        }
        if self.lowers {
            let steps: Vec<Value> = [json!({"type": "Lowercase"})].into_iter().chain(file.normalizer.take()).collect();
            file.normalizer = Some(json!({"type": "Sequence", "normalizers": steps}));
        }
    }

    /// Special tokens that `tokenizer.json` does not have.
    pub fn special_tokens(&self, file: &[AddedToken]) -> Vec<AddedToken> {
        let mut missing: Vec<AddedToken> = Vec::new();
        let mut add = |token: AddedToken| {
            if !token.content.is_empty() && !file.iter().chain(&missing).any(|known| known.content == token.content) {
                missing.push(token);
            }
        };
        if let Some(Value::Object(all)) = self.values.get("added_tokens_decoder") {
            let mut all: Vec<_> =
                all.iter().filter_map(|(id, of)| Some((id.parse::<u32>().ok()?, token(of)?))).collect();
            all.sort_by_key(|(id, _)| *id);
            all.into_iter().for_each(|(_, token)| add(token));
        }
        for (key, of_class) in SPECIAL.iter().zip(self.class.special()) {
            let named = self.values.get(*key).and_then(token);
            let of_class = of_class.filter(|_| !self.values.contains_key(*key)).map(|of| AddedToken::from(of, true));
            named.or(of_class).into_iter().for_each(&mut add);
        }
        for key in ["additional_special_tokens", "extra_special_tokens"] {
            let all = self.values.get(key).and_then(Value::as_array);
            all.into_iter().flatten().filter_map(token).for_each(&mut add);
        }
        missing
    }

    /// The token of padding.
    pub fn padding_token(&self) -> Option<String> {
        let named = self.values.get("pad_token").and_then(token).map(|token| token.content);
        named.or(self.class.special()[4].map(str::to_owned))
    }
}

/// A special token: its text, or its text and how it is found.
fn token(value: &Value) -> Option<AddedToken> {
    if let Value::String(text) = value {
        return Some(AddedToken::from(text.as_str(), true));
    }
    let is = |key: &str| value.get(key).and_then(Value::as_bool);
    let special = is("special").unwrap_or(true);
    let token = AddedToken::from(value.get("content")?.as_str()?, special)
        .normalized(is("normalized").unwrap_or(!special))
        .single_word(is("single_word").unwrap_or(false))
        .lstrip(is("lstrip").unwrap_or(false));
    Some(token.rstrip(is("rstrip").unwrap_or(false)))
}
