//! Files of tree models, in each format.

use trees::{Ensemble, Evaluator, Format, OutputKind, Tree, TreeNode, limits};

/// XGBoost's JSON.
pub fn trees_json(data: &[u8]) -> bool {
    read(Format::XgboostJson, data)
}

/// XGBoost's UBJSON.
pub fn trees_ubjson(data: &[u8]) -> bool {
    read(Format::XgboostUbjson, data)
}

/// XGBoost's binary format.
pub fn trees_binary(data: &[u8]) -> bool {
    read(Format::XgboostBinary, data)
}

/// LightGBM's text.
pub fn trees_lightgbm(data: &[u8]) -> bool {
    read(Format::Lightgbm, data)
}

/// Checkpoints of treelite.
pub fn trees_treelite(data: &[u8]) -> bool {
    read(Format::Treelite, data)
}

/// Reads a model; what is read can be evaluated.
fn read(format: Format, data: &[u8]) -> bool {
    let Ok(ensemble) = trees::read(format, data) else { return false };
    assert_eq!(ensemble.base.len(), ensemble.outputs as usize);
    for tree in &ensemble.trees {
        assert!(tree.output < ensemble.outputs && tree.depth <= limits::DEPTH_MAX);
        for side in [false, true] {
            walk(&ensemble, tree, side);
        }
    }
    // Wide rows take long.
    if ensemble.features <= 1000 {
        let mut to = vec![[0; 4]; 2 * ensemble.outputs as usize];
        let rows = [f32::NAN, 0.0].map(|x| vec![x.to_le_bytes(); ensemble.features as usize]).concat();
        Evaluator::new(&ensemble, OutputKind::Prediction).evaluate(&rows, &mut to);
    }
    true
}

/// From the root to a leaf, always `yes` or always `no`.
fn walk(ensemble: &Ensemble, tree: &Tree, yes_side: bool) {
    let mut at = 0u32;
    for _ in 0..=tree.depth {
        match tree.nodes[at as usize] {
            TreeNode::Leaf(_) => return,
            TreeNode::Vector(first) => {
                return assert!((first + ensemble.outputs) as usize <= tree.vectors.len());
            }
            TreeNode::Split { feature, threshold, yes, no, .. } => {
                assert!(feature < ensemble.features && !threshold.is_nan());
                at = if yes_side { yes } else { no };
            }
        }
    }
    panic!("a path is longer than the tree is deep");
}
