//! Writes an ensemble as an ONNX model: a `TreeEnsembleRegressor`, and nodes that make a prediction of the sums.
//!
//! ONNX Runtime stores a node's `no` directly after it, so a `no` must have a single parent (see
//! [`crate::Tree::nodes`]).

use crate::compare::Compare;
use crate::ensemble::{Ensemble, Precision, Transform, TreeNode};
use crate::protobuf::{self, DOUBLE, FLOAT, bytes, doubles, float, model, value_info};

/// Name of the input: rows of features.
pub const INPUT: &str = "input__0";
/// Name of the output.
pub const OUTPUT: &str = "output__0";

/// Operator domain of trees, and the first version with values of double precision.
const TREES: (&str, u64) = ("ai.onnx.ml", 3);

/// Kind of the model's output.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum OutputKind {
    /// The framework's prediction.
    Prediction,
    /// The class as a number: the first of the largest, or for one output 1 above the threshold, otherwise 0.
    Class {
        /// Limit of the prediction.
        threshold: f32,
    },
    /// The prediction p of one output, as [1 - p, p].
    BothClasses,
}

impl OutputKind {
    /// Number of values of a row.
    pub fn columns(self, ensemble: &Ensemble) -> u32 {
        match self {
            Self::Class { .. } if ensemble.is_multiclass => 1,
            Self::BothClasses => 2,
            _ => ensemble.outputs,
        }
    }
}

/// Writes a model with the input [`INPUT`], FP32 [-1, features], and the output [`OUTPUT`], FP32 [-1, columns].
pub fn write(ensemble: &Ensemble, kind: OutputKind) -> Vec<u8> {
    let steps = steps(ensemble, kind);
    let mut graph = Graph::default();
    let mut from = INPUT.to_owned();
    for (i, step) in steps.iter().enumerate() {
        let to = if i + 1 == steps.len() { OUTPUT.to_owned() } else { format!("{i}") };
        graph.step(ensemble, *step, &from, &to);
        from = to;
    }
    let mut inner = Vec::new();
    graph.nodes.iter().for_each(|node| bytes(&mut inner, 1, node));
    bytes(&mut inner, 2, b"trees");
    graph.constants.iter().for_each(|constant| bytes(&mut inner, 5, constant));
    let dims = |columns: u32| [-1, i64::from(columns)];
    bytes(&mut inner, 11, &value_info(INPUT, FLOAT, &dims(ensemble.features)));
    bytes(&mut inner, 12, &value_info(OUTPUT, FLOAT, &dims(kind.columns(ensemble))));
    model(&inner, &[("", 17), TREES])
}

