//! The steps of a tokenizer that have regular expressions. The library ends its search without a word where an
//! expression takes too long; here that is an error of the request.

use fancy_regex::RegexBuilder;
use serde::Deserialize;
use serde_json::Value;
use tokenizers::pattern::Invert;
use tokenizers::{NormalizerWrapper, PreTokenizedString, PreTokenizer, PreTokenizerWrapper, SplitDelimiterBehavior};

/// Longest regular expression of a tokenizer in bytes.
pub const REGEX_BYTES_MAX: usize = 4096;

/// Steps back that a regular expression may take for one match, unless it is one of [`KNOWN`].
pub const REGEX_STEPS_MAX: usize = 10_000;

/// Longest text in bytes for a tokenizer with other regular expressions than [`KNOWN`].
pub const REGEX_TEXT_BYTES_MAX: usize = 64 << 10;

/// Expressions of tokenizers that many models have (Llama 3, Qwen 2, GPT-2, parts of DeepSeek's): none takes more steps
/// than a text has characters, and what is behind the next word changes none of their matches.
const KNOWN: [&str; 7] = [
    concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"[\r\n]",
    r"\s?\p{L}+",
    r"\p{N}{1,3}",
    r"\s+",
];

/// A pre-tokenizer.
pub(super) enum Splitter {
    Library(PreTokenizerWrapper),
    Regex { regex: Box<fancy_regex::Regex>, behavior: SplitDelimiterBehavior, is_inverted: bool, is_known: bool },
    All(Vec<Splitter>),
}

#[derive(Deserialize)]
struct Split {
    pattern: Pattern,
    behavior: SplitDelimiterBehavior,
    invert: bool,
}

#[derive(Deserialize)]
enum Pattern {
    String(String),
    Regex(String),
}

impl Splitter {
    /// Reads a pre-tokenizer.
    pub fn read(mut value: Value) -> Result<Self, String> {
        match value["type"].as_str() {
            Some("Sequence") => {
                let all: Vec<Value> = from_value(value["pretokenizers"].take())?;
                all.into_iter().map(Self::read).collect::<Result<_, _>>().map(Self::All)
            }
            Some("Split") => {
                let split: Split = from_value(value)?;
                let (pattern, is_known) = match split.pattern {
                    Pattern::String(text) => (fancy_regex::escape(&text).into_owned(), true),
                    Pattern::Regex(pattern) => {
                        let is_known = KNOWN.contains(&pattern.as_str());
                        (pattern, is_known)
                    }
                };
                bounded(&pattern)?;
                let mut builder = RegexBuilder::new(&pattern);
                if !is_known {
                    builder.backtrack_limit(REGEX_STEPS_MAX);
                }
                let regex = Box::new(builder.build().map_err(|error| error.to_string())?);
                Ok(Self::Regex { regex, behavior: split.behavior, is_inverted: split.invert, is_known })
            }
            _ => from_value(value).map(Self::Library),
        }
    }

    /// Splits a text into words.
    pub fn split(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        match self {
            Self::Library(step) => step.pre_tokenize(text),
            Self::All(steps) => steps.iter().try_for_each(|step| step.split(text)),
            Self::Regex { regex, behavior, is_inverted, is_known } => text.split(|_, part| {
                if !is_known && part.len() > REGEX_TEXT_BYTES_MAX {
                    return Err(format!("its regular expression takes {REGEX_TEXT_BYTES_MAX} bytes at most").into());
                }
                match is_inverted {
                    false => part.split(&**regex, *behavior),
                    true => part.split(Invert(&**regex), *behavior),
                }
            }),
        }
    }

    /// Whether words before a place do not depend on what is far behind it, and the other way round.
    pub fn is_local(&self) -> bool {
        use PreTokenizerWrapper as Step;
        match self {
            Self::All(steps) => steps.iter().all(Self::is_local),
            Self::Regex { is_known, .. } => *is_known,
            Self::Library(step) => !matches!(
                step,
                Step::UnicodeScripts(_)
                    | Step::FixedLength(_)
                    | Step::Sequence(_)
                    | Step::Delimiter(_)
                    | Step::Split(_)
            ),
        }
    }
}

/// Reads a normalizer.
pub(super) fn normalizer(value: Value) -> Result<NormalizerWrapper, String> {
    let mut left = vec![&value];
    while let Some(step) = left.pop() {
        left.extend(step["normalizers"].as_array().into_iter().flatten());
        if let Some(pattern) = step["pattern"]["Regex"].as_str() {
            bounded(pattern)?;
            // The library drops the errors of normalizers, so only expressions that cannot fail are taken.
            regex::Regex::new(pattern).map_err(|_| {
                format!("the regular expression {pattern:?} of a normalizer uses lookaround or backreferences")
            })?;
        }
    }
    from_value(value)
}

/// Whether a normalizer changes each part of a text by itself.
pub(super) fn is_local(normalizer: &NormalizerWrapper) -> bool {
    match normalizer {
        NormalizerWrapper::Sequence(steps) => steps.as_ref().iter().all(is_local),
        NormalizerWrapper::Replace(step) => serde_json::to_value(step).is_ok_and(|step| {
            step["pattern"]["String"].as_str().is_some_and(|text| text.len() <= REPLACED_BYTES_MAX)
                || step["pattern"]["Regex"] == " {2,}"
        }),
        _ => true,
    }
}

/// Longest replaced text that does not reach far.
const REPLACED_BYTES_MAX: usize = 16;

fn bounded(pattern: &str) -> Result<(), String> {
    let bytes = pattern.len();
    if bytes > REGEX_BYTES_MAX {
        return Err(format!("a regular expression has {bytes} bytes, the limit is {REGEX_BYTES_MAX}"));
    }
    Ok(())
}

fn from_value<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}
