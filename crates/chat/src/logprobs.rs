//! Log probabilities: as vLLM's backend gives them, and as OpenAI's clients read them.

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::fmt;
use tensor::{Error, Result};

/// Tokens at one place of the text, the one that was drawn first.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenStep(Vec<Token>);

#[derive(Debug, Clone, PartialEq)]
struct Token {
    text: String,
    logprob: f64,
    rank: u64,
}

impl TokenStep {
    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.0.iter().map(|token| size_of::<Token>() + token.text.len()).sum::<usize>()
    }

    /// The token that was drawn.
    pub fn text(&self) -> &str {
        self.0.first().map_or("", |token| &token.text)
    }
}

#[derive(serde::Deserialize)]
struct Given {
    logprob: f64,
    rank: Option<u64>,
    decoded_token: Option<String>,
}

/// An object of token ids, whose order counts: the drawn one is first.
struct Ordered(Vec<Given>);

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Ordered;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of token ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut all = Vec::new();
                while map.next_key::<serde::de::IgnoredAny>()?.is_some() {
                    all.push(map.next_value()?);
                }
                Ok(Ordered(all))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

/// The number that OpenAI's own answer has for a probability of zero: JSON has no infinity.
const LEAST: f64 = -9999.0;

/// JSON with [`LEAST`] for the words that Python's `json.dumps` writes for numbers which JSON does not have.
fn without_words_of_python(json: &[u8]) -> Vec<u8> {
    let least = LEAST.to_string();
    let mut out = Vec::with_capacity(json.len());
    let (mut rest, mut is_text) = (json, false);
    while let Some(&byte) = rest.first() {
        let words = [&b"-Infinity"[..], b"Infinity", b"NaN"];
        let word = words.into_iter().find(|&word| !is_text && rest.starts_with(word));
        let bytes = match word {
            Some(word) => word.len(),
            None if byte == b'\\' => rest.len().min(2),
            None => 1,
        };
        let (part, tail) = rest.split_at(bytes);
        out.extend_from_slice(if word.is_some() { least.as_bytes() } else { part });
        is_text ^= byte == b'"';
        rest = tail;
    }
    out
}

/// Reads `[{"ID": {"logprob", "rank", "decoded_token"}, …}, …]`, a step for each token, or `null`; also as Python
/// writes it.
///
/// # Errors
/// INTERNAL, by the model.
pub fn read(json: &[u8]) -> Result<Vec<TokenStep>> {
    let all: Option<Vec<Ordered>> = serde_json::from_slice(json)
        .or_else(|_| serde_json::from_slice(&without_words_of_python(json)))
        .map_err(|error| Error::internal(format!("the model's log probabilities are malformed: {error}")).by_model())?;
    let step = |Ordered(all): Ordered| {
        let token = |given: Given| Token {
            text: given.decoded_token.unwrap_or_default(),
            logprob: given.logprob.max(LEAST),
            rank: given.rank.unwrap_or(0),
        };
        TokenStep(all.into_iter().map(token).collect())
    };
    Ok(all.unwrap_or_default().into_iter().map(step).filter(|step| !step.0.is_empty()).collect())
}

/// OpenAI's form in a chat.
#[derive(Serialize)]
pub struct Chat<'s> {
    content: Vec<ChatToken<'s>>,
}

#[derive(Serialize)]
struct ChatToken<'s> {
    #[serde(flatten)]
    token: TokenForm<'s>,
    top_logprobs: Vec<TokenForm<'s>>,
}

#[derive(Serialize)]
struct TokenForm<'s> {
    token: &'s str,
    logprob: f64,
    bytes: &'s [u8],
}

impl<'s> TokenForm<'s> {
    fn of(token: &'s Token) -> Self {
        Self { token: &token.text, logprob: token.logprob, bytes: token.text.as_bytes() }
    }
}

impl<'s> Chat<'s> {
    /// The form of these steps.
    pub fn of(steps: &'s [TokenStep]) -> Self {
        let content = steps.iter().filter_map(|TokenStep(all)| {
            let mut by_rank: Vec<_> = all.iter().collect();
            by_rank.sort_by_key(|token| token.rank);
            Some(ChatToken {
                token: TokenForm::of(all.first()?),
                top_logprobs: by_rank.into_iter().map(TokenForm::of).collect(),
            })
        });
        Self { content: content.collect() }
    }
}

/// OpenAI's form in a completion.
#[derive(Serialize)]
pub struct Completion<'s> {
    text_offset: Vec<usize>,
    token_logprobs: Vec<f64>,
    tokens: Vec<&'s str>,
    top_logprobs: Vec<Top<'s>>,
}

struct Top<'s>(&'s [Token]);

impl Serialize for Top<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut by_rank: Vec<_> = self.0.iter().collect();
        by_rank.sort_by_key(|token| token.rank);
        serializer.collect_map(by_rank.into_iter().map(|token| (&token.text, token.logprob)))
    }
}

impl<'s> Completion<'s> {
    /// The form of these steps. `offset`: characters before them.
    pub fn of(steps: &'s [TokenStep], offset: usize) -> Self {
        let mut at = offset;
        let (mut text_offset, mut token_logprobs, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        for step in steps {
            text_offset.push(at);
            at += step.text().chars().count();
            token_logprobs.push(step.0.first().map_or(0.0, |token| token.logprob));
            tokens.push(step.text());
        }
        let top_logprobs = steps.iter().map(|step| Top(&step.0)).collect();
        Self { text_offset, token_logprobs, tokens, top_logprobs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities_have_openais_forms() {
        let json = r#"[{"7":{"logprob":-1.5,"rank":2,"decoded_token":"Hé"},
            "3":{"logprob":-0.5,"rank":1,"decoded_token":"x"}},
            {"9":{"logprob":-0.25,"rank":1,"decoded_token":"!"}}]"#;
        let steps = read(json.as_bytes()).unwrap();
        let top = r#"[{"token":"x","logprob":-0.5,"bytes":[120]},{"token":"Hé","logprob":-1.5,"bytes":[72,195,169]}]"#;
        let chat = serde_json::to_string(&Chat::of(&steps[..1])).unwrap();
        assert_eq!(
            chat,
            format!(r#"{{"content":[{{"token":"Hé","logprob":-1.5,"bytes":[72,195,169],"top_logprobs":{top}}}]}}"#)
        );
        let completion = serde_json::to_string(&Completion::of(&steps, 10)).unwrap();
        assert_eq!(
            completion,
            r#"{"text_offset":[10,12],"token_logprobs":[-1.5,-0.25],"tokens":["Hé","!"],"#.to_owned()
                + r#""top_logprobs":[{"x":-0.5,"Hé":-1.5},{"!":-0.25}]}"#
        );
        assert_eq!(read(b"null").unwrap(), []);
        // A token that a schema forbids, as json.dumps writes it.
        let words = r#"[{"7":{"logprob":-Infinity,"decoded_token":"NaN \"NaN\\"},"8":{"logprob":NaN}}]"#;
        let steps = read(words.as_bytes()).unwrap();
        let found: Vec<_> = steps[0].0.iter().map(|token| (&*token.text, token.logprob)).collect();
        assert_eq!(found, [("NaN \"NaN\\", LEAST), ("", LEAST)]);
        assert!(read(b"[1]").unwrap_err().message().contains("malformed"));
    }
}
