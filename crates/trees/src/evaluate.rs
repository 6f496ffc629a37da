//! Evaluates an ensemble: sums of leaves, and what is made of the sums.
//!
//! A step from a node to its child has no branch, because a CPU would mispredict many: both children are adjacent, and
//! a leaf is its own child. [`LANES`] paths go down together, because each step waits for memory: of a single row
//! through several trees, or of several rows through one tree.
//!
//! Invariant: each child of a node exists, and a path ends at a leaf within the depth of its tree.

use crate::compare::Compare;
use crate::ensemble::{Ensemble, Precision, Transform, Tree, TreeNode};
use crate::output::OutputKind;
use std::collections::VecDeque;
use std::ops::{AddAssign, RangeInclusive};

/// Rows to evaluate at a time: a tree stays in the first cache for all of them, and they beside it.
pub const ROWS_PER_BLOCK: usize = 64;

/// Number of paths that go down together.
const LANES: usize = 8;

/// Number of steps after which paths may end early, if all have reached a leaf.
const STEPS_PER_CHECK: u32 = 4;

/// A value of a row in the byte order of a request.
pub type RawFloat = [u8; 4];

/// An ensemble in the form for evaluation.
pub struct Evaluator {
    trees: Box<dyn Sums>,
    transform: Transform,
    kind: OutputKind,
    features: usize,
    outputs: usize,
    columns: usize,
    comparisons: RangeInclusive<u64>,
}

impl Evaluator {
    /// Needs about as much memory as the ensemble.
    pub fn new(ensemble: &Ensemble, kind: OutputKind) -> Self {
        let depths = || ensemble.trees.iter().map(|tree| tree.depth.max(1));
        let fewest = depths().map(|depth| u64::from(depth.min(STEPS_PER_CHECK))).sum();
        Self {
            trees: match ensemble.precision {
                Precision::Single => sums(ensemble, |value| value as f32),
                Precision::Double => sums(ensemble, |value| value),
            },
            transform: ensemble.transform,
            kind,
            features: ensemble.features as usize,
            outputs: ensemble.outputs as usize,
            columns: kind.columns(ensemble) as usize,
            comparisons: fewest..=depths().map(u64::from).sum(),
        }
    }

    /// The fewest and the most comparisons of a row.
    pub fn comparisons(&self) -> &RangeInclusive<u64> {
        &self.comparisons
    }

    /// Number of values of a row of the input.
    pub fn features(&self) -> usize {
        self.features
    }

    /// Number of values of a row of the output.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Writes the output of each row. The best number of rows is [`ROWS_PER_BLOCK`], or fewer if there are no more.
    pub fn evaluate(&self, rows: &[RawFloat], to: &mut [RawFloat]) {
        let mut sums = self.trees.sums(rows);
        for (sums, to) in sums.chunks_exact_mut(self.outputs).zip(to.chunks_exact_mut(self.columns)) {
            self.write(sums, to);
        }
    }

    fn write(&self, sums: &mut [f64], to: &mut [RawFloat]) {
        // Every transform preserves the order.
        if self.kind != OutputKind::LargestClass {
            transform(self.transform, sums);
        }
        match (self.kind, &*sums) {
            (OutputKind::LargestClass, _) => put(to, 0, first_of_largest(sums) as f32),
            (OutputKind::BothClasses, &[p, ..]) => {
                put(to, 0, 1.0 - p as f32);
                put(to, 1, p as f32);
            }
            (kind, _) => {
                for (to, &value) in to.iter_mut().zip(&*sums) {
                    let value = value as f32;
                    *to = match kind {
                        OutputKind::Above { threshold } => f32::from(u8::from(value > threshold)),
                        _ => value,
                    }
                    .to_le_bytes();
                }
            }
        }
    }
}

fn put(to: &mut [RawFloat], column: usize, value: f32) {
    if let Some(to) = to.get_mut(column) {
        *to = value.to_le_bytes();
    }
}

/// Equal floats are equal classes, so that the first wins as in the frameworks, which compare floats.
fn first_of_largest(sums: &[f64]) -> usize {
    let floats = sums.iter().map(|&sum| sum as f32);
    let largest = floats.enumerate().reduce(|most, next| if next.1 > most.1 { next } else { most });
    largest.map_or(0, |(class, _)| class)
}

