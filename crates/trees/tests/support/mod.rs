//! Evaluates ensembles in the simplest way.

#![allow(missing_docs, reason = "shared by tests")]
#![allow(dead_code, reason = "each test uses some of it")]

use trees::{Compare, Ensemble, Evaluator, OutputKind, RawFloat, TreeNode};

/// The sums of a row, by walking each tree.
pub fn sums(ensemble: &Ensemble, row: &[f32]) -> Vec<f64> {
    let mut sums = ensemble.base.clone();
    leaves(ensemble, row).for_each(|(output, leaf)| sums[output] += leaf);
    sums
}

/// The values of the leaf of each tree, each with its output.
pub fn leaves(ensemble: &Ensemble, row: &[f32]) -> impl Iterator<Item = (usize, f64)> {
    ensemble.trees.iter().flat_map(|tree| {
        let mut at = 0;
        let leaf = loop {
            match tree.nodes[at as usize] {
                TreeNode::Leaf(value) => break vec![value],
                TreeNode::Vector(first) => break tree.vectors[first as usize..][..ensemble.base.len()].to_vec(),
                TreeNode::Split { feature, compare, threshold, yes, no, missing_yes } => {
                    let x = row[feature as usize];
                    let is_yes = match compare {
                        _ if x.is_nan() => missing_yes,
                        Compare::Less => x < threshold,
                        Compare::LessOrEqual => x <= threshold,
                    };
                    at = if is_yes { yes } else { no };
                }
            }
        };
        (tree.output as usize..).zip(leaf)
    })
}

/// The outputs of rows as the server evaluates them.
pub fn evaluated(ensemble: &Ensemble, kind: OutputKind, rows: &[f32]) -> Vec<f32> {
    let evaluator = Evaluator::new(ensemble, kind);
    let rows: Vec<RawFloat> = rows.iter().map(|x| x.to_le_bytes()).collect();
    let mut to = vec![RawFloat::default(); rows.len() / evaluator.features() * evaluator.columns()];
    evaluator.evaluate(&rows, &mut to);
    to.into_iter().map(f32::from_le_bytes).collect()
}
