//! Divides a text that arrives in pieces.

use super::machine::{Format, Machine};
use super::parsed::TextPiece;

/// Divides a text that arrives in pieces.
#[derive(Debug)]
pub struct ToolStream(Reader);

#[derive(Debug)]
enum Reader {
    Marked(Box<Machine>),
    /// The text is the arguments of one function, whose name is here until it is given.
    Arguments(Option<String>),
}

impl ToolStream {
    /// Finds calls by their marks.
    pub(super) fn marked(format: &'static Format, bytes_max: usize) -> Self {
        Self(Reader::Marked(Box::new(Machine::new(format, false, bytes_max))))
    }

    /// Takes the whole text as the arguments of a function.
    pub(super) fn arguments_of(function: String) -> Self {
        Self(Reader::Arguments(Some(function)))
    }

    /// Adds a piece of text. A call that has begun may still turn out to be malformed: then its arguments end early,
    /// and the rest is content.
    pub fn push(&mut self, text: &str) -> Vec<TextPiece> {
        match &mut self.0 {
            Reader::Marked(machine) => machine.push(text),
            Reader::Arguments(name) => {
                let begin = name.take().map(|name| TextPiece::Begin(0, name));
                let more = (!text.is_empty()).then(|| TextPiece::Arguments(0, text.to_owned()));
                begin.into_iter().chain(more).collect()
            }
        }
    }

    /// The text is over: returns what was held back.
    pub fn end(&mut self) -> Vec<TextPiece> {
        match &mut self.0 {
            Reader::Marked(machine) => machine.end(),
            Reader::Arguments(_) => self.push(""),
        }
    }

    /// Whether a call was longer than `bytes_max`. Triton ends such a response, with the reason `length`.
    pub fn is_exceeded(&self) -> bool {
        matches!(&self.0, Reader::Marked(machine) if machine.is_exceeded())
    }
}
