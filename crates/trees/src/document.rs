//! Reads JSON or UBJSON, in which XGBoost writes the same members.

use crate::limits::NODES_MAX;
use tensor::{Error, Result};

/// Appends to a list of a tree, within its limit.
pub(crate) fn push<T>(at: &impl Document, to: &mut Vec<T>, value: T) -> Result<()> {
    if to.len() >= NODES_MAX {
        return Err(at.error(format_args!("a list of more than {NODES_MAX} items")));
    }
    to.push(value);
    Ok(())
}

/// A position in a document. Each method reads one value and advances past it.
///
/// The nesting of calls follows the expected structure, so the document cannot cause recursion.
pub(crate) trait Document: Sized {
    /// Offset from the start of the file, for errors.
    fn offset(&self) -> usize;

    /// Reads an object. `member` is called for each member and has to read its value.
    fn object(&mut self, member: impl FnMut(&mut Self, &str) -> Result<()>) -> Result<()>;

    /// Reads an array. `element` is called for each element and has to read it.
    fn array(&mut self, element: impl FnMut(&mut Self) -> Result<()>) -> Result<()>;

    fn text(&mut self) -> Result<String>;

    /// Reads an array of numbers and appends them.
    fn floats(&mut self, to: &mut Vec<f32>) -> Result<()>;

    /// Reads an array of integers or booleans and appends them.
    fn integers(&mut self, to: &mut Vec<i64>) -> Result<()>;

    fn skip(&mut self) -> Result<()>;

    /// Checks that nothing follows.
    fn end(&mut self) -> Result<()>;

    /// An error at the current position.
    fn error(&self, text: impl std::fmt::Display) -> Error {
        Error::invalid(format!("byte {}: {text}", self.offset()))
    }
}
