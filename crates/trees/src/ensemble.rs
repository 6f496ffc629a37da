//! Tree ensembles in memory, and how readers build them.

use crate::compare::Compare;
use crate::limits::{DEPTH_MAX, FEATURES_MAX, LEAF_VALUES_MAX, NODES_MAX, OUTPUTS_MAX, TREES_MAX};
use crate::pieces::Pieces;
use tensor::{Code, Error, Result};

/// A model: a sum of trees, and a transform of the sum.
#[derive(Clone, PartialEq, Debug)]
pub struct Ensemble {
    /// Number of columns of an input row.
    pub features: u32,
    /// Number of sums of a row: one for each class or target.
    pub outputs: u32,
    /// The outputs are exclusive classes, so the predicted class is the index of the largest sum.
    pub is_multiclass: bool,
    /// Trees, each for one of the outputs or for all.
    pub trees: Vec<Tree>,
    /// Offset of each sum.
    pub base: Vec<f64>,
    /// Makes the framework's prediction of a sum.
    pub transform: Transform,
    /// Precision of the framework's sums.
    pub precision: Precision,
}

/// A tree. The first node is the root.
#[derive(Clone, PartialEq, Debug)]
pub struct Tree {
    /// Index of the output that its leaves are added to.
    pub output: u32,
    /// Number of comparisons on the longest path.
    pub depth: u32,
    /// Nodes, which refer to each other by index. A node may have several parents, the chain of a set of categories.
    pub nodes: Vec<TreeNode>,
    /// Values of leaves that have one for each output of the model; `output` is 0 then.
    pub vectors: Vec<f64>,
}

/// A node of a tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TreeNode {
    /// A comparison of a feature with a constant.
    Split {
        /// Column of the input row.
        feature: u32,
        /// Comparison, with the feature on the left.
        compare: Compare,
        /// Constant on the right; not NaN.
        threshold: f32,
        /// Child if the comparison is true.
        yes: u32,
        /// Child if it is false.
        no: u32,
        /// Whether a row without this feature (NaN) takes `yes`.
        missing_yes: bool,
    },
    /// The value that is added to the output.
    Leaf(f64),
    /// Index in `Tree::vectors` of the first of the values that are added, one to each output. If a leaf of a model is
    /// one, all are.
    Vector(u32),
}

/// Makes a prediction of a sum.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Transform {
    /// The sum.
    Identity,
    /// 1 / (1 + exp(-alpha × sum)).
    Sigmoid {
        /// Steepness.
        alpha: f32,
    },
    /// exp(sum).
    Exponential,
    /// 2 to the power of -sum / ratio, for isolation forests.
    ExponentialRatio {
        /// The constant of the forest.
        ratio: f32,
    },
    /// sum × |sum|.
    SignedSquare,
    /// ln(1 + exp(sum)).
    Softplus,
    /// 1 above 0, else 0.
    Hinge,
    /// exp(sum) over the total of all classes.
    Softmax,
}

/// Floating-point precision of leaves and sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Precision {
    Single,
    Double,
}

/// A node as a file describes it.
pub(crate) enum FileNode {
    Leaf(f64),
    Vector(Vec<f64>),
    Split { feature: u32, test: Test, left: u32, right: u32, missing_left: bool },
}

/// Selects a child of a node.
pub(crate) enum Test {
    /// Left if the comparison is true.
    Compare(Compare, f32),
    /// Ranges of values that go left. Written with this comparison, the one of the model.
    Pieces(Compare, Pieces),
}

/// Trees during reading.
#[derive(Default)]
pub(crate) struct Forest {
    pub(crate) trees: Vec<Tree>,
    nodes: usize,
    features_used: u32,
    /// Number of values of each leaf; 0 before the first.
    leaf_width: usize,
    /// Number of values in leaves that have several.
    vector_values: usize,
}

/// Properties of the whole model.
pub(crate) struct ModelFacts {
    pub(crate) features: u64,
    pub(crate) outputs: u64,
    pub(crate) is_multiclass: bool,
    pub(crate) base: Vec<f64>,
    pub(crate) transform: Transform,
    pub(crate) precision: Precision,
}

