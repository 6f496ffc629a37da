//! Shapes: signed because -1 is a variable dimension in configurations; inline up to six dimensions, as almost all are.

use smallvec::SmallVec;
use std::fmt;

/// Dimensions, outermost first. -1 is a variable dimension in a configuration; in a request every dimension is >= 0.
pub type Shape = SmallVec<[i64; 6]>;

/// Product of the dimensions; 1 for rank 0. `None` if a dimension is negative or the product exceeds `i64::MAX`.
pub fn element_count(dims: &[i64]) -> Option<i64> {
    // A zero anywhere makes the tensor empty, even when the other dimensions would overflow.
    if dims.iter().any(|&d| d < 0) {
        return None;
    }
    if dims.contains(&0) {
        return Some(0);
    }
    dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d))
}

/// Prints `[1,16]`, without spaces, as in the error texts of the protocol.
pub struct ShapeDisplay<'a>(pub &'a [i64]);

impl fmt::Display for ShapeDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{d}")?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_elements() {
        assert_eq!(element_count(&[]), Some(1));
        assert_eq!(element_count(&[2, 3]), Some(6));
        assert_eq!(element_count(&[i64::MAX, 0, i64::MAX]), Some(0));
        assert_eq!(element_count(&[i64::MAX, 2]), None);
        assert_eq!(element_count(&[-1, 2]), None);
    }

    #[test]
    fn prints_without_spaces() {
        assert_eq!(ShapeDisplay(&[-1, 16]).to_string(), "[-1,16]");
        assert_eq!(ShapeDisplay(&[]).to_string(), "[]");
    }
}
