//! How much of a long text has to be tokenised for the tokens that a truncation leaves.
//!
//! A part of the text is tokenised, and the words at its open end are dropped. Each word is tokenised by itself, so the
//! other words have the tokens that they have in the whole text, if the steps before see no further than a few
//! characters: [`Reach`] has what is known of them. Where that leaves too few tokens, or is not certain, more is taken.

use super::regex::{self, Splitter};
use protocol::text::CutSide;
use std::ops::Range;
use tokenizers::{AddedVocabulary, NormalizerWrapper};
use unicode_normalization_alignments::char::canonical_combining_class;

/// The tokens that a truncation leaves of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub tokens: usize,
    pub side: CutSide,
}

impl Cut {
    /// No cut.
    pub const NONE: Self = Self { tokens: usize::MAX - 1, side: CutSide::Right };
}

/// Bytes at an open end that steps may look at, beside added tokens.
const MARGIN: usize = 64;

/// Bytes of a first part for each token that is wanted. English has five.
const BYTES_PER_TOKEN: usize = 8;

/// How far the steps of a tokenizer see.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// Bytes, if a text may end early, and if it may begin late.
    right: Option<usize>,
    left: Option<usize>,
}

/// A part of a text, or the whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    text: Range<usize>,
    /// Places within the part of the words that are those of the whole text.
    certain: Range<usize>,
    is_whole: bool,
}

impl Part {
    pub fn range(&self) -> Range<usize> {
        self.text.clone()
    }

    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether a word at a place within the part is a word of the whole text.
    pub fn keeps(&self, (from, to): (usize, usize)) -> bool {
        self.is_whole || self.certain.start <= from && to <= self.certain.end
    }
}

impl Reach {
    pub fn of(added: &AddedVocabulary, normalizer: Option<&NormalizerWrapper>, splitter: Option<&Splitter>) -> Self {
        // Without words, the whole text is one.
        let is_local = splitter.is_some_and(Splitter::is_local) && normalizer.is_none_or(regex::is_local);
        let tokens = || added.get_added_tokens_decoder().values();
        let longest = tokens().map(|token| token.content.len()).max().unwrap_or(0);
        // A chain of added tokens could reach over a blank, so that its beginning changes its end.
        let is_chained = tokens().any(|token| token.rstrip || token.content.trim().contains(char::is_whitespace));
        let reach = is_local.then_some(MARGIN + longest);
        Self { right: reach, left: reach.filter(|_| !is_chained) }
    }

    /// Parts of a text, each larger than the one before, the last the whole.
    pub fn parts<'t>(self, text: &'t str, cut: Cut) -> impl Iterator<Item = Part> + 't {
        let reach = match cut.side {
            CutSide::Right => self.right,
            CutSide::Left => self.left,
        };
        let first =
            reach.map_or(usize::MAX, |reach| cut.tokens.saturating_mul(BYTES_PER_TOKEN).saturating_add(2 * reach));
        let sizes = std::iter::successors(Some(first), |size| size.checked_mul(4));
        let parts = sizes.take_while(move |size| *size < text.len() / 2).filter_map(move |size| match cut.side {
            CutSide::Right => ends_early(text, size, reach?),
            CutSide::Left => begins_late(text, size, reach?),
        });
        let length = text.len();
        parts.chain(std::iter::once(Part { text: 0..length, certain: 0..length, is_whole: true }))
    }
}

/// The first bytes of a text. Words are certain up to a character that no step joins with those behind it: neither
/// blank, which joins a run of blanks, nor a mark, which joins a run of marks.
fn ends_early(text: &str, size: usize, reach: usize) -> Option<Part> {
    let size = boundary(text, size);
    let seen = &text[..boundary(text, size.saturating_sub(reach))];
    let (wall, _) =
        seen.char_indices().rev().find(|(_, c)| !c.is_whitespace() && canonical_combining_class(*c) == 0)?;
    Some(Part { text: 0..size, certain: 0..wall, is_whole: false })
}

/// The last bytes of a text. Words are certain from a run of blanks on that is within the part, with what is before it.
fn begins_late(text: &str, size: usize, reach: usize) -> Option<Part> {
    let from = boundary(text, text.len() - size);
    let part = &text[from..];
    let seen = boundary(part, reach);
    let word = seen + part[seen..].find(|c: char| !c.is_whitespace())?;
    let blank = word + part[word..].find(|c: char| c.is_ascii_whitespace())?;
    Some(Part { text: from..text.len(), certain: blank..part.len(), is_whole: false })
}

/// The last end of a character at or before a place.
fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::{Cut, CutSide, Part, Reach};

    /// Sizes of the parts of a text.
    fn sizes(text: &str, tokens: usize, side: CutSide, reach: Option<usize>) -> Vec<usize> {
        let parts = Reach { right: reach, left: reach }.parts(text, Cut { tokens, side });
        parts.map(|part| part.range().len()).collect()
    }

    #[test]
    fn a_long_text_is_taken_in_parts_and_a_short_one_whole() {
        let text = "word ".repeat(1 << 18);
        for side in CutSide::ALL {
            assert_eq!(sizes(&text, 256, side, Some(64)), [2176, 8704, 34_816, 139_264, 557_056, 5 << 18]);
            assert_eq!(sizes(&text[..4000], 256, side, Some(64)), [4000]);
            // Nothing is known of the steps.
            assert_eq!(sizes(&text, 256, side, None), [5 << 18]);
        }
        // No blank is certain to end a word.
        assert_eq!(sizes(&"文".repeat(10_000), 16, CutSide::Left, Some(64)), [30_000]);
        assert_eq!(sizes(&"\u{301}".repeat(10_000), 16, CutSide::Right, Some(64)), [20_000]);
    }

    #[test]
    fn words_at_an_open_end_are_dropped() {
        let part =
            |text: &str, side| Reach { right: Some(4), left: Some(4) }.parts(text, Cut { tokens: 1, side }).next();
        let part = |text: &str, side| part(text, side).unwrap();
        let kept = |part: Part| -> Vec<usize> {
            let all = (0..20).filter(|at| part.keeps((*at, at + 1)));
            all.map(|at| at + part.range().start).collect()
        };
        let text = "abcdef i j\u{301}  klmnopqrstuvwxyz 0123456789";
        // Four of 16 bytes are not certain; the last before them is a mark, and `j` is before it.
        assert_eq!(kept(part(text, CutSide::Right)).last(), Some(&8));
        // Four bytes from the begin, `x` is in a word that goes on to the blank.
        assert_eq!(kept(part(text, CutSide::Left)).first().copied(), text.find(" 0"));
    }
}
