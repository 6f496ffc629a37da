//! Files of tree models, in each format.

use trees::onnx::{OutputKind, write};
use trees::{Ensemble, Format, TreeNode, limits};

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

/// Reads a model; what is read can be evaluated and written.
fn read(format: Format, data: &[u8]) -> bool {
    let Ok(ensemble) = trees::read(format, data) else { return false };
    assert_eq!(ensemble.base.len(), ensemble.outputs as usize);
    for tree in &ensemble.trees {
        assert!(tree.output < ensemble.outputs && tree.depth <= limits::DEPTH_MAX);
        for side in [false, true] {
            walk(&ensemble, &tree.nodes, tree.depth, side);
        }
    }
    // A path of comparisons for each category: written only where that stays small.
    let nodes: usize = ensemble.trees.iter().map(|tree| tree.nodes.len()).sum();
    nodes > 100_000 || !write(&ensemble, OutputKind::Prediction).is_empty()
}

/// From the root to a leaf, always `yes` or always `no`.
fn walk(ensemble: &Ensemble, nodes: &[TreeNode], depth: u32, yes_side: bool) {
    let mut at = 0u32;
    for _ in 0..=depth {
        match nodes[at as usize] {
            TreeNode::Leaf(_) => return,
            TreeNode::Split { feature, threshold, yes, no, .. } => {
                assert!(feature < ensemble.features && !threshold.is_nan());
                at = if yes_side { yes } else { no };
            }
        }
    }
    panic!("a path is longer than the tree is deep");
}
