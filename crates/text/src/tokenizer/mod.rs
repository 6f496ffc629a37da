//! The tokenizer of a model.

mod config;
mod cut;
mod file;
mod regex;
mod template;
mod types;
mod words;

pub use regex::{REGEX_BYTES_MAX, REGEX_STEPS_MAX, REGEX_TEXT_BYTES_MAX};
pub use types::{Tokens, Truncation};

use crate::files::{self, TOKENIZER_BYTES_MAX};
use config::TokenizerConfig;
use cut::{Cut, Reach};
use file::TokenizerFile;
use protocol::text::{CutSide, TextToken};
use regex::Splitter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use template::Template;
use tensor::{Error, Result};
use tokenizers::{
    AddedVocabulary, Model, ModelWrapper, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizedString, Token,
    TruncationDirection,
};
use words::Words;

/// Longest text in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Most tokens that a tokenizer may have beside its vocabulary. An automaton looks for them in each text.
pub const ADDED_TOKENS_MAX: usize = 16_384;

/// The beginning of the error of a text that is too long for its model, which is OpenAI's text.
pub const TOO_LONG: &str = "This model's maximum context length is ";

/// A loaded tokenizer.
pub struct Tokenizer {
    folder: PathBuf,
    added: AddedVocabulary,
    normalizer: Option<NormalizerWrapper>,
    splitter: Option<Splitter>,
    model: ModelWrapper,
    words: Words,
    single: Template,
    pair: Template,
    reach: Reach,
    padding_id: u32,
    side: CutSide,
}

const FILE: &str = "tokenizer.json";

impl Tokenizer {
    /// Reads `tokenizer.json` of a folder, with truncation and padding switched off, and what `tokenizer_config.json`
    /// adds.
    ///
    /// # Errors
    /// NOT_FOUND without the file; INVALID_ARG for an invalid file, or one above a named limit.
    pub fn open(folder: &Path) -> Result<Self> {
        let Some(bytes) = files::read(folder, FILE, TOKENIZER_BYTES_MAX)? else {
            let path = folder.join(FILE);
            return Err(Error::not_found(format!(
                "{} is missing; `AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)` writes it",
                path.display()
            )));
        };
        let config = TokenizerConfig::read(folder)?;
        guard(folder, || Self::make(folder, &bytes, &config))
    }

    fn make(folder: &Path, bytes: &[u8], config: &TokenizerConfig) -> Result<Self> {
        // The library is compiled without threads of its own; this switches off what would start them all the same.
        tokenizers::parallelism::set_parallelism(false);
        let invalid = |why: &dyn std::fmt::Display| files::invalid(folder, FILE, why);
        let mut file: TokenizerFile = serde_json::from_slice(bytes).map_err(|error| invalid(&error))?;
        config.apply(&mut file);
        match &mut file.model {
            ModelWrapper::BPE(bpe) => {
                // For training: it makes tokens random.
                bpe.dropout = None;
                bpe.resize_cache(0);
            }
            ModelWrapper::Unigram(unigram) => unigram.resize_cache(0),
            _ => {}
        }
        let splitter = file.pre_tokenizer.map(Splitter::read).transpose().map_err(|error| invalid(&error))?;
        let normalizer = file.normalizer.map(regex::normalizer).transpose().map_err(|error| invalid(&error))?;
        let special = config.special_tokens(&file.added_tokens);
        let (own, most) = (file.added_tokens.len() + special.len(), ADDED_TOKENS_MAX);
        if own > most {
            return Err(invalid(&format!("{own} added tokens, the limit is {most}")));
        }
        let mut added = AddedVocabulary::new();
        let tokens = file.added_tokens.into_iter().chain(special);
        added.add_tokens(tokens, &file.model, normalizer.as_ref()).map_err(|error| invalid(&error))?;
        let single = Template::learn(file.post_processor.as_ref(), false).map_err(|error| invalid(&error))?;
        let pair = Template::learn(file.post_processor.as_ref(), true).map_err(|error| invalid(&error))?;
        let padding = config.padding_token().and_then(|token| added.token_to_id(&token, &file.model));
        let side = config.side.or(file.truncation.map(|of| match of.direction {
            TruncationDirection::Left => CutSide::Left,
            TruncationDirection::Right => CutSide::Right,
        }));
        Ok(Self {
            reach: Reach::of(&added, normalizer.as_ref(), splitter.as_ref()),
            folder: folder.to_path_buf(),
            added,
            normalizer,
            splitter,
            model: file.model,
            words: Words::default(),
            single,
            pair,
            padding_id: padding.or(file.padding.map(|of| of.pad_id)).unwrap_or(0),
            side: side.unwrap_or_default(),
        })
    }

