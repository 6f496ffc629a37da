//! An ensemble as an ONNX model: a `TreeEnsembleRegressor`, and nodes that make a prediction of the sums.
//!
//! ONNX Runtime puts a node's `no` right behind it, so `no` must be the child of one node only; a `yes` may be shared
//! ([`crate::Tree::nodes`] has it so).

use crate::compare::Compare;
use crate::ensemble::{Ensemble, Link, Node, Precision};
use crate::protobuf::{self, DOUBLE, FLOAT, bytes, doubles, float, model, value_info};

/// The input: a row of features for each.
pub const INPUT: &str = "input__0";
/// The output.
pub const OUTPUT: &str = "output__0";

/// The domain of trees, and its version here: the first with values that are doubles.
const TREES: (&str, u64) = ("ai.onnx.ml", 3);

/// What is answered.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Answer {
    /// What the framework predicts.
    Prediction,
    /// The class, as a number: the first of the greatest, or with one output 1 above the threshold and else 0.
    Class {
        /// Compared with the prediction.
        threshold: f32,
    },
    /// The prediction of one output, p, as [1 - p, p].
    BothClasses,
}

impl Answer {
    /// Values of a row.
    pub fn columns(self, ensemble: &Ensemble) -> u32 {
        match self {
            Self::Class { .. } if ensemble.is_multiclass => 1,
            Self::BothClasses => 2,
            _ => ensemble.outputs,
        }
    }
}

/// Writes a model with the input [`INPUT`], FP32 [-1, features], and the output [`OUTPUT`], FP32 [-1, columns].
pub fn write(ensemble: &Ensemble, answer: Answer) -> Vec<u8> {
    let steps = steps(ensemble, answer);
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
    bytes(&mut inner, 12, &value_info(OUTPUT, FLOAT, &dims(answer.columns(ensemble))));
    model(&inner, &[("", 17), TREES])
}

/// A part of the graph, from one tensor to the next.
#[derive(Clone, Copy)]
enum Step {
    Cast(u64),
    Trees,
    /// An operator with one input.
    Apply(&'static str),
    Multiply(f32),
    SignedSquare,
    /// 1 above a value, else 0.
    Above(f32),
    /// The index of the greatest.
    Greatest,
    BothClasses,
}

fn steps(ensemble: &Ensemble, answer: Answer) -> Vec<Step> {
    let mut steps = Vec::new();
    if ensemble.precision == Precision::Double {
        steps.push(Step::Cast(DOUBLE));
    }
    steps.push(Step::Trees);
    if matches!(answer, Answer::Class { .. }) && ensemble.is_multiclass {
        // No link changes which is the greatest.
        steps.extend([Step::Greatest, Step::Cast(FLOAT)]);
        return steps;
    }
    match ensemble.link {
        Link::Identity => {}
        Link::Sigmoid { alpha: 1.0 } => steps.push(Step::Apply("Sigmoid")),
        Link::Sigmoid { alpha } => steps.extend([Step::Multiply(alpha), Step::Apply("Sigmoid")]),
        Link::Exponential => steps.push(Step::Apply("Exp")),
        Link::ExponentialRatio { ratio } => {
            steps.extend([Step::Multiply(-std::f32::consts::LN_2 / ratio), Step::Apply("Exp")]);
        }
        Link::SignedSquare => steps.push(Step::SignedSquare),
        Link::Softplus => steps.push(Step::Apply("Softplus")),
        Link::Hinge => steps.extend([Step::Above(0.0), Step::Cast(FLOAT)]),
        // Over the last dimension.
        Link::Softmax => steps.push(Step::Apply("Softmax")),
    }
    match answer {
        Answer::Prediction => {}
        Answer::Class { threshold } => steps.extend([Step::Above(threshold), Step::Cast(FLOAT)]),
        Answer::BothClasses => steps.push(Step::BothClasses),
    }
    steps
}

#[derive(Default)]
struct Graph {
    nodes: Vec<Vec<u8>>,
    constants: Vec<Vec<u8>>,
}

impl Graph {
    fn step(&mut self, ensemble: &Ensemble, step: Step, from: &str, to: &str) {
        let plain = |operator, inputs: &[&str], to: &str| protobuf::Node::new(to, "", operator, inputs, &[to]);
        // Names that no step has.
        let (constant, between) = (format!("{to} constant"), format!("{to} part"));
        let node = match step {
            Step::Cast(element) => plain("Cast", &[from], to).int("to", element),
            Step::Trees => trees(ensemble, from, to),
            Step::Apply(operator) => plain(operator, &[from], to),
            Step::Multiply(by) => {
                self.constants.push(float(&constant, by));
                plain("Mul", &[from, &constant], to)
            }
            Step::SignedSquare => {
                self.nodes.push(plain("Abs", &[from], &between).finish());
                plain("Mul", &[from, &between], to)
            }
            Step::Above(value) => {
                self.constants.push(float(&constant, value));
                plain("Greater", &[from, &constant], to)
            }
            Step::Greatest => plain("ArgMax", &[from], to).int("axis", 1),
            Step::BothClasses => {
                self.constants.push(float(&constant, 1.0));
                self.nodes.push(plain("Sub", &[&constant, from], &between).finish());
                plain("Concat", &[&between, from], to).int("axis", 1)
            }
        };
        self.nodes.push(node.finish());
    }
}

fn trees(ensemble: &Ensemble, from: &str, to: &str) -> protobuf::Node {
    let nodes = || {
        let trees = (0u32..).zip(&ensemble.trees);
        trees.flat_map(|(tree, t)| (0u32..).zip(&t.nodes).map(move |(i, node)| (tree, t.output, i, node)))
    };
    let leaves = || {
        nodes().filter_map(|(tree, output, i, node)| match node {
            Node::Leaf(value) => Some((tree, output, i, *value)),
            Node::Split { .. } => None,
        })
    };
    let splits = |of: fn(&Node) -> u32| nodes().map(move |(.., node)| of(node));
    let thresholds: Vec<f32> = nodes()
        .map(|(.., node)| match node {
            Node::Split { threshold, .. } => *threshold,
            Node::Leaf(_) => 0.0,
        })
        .collect();
    let values: Vec<f64> = leaves().map(|leaf| leaf.3).collect();
    let node = protobuf::Node::new(to, TREES.0, "TreeEnsembleRegressor", &[from], &[to])
        .int("n_targets", u64::from(ensemble.outputs))
        .ints("nodes_treeids", nodes().map(|n| n.0))
        .ints("nodes_nodeids", nodes().map(|n| n.2))
        .ints("nodes_featureids", splits(|n| if let Node::Split { feature, .. } = n { *feature } else { 0 }))
        .ints("nodes_truenodeids", splits(|n| if let Node::Split { yes, .. } = n { *yes } else { 0 }))
        .ints("nodes_falsenodeids", splits(|n| if let Node::Split { no, .. } = n { *no } else { 0 }))
        .ints(
            "nodes_missing_value_tracks_true",
            splits(|n| if let Node::Split { missing_yes, .. } = n { u32::from(*missing_yes) } else { 0 }),
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

fn mode(node: &Node) -> &'static str {
    match node {
        Node::Split { compare: Compare::Less, .. } => "BRANCH_LT",
        Node::Split { compare: Compare::LessOrEqual, .. } => "BRANCH_LEQ",
        Node::Leaf(_) => "LEAF",
    }
}