/// A part of the graph, with one input and one output tensor.
#[derive(Clone, Copy)]
enum OnnxStep {
    Cast(u64),
    Trees,
    /// An operator with one input.
    Apply(&'static str),
    Multiply(f32),
    SignedSquare,
    /// 1 above a value, otherwise 0.
    Above(f32),
    /// Index of the largest.
    Greatest,
    BothClasses,
}

fn steps(ensemble: &Ensemble, kind: OutputKind) -> Vec<OnnxStep> {
    let mut steps = Vec::new();
    if ensemble.precision == Precision::Double {
        steps.push(OnnxStep::Cast(DOUBLE));
    }
    steps.push(OnnxStep::Trees);
    if matches!(kind, OutputKind::Class { .. }) && ensemble.is_multiclass {
        // Every transform preserves the order.
        steps.extend([OnnxStep::Greatest, OnnxStep::Cast(FLOAT)]);
        return steps;
    }
    match ensemble.transform {
        Transform::Identity => {}
        Transform::Sigmoid { alpha: 1.0 } => steps.push(OnnxStep::Apply("Sigmoid")),
        Transform::Sigmoid { alpha } => steps.extend([OnnxStep::Multiply(alpha), OnnxStep::Apply("Sigmoid")]),
        Transform::Exponential => steps.push(OnnxStep::Apply("Exp")),
        Transform::ExponentialRatio { ratio } => {
            steps.extend([OnnxStep::Multiply(-std::f32::consts::LN_2 / ratio), OnnxStep::Apply("Exp")]);
        }
        Transform::SignedSquare => steps.push(OnnxStep::SignedSquare),
        Transform::Softplus => steps.push(OnnxStep::Apply("Softplus")),
        Transform::Hinge => steps.extend([OnnxStep::Above(0.0), OnnxStep::Cast(FLOAT)]),
        // Along the last dimension.
        Transform::Softmax => steps.push(OnnxStep::Apply("Softmax")),
    }
    match kind {
        OutputKind::Prediction => {}
        OutputKind::Class { threshold } => steps.extend([OnnxStep::Above(threshold), OnnxStep::Cast(FLOAT)]),
        OutputKind::BothClasses => steps.push(OnnxStep::BothClasses),
    }
    steps
}

#[derive(Default)]
struct Graph {
    nodes: Vec<Vec<u8>>,
    constants: Vec<Vec<u8>>,
}

impl Graph {
    fn step(&mut self, ensemble: &Ensemble, step: OnnxStep, from: &str, to: &str) {
        let plain = |operator, inputs: &[&str], to: &str| protobuf::OnnxNode::new(to, "", operator, inputs, &[to]);
        // Names that are unique to this step.
        let (constant, between) = (format!("{to} constant"), format!("{to} part"));
        let node = match step {
            OnnxStep::Cast(element) => plain("Cast", &[from], to).int("to", element),
            OnnxStep::Trees => trees(ensemble, from, to),
            OnnxStep::Apply(operator) => plain(operator, &[from], to),
            OnnxStep::Multiply(by) => {
                self.constants.push(float(&constant, by));
                plain("Mul", &[from, &constant], to)
            }
            OnnxStep::SignedSquare => {
                self.nodes.push(plain("Abs", &[from], &between).finish());
                plain("Mul", &[from, &between], to)
            }
            OnnxStep::Above(value) => {
                self.constants.push(float(&constant, value));
                plain("Greater", &[from, &constant], to)
            }
            OnnxStep::Greatest => plain("ArgMax", &[from], to).int("axis", 1),
            OnnxStep::BothClasses => {
                self.constants.push(float(&constant, 1.0));
                self.nodes.push(plain("Sub", &[&constant, from], &between).finish());
                plain("Concat", &[&between, from], to).int("axis", 1)
            }
        };
        self.nodes.push(node.finish());
    }
}

fn trees(ensemble: &Ensemble, from: &str, to: &str) -> protobuf::OnnxNode {
    let nodes = || {
        let trees = (0u32..).zip(&ensemble.trees);
        trees.flat_map(|(tree, t)| (0u32..).zip(&t.nodes).map(move |(i, node)| (tree, t.output, i, node)))
    };
    let leaves = || {
        nodes().filter_map(|(tree, output, i, node)| match node {
            TreeNode::Leaf(value) => Some((tree, output, i, *value)),
            TreeNode::Split { .. } => None,
        })
    };
    let splits = |of: fn(&TreeNode) -> u32| nodes().map(move |(.., node)| of(node));
    let thresholds: Vec<f32> = nodes()
        .map(|(.., node)| match node {
            TreeNode::Split { threshold, .. } => *threshold,
            TreeNode::Leaf(_) => 0.0,
        })
        .collect();
    let values: Vec<f64> = leaves().map(|leaf| leaf.3).collect();
    let node = protobuf::OnnxNode::new(to, TREES.0, "TreeEnsembleRegressor", &[from], &[to])
        .int("n_targets", u64::from(ensemble.outputs))
        .ints("nodes_treeids", nodes().map(|n| n.0))
        .ints("nodes_nodeids", nodes().map(|n| n.2))
        .ints("nodes_featureids", splits(|n| if let TreeNode::Split { feature, .. } = n { *feature } else { 0 }))
        .ints("nodes_truenodeids", splits(|n| if let TreeNode::Split { yes, .. } = n { *yes } else { 0 }))
        .ints("nodes_falsenodeids", splits(|n| if let TreeNode::Split { no, .. } = n { *no } else { 0 }))
        .ints(
            "nodes_missing_value_tracks_true",
            splits(|n| if let TreeNode::Split { missing_yes, .. } = n { u32::from(*missing_yes) } else { 0 }),
        )
        .texts("nodes_modes", nodes().map(|(.., node)| mode(node)))
        .ints("target_treeids", leaves().map(|leaf| leaf.0))
        .ints("target_nodeids", leaves().map(|leaf| leaf.2))
        .ints("target_ids", leaves().map(|leaf| leaf.1));
    let base = ensemble.base.iter().copied();
    match ensemble.precision {
        Precision::Single => node
            .floats("nodes_values", thresholds.into_iter())
            .floats("target_weights", values.into_iter().map(|v| v as f32))
            .floats("base_values", base.map(|v| v as f32)),
        Precision::Double => node
            .tensor("nodes_values_as_tensor", &doubles("", thresholds.into_iter().map(f64::from)))
            .tensor("target_weights_as_tensor", &doubles("", values.into_iter()))
            .tensor("base_values_as_tensor", &doubles("", base)),
    }
}

fn mode(node: &TreeNode) -> &'static str {
    match node {
        TreeNode::Split { compare: Compare::Less, .. } => "BRANCH_LT",
        TreeNode::Split { compare: Compare::LessOrEqual, .. } => "BRANCH_LEQ",
        TreeNode::Leaf(_) => "LEAF",
    }
}