    /// Tokenises a text, or a pair, as `transformers.AutoTokenizer(folder)(text, pair, truncation, max_length)` in a
    /// batch, where an empty second text is one.
    ///
    /// # Errors
    /// INVALID_ARG: longer than a limit; longer than `truncation` where that rejects (the text names both numbers).
    pub fn encode(&self, text: &str, pair: Option<&str>, truncation: Truncation) -> Result<Tokens> {
        let template = if pair.is_some() { &self.pair } else { &self.single };
        let room = room(template, truncation)?;
        guard(&self.folder, || {
            let Some(pair) = pair else {
                let text = self.ids(text, Cut { tokens: room, side: truncation.side })?;
                return finish(template, &text, None, room, truncation);
            };
            let cut = Cut { tokens: room, side: truncation.side };
            let (mut first, mut second) = (self.ids(text, cut)?, self.ids(pair, cut)?);
            // Which of two long texts is the longer one decides about one token.
            if room % 2 == 1 && first.len() > room && second.len() > room {
                (first, second) = (self.ids(text, Cut::NONE)?, self.ids(pair, Cut::NONE)?);
            }
            finish(template, &first, Some(&second), room, truncation)
        })
    }

    /// Number of tokens of a text, without or with the special tokens that begin and end it.
    ///
    /// # Errors
    /// INVALID_ARG: longer than a limit.
    pub fn count(&self, text: &str, has_special: bool) -> Result<usize> {
        let added = if has_special { self.single.added() } else { 0 };
        guard(&self.folder, || Ok(self.ids(text, Cut::NONE)?.len() + added))
    }

    /// Token ids that a client sent as this tokenizer's: cut like a text. With `declared`, special tokens are added if
    /// they are missing; without, ids that do not begin and end as a text of this tokenizer are rejected.
    ///
    /// # Errors
    /// INVALID_ARG: undeclared ids of another tokenizer, or an id above the vocabulary.
    pub fn own_ids(&self, ids: &[u32], declared: bool, truncation: Truncation) -> Result<Tokens> {
        let room = room(&self.single, truncation)?;
        if size_of_val(ids) > TEXT_BYTES_MAX {
            let (ids, most) = (ids.len(), TEXT_BYTES_MAX / size_of::<u32>());
            return Err(Error::invalid(format!("{ids} token ids in place of a text, the limit is {most}")));
        }
        let (inner, is_whole) = self.single.strip(ids);
        if !(declared || is_whole && self.single.added() > 0) {
            return Err(Error::invalid(UNDECLARED));
        }
        if let Some(id) = inner.iter().find(|id| !self.has(**id)) {
            return Err(Error::invalid(format!("token id {id} is not in the vocabulary of the model")));
        }
        finish(&self.single, inner, None, room, truncation)
    }

    /// The tokens of a text with their places, without truncation.
    ///
    /// # Errors
    /// INVALID_ARG: longer than a limit.
    pub fn pieces(&self, text: &str, has_special: bool) -> Result<Vec<TextToken>> {
        bounded(text)?;
        guard(&self.folder, || {
            let mut split = self.split(text)?;
            self.run(&mut split, usize::MAX, CutSide::Right)?;
            let encoding = split.into_encoding(None, 0, OffsetType::Char).map_err(|error| self.failed(&error))?;
            let name = |id: &u32| TextToken {
                id: *id,
                text: self.token(*id).unwrap_or_default(),
                is_special: true,
                place: None,
            };
            // Places of characters that are places of bytes, so that a text is walked once.
            let bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let of_text = encoding.get_ids().iter().zip(encoding.get_offsets()).map(|(id, (from, to))| TextToken {
                id: *id,
                text: bytes
                    .get(*from)
                    .zip(bytes.get(*to))
                    .and_then(|(from, to)| text.get(*from..*to))
                    .unwrap_or("")
                    .into(),
                is_special: false,
                place: Some((*from as u32, *to as u32)),
            });
            let (before, after) = if has_special { self.single.ends() } else { (&[][..], &[][..]) };
            Ok(before.iter().map(name).chain(of_text).chain(after.iter().map(name)).collect())
        })
    }

    /// Id of padding; 0 if the tokenizer has none.
    pub fn padding_id(&self) -> u32 {
        self.padding_id
    }

    /// Side that the files name for truncation; right if they name none.
    pub fn truncation_side(&self) -> CutSide {
        self.side
    }

    fn token(&self, id: u32) -> Option<String> {
        self.added.simple_id_to_token(id).or_else(|| self.model.id_to_token(id))
    }

    fn has(&self, id: u32) -> bool {
        self.token(id).is_some()
    }