pub(crate) fn unsupported(text: impl Into<String>) -> Error {
    Error::new(Code::Unsupported, text.into())
}

/// Prefixes an error's text with a location.
pub(crate) fn within(place: impl std::fmt::Display, error: Error) -> Error {
    error.prefixed(format_args!("{place}: "))
}

impl Forest {
    /// Adds the tree whose nodes `look` reads from a file, by index below `count`, starting at `root`. The walk rejects
    /// nonexistent and repeated nodes, so it ends, and all indices in the result are valid.
    pub(crate) fn add(
        &mut self,
        output: u32,
        count: usize,
        root: u32,
        look: impl FnMut(u32) -> Result<FileNode>,
    ) -> Result<()> {
        let number = self.trees.len();
        let mut tree = self.walk(count, root, look).map_err(|e| within(format_args!("tree {number}"), e))?;
        tree.output = output;
        self.trees.push(tree);
        Ok(())
    }

    fn walk(&mut self, count: usize, root: u32, mut look: impl FnMut(u32) -> Result<FileNode>) -> Result<Tree> {
        if self.trees.len() >= TREES_MAX {
            return Err(Error::invalid(format!("a model may have {TREES_MAX} trees")));
        }
        let mut seen = vec![false; count];
        let mut nodes = vec![TreeNode::Leaf(0.0)];
        let mut vectors = Vec::new();
        let mut open = vec![(root, 0u32, 0u32)];
        let mut deepest = 0;
        while let Some((from, slot, depth)) = open.pop() {
            let seen = seen.get_mut(from as usize).ok_or_else(|| {
                Error::invalid(format!("node {from} is named as a child, and the tree has {count} nodes"))
            })?;
            if std::mem::replace(seen, true) {
                return Err(Error::invalid(format!("node {from} is the child of two nodes")));
            }
            let place = |e| within(format_args!("node {from}"), e);
            let found = look(from).map_err(place)?;
            let (feature, test, left, right, missing_left) = match found {
                FileNode::Leaf(value) => {
                    self.take_leaf(1).map_err(place)?;
                    put(&mut nodes, slot, TreeNode::Leaf(value));
                    continue;
                }
                FileNode::Vector(values) => {
                    self.take_leaf(values.len()).map_err(place)?;
                    // In range, as `LEAF_VALUES_MAX` was checked.
                    put(&mut nodes, slot, TreeNode::Vector(vectors.len() as u32));
                    vectors.extend(values);
                    continue;
                }
                FileNode::Split { feature, test, left, right, missing_left } => {
                    (feature, test, left, right, missing_left)
                }
            };
            if feature >= FEATURES_MAX {
                return Err(place(Error::invalid(format!(
                    "feature {feature} is beyond the {FEATURES_MAX} of a model"
                ))));
            }
            self.features_used = self.features_used.max(feature + 1);
            let comparisons = match &test {
                Test::Compare(..) => 1,
                Test::Pieces(_, pieces) => pieces.tests(),
            };
            let depth = depth.saturating_add(u32::try_from(comparisons).unwrap_or(u32::MAX));
            deepest = deepest.max(depth);
            if depth > DEPTH_MAX {
                return Err(place(unsupported(format!(
                    "a path of more than {DEPTH_MAX} comparisons; a set of categories counts two for each run of \
                     neighbours. Train with a smaller depth, or with fewer categories for each split \
                     (max_cat_threshold)"
                ))));
            }
            if self.nodes + nodes.len() + comparisons + 1 > NODES_MAX {
                return Err(place(Error::invalid(format!("a model may have {NODES_MAX} nodes"))));
            }
            let (to_left, to_right) = (push(&mut nodes), push(&mut nodes));
            match test {
                Test::Compare(_, threshold) if threshold.is_nan() => {
                    return Err(place(Error::invalid("the threshold is not a number")));
                }
                Test::Compare(compare, threshold) => {
                    let (yes, no) = (to_left, to_right);
                    let node = TreeNode::Split { feature, compare, threshold, yes, no, missing_yes: missing_left };
                    put(&mut nodes, slot, node);
                }
                Test::Pieces(compare, pieces) => {
                    let mut slot = slot;
                    let chain = pieces.chain(compare, missing_left);
                    let last = chain.len().saturating_sub(1);
                    for (i, test) in chain.into_iter().enumerate() {
                        let side = |is_left| if is_left { to_left } else { to_right };
                        let no = if i == last { side(test.otherwise_left) } else { push(&mut nodes) };
                        let yes = side(test.left);
                        let (compare, threshold) = (test.compare, test.threshold);
                        let node =
                            TreeNode::Split { feature, compare, threshold, yes, no, missing_yes: test.missing_yes };
                        put(&mut nodes, slot, node);
                        slot = no;
                    }
                }
            }
            open.extend([(left, to_left, depth), (right, to_right, depth)]);
        }
        self.nodes += nodes.len();
        Ok(Tree { output: 0, depth: deepest, nodes, vectors })
    }

