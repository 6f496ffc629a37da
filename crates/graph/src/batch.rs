//! Shapes between models that batch and models that do not (scheduling.md 6.2, S-29).

use tensor::Shape;

/// The shape of a tensor as input of a model, or in the ensemble's response.
///
/// `dims` is the shape in the target's configuration, without batch dimension; `batches` is true if the target has one.
/// `rows` is the batch size of the tensor: 0 if its producer does not batch. A shape that cannot be converted is
/// returned unchanged, and the model rejects it with the usual text.
pub fn convert(dims: &[i64], batches: bool, rows: i64, shape: &[i64]) -> Shape {
    let fits = fits(dims, shape);
    if batches && rows == 0 && fits {
        return std::iter::once(1).chain(shape.iter().copied()).collect();
    }
    if !batches && rows == 1 && !fits {
        return Shape::from_slice(shape.get(1..).unwrap_or_default());
    }
    Shape::from_slice(shape)
}

/// True if a shape matches `dims`, where -1 matches any dimension. In a configuration both sides may have -1.
pub fn fits(dims: &[i64], shape: &[i64]) -> bool {
    dims.len() == shape.len() && dims.iter().zip(shape).all(|(d, s)| d == s || *d == -1 || *s == -1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_dimension_comes_and_goes_s_29() {
        let check = |dims: &[i64], batches, rows, shape: &[i64], expected: &[i64]| {
            assert_eq!(&convert(dims, batches, rows, shape)[..], expected, "{dims:?} {batches} {rows} {shape:?}");
        };
        // From a model without batches to one with them.
        check(&[1], true, 0, &[1], &[1, 1]);
        check(&[-1, 4], true, 0, &[7, 4], &[1, 7, 4]);
        check(&[1], true, 0, &[2], &[2]); // the model refuses it
        check(&[1], true, 0, &[9, 1], &[9, 1]); // it had one already
        // From one with batches to one without.
        check(&[-1], false, 1, &[1, 5], &[5]);
        check(&[-1, 5], false, 1, &[1, 5], &[1, 5]); // the first dimension is one of its own
        check(&[-1], false, 2, &[2, 1], &[2, 1]); // the model refuses it
        check(&[-1], false, 1, &[], &[]);
        // Between equals.
        check(&[5], true, 2, &[2, 5], &[2, 5]);
        check(&[5], true, 1, &[1, 5], &[1, 5]);
        check(&[5], false, 0, &[5], &[5]);
    }
}
