//! The special tokens around a text or a pair. What a post-processor adds does not depend on the text, so it is learned
//! once, and no text is copied through it.

use super::types::Tokens;
use tokenizers::{Encoding, PostProcessor, PostProcessorWrapper, Token};

/// Special tokens before, between and after texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Template {
    before: Tokens,
    between: Tokens,
    after: Tokens,
    types: [u32; 2],
}

impl Template {
    /// Learns the special tokens that a post-processor adds.
    pub fn learn(processor: Option<&PostProcessorWrapper>, is_pair: bool) -> Result<Self, String> {
        // Ids that no vocabulary has: they stand for the texts.
        const FIRST: u32 = u32::MAX - 1;
        const SECOND: u32 = u32::MAX;
        let text = |id| Encoding::from_tokens(vec![Token::new(id, "x".into(), (0, 1))], 0);
        let Some(processor) = processor else { return Ok(Self { types: [0, 1], ..Self::default() }) };
        let filled = processor.process(text(FIRST), is_pair.then(|| text(SECOND)), true);
        let filled = filled.map_err(|error| error.to_string())?;
        let (ids, types) = (filled.get_ids(), filled.get_type_ids());
        let places: Vec<usize> = (0..ids.len()).filter(|at| ids[*at] >= FIRST).collect();
        let (first, second) = match places[..] {
            [first] if !is_pair && ids[first] == FIRST => (first, first),
            [first, second] if is_pair && (ids[first], ids[second]) == (FIRST, SECOND) => (first, second),
            _ => return Err("the post-processor does not have each text once and in order".into()),
        };
        let part =
            |range: std::ops::Range<usize>| Tokens { ids: ids[range.clone()].into(), types: types[range].into() };
        Ok(Self {
            before: part(0..first),
            between: if is_pair { part(first + 1..second) } else { Tokens::default() },
            after: part(second + 1..ids.len()),
            types: [types[first], types[second]],
        })
    }

    /// Number of special tokens.
    pub fn added(&self) -> usize {
        self.before.ids.len() + self.between.ids.len() + self.after.ids.len()
    }

    /// Special tokens before and after a text.
    pub fn ends(&self) -> (&[u32], &[u32]) {
        (&self.before.ids, &self.after.ids)
    }

    /// Token ids without the special tokens around a text, and whether it had all of them.
    pub fn strip<'i>(&self, ids: &'i [u32]) -> (&'i [u32], bool) {
        let (before, after) = self.ends();
        let begun = ids.strip_prefix(before);
        let ended = begun.unwrap_or(ids).strip_suffix(after);
        (ended.or(begun).unwrap_or(ids), begun.is_some() && ended.is_some())
    }

    /// A text, or a pair, with special tokens.
    pub fn fill(&self, first: &[u32], second: &[u32]) -> Tokens {
        let length = self.added() + first.len() + second.len();
        let mut tokens = Tokens { ids: Vec::with_capacity(length), types: Vec::with_capacity(length) };
        for (special, text, kind) in
            [(&self.before, first, self.types[0]), (&self.between, second, self.types[1]), (&self.after, &[], 0)]
        {
            tokens.ids.extend_from_slice(&special.ids);
            tokens.types.extend_from_slice(&special.types);
            tokens.ids.extend_from_slice(text);
            tokens.types.resize(tokens.ids.len(), kind);
        }
        tokens
    }
}