fn transform(transform: Transform, sums: &mut [f64]) {
    let each = |sums: &mut [f64], of: &dyn Fn(f64) -> f64| sums.iter_mut().for_each(|sum| *sum = of(*sum));
    match transform {
        Transform::Identity => {}
        Transform::Sigmoid { alpha } => each(sums, &|sum| 1.0 / (1.0 + (-f64::from(alpha) * sum).exp())),
        Transform::Exponential => each(sums, &f64::exp),
        Transform::ExponentialRatio { ratio } => each(sums, &|sum| (-sum / f64::from(ratio)).exp2()),
        Transform::SignedSquare => each(sums, &|sum| sum * sum.abs()),
        // Without the infinity of exp(sum).
        Transform::Softplus => each(sums, &|sum| sum.max(0.0) + (-sum.abs()).exp().ln_1p()),
        Transform::Hinge => each(sums, &|sum| f64::from(u8::from(sum > 0.0))),
        Transform::Softmax => {
            let largest = sums.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            each(sums, &|sum| (sum - largest).exp());
            let total: f64 = sums.iter().sum();
            each(sums, &|sum| sum / total);
        }
    }
}

/// The trees of an ensemble, for one size of nodes and one precision of sums.
trait Sums: Send + Sync {
    /// The sums of each row, including the base.
    fn sums(&self, rows: &[RawFloat]) -> Vec<f64>;
}

/// The trees with the smallest nodes that can hold their numbers: more of them are in a cache.
fn sums<V: LeafValue>(ensemble: &Ensemble, value: fn(f64) -> V) -> Box<dyn Sums> {
    match Trees::<u32, V>::new(ensemble, value) {
        Some(trees) => Box::new(trees),
        None => Box::new(Trees::<u64, V>::new(ensemble, value).unwrap_or_default()),
    }
}

/// Leaf or sum: [`f32`] or [`f64`], the precision of the framework.
trait LeafValue: Copy + Default + AddAssign + Into<f64> + Send + Sync + 'static {}
impl LeafValue for f32 {}
impl LeafValue for f64 {}

/// Bits of a node: from the lowest, its feature, whether a missing feature takes the first child, and the index of the
/// first child. [`u32`] if the numbers of a model fit, otherwise [`u64`].
trait Link: Copy + Default + Into<u64> + TryFrom<u64> + Send + Sync + 'static {}
impl Link for u32 {}
impl Link for u64 {}

#[derive(Clone, Copy, Default)]
struct Node<L> {
    /// The first child follows if the feature is at most this, otherwise the second. NaN: always the second.
    threshold: f32,
    link: L,
}

#[derive(Clone, Copy, Default)]
struct Root {
    node: usize,
    depth: u32,
    output: usize,
}

#[derive(Default)]
struct Trees<L, V> {
    features: usize,
    feature_bits: u32,
    roots: Vec<Root>,
    nodes: Vec<Node<L>>,
    /// Values of the nodes that are leaves, by the index of the node, or by `starts`.
    values: Vec<V>,
    /// If leaves have a value for each output: the index of the first, by the index of the node. Otherwise empty.
    starts: Vec<u32>,
    has_vectors: bool,
    base: Vec<V>,
}

impl<L: Link, V: LeafValue> Trees<L, V> {
    /// `None` if a number does not fit into a link.
    fn new(ensemble: &Ensemble, value: fn(f64) -> V) -> Option<Self> {
        let mut trees = Self {
            features: ensemble.features as usize,
            feature_bits: u32::BITS - (ensemble.features - 1).leading_zeros(),
            base: ensemble.base.iter().copied().map(value).collect(),
            has_vectors: ensemble.trees.iter().any(|tree| !tree.vectors.is_empty()),
            ..Self::default()
        };
        ensemble.trees.iter().try_for_each(|tree| trees.add(tree, value))?;
        Some(trees)
    }

    /// Adds a tree, breadth first: the first levels, which every row passes, are adjacent.
    fn add(&mut self, tree: &Tree, value: fn(f64) -> V) -> Option<()> {
        let root = self.push(1);
        self.roots.push(Root { node: root, depth: tree.depth, output: tree.output as usize });
        // The first child of each split. A split with two parents exists twice and has its children once.
        let mut children: Vec<Option<usize>> = vec![None; tree.nodes.len()];
        let mut open = VecDeque::from([(0, root)]);
        let vectors = self.values.len();
        self.values.extend(tree.vectors.iter().copied().map(value));
        while let Some((from, to)) = open.pop_front() {
            let (threshold, child, feature, missing_first) = match *tree.nodes.get(from as usize)? {
                TreeNode::Leaf(leaf) => {
                    *self.values.get_mut(to)? = value(leaf);
                    // Its own first child, for every value of a feature.
                    (f32::INFINITY, to, 0, true)
                }
                TreeNode::Vector(first) => {
                    *self.starts.get_mut(to)? = u32::try_from(vectors).ok()? + first;
                    (f32::INFINITY, to, 0, true)
                }
                TreeNode::Split { feature, compare, threshold, yes, no, missing_yes } => {
                    let known = children.get_mut(from as usize)?;
                    let child = *known.get_or_insert_with(|| {
                        let child = self.push(2);
                        open.extend([(yes, child), (no, child + 1)]);
                        child
                    });
                    (at_most(compare, threshold), child, feature, missing_yes)
                }
            };
            let link = (child as u64) << (self.feature_bits + 1)
                | u64::from(missing_first) << self.feature_bits
                | u64::from(feature);
            *self.nodes.get_mut(to)? = Node { threshold, link: L::try_from(link).ok()? };
        }
        Some(())
    }