    /// The ids of a text without special tokens: all of them, or at least those that a cut leaves.
    fn ids(&self, text: &str, cut: Cut) -> Result<Vec<u32>> {
        bounded(text)?;
        for part in self.reach.parts(text, cut) {
            let mut split = self.split(&text[part.range()])?;
            self.run(&mut split, cut.tokens.saturating_add(1), cut.side)?;
            let splits = split.get_splits(OffsetReferential::Original, OffsetType::Byte);
            let ids: Vec<u32> = splits
                .iter()
                .filter(|(_, place, _)| part.keeps(*place))
                .flat_map(|(_, _, tokens)| tokens.as_deref().unwrap_or_default())
                .map(|token| token.id)
                .collect();
            if part.is_whole() || ids.len() > cut.tokens {
                return Ok(ids);
            }
        }
        Ok(Vec::new())
    }

    /// The words of a text, normalised.
    fn split(&self, text: &str) -> Result<PreTokenizedString> {
        let mut split = self.added.extract_and_normalize(self.normalizer.as_ref(), text);
        if let Some(splitter) = &self.splitter {
            splitter.split(&mut split).map_err(|error| self.failed(&error))?;
        }
        Ok(split)
    }

    /// Makes tokens of words, until there are enough.
    fn run(&self, split: &mut PreTokenizedString, enough: usize, side: CutSide) -> Result<()> {
        let direction = match side {
            CutSide::Left => TruncationDirection::Left,
            CutSide::Right => TruncationDirection::Right,
        };
        let tokenize = |word: &tokenizers::NormalizedString| -> tokenizers::Result<Vec<Token>> {
            self.words.tokenize(&self.model, word.get())
        };
        split.tokenize_with_limit(tokenize, enough, direction).map_err(|error| self.failed(&error))
    }

    fn failed(&self, why: &dyn std::fmt::Display) -> Error {
        Error::invalid(format!("the tokenizer of the model rejects the text: {why}"))
    }
}

/// The line that makes undeclared token ids mean something.
const UNDECLARED: &str = "the input has token ids, but they do not begin and end like a text of this model's \
                          tokenizer: send texts, or declare which tokenizer the ids are of: an alias of the model in \
                          its configuration, parameters { key: \"nereid.alias\" value { string_value: \"NAME \
                          tokens=cl100k_base\" } }, or the flag --text-alias=NAME=MODEL,tokens=cl100k_base (own, \
                          cl100k_base or o200k_base)";

fn bounded(text: &str) -> Result<()> {
    let bytes = text.len();
    if bytes > TEXT_BYTES_MAX {
        return Err(Error::invalid(format!("a text has {bytes} bytes, the limit is {TEXT_BYTES_MAX}")));
    }
    Ok(())
}

/// Tokens of texts that fit beside special tokens.
fn room(template: &Template, truncation: Truncation) -> Result<usize> {
    let (most, own) = (truncation.tokens_max, template.added());
    most.checked_sub(own).ok_or_else(|| {
        Error::invalid(format!("a maximum of {most} tokens leaves no room: the tokenizer adds {own} special tokens"))
    })
}

/// Cuts a text, or a pair at its longer text, as transformers' `longest_first`, and adds special tokens.
fn finish(
    template: &Template,
    first: &[u32],
    second: Option<&[u32]>,
    room: usize,
    truncation: Truncation,
) -> Result<Tokens> {
    let total = first.len() + second.map_or(0, <[u32]>::len);
    if total > room && truncation.rejects {
        let (most, has) = (truncation.tokens_max, total + template.added());
        return Err(Error::invalid(format!(
            "{TOO_LONG}{most} tokens, and the text has at least {has}; send a shorter one, or set truncation"
        ))
        .too_long());
    }
    let cut = |ids: &[u32], tokens: usize| -> std::ops::Range<usize> {
        let tokens = tokens.min(ids.len());
        match truncation.side {
            CutSide::Right => 0..tokens,
            CutSide::Left => ids.len() - tokens..ids.len(),
        }
    };
    let Some(second) = second else { return Ok(template.fill(&first[cut(first, room)], &[])) };
    let (mut one, mut two) = (first.len(), second.len());
    if total > room {
        let is_swapped = one > two;
        let (less, more) = (one.min(two), room.saturating_sub(one.min(two)).max(one.min(two)));
        (one, two) = if less + more > room { (room / 2, room / 2 + room % 2) } else { (less, more) };
        if is_swapped {
            (one, two) = (two, one);
        }
    }
    Ok(template.fill(&first[cut(first, one)], &second[cut(second, two)]))
}

/// Runs what calls the library: a panic of it, which a file can cause, is an error of that file.
fn guard<T>(folder: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let why = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        let why = why.unwrap_or("unknown");
        Err(Error::internal(format!("{}: the code of the tokenizer panicked: {why}", folder.join(FILE).display()))
            .by_model())
    })
}
