//! The comparisons that nodes of trees make.

/// A comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compare {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
}
