//! Classes and their names.

mod support;

use support::Numbers;
use vision::labels::{Activation, Top, top};

#[test]
fn scores_equal_those_of_pytorch() {
    for line in include_str!("boxes/labels.txt").lines() {
        let mut parts = line.split(' ');
        let name = parts.next().expect("an activation");
        let activation = Activation::ALL.into_iter().find(|a| a.name() == name).expect("an activation");
        let found = top(&Numbers(40).spread(1000, -8.0, 16.0), activation, 7);
        for (i, part) in parts.enumerate() {
            let (class, score) = part.split_once(':').expect("a class and its score");
            let score: f32 = score.parse().expect("a score");
            assert_eq!(found.classes[i].to_string(), class, "{name}");
            assert!((found.scores[i] - score).abs() <= 2e-6 * score.abs(), "{name} {} {score}", found.scores[i]);
        }
        assert_eq!(found.classes.len(), 7);
    }
}

#[test]
fn equal_scores_are_in_the_order_of_classes_and_nan_is_last() {
    let check = |row: &[f32], activation, count, expected: &[(u32, f32)]| {
        let Top { classes, scores } = top(row, activation, count);
        let found: Vec<_> = classes.into_iter().zip(scores).collect();
        // NaN is not equal to itself.
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    };
    let (nan, infinity) = (f32::NAN, f32::INFINITY);
    check(&[1.0, 2.0, 2.0, 1.0], Activation::None, 3, &[(1, 2.0), (2, 2.0), (0, 1.0)]);
    check(&[nan, -1.0, -nan, 0.0, -0.0], Activation::None, 9, &[(3, 0.0), (4, -0.0), (1, -1.0), (0, nan), (2, -nan)]);
    check(&[3.0, nan, 3.0], Activation::Softmax, 3, &[(0, 0.5), (2, 0.5), (1, nan)]);
    check(&[0.0, infinity, infinity, -infinity], Activation::Softmax, 3, &[(1, 0.5), (2, 0.5), (0, 0.0)]);
    check(&[-infinity, -infinity], Activation::Softmax, 1, &[(0, 0.5)]);
    check(&[-infinity, 0.0, infinity, nan], Activation::Sigmoid, 4, &[(2, 1.0), (1, 0.5), (0, 0.0), (3, nan)]);
    check(&[1e30, -1e30], Activation::Softmax, 2, &[(0, 1.0), (1, 0.0)]);
    check(&[1.0], Activation::None, 0, &[]);
    check(&[], Activation::Softmax, 5, &[]);
}

#[test]
fn the_best_of_random_rows_are_those_of_a_sorted_row() {
    let mut numbers = Numbers(3);
    for _ in 0..300 {
        let (length, levels) = (numbers.integer(200) as usize, 1 + numbers.integer(60));
        // Few levels have equal scores; one of them is NaN.
        let value = |level: u32| if level == 0 { f32::NAN } else { level as f32 / 4.0 };
        let row: Vec<f32> = (0..length).map(|_| value(numbers.integer(levels))).collect();
        let mut order: Vec<u32> = (0..length as u32).collect();
        order.sort_by_key(|&i| -row.get(i as usize).map_or(0, |v| if v.is_nan() { -1 } else { (v * 4.0) as i32 }));
        let count = numbers.integer(220) as usize;
        order.truncate(count);
        for activation in Activation::ALL {
            assert_eq!(top(&row, activation, count).classes, order, "{row:?}");
        }
        let sum: f32 = top(&row, Activation::Softmax, length).scores.iter().filter(|s| !s.is_nan()).sum();
        assert!((sum - 1.0).abs() < 1e-4 || row.iter().all(|v| v.is_nan()), "{sum}");
    }
}
