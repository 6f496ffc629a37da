//! Reads treelite checkpoints of versions 4.x: a sequence of little-endian scalars and counted arrays.

use crate::binary::{Bytes, item};
use crate::compare::Compare;
use crate::ensemble::{Ensemble, FileNode, Forest, ModelFacts, Precision, Test, Transform, unsupported, within};
use crate::limits::{NODES_MAX, TEXT_BYTES_MAX, TREES_MAX};
use crate::pieces::{Pieces, Unused, not_above, not_below};
use std::ops::Range;
use tensor::{Error, Result};

const MAJOR: i32 = 4;
/// `TypeInfo`.
const FLOAT32: u8 = 2;
const FLOAT64: u8 = 3;
/// `TaskType`.
const MULTICLASS: u8 = 2;
/// `TreeNodeType`.
const LEAF: u8 = 0;
const NUMERICAL: u8 = 1;
const CATEGORICAL: u8 = 2;

pub(crate) fn read(file: &[u8]) -> Result<Ensemble> {
    let mut at = Bytes::new(file);
    let version = [at.i32()?, at.i32()?, at.i32()?];
    if version[0] != MAJOR {
        let [major, minor, patch] = version;
        return Err(unsupported(format!(
            "it was written by version {major}.{minor}.{patch}, and only checkpoints of 4.x are read. Load it with \
             treelite {MAJOR} (which reads 3.9 too) and save it again with `model.serialize(\"checkpoint.tl\")`"
        )));
    }
    let (thresholds, leaves) = (at.u8()?, at.u8()?);
    let is_double = match (thresholds, leaves) {
        (FLOAT32, FLOAT32) => false,
        (FLOAT64, FLOAT64) => true,
        _ => return Err(at.error(format_args!("thresholds of type {thresholds} and leaves of type {leaves}"))),
    };
    let trees = at.u64()?;
    if trees > TREES_MAX as u64 {
        return Err(at.error(format_args!("{trees} trees, a model may have {TREES_MAX}")));
    }
    let features = at.i32()?;
    let task = at.u8()?;
    let is_average = at.u8()? != 0;
    let targets = at.i32()?;
    let classes = integers(&mut at)?;
    let leaf_shape = integers(&mut at)?;
    let target_ids = integers(&mut at)?;
    let class_ids = integers(&mut at)?;
    let post_processor = text(&mut at)?;
    let (alpha, ratio) = (at.f32()?, at.f32()?);
    let base = array::<8>(&mut at)?.map(f64::from_le_bytes).collect::<Vec<_>>();
    let attributes = at.u64()?;
    at.take(attributes, 1)?;
    skip_extensions(&mut at)?;
    // The outputs are classes of one target, or targets of one class.
    let is_one_class = classes.iter().all(|n| *n == 1);
    if usize::try_from(targets) != Ok(classes.len()) || classes.is_empty() {
        return Err(Error::invalid(format!("it has {targets} targets, and classes for {}", classes.len())));
    }
    if targets != 1 && !is_one_class {
        return Err(unsupported(format!(
            "{targets} targets with the classes {classes:?}, and only models of one target may have several classes. \
             Save a model for each target"
        )));
    }
    let outputs = if is_one_class { targets } else { classes.first().copied().unwrap_or(0) };
    let leaf_width = leaf_shape.iter().try_fold(1i32, |n, size| n.checked_mul(*size)).unwrap_or(0);
    if leaf_width != 1 && leaf_width != outputs {
        return Err(Error::invalid(format!("leaves of shape {leaf_shape:?} for {outputs} classes or targets")));
    }
    let per_tree = |ids: &[i32]| ids.len() as u64 == trees;
    if !per_tree(&target_ids) || !per_tree(&class_ids) {
        return Err(Error::invalid("its lists of classes and targets do not fit its trees"));
    }
    let precision = if is_double { Precision::Double } else { Precision::Single };
    let mut forest = Forest::default();
    let ids = if is_one_class { &target_ids } else { &class_ids };
    for (number, id) in (0..trees).zip(ids) {
        let tree = Arrays::read(&mut at, is_double).map_err(|e| within(format_args!("tree {number}"), e))?;
        let width = usize::try_from(leaf_width).unwrap_or(0);
        let output = if width > 1 { 0 } else { u32::try_from(*id).unwrap_or(u32::MAX) };
        forest.add(output, tree.count, 0, |node| tree.node(node as usize, width))?;
    }
    if !at.is_at_end() {
        return Err(at.error("something follows the trees"));
    }
    if is_average {
        let mut of_class = std::collections::HashMap::new();
        forest.trees.iter().for_each(|t| *of_class.entry(t.output).or_insert(0.0f64) += 1.0);
        for tree in &mut forest.trees {
            let count = of_class.get(&tree.output).copied().unwrap_or(1.0);
            Forest::scale(tree, precision, 1.0 / count);
        }
    }
    let transform = match post_processor.as_str() {
        "identity" | "identity_multiclass" => Transform::Identity,
        "signed_square" => Transform::SignedSquare,
        "hinge" => Transform::Hinge,
        "sigmoid" | "multiclass_ova" => Transform::Sigmoid { alpha },
        "exponential" => Transform::Exponential,
        "exponential_standard_ratio" => Transform::ExponentialRatio { ratio },
        "logarithm_one_plus_exp" => Transform::Softplus,
        "softmax" => Transform::Softmax,
        other => return Err(unsupported(format!("the postprocessor '{other}' is unknown"))),
    };
    let unsigned = |n: i32| u64::try_from(n).unwrap_or(0);
    let (features, outputs, is_multiclass) = (unsigned(features), unsigned(outputs), task == MULTICLASS);
    forest.finish(ModelFacts { features, outputs, is_multiclass, base, transform, precision })
}