    /// Adds nodes and returns the index of the first.
    fn push(&mut self, count: usize) -> usize {
        let first = self.nodes.len();
        self.nodes.resize(first + count, Node::default());
        if self.has_vectors {
            self.starts.resize(first + count, 0);
        } else {
            self.values.resize(first + count, V::default());
        }
        first
    }

    /// Adds the values of a leaf to sums, from `first` on.
    #[inline(always)]
    fn add_leaf<const HAS_VECTORS: bool>(&self, sums: &mut [V], first: usize, leaf: usize) {
        if HAS_VECTORS {
            let values = &self.values[self.starts[leaf] as usize..][..self.base.len()];
            sums[first..].iter_mut().zip(values).for_each(|(sum, &value)| *sum += value);
        } else {
            sums[first] += self.values[leaf];
        }
    }

    /// Moves paths from roots to leaves. `starts` has the start of each path's row in `rows`. Without missing features
    /// (`HAS_NAN`), a step takes fewer instructions.
    #[inline(always)]
    fn descend<const HAS_NAN: bool>(
        &self,
        rows: &[RawFloat],
        starts: [usize; LANES],
        mut nodes: [usize; LANES],
        depth: u32,
    ) -> [usize; LANES] {
        let missing_first = 1u64 << self.feature_bits;
        for step in 1..=depth {
            let mut moved = 0;
            for (at, start) in nodes.iter_mut().zip(starts) {
                let node = &self.nodes[*at];
                let link = node.link.into();
                let x = f32::from_le_bytes(rows[start + (link & (missing_first - 1)) as usize]);
                let is_first = (x <= node.threshold) | (HAS_NAN && x.is_nan() & (link & missing_first != 0));
                let next = (link >> (self.feature_bits + 1)) as usize + usize::from(!is_first);
                moved |= next ^ *at;
                *at = next;
            }
            if step % STEPS_PER_CHECK == 0 && moved == 0 {
                break;
            }
        }
        nodes
    }

    fn add_all<const HAS_NAN: bool, const HAS_VECTORS: bool>(&self, rows: &[RawFloat], sums: &mut [V]) {
        let (features, outputs) = (self.features, self.base.len());
        let count = rows.len() / features;
        let together = count - count % LANES;
        for root in &self.roots {
            for first in (0..together).step_by(LANES) {
                let starts = std::array::from_fn(|lane| (first + lane) * features);
                let leaves = self.descend::<HAS_NAN>(rows, starts, [root.node; LANES], root.depth);
                for (lane, leaf) in leaves.into_iter().enumerate() {
                    self.add_leaf::<HAS_VECTORS>(sums, (first + lane) * outputs + root.output, leaf);
                }
            }
        }
        for row in together..count {
            for roots in self.roots.chunks(LANES) {
                let of = |lane: usize| roots.get(lane).copied().unwrap_or(roots[0]);
                let nodes = std::array::from_fn(|lane| of(lane).node);
                let depth = roots.iter().map(|root| root.depth).max().unwrap_or(0);
                let leaves = self.descend::<HAS_NAN>(rows, [row * features; LANES], nodes, depth);
                for (root, leaf) in roots.iter().zip(leaves) {
                    self.add_leaf::<HAS_VECTORS>(sums, row * outputs + root.output, leaf);
                }
            }
        }
    }
}

impl<L: Link, V: LeafValue> Sums for Trees<L, V> {
    fn sums(&self, rows: &[RawFloat]) -> Vec<f64> {
        let mut sums = vec![V::default(); rows.len() / self.features * self.base.len()];
        match (rows.iter().any(|x| f32::from_le_bytes(*x).is_nan()), self.has_vectors) {
            (false, false) => self.add_all::<false, false>(rows, &mut sums),
            (true, false) => self.add_all::<true, false>(rows, &mut sums),
            (false, true) => self.add_all::<false, true>(rows, &mut sums),
            (true, true) => self.add_all::<true, true>(rows, &mut sums),
        }
        let with_base = |(mut sum, &base): (V, &V)| {
            sum += base;
            sum.into()
        };
        sums.into_iter().zip(self.base.iter().cycle()).map(with_base).collect()
    }
}

/// The threshold of the same comparison with `<=`. NaN is below minus infinity: no value is at most that.
fn at_most(compare: Compare, threshold: f32) -> f32 {
    match compare {
        Compare::LessOrEqual => threshold,
        Compare::Less if threshold == f32::NEG_INFINITY => f32::NAN,
        Compare::Less => threshold.next_down(),
    }
}