    /// Counts a leaf with this number of values.
    fn take_leaf(&mut self, width: usize) -> Result<()> {
        let known = std::mem::replace(&mut self.leaf_width, width);
        if known != 0 && known != width {
            return Err(Error::invalid(format!("the leaf has {width} values, and others of the model have {known}")));
        }
        self.vector_values += width;
        if width > 1 && self.vector_values > LEAF_VALUES_MAX {
            return Err(Error::invalid(format!("a model may have {LEAF_VALUES_MAX} values in its leaves")));
        }
        Ok(())
    }

    /// Multiplies the leaves of a tree, in the precision of its model.
    pub(crate) fn scale(tree: &mut Tree, precision: Precision, by: f64) {
        let leaves = tree.nodes.iter_mut().filter_map(|node| match node {
            TreeNode::Leaf(value) => Some(value),
            _ => None,
        });
        for value in leaves.chain(&mut tree.vectors) {
            *value = match precision {
                Precision::Single => f64::from(*value as f32 * by as f32),
                Precision::Double => *value * by,
            };
        }
    }

    /// The model, after a check of all features, outputs and limits.
    pub(crate) fn finish(self, facts: ModelFacts) -> Result<Ensemble> {
        let ModelFacts { is_multiclass, base, transform, precision, .. } = facts;
        let limited = |what: &str, n: u64, most: u32| match u32::try_from(n) {
            Ok(n) if (1..=most).contains(&n) => Ok(n),
            _ => Err(Error::invalid(format!("the model has {n} {what}: 1 to {most} are supported"))),
        };
        if self.trees.is_empty() {
            return Err(Error::invalid("the model has no trees"));
        }
        let features = limited("features", facts.features, FEATURES_MAX)?;
        let outputs = limited("classes or targets", facts.outputs, OUTPUTS_MAX)?;
        if self.features_used > features {
            let last = self.features_used - 1;
            return Err(Error::invalid(format!("a tree uses feature {last}, but the model declares {features}")));
        }
        if let Some((i, tree)) = self.trees.iter().enumerate().find(|(_, t)| t.output >= outputs) {
            let output = tree.output;
            return Err(Error::invalid(format!("tree {i} is for class {output}, but the model declares {outputs}")));
        }
        let width = self.leaf_width;
        if width > 1 && width != outputs as usize {
            return Err(Error::invalid(format!("leaves have {width} values for {outputs} classes or targets")));
        }
        if base.len() != outputs as usize {
            let found = base.len();
            return Err(Error::invalid(format!("the model has {found} base scores for {outputs} classes or targets")));
        }
        if let Some(value) = base.iter().find(|v| !v.is_finite()) {
            return Err(Error::invalid(format!("a base score becomes {value}, which is not finite")));
        }
        Ok(Ensemble { features, outputs, is_multiclass, trees: self.trees, base, transform, precision })
    }
}

fn push(nodes: &mut Vec<TreeNode>) -> u32 {
    let index = nodes.len();
    nodes.push(TreeNode::Leaf(0.0));
    // In range, as `NODES_MAX` is checked first.
    index as u32
}

fn put(nodes: &mut [TreeNode], slot: u32, node: TreeNode) {
    if let Some(place) = nodes.get_mut(slot as usize) {
        *place = node;
    }
}