/// A counted array of items of `N` bytes.
fn array<'a, const N: usize>(at: &mut Bytes<'a>) -> Result<impl Iterator<Item = [u8; N]> + use<'a, N>> {
    let bytes = bytes(at, N)?;
    Ok((0..bytes.len() / N.max(1)).filter_map(move |i| item(bytes, i)))
}

fn bytes<'a>(at: &mut Bytes<'a>, size: usize) -> Result<&'a [u8]> {
    let count = at.u64()?;
    if count > NODES_MAX as u64 {
        return Err(at.error(format_args!("a list of {count} items, at most {NODES_MAX} are read")));
    }
    at.take(count, size as u64)
}

fn integers(at: &mut Bytes<'_>) -> Result<Vec<i32>> {
    Ok(array::<4>(at)?.map(i32::from_le_bytes).collect())
}

fn text(at: &mut Bytes<'_>) -> Result<String> {
    let length = at.u64()?;
    if length > TEXT_BYTES_MAX as u64 {
        return Err(at.error(format_args!("a text of {length} bytes, at most {TEXT_BYTES_MAX} are read")));
    }
    at.take(length, 1).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Fields of versions after 4.0: a name and values of a size.
fn skip_extensions(at: &mut Bytes<'_>) -> Result<()> {
    let count = at.i32()?;
    for _ in 0..count {
        text(at)?;
        let size = u64::from(at.u8()?);
        let values = at.u64()?;
        at.take(values, size)?;
    }
    Ok(())
}

/// The arrays of a tree, with an item for each node.
struct Arrays<'a> {
    count: usize,
    is_double: bool,
    kinds: &'a [u8],
    left: &'a [u8],
    right: &'a [u8],
    features: &'a [u8],
    default_left: &'a [u8],
    leaves: &'a [u8],
    thresholds: &'a [u8],
    operators: &'a [u8],
    members_right: &'a [u8],
    vectors: Lists<'a>,
    categories: Lists<'a>,
}

/// Lists of the nodes of a tree, one after the other.
struct Lists<'a> {
    what: &'static str,
    items: &'a [u8],
    count: usize,
    begins: &'a [u8],
    ends: &'a [u8],
    unused: Unused,
}

impl<'a> Lists<'a> {
    /// `size` is the bytes of an item.
    fn read(at: &mut Bytes<'a>, size: usize, what: &'static str) -> Result<Self> {
        let (items, begins, ends) = (bytes(at, size)?, bytes(at, 8)?, bytes(at, 8)?);
        let count = items.len() / size.max(1);
        Ok(Self { what, items, count, begins, ends, unused: Unused::of(what, count) })
    }

    /// Indices of a node's items.
    fn of(&self, node: usize) -> Result<Range<usize>> {
        let place = |list: &[u8]| item(list, node).and_then(|n| usize::try_from(u64::from_le_bytes(n)).ok());
        let (Some(begin), Some(end)) = (place(self.begins), place(self.ends)) else {
            return Err(Error::invalid("it is not in every list"));
        };
        if begin > end || end > self.count {
            let (what, all) = (self.what, self.count);
            return Err(Error::invalid(format!("its {what} are {begin} to {end} of {all}")));
        }
        self.unused.take(end - begin)?;
        Ok(begin..end)
    }
}

