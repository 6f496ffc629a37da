//! Converts between the shapes of clients and of models (`reshape`, model-configuration.md 3.3).

use crate::Shape;

/// The model's shape for an input with the client's `shape`, whose first dimension is the batch if `batching`.
///
/// `dims` and `reshape` come from the configuration. Each -1 in `reshape` stands for the dimension of `shape` at the
/// corresponding -1 of `dims`, in order (C-07).
pub fn to_model(dims: &[i64], reshape: Option<&Shape>, shape: &[i64], batching: bool) -> Shape {
    match reshape {
        Some(reshape) => convert(dims, reshape, shape, batching).unwrap_or_else(|| Shape::from_slice(shape)),
        None => Shape::from_slice(shape),
    }
}

/// The client's shape for an output with the model's `shape`; `None` if that does not match `reshape`.
pub fn to_client(dims: &[i64], reshape: Option<&Shape>, shape: &[i64], batching: bool) -> Option<Shape> {
    match reshape {
        Some(reshape) => convert(reshape, dims, shape, batching),
        None => Some(Shape::from_slice(shape)),
    }
}

/// Matches `shape` against `from` and returns it in the form of `to`.
fn convert(from: &[i64], to: &[i64], shape: &[i64], batching: bool) -> Option<Shape> {
    let mut out = Shape::new();
    let mut rest = shape;
    if batching {
        let (rows, tail) = shape.split_first()?;
        out.push(*rows);
        rest = tail;
    }
    if rest.len() != from.len() || from.iter().zip(rest).any(|(&f, &s)| f >= 0 && f != s) {
        return None;
    }
    let mut free = from.iter().zip(rest).filter(|(f, _)| **f < 0).map(|(_, s)| *s);
    for &d in to {
        out.push(if d >= 0 { d } else { free.next()? });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dims: &[i64], reshape: &[i64], shape: &[i64], batching: bool, expected: &[i64]) {
        let reshape = Shape::from_slice(reshape);
        let seen = to_model(dims, Some(&reshape), shape, batching);
        assert_eq!(&seen[..], expected);
        assert_eq!(to_client(dims, Some(&reshape), &seen, batching), Some(Shape::from_slice(shape)), "and back");
    }

    #[test]
    fn reshape_takes_variable_dimensions_in_order_c_07() {
        check(&[2, 8], &[16], &[3, 2, 8], true, &[3, 16]);
        check(&[1], &[], &[3, 1], true, &[3]);
        check(&[2, 4, -1, 6], &[8, -1, 1, 6], &[5, 2, 4, 7, 6], true, &[5, 8, 7, 1, 6]);
        check(&[-1, 2, -1], &[1, -1, -1, 2], &[3, 2, 4], false, &[1, 3, 4, 2]);
    }

    #[test]
    fn an_output_that_does_not_match_reshape_is_rejected() {
        let reshape = Shape::from_slice(&[16]);
        assert_eq!(to_client(&[8, 2], Some(&reshape), &[1, 15], true), None);
        assert_eq!(to_client(&[8, 2], Some(&reshape), &[16], true), None);
        assert_eq!(to_client(&[8, 2], Some(&reshape), &[], true), None);
    }

    #[test]
    fn without_reshape_the_shape_is_unchanged() {
        assert_eq!(&to_model(&[-1], None, &[2, 5], true)[..], &[2, 5]);
        assert_eq!(to_client(&[-1], None, &[2, 5], true), Some(Shape::from_slice(&[2, 5])));
    }
}
