//! What a reader asks of JSON and of UBJSON, in which XGBoost writes the same members.

use crate::limits::NODES_MAX;
use tensor::{Error, Result};

/// Appends to a list of a tree.
pub(crate) fn push<T>(at: &impl Document, to: &mut Vec<T>, value: T) -> Result<()> {
    if to.len() >= NODES_MAX {
        return Err(at.error(format_args!("a list of more than {NODES_MAX} items")));
    }
    to.push(value);
    Ok(())
}

/// A position in a document. Each function takes one value and leaves the position behind it.
///
/// A caller's own nesting is the nesting of what it looks for, so there is no recursion over the document.
pub(crate) trait Document: Sized {
    /// Bytes from the start of the file, for errors.
    fn offset(&self) -> usize;

    /// Takes an object. `member` is called for each of its members, and takes the value.
    fn object(&mut self, member: impl FnMut(&mut Self, &str) -> Result<()>) -> Result<()>;

    /// Takes an array. `element` is called for each of its elements, and takes it.
    fn array(&mut self, element: impl FnMut(&mut Self) -> Result<()>) -> Result<()>;

    /// Takes a text.
    fn text(&mut self) -> Result<String>;

    /// Takes an array of numbers and appends them.
    fn floats(&mut self, to: &mut Vec<f32>) -> Result<()>;

    /// Takes an array of integers, or of true and false, and appends them.
    fn integers(&mut self, to: &mut Vec<i64>) -> Result<()>;

    /// Takes any value.
    fn skip(&mut self) -> Result<()>;

    /// Checks that nothing follows.
    fn end(&mut self) -> Result<()>;

    /// An error about what is at the position.
    fn error(&self, text: impl std::fmt::Display) -> Error {
        Error::invalid(format!("byte {}: {text}", self.offset()))
    }
}
