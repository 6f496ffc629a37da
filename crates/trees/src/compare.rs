//! The comparisons of tree nodes.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Compare {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
}
