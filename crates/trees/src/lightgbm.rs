//! Reads LightGBM's text format: lines of `key=value`, in a header and one section for each tree.
//!
//! Thresholds are doubles, but features are floats here, so each threshold is replaced by the equivalent float.

use crate::compare::Compare;
use crate::ensemble::{Ensemble, FileNode, Forest, ModelFacts, Precision, Test, Transform, unsupported, within};
use crate::limits::NODES_MAX;
use crate::pieces::{Pieces, Unused, not_above};
use std::collections::HashMap;
use std::str::FromStr;
use tensor::{Error, Result};

/// Values up to this distance from 0 are zeros (`kZeroThreshold`).
const ZERO: f32 = 1e-35;

/// Bits of a split's `decision_type`.
const BY_CATEGORIES: u8 = 1;
const DEFAULT_LEFT: u8 = 2;
/// Shift of the kind of missing values: none, zeros, or NaN.
const MISSING_SHIFT: u8 = 2;
const MISSING_ZERO: u8 = 1;
const MISSING_NAN: u8 = 2;

/// Maximum number of words in the category sets of a tree; each word has bits for 32 categories.
const CATEGORY_WORDS_MAX: usize = NODES_MAX / 32;

/// A section: its first line, and its keys.
#[derive(Default)]
struct Section<'a> {
    line: usize,
    values: HashMap<&'a str, &'a str>,
}

pub(crate) fn read(file: &[u8]) -> Result<Ensemble> {
    let mut lines = (1..).zip(file.split(|b| *b == b'\n'));
    let first = lines.next().map_or(&[][..], |(_, line)| line.trim_ascii());
    if first != b"tree" {
        return Err(Error::invalid("line 1: it is not 'tree', with which models of LightGBM begin"));
    }
    let mut head = Section { line: 1, ..Section::default() };
    let mut tree: Option<Section<'_>> = None;
    let mut forest = Forest::default();
    let mut is_complete = false;
    for (number, line) in lines {
        let place = |e| within(format_args!("line {number}"), e);
        let line = std::str::from_utf8(line.trim_ascii()).map_err(|_| place(Error::invalid("it is not UTF-8")))?;
        if line == "end of trees" {
            is_complete = true;
            break;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        if key == "Tree" {
            if let Some(done) = tree.replace(Section { line: number, ..Section::default() }) {
                done.add_to(&mut forest)?;
            }
        } else if !key.is_empty() {
            tree.as_mut().unwrap_or(&mut head).values.insert(key, value);
        }
    }
    if !is_complete {
        return Err(Error::invalid("the line 'end of trees' is missing: the file is cut off"));
    }
    if let Some(last) = tree {
        last.add_to(&mut forest)?;
    }
    finish(&head, forest)
}

impl Section<'_> {
    fn error(&self, text: String) -> Error {
        Error::invalid(format!("line {}: {text}", self.line))
    }

    fn text(&self, key: &str) -> Result<&str> {
        self.values.get(key).copied().ok_or_else(|| self.error(format!("'{key}' is missing")))
    }

    fn number<T: FromStr>(&self, key: &str, text: &str) -> Result<T> {
        text.parse().map_err(|_| self.error(format!("'{key}' has '{text}', which is not a number that fits")))
    }

    /// The numbers of a key, of which there must be `length`.
    fn list<T: FromStr>(&self, key: &str, length: usize) -> Result<Vec<T>> {
        let mut list = Vec::new();
        for text in self.text(key)?.split_ascii_whitespace() {
            if list.len() == length {
                return Err(self.error(format!("'{key}' has more than {length} items")));
            }
            list.push(self.number(key, text)?);
        }
        if list.len() != length {
            return Err(self.error(format!("'{key}' has {} items, not {length}", list.len())));
        }
        Ok(list)
    }

    fn add_to(&self, forest: &mut Forest) -> Result<()> {
        if self.values.get("is_linear").is_some_and(|v| *v != "0") {
            return Err(within(
                format_args!("line {}", self.line),
                unsupported("a tree with linear models in its leaves. Train with linear_tree=false"),
            ));
        }
        let leaves: usize = self.number("num_leaves", self.text("num_leaves")?)?;
        if !(1..=NODES_MAX).contains(&leaves) {
            return Err(self.error(format!("{leaves} leaves")));
        }
        let splits = leaves - 1;
        let values: Vec<f64> = self.list("leaf_value", leaves)?;
        if splits == 0 {
            return forest.add(0, 1, 0, |_| Ok(FileNode::Leaf(values.first().copied().unwrap_or(0.0))));
        }
        let categories: usize = match self.values.get("num_cat") {
            Some(text) => self.number("num_cat", text)?,
            None => 0,
        };
        let (mut begins, mut bits): (Vec<usize>, Vec<u32>) = (Vec::new(), Vec::new());
        if categories > 0 {
            begins = self.list("cat_boundaries", categories.saturating_add(1))?;
            let words = begins.last().copied().unwrap_or(0);
            if words > CATEGORY_WORDS_MAX {
                return Err(self.error(format!("{words} words of categories, at most {CATEGORY_WORDS_MAX} are read")));
            }
            bits = self.list("cat_threshold", words)?;
        }
        let tree = Splits {
            features: self.list("split_feature", splits)?,
            thresholds: self.list("threshold", splits)?,
            kinds: match self.values.get("decision_type") {
                Some(_) => self.list("decision_type", splits)?,
                None => vec![0; splits],
            },
            left: self.list("left_child", splits)?,
            right: self.list("right_child", splits)?,
            unused: Unused::of("categories", bits.len()),
            begins,
            bits,
            values,
        };
        forest
            .add(0, splits + leaves, 0, |node| tree.node(node as usize))
            .map_err(|e| within(format_args!("line {}", self.line), e))
    }
}

