//! Folders of text models, made of values.

#![allow(dead_code)]

use protocol::text::CutSide;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use text::tokenizer::{Tokenizer, Tokens, Truncation};

/// A directory that is removed when the test ends.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("nereid-text-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn text(self, name: &str, text: &str) -> Self {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub fn json(self, name: &str, value: &Value) -> Self {
        self.text(name, &value.to_string())
    }

    pub fn tokenizer(&self) -> tensor::Result<Tokenizer> {
        Tokenizer::open(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn special(id: u32, content: &str) -> Value {
    json!({
        "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": true
    })
}

/// A template of special tokens around a text and a pair.
fn template(before: (&str, u32), after: (&str, u32), between: usize, second: u32) -> Value {
    let token = |name: &str, kind: u32| json!({ "SpecialToken": { "id": name, "type_id": kind } });
    let text = |id: &str, kind: u32| json!({ "Sequence": { "id": id, "type_id": kind } });
    let single = vec![token(before.0, 0), text("A", 0), token(after.0, 0)];
    let mut pair = single.clone();
    pair.extend((1..between).map(|_| token(after.0, 0)));
    pair.extend([text("B", second), token(after.0, second)]);
    let named = |(name, id): (&str, u32)| json!({ "id": name, "ids": [id], "tokens": [name] });
    json!({
        "type": "TemplateProcessing", "single": single, "pair": pair,
        "special_tokens": { before.0: named(before), after.0: named(after) }
    })
}

/// Like BERT's: whole words, their parts, letters.
pub fn word_piece() -> Value {
    let words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "brown", "fox", "##es", "jump", "##s"];
    let letters = ('a'..='z').flat_map(|letter| [letter.to_string(), format!("##{letter}")]);
    let signs = [".", ",", "!", "中", "文", "é"].map(str::to_owned);
    let all = words.map(str::to_owned).into_iter().chain(letters).chain(signs);
    let vocab: serde_json::Map<_, _> = all.enumerate().map(|(id, word)| (word, id.into())).collect();
    json!({
        "version": "1.0",
        "truncation": { "max_length": 3, "strategy": "LongestFirst", "stride": 0 },
        "padding": {
            "strategy": { "Fixed": 128 }, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "[PAD]"
        },
        "added_tokens": [special(0, "[PAD]"), special(1, "[UNK]"), special(2, "[CLS]"), special(3, "[SEP]")],
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
            "lowercase": true
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "post_processor": template(("[CLS]", 2), ("[SEP]", 3), 1, 1),
        "decoder": null,
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab
        }
    })
}

/// Like RoBERTa's: bytes and a few merges.
pub fn byte_pairs() -> Value {
    // The characters that stand for bytes.
    let printable = (b'!'..=b'~').chain(0xA1..=0xAC).chain(0xAE..=0xFF).map(char::from);
    let others = (0..68).map(|at| char::from_u32(256 + at).unwrap());
    let merges = ["h e", "Ġ t", "he r", "Ġt he", "i n", "Ġ a", "o n", "Ġ Ġ", "ĠĠ ĠĠ", "a a", "aa aa", "e r"];
    let merged = merges.map(|merge| merge.replace(' ', ""));
    let specials = ["<s>", "<pad>", "</s>", "<unk>"].map(str::to_owned);
    let all = specials.into_iter().chain(printable.chain(others).map(String::from)).chain(merged);
    let mut all: Vec<String> = all.collect();
    all.push("<mask>".into());
    let vocab: serde_json::Map<_, _> = all.iter().enumerate().map(|(id, word)| (word.clone(), id.into())).collect();
    let mut mask = special(all.len() as u32 - 1, "<mask>");
    mask["lstrip"] = true.into();
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<s>"), special(1, "<pad>"), special(2, "</s>"), special(3, "<unk>"), mask],
        "normalizer": null,
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
        "post_processor": template(("<s>", 0), ("</s>", 2), 2, 0),
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": {
            "type": "BPE", "dropout": 0.5, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges
        }
    })
}

/// Like XLM-R's: pieces with scores.
pub fn unigram() -> Value {
    let mut vocab: Vec<(String, f64)> = ["<s>", "<pad>", "</s>", "<unk>"].map(|name| (name.to_owned(), 0.0)).into();
    let pieces =
        ["▁the", "▁", "er", "in", "▁a", "▁qu", "ick", "中文", "文中", "▁fox", "es", "ing", "ми", "р", "м", "и"];
    vocab.extend(pieces.iter().enumerate().map(|(at, piece)| ((*piece).to_owned(), -3.0 - at as f64 / 7.0)));
    vocab.extend(('a'..='z').chain("中文.,!'0123456789".chars()).map(|c| (c.to_string(), -9.5)));
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<s>"), special(1, "<pad>"), special(2, "</s>"), special(3, "<unk>")],
        "normalizer": { "type": "NFKC" },
        "pre_tokenizer": { "type": "Sequence", "pretokenizers": [
            { "type": "WhitespaceSplit" },
            { "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true }
        ] },
        "post_processor": template(("<s>", 0), ("</s>", 2), 2, 0),
        "decoder": null,
        "model": { "type": "Unigram", "unk_id": 3, "vocab": vocab, "byte_fallback": false }
    })
}

/// A folder with a tokenizer.
pub fn folder(tokenizer: &Value) -> Folder {
    Folder::new().json("tokenizer.json", tokenizer)
}

pub fn to(tokens_max: usize) -> Truncation {
    Truncation { tokens_max, side: CutSide::Right, rejects: false }
}

pub fn left(tokens_max: usize) -> Truncation {
    Truncation { side: CutSide::Left, ..to(tokens_max) }
}

pub fn tokens(ids: &[u32], types: &[u32]) -> Tokens {
    Tokens { ids: ids.into(), types: types.into() }
}