impl<'a> Arrays<'a> {
    fn read(at: &mut Bytes<'a>, is_double: bool) -> Result<Self> {
        let real = if is_double { 8 } else { 4 };
        let nodes = at.i32()?;
        at.u8()?; // has_categorical_split
        let kinds = bytes(at, 1)?;
        let (left, right, features) = (bytes(at, 4)?, bytes(at, 4)?, bytes(at, 4)?);
        let default_left = bytes(at, 1)?;
        let (leaves, thresholds) = (bytes(at, real)?, bytes(at, real)?);
        let (operators, members_right) = (bytes(at, 1)?, bytes(at, 1)?);
        let (vectors, categories) = (Lists::read(at, real, "values")?, Lists::read(at, 4, "categories")?);
        for size in [8, 1, 8, 1, 8, 1] {
            bytes(at, size)?; // statistics
        }
        skip_extensions(at)?;
        skip_extensions(at)?;
        let count = kinds.len();
        if usize::try_from(nodes).ok() != Some(count) {
            return Err(Error::invalid(format!("it has {nodes} nodes, and a list has {count}")));
        }
        Ok(Self {
            count,
            is_double,
            kinds,
            left,
            right,
            features,
            default_left,
            leaves,
            thresholds,
            operators,
            members_right,
            vectors,
            categories,
        })
    }

    /// A leaf has `width` values.
    fn node(&self, node: usize, width: usize) -> Result<FileNode> {
        let missing = || Error::invalid("it is not in every list");
        let byte = |list: &[u8]| list.get(node).copied().ok_or_else(missing);
        let integer = |list: &[u8]| {
            let n = item(list, node).map(i32::from_le_bytes).ok_or_else(missing)?;
            u32::try_from(n).map_err(|_| Error::invalid(format!("{n} is not a child or feature")))
        };
        let real_at = |list: &[u8], index: usize| {
            let single = || item(list, index).map(f32::from_le_bytes).map(f64::from);
            let value = if self.is_double { item(list, index).map(f64::from_le_bytes) } else { single() };
            value.ok_or_else(missing)
        };
        let real = |list: &[u8]| real_at(list, node);
        let kind = byte(self.kinds)?;
        if kind == LEAF && width > 1 {
            let values = self.vectors.of(node)?.map(|i| real_at(self.vectors.items, i)).collect::<Result<Vec<_>>>()?;
            let found = values.len();
            let is_whole = found == width;
            return is_whole.then_some(FileNode::Vector(values)).ok_or_else(|| {
                Error::invalid(format!("the leaf has {found} values, and those of the model have {width}"))
            });
        }
        if kind == LEAF {
            return Ok(FileNode::Leaf(real(self.leaves)?));
        }
        let feature = integer(self.features)?;
        let (mut left, mut right) = (integer(self.left)?, integer(self.right)?);
        let mut missing_left = byte(self.default_left)? != 0;
        let test = match kind {
            NUMERICAL => {
                let threshold = real(self.thresholds)?;
                if threshold.is_nan() {
                    return Err(Error::invalid("the threshold is not a number"));
                }
                // `>=` and `>` become `<` and `<=` with the children swapped.
                let operator = byte(self.operators)?;
                if matches!(operator, 4 | 5) {
                    (left, right, missing_left) = (right, left, !missing_left);
                }
                match operator {
                    2 | 5 => Test::Compare(Compare::Less, not_below(threshold)),
                    3 | 4 => Test::Compare(Compare::LessOrEqual, not_above(threshold)),
                    other => return Err(unsupported(format!("the comparison {other} is not one of <, <=, > and >="))),
                }
            }
            CATEGORICAL => {
                let of_node = self.categories.of(node)?;
                let categories = of_node.filter_map(|i| item(self.categories.items, i).map(u32::from_le_bytes));
                let members_left = byte(self.members_right)? == 0;
                Test::Pieces(Compare::Less, Pieces::categories(categories.collect(), members_left, false))
            }
            other => return Err(Error::invalid(format!("its type is {other}"))),
        };
        Ok(FileNode::Split { feature, test, left, right, missing_left })
    }
}