/// The arrays of a tree. Node indices count the splits first, then the leaves.
struct Splits {
    features: Vec<u32>,
    thresholds: Vec<f64>,
    kinds: Vec<u8>,
    left: Vec<i64>,
    right: Vec<i64>,
    /// Start of each category set in `bits`.
    begins: Vec<usize>,
    bits: Vec<u32>,
    unused: Unused,
    values: Vec<f64>,
}

impl Splits {
    fn node(&self, node: usize) -> Result<FileNode> {
        let splits = self.left.len();
        if let Some(leaf) = node.checked_sub(splits) {
            return Ok(FileNode::Leaf(self.values.get(leaf).copied().unwrap_or(0.0)));
        }
        let missing = || Error::invalid("it is not in every list");
        let feature = self.features.get(node).copied().ok_or_else(missing)?;
        let threshold = self.thresholds.get(node).copied().ok_or_else(missing)?;
        let kind = self.kinds.get(node).copied().ok_or_else(missing)?;
        // Leaves have the indices -1, -2, and so on.
        let child = |list: &[i64]| {
            let n = list.get(node).copied().ok_or_else(missing)?;
            let index = if n < 0 { (!n).saturating_add(splits as i64) } else { n };
            u32::try_from(index).map_err(|_| Error::invalid(format!("{n} is named as a child")))
        };
        let default_left = kind & DEFAULT_LEFT != 0;
        let (test, missing_left) = if kind & BY_CATEGORIES != 0 {
            // Missing values go right, for any `default_left`.
            (Test::Pieces(Compare::LessOrEqual, Pieces::categories(self.categories(threshold)?, true, true)), false)
        } else {
            match kind >> MISSING_SHIFT & 3 {
                MISSING_NAN => (compare(threshold), default_left),
                MISSING_ZERO if threshold.is_nan() => return Err(Error::invalid("the threshold is not a number")),
                MISSING_ZERO => {
                    let pieces = Pieces::around_zero(threshold, ZERO, default_left);
                    (Test::Pieces(Compare::LessOrEqual, pieces), default_left)
                }
                // NaN is replaced by 0.
                _ => (compare(threshold), 0.0 <= threshold),
            }
        };
        Ok(FileNode::Split { feature, test, left: child(&self.left)?, right: child(&self.right)?, missing_left })
    }

