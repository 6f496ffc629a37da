//! Compares the evaluator with a simple walk, for random ensembles and rows.

mod support;

use proptest::prelude::*;
use support::{evaluated, leaves};
use trees::{Compare, Ensemble, OutputKind, Precision, Transform, Tree, TreeNode};

/// Few values, so that features and thresholds are often equal.
const FLOATS: [f32; 12] = [
    f32::NEG_INFINITY,
    f32::MIN,
    -1.5,
    -f32::MIN_POSITIVE,
    -0.0,
    0.0,
    1e-45,
    1.0,
    f32::MAX,
    f32::INFINITY,
    3.5,
    f32::NAN,
];

fn float() -> impl Strategy<Value = f32> {
    (0..FLOATS.len()).prop_map(|i| FLOATS[i])
}

fn threshold() -> impl Strategy<Value = f32> {
    float().prop_filter("thresholds are not NaN", |x| !x.is_nan())
}

/// Feature, comparison, threshold, direction of missing values, whether `yes` is shared, and a leaf.
type Random = (u32, bool, f32, bool, bool, f64);

fn random(features: u32) -> impl Strategy<Value = Random> {
    (0..features, any::<bool>(), threshold(), any::<bool>(), any::<bool>(), -1e3..1e3)
}

/// A tree in the order of its nodes: each split is a child of an earlier one, or continues a chain, whose members have
/// the same `yes`.
fn tree(output: u32, random: &[Random]) -> Tree {
    let mut nodes = vec![TreeNode::Leaf(random.first().map_or(0.5, |r| r.5))];
    let mut depths = vec![0];
    for (i, &(feature, less, threshold, missing_yes, shared, leaf)) in random.iter().enumerate().skip(1) {
        let open: Vec<u32> =
            (0..nodes.len() as u32).filter(|&n| matches!(nodes[n as usize], TreeNode::Leaf(_))).collect();
        let at = open[(i * 7919) % open.len()];
        let parent_yes = nodes.iter().find_map(|node| match node {
            TreeNode::Split { yes, no, .. } if *no == at => Some(*yes),
            _ => None,
        });
        let mut push = |value| {
            nodes.push(TreeNode::Leaf(value));
            depths.push(depths[at as usize] + 1);
            nodes.len() as u32 - 1
        };
        let yes = parent_yes.filter(|_| shared).unwrap_or_else(|| push(leaf));
        let no = push(-leaf);
        let compare = if less { Compare::Less } else { Compare::LessOrEqual };
        nodes[at as usize] = TreeNode::Split { feature, compare, threshold, yes, no, missing_yes };
    }
    // Shared nodes make paths longer than the depths above, but no longer than the number of splits.
    let depth = random.len() as u32;
    Tree { output, depth, nodes, vectors: Vec::new() }
}

fn ensemble() -> impl Strategy<Value = Ensemble> {
    (1u32..=1500, 1u32..4, any::<bool>()).prop_flat_map(|(features, outputs, single)| {
        let one = (0..outputs, prop::collection::vec(random(features), 0..20));
        let base = prop::collection::vec(-1e2..1e2, outputs as usize);
        (prop::collection::vec(one, 1..20), base).prop_map(move |(trees, base)| Ensemble {
            features,
            outputs,
            is_multiclass: outputs > 1,
            trees: trees.iter().map(|(output, random)| tree(*output, random)).collect(),
            base,
            transform: Transform::Identity,
            precision: if single { Precision::Single } else { Precision::Double },
        })
    })
}

/// The sums of a row, in the order of the trees and the precision of the model.
fn expected(ensemble: &Ensemble, row: &[f32]) -> Vec<f32> {
    let mut sums = vec![(0.0f32, 0.0f64); ensemble.outputs as usize];
    for (output, leaf) in leaves(ensemble, row) {
        sums[output].0 += leaf as f32;
        sums[output].1 += leaf;
    }
    let with_base = |(&(single, double), &base): (&(f32, f64), &f64)| match ensemble.precision {
        Precision::Single => single + base as f32,
        Precision::Double => (double + base) as f32,
    };
    sums.iter().zip(&ensemble.base).map(with_base).collect()
}

