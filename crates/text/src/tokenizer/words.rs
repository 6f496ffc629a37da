//! Tokens of words that a thread has met. The library has caches of its own, but those of BPE stay behind in each
//! thread when a tokenizer is dropped, those of Unigram are behind one lock, and WordPiece has none.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokenizers::{Model, ModelWrapper, Token};

/// Words that a thread remembers of a tokenizer.
const WORDS_MAX: usize = 10_000;

/// Longest such word in bytes.
const WORD_BYTES_MAX: usize = 255;

/// Id of a token, and its place in the word.
type WordTokens = Box<[(u32, u32, u32)]>;

/// Words of each tokenizer, while it lives.
type ByTokenizer = Vec<(Weak<()>, HashMap<Box<str>, WordTokens>)>;

thread_local! {
    static KNOWN: RefCell<ByTokenizer> = const { RefCell::new(Vec::new()) };
}

/// The words of a tokenizer, in each thread.
#[derive(Default)]
pub(super) struct Words(Arc<()>);

impl Words {
    /// The tokens of a word; their texts are empty.
    pub fn tokenize(&self, model: &ModelWrapper, word: &str) -> tokenizers::Result<Vec<Token>> {
        KNOWN.with_borrow_mut(|all| {
            // An address is not used again while there is a weak reference.
            let known = all.iter().position(|(of, _)| Weak::as_ptr(of) == Arc::as_ptr(&self.0));
            let known = known.unwrap_or_else(|| {
                all.retain(|(of, _)| of.strong_count() > 0);
                all.push((Arc::downgrade(&self.0), HashMap::new()));
                all.len() - 1
            });
            let known = &mut all[known].1;
            if let Some(tokens) = known.get(word) {
                let token = |(id, from, to): &(u32, u32, u32)| Token::new(*id, String::new(), (*from as _, *to as _));
                return Ok(tokens.iter().map(token).collect());
            }
            let tokens = model.tokenize(word)?;
            if word.len() <= WORD_BYTES_MAX && known.len() < WORDS_MAX {
                let token = |token: &Token| (token.id, token.offsets.0 as u32, token.offsets.1 as u32);
                known.insert(word.into(), tokens.iter().map(token).collect());
            }
            Ok(tokens)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{KNOWN, WORD_BYTES_MAX, WORDS_MAX, Words};
    use tokenizers::ModelWrapper;

    #[test]
    fn words_are_bounded_and_end_with_their_tokenizer() {
        let model = serde_json::json!({
            "type": "WordPiece", "unk_token": "u", "continuing_subword_prefix": "", "max_input_chars_per_word": 9,
            "vocab": { "u": 0, "ab": 1, "c": 2 }
        });
        let model: ModelWrapper = serde_json::from_value(model).unwrap();
        let sizes = || KNOWN.with_borrow(|all| all.iter().map(|(_, known)| known.len()).collect::<Vec<_>>());
        let (one, other) = (Words::default(), Words::default());
        for _ in 0..2 {
            let tokens = one.tokenize(&model, "abc").unwrap();
            let found: Vec<_> = tokens.iter().map(|token| (token.id, token.offsets)).collect();
            assert_eq!(found, [(1, (0, 2)), (2, (2, 3))]);
        }
        other.tokenize(&model, &"x".repeat(WORD_BYTES_MAX + 1)).unwrap();
        assert_eq!(sizes(), [1, 0]);
        for word in 0..WORDS_MAX + 5 {
            other.tokenize(&model, &word.to_string()).unwrap();
        }
        assert_eq!(sizes(), [1, WORDS_MAX]);
        drop((one, other));
        let last = Words::default();
        last.tokenize(&model, "c").unwrap();
        assert_eq!(sizes(), [1]);
    }
}
