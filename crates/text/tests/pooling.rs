//! Pooling, normalisation and activations. Values beside exact ones are numpy's, in double precision.

use text::pooling::{Activation, Pooling, normalize};

const STATES: [f32; 6] = [1.0, -2.0, 3.0, 4.0, -5.0, 9.0];

fn pooled(pooling: Pooling, states: &[f32], tokens: usize, width: usize) -> Vec<f32> {
    let mut row = vec![f32::NAN; width];
    pooling.pool(states, tokens, &mut row);
    row
}

#[test]
fn pools_only_the_tokens_of_the_text() {
    // Three tokens of two values; with two tokens, the third is padding.
    for (pooling, of_two, of_three) in [
        (Pooling::Mean, [2.0, 1.0], [-1.0 / 3.0, 11.0 / 3.0]),
        (Pooling::Cls, [1.0, -2.0], [1.0, -2.0]),
        (Pooling::LastToken, [3.0, 4.0], [-5.0, 9.0]),
        (Pooling::Max, [3.0, 4.0], [3.0, 9.0]),
    ] {
        assert_eq!(pooled(pooling, &STATES, 2, 2), of_two, "{}", pooling.name());
        assert_eq!(pooled(pooling, &STATES, 3, 2), of_three, "{}", pooling.name());
        assert_eq!(pooled(pooling, &STATES, 0, 2), [0.0, 0.0], "{}", pooling.name());
    }
}

#[test]
fn values_that_are_no_numbers_stay_visible() {
    for at in 0..3 {
        let mut states = [1.0, 2.0, 3.0];
        states[at] = f32::NAN;
        assert!(pooled(Pooling::Max, &states, 3, 1)[0].is_nan(), "at {at}");
        assert!(pooled(Pooling::Mean, &states, 3, 1)[0].is_nan(), "at {at}");
        let mut row = states;
        normalize(&mut row);
        assert!(row.iter().all(|value| value.is_nan()));
        Activation::Softmax.apply(&mut states);
        assert!(states.iter().all(|value| value.is_nan()));
    }
}

#[test]
fn a_normalised_row_has_length_1() {
    for width in [1, 7, 8, 9, 384, 1024] {
        for scale in [1e-15, 1.0, 6e36] {
            let mut row: Vec<f32> = (0..width).map(|at| scale * ((at * 7919 % 101) as f32 - 49.5)).collect();
            let before = row.clone();
            normalize(&mut row);
            let length: f64 = row.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
            // Below the least length of PyTorch, rows stay short.
            let expected: f64 = before.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
            assert!((length - (expected / 1e-12).min(1.0)).abs() < 1e-6, "{width} values of {scale}: {length}");
        }
    }
    let mut zeros = [0.0; 5];
    normalize(&mut zeros);
    assert_eq!(zeros, [0.0; 5]);
}

#[test]
fn activations_are_exact_at_both_ends() {
    let check = |activation: Activation, row: &[f32], expected: &[f32]| {
        let mut found = row.to_vec();
        activation.apply(&mut found);
        let near = |(one, other): (&f32, &f32)| (one - other).abs() <= 1e-6;
        assert!(found.iter().zip(expected).all(near), "{found:?}, not {expected:?}");
    };
    check(Activation::None, &[-3.5, 8.25], &[-3.5, 8.25]);
    check(Activation::Sigmoid, &[0.0, 1.0, -8.5, 200.0, -200.0], &[0.5, 0.731_058_6, 0.000_203_427, 1.0, 0.0]);
    check(Activation::Softmax, &[1.0, 2.0, 3.0], &[0.090_030_57, 0.244_728_47, 0.665_240_96]);
    check(Activation::Softmax, &[1000.0, 0.0], &[1.0, 0.0]);
    check(Activation::Softmax, &[-1e38, -1e38], &[0.5, 0.5]);
}
