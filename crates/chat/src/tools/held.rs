//! The text that was not given on yet. Places are counted from the beginning of the whole text.

/// The end of a text.
#[derive(Debug, Default)]
pub struct HeldText {
    text: String,
    /// Place of the first byte that is kept.
    base: usize,
}

impl HeldText {
    /// Appends a piece of the text.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Place behind the last byte.
    pub fn end(&self) -> usize {
        self.base + self.text.len()
    }

    /// The byte at a place.
    pub fn byte(&self, at: usize) -> u8 {
        self.text.as_bytes()[at - self.base]
    }

    /// The text between two places, which are beginnings of characters.
    pub fn slice(&self, from: usize, to: usize) -> &str {
        &self.text[from - self.base..to - self.base]
    }

    /// Forgets what lies before a place.
    pub fn forget(&mut self, before: usize) {
        self.text.drain(..before - self.base);
        self.base = before;
    }
}
