//! Texts that end a choice, for models that do not look for them.

use std::sync::Arc;

/// Search of a text that arrives in pieces. The longest text that is looked for, and their number, are bounded by
/// [`STOP_BYTES_MAX`](crate::request::STOP_BYTES_MAX): each piece is searched for all of them.
#[derive(Debug)]
pub struct Stops {
    all: Arc<[String]>,
    /// The end of the text, which may be the beginning of a stop.
    held: String,
    longest: usize,
}

impl Stops {
    /// A search for these texts, none of which is empty.
    pub fn new(all: &Arc<[String]>) -> Self {
        let longest = all.iter().map(String::len).max().unwrap_or(0);
        Self { all: all.clone(), held: String::new(), longest }
    }

    /// Adds a piece. Returns the text that can be said, and whether a stop ended it.
    pub fn push(&mut self, more: &str, is_last: bool) -> (String, bool) {
        if self.all.is_empty() {
            return (more.to_owned(), false);
        }
        self.held += more;
        let mut first: Option<usize> = None;
        for stop in &*self.all {
            // Only a stop that begins before the first one matters.
            let end = first.map_or(self.held.len(), |at| self.held.len().min((at + stop.len()).saturating_sub(1)));
            let text = self.held.as_bytes().get(..end).unwrap_or_default();
            first = memchr::memmem::find(text, stop.as_bytes()).or(first);
        }
        if let Some(at) = first {
            let mut text = std::mem::take(&mut self.held);
            text.truncate(at);
            return (text, true);
        }
        if is_last {
            return (std::mem::take(&mut self.held), false);
        }
        // At most `longest - 1` bytes can be the beginning of a stop.
        let from = self.held.len().saturating_sub(self.longest.saturating_sub(1));
        let could_begin = |at: &usize| {
            let tail = self.held.get(*at..).unwrap_or_default();
            !tail.is_empty() && self.all.iter().any(|stop| stop.starts_with(tail))
        };
        let keep = (from..self.held.len()).filter(|&at| self.held.is_char_boundary(at)).find(could_begin);
        let rest = self.held.split_off(keep.unwrap_or(self.held.len()));
        (std::mem::replace(&mut self.held, rest), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_found_however_the_text_is_cut() {
        let check = |stops: &[&str], pieces: &[&str], expected: &str, is_found: bool| {
            let stops: Arc<[String]> = stops.iter().map(|&s| s.to_owned()).collect();
            let mut search = Stops::new(&stops);
            let (mut said, mut found) = (String::new(), false);
            for (at, piece) in pieces.iter().enumerate() {
                let (more, stopped) = search.push(piece, at + 1 == pieces.len());
                said += &more;
                if stopped {
                    found = true;
                    break;
                }
            }
            assert_eq!((said.as_str(), found), (expected, is_found), "{stops:?} in {pieces:?}");
        };
        check(&["END"], &["a", "E", "N", "D", "b"], "a", true);
        check(&["END"], &["aEN", "x", "EN"], "aENxEN", false);
        check(&["\n\n", "ü!"], &["héü", "ü", "! x"], "héü", true);
        check(&["bb", "ab"], &["xabb"], "x", true);
        check(&["ab", "bb"], &["xbbab"], "x", true);
        check(&["b", "bb"], &["xbbab"], "x", true);
        check(&["aab"], &["aa", "ab"], "a", true);
        check(&[], &["a", "b"], "ab", false);
    }
}