    /// The categories that go left.
    fn categories(&self, index: f64) -> Result<Vec<u32>> {
        let wrong = || Error::invalid(format!("its set of categories, {index}, does not exist"));
        let at = index as usize;
        let begin = self.begins.get(at).copied().ok_or_else(wrong)?;
        let end = at.checked_add(1).and_then(|at| self.begins.get(at)).copied().ok_or_else(wrong)?;
        let words = self.bits.get(begin..end).ok_or_else(wrong)?;
        self.unused.take(words.len())?;
        let of_word = |(first, word): (u32, &u32)| {
            let word = *word;
            (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
        };
        // Cannot overflow 32 bits, because of `CATEGORY_WORDS_MAX`.
        Ok((0..).step_by(32).zip(words).flat_map(of_word).collect())
    }
}

/// LightGBM replaces every value near 0 by 0, so all of those are on the side of 0.
fn compare(threshold: f64) -> Test {
    let near = if threshold.is_nan() { f32::NAN } else { not_above(threshold) };
    let threshold = match near {
        near if (-ZERO..0.0).contains(&near) => (-ZERO).next_down(),
        near if (0.0..ZERO).contains(&near) => ZERO,
        near => near,
    };
    Test::Compare(Compare::LessOrEqual, threshold)
}

fn finish(head: &Section<'_>, mut forest: Forest) -> Result<Ensemble> {
    let features: u64 = head.number("max_feature_idx", head.text("max_feature_idx")?)?;
    let per_iteration: u64 = match head.values.get("num_tree_per_iteration") {
        Some(text) => head.number("num_tree_per_iteration", text)?,
        None => head.number("num_class", head.text("num_class")?)?,
    };
    let outputs = per_iteration.max(1);
    let trees = forest.trees.len() as u64;
    if !trees.is_multiple_of(outputs) {
        return Err(head.error(format!("{trees} trees are not whole iterations of {outputs}: the file is cut off")));
    }
    let is_average = head.values.contains_key("average_output");
    for (i, tree) in (0u64..).zip(&mut forest.trees) {
        tree.output = u32::try_from(i % outputs).unwrap_or(u32::MAX);
        if is_average {
            Forest::scale(tree, Precision::Double, 1.0 / (trees / outputs) as f64);
        }
    }
    let transform = transform(head)?;
    if transform == Transform::Softmax && outputs == 1 {
        return Err(head.error("the objective 'multiclass' with one class".into()));
    }
    // `Forest::finish` rejects larger numbers, so these are not allocated.
    let base = vec![0.0; outputs.min(u64::from(crate::limits::OUTPUTS_MAX) + 1) as usize];
    let features = features.saturating_add(1);
    let facts =
        ModelFacts { features, outputs, is_multiclass: outputs > 1, base, transform, precision: Precision::Double };
    forest.finish(facts)
}

fn transform(head: &Section<'_>) -> Result<Transform> {
    let mut words = head.values.get("objective").copied().unwrap_or("custom").split_ascii_whitespace();
    let objective = words.next().unwrap_or("custom");
    let (mut alpha, mut is_root) = (1.0, false);
    for word in words {
        match word.split_once(':') {
            Some(("sigmoid", text)) => alpha = head.number("objective", text)?,
            _ => is_root |= word == "sqrt",
        }
    }
    Ok(match objective {
        "regression" | "regression_l1" | "huber" | "fair" | "quantile" | "mape" if is_root => Transform::SignedSquare,
        "regression" | "regression_l1" | "huber" | "fair" | "quantile" | "mape" | "lambdarank" | "rank_xendcg"
        | "custom" | "none" => Transform::Identity,
        "binary" | "multiclassova" => Transform::Sigmoid { alpha },
        "cross_entropy" | "xentropy" => Transform::Sigmoid { alpha: 1.0 },
        "cross_entropy_lambda" | "xentlambda" => Transform::Softplus,
        "poisson" | "gamma" | "tweedie" => Transform::Exponential,
        "multiclass" => Transform::Softmax,
        other => {
            return Err(within(
                format_args!("line {}", head.line),
                unsupported(format!(
                    "the meaning of predictions of the objective '{other}' is unknown. Train with another, or convert \
                     the model to ONNX"
                )),
            ));
        }
    })
}