proptest! {
    #[test]
    fn sums_are_those_of_a_walk(
        (ensemble, rows) in (ensemble(), 1usize..20).prop_flat_map(|(ensemble, rows)| {
            let values = ensemble.features as usize * rows;
            (Just(ensemble), prop::collection::vec(float(), values))
        }),
        has_nan in any::<bool>(),
    ) {
        let rows: Vec<f32> = rows.into_iter().map(|x| if x.is_nan() && !has_nan { 2.0 } else { x }).collect();
        let found = evaluated(&ensemble, OutputKind::Prediction, &rows);
        let rows = rows.chunks(ensemble.features as usize);
        let walked: Vec<f32> = rows.flat_map(|row| expected(&ensemble, row)).collect();
        prop_assert_eq!(found, walked);
    }
}

#[test]
fn a_model_whose_numbers_need_more_than_32_bits_is_evaluated() {
    let features = 1 << 20;
    let leaf = |value| TreeNode::Leaf(value);
    let (compare, threshold, missing_yes) = (Compare::Less, 0.5, false);
    let split = TreeNode::Split { feature: features - 1, compare, threshold, yes: 1, no: 2, missing_yes };
    let tree =
        |i: u32| Tree { output: 0, depth: 1, nodes: vec![split, leaf(f64::from(i)), leaf(0.0)], vectors: Vec::new() };
    let ensemble = Ensemble {
        features,
        outputs: 1,
        is_multiclass: false,
        trees: (0..1000).map(tree).collect(),
        base: vec![0.25],
        transform: Transform::Identity,
        precision: Precision::Double,
    };
    let mut row = vec![1.0; features as usize];
    assert_eq!(evaluated(&ensemble, OutputKind::Prediction, &row), [0.25]);
    row[features as usize - 1] = 0.0;
    assert_eq!(evaluated(&ensemble, OutputKind::Prediction, &row), [499_500.25]);
}

#[test]
fn outputs_are_made_of_the_sums() {
    let check = |transform, sums: &[f64], kind, expected: &[f32]| {
        let output = |(i, value): (usize, &f64)| Tree {
            output: i as u32,
            depth: 0,
            nodes: vec![TreeNode::Leaf(*value)],
            vectors: Vec::new(),
        };
        let ensemble = Ensemble {
            features: 1,
            outputs: sums.len() as u32,
            is_multiclass: sums.len() > 1,
            trees: sums.iter().enumerate().map(output).collect(),
            base: vec![0.0; sums.len()],
            transform,
            precision: Precision::Single,
        };
        let found = evaluated(&ensemble, kind, &[f32::NAN]);
        let is_near = |(a, b): (&f32, &f32)| a == b || (a - b).abs() <= 1e-6 * b.abs();
        let are_near = found.len() == expected.len() && found.iter().zip(expected).all(is_near);
        assert!(are_near, "{transform:?}, {kind:?}: {found:?}, not {expected:?}");
    };
    let prediction = OutputKind::Prediction;
    let above = |threshold| OutputKind::Above { threshold };
    check(Transform::Identity, &[1.5, -2.0], prediction, &[1.5, -2.0]);
    check(Transform::Sigmoid { alpha: 1.0 }, &[0.0], prediction, &[0.5]);
    check(Transform::Sigmoid { alpha: 2.0 }, &[1.0], prediction, &[0.880_797]);
    check(Transform::Sigmoid { alpha: 1.0 }, &[-1e6, 1e6], prediction, &[0.0, 1.0]);
    check(Transform::Exponential, &[1.0], prediction, &[std::f32::consts::E]);
    check(Transform::ExponentialRatio { ratio: 2.0 }, &[4.0], prediction, &[0.25]);
    check(Transform::SignedSquare, &[-3.0, 3.0], prediction, &[-9.0, 9.0]);
    check(Transform::Softplus, &[0.0, 1e6, -1e6], prediction, &[std::f32::consts::LN_2, 1e6, 0.0]);
    check(Transform::Hinge, &[0.0, 1e-3, -1.0], prediction, &[0.0, 1.0, 0.0]);
    check(Transform::Softmax, &[1e6, 1e6], prediction, &[0.5, 0.5]);
    check(Transform::Softmax, &[0.0, 0.0, -1e6], prediction, &[0.5, 0.5, 0.0]);
    check(Transform::Softmax, &[1.0, 3.0, 3.0], OutputKind::LargestClass, &[1.0]);
    check(Transform::Sigmoid { alpha: 1.0 }, &[0.0], above(0.5), &[0.0]);
    check(Transform::Sigmoid { alpha: 1.0 }, &[0.1], above(0.5), &[1.0]);
    check(Transform::Sigmoid { alpha: 2.0 }, &[1.0], OutputKind::BothClasses, &[0.119_203, 0.880_797]);
}
