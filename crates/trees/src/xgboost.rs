//! Reads XGBoost's JSON and UBJSON of versions 1.0 to 3.x. Unknown members are skipped.

use crate::compare::Compare;
use crate::document::Document;
use crate::ensemble::{Ensemble, FileNode, Forest, ModelFacts, Precision, Test, Transform, unsupported, within};
use crate::limits::{NODES_MAX, TREES_MAX};
use crate::pieces::{Pieces, Unused};
use tensor::{Error, Result};

/// Contents of the file, whose members may be in any order.
#[derive(Default)]
struct Learner {
    booster: String,
    objective: String,
    forest: Forest,
    /// Output of each tree.
    tree_info: Vec<i64>,
    weight_drop: Vec<f32>,
    base_score: String,
    classes: String,
    features: String,
    targets: String,
}

pub(crate) fn read(document: &mut impl Document) -> Result<Ensemble> {
    let mut learner = None;
    document.object(|d, key| match key {
        "learner" => {
            learner = Some(self::learner(d)?);
            Ok(())
        }
        _ => d.skip(),
    })?;
    document.end()?;
    learner.ok_or_else(|| Error::invalid("there is no member 'learner': this is not a model of XGBoost"))?.finish()
}

fn learner<D: Document>(d: &mut D) -> Result<Learner> {
    let mut found = Learner::default();
    d.object(|d, key| match key {
        "gradient_booster" => booster(d, &mut found),
        "learner_model_param" => d.object(|d, key| {
            let to = match key {
                "base_score" => &mut found.base_score,
                "num_class" => &mut found.classes,
                "num_feature" => &mut found.features,
                "num_target" => &mut found.targets,
                _ => return d.skip(),
            };
            *to = d.text()?;
            Ok(())
        }),
        "objective" => d.object(|d, key| match key {
            "name" => {
                found.objective = d.text()?;
                Ok(())
            }
            _ => d.skip(),
        }),
        _ => d.skip(),
    })?;
    Ok(found)
}

fn booster<D: Document>(d: &mut D, found: &mut Learner) -> Result<()> {
    d.object(|d, key| match key {
        "name" => {
            found.booster = d.text()?;
            Ok(())
        }
        "model" => model(d, found),
        // In "dart", the trees are one level deeper.
        "gbtree" => d.object(|d, key| match key {
            "model" => model(d, found),
            _ => d.skip(),
        }),
        "weight_drop" => d.floats(&mut found.weight_drop),
        _ => d.skip(),
    })
}

fn model<D: Document>(d: &mut D, found: &mut Learner) -> Result<()> {
    let mut arrays = Arrays::default();
    d.object(|d, key| match key {
        "trees" => d.array(|d| {
            let number = found.forest.trees.len();
            if number == TREES_MAX {
                return Err(d.error(format_args!("a model may have {TREES_MAX} trees")));
            }
            arrays.read(d).map_err(|e| within(format_args!("tree {number}"), e))?;
            arrays.add_to(&mut found.forest)
        }),
        "tree_info" => d.integers(&mut found.tree_info),
        _ => d.skip(),
    })
}

/// The arrays of a tree, with an item for each node.
#[derive(Default)]
struct Arrays {
    left: Vec<i64>,
    right: Vec<i64>,
    features: Vec<i64>,
    /// Thresholds of splits, values of leaves.
    conditions: Vec<f32>,
    default_left: Vec<i64>,
    /// 1 for splits by category. Missing before version 1.3.
    split_types: Vec<i64>,
    /// Nodes with categories, with the start and number of each one's categories.
    category_nodes: Vec<i64>,
    category_begins: Vec<i64>,
    category_counts: Vec<i64>,
    categories: Vec<i64>,
    leaf_size: String,
    /// Leaves with several values: those of each leaf, at the index that is its right child.
    leaf_weights: Vec<f32>,
    /// The same before version 3.2, at the index of the node.
    base_weights: Vec<f32>,
}

impl Arrays {
    fn read<D: Document>(&mut self, d: &mut D) -> Result<()> {
        let lists = [
            &mut self.left,
            &mut self.right,
            &mut self.features,
            &mut self.default_left,
            &mut self.split_types,
            &mut self.category_nodes,
            &mut self.category_begins,
            &mut self.category_counts,
            &mut self.categories,
        ];
        lists.into_iter().for_each(Vec::clear);
        [&mut self.conditions, &mut self.leaf_weights, &mut self.base_weights].into_iter().for_each(Vec::clear);
        self.leaf_size.clear();
        d.object(|d, key| {
            let to = match key {
                "left_children" => &mut self.left,
                "right_children" => &mut self.right,
                "split_indices" => &mut self.features,
                "default_left" => &mut self.default_left,
                "split_type" => &mut self.split_types,
                "categories_nodes" => &mut self.category_nodes,
                "categories_segments" => &mut self.category_begins,
                "categories_sizes" => &mut self.category_counts,
                "categories" => &mut self.categories,
                "split_conditions" => return d.floats(&mut self.conditions),
                "leaf_weights" => return d.floats(&mut self.leaf_weights),
                "base_weights" => return d.floats(&mut self.base_weights),
                "tree_param" => {
                    return d.object(|d, key| match key {
                        "size_leaf_vector" => {
                            self.leaf_size = d.text()?;
                            Ok(())
                        }
                        _ => d.skip(),
                    });
                }
                _ => return d.skip(),
            };
            d.integers(to)
        })
    }

    fn add_to(&self, forest: &mut Forest) -> Result<()> {
        let tree = forest.trees.len();
        let wrong = |text: String| Error::invalid(format!("tree {tree}: {text}"));
        let width = match self.leaf_size.as_str() {
            "" | "0" => 1,
            text => text.parse().map_err(|_| wrong(format!("'size_leaf_vector' is '{text}', not a number")))?,
        };
        let nodes = self.left.len();
        if nodes > NODES_MAX {
            return Err(wrong(format!("it has {nodes} nodes, a model may have {NODES_MAX}")));
        }
        let lengths = [
            ("right_children", self.right.len()),
            ("split_indices", self.features.len()),
            ("split_conditions", self.conditions.len()),
            ("default_left", self.default_left.len()),
            ("split_type", if self.split_types.is_empty() { nodes } else { self.split_types.len() }),
        ];
        if let Some((name, length)) = lengths.into_iter().find(|(_, n)| *n != nodes) {
            return Err(wrong(format!("'{name}' has {length} items, and 'left_children' has {nodes}")));
        }
        // Index of each node's categories in the lists.
        let mut place = Vec::new();
        if !self.category_nodes.is_empty() {
            place.resize(nodes, usize::MAX);
            for (i, node) in self.category_nodes.iter().enumerate() {
                let of = usize::try_from(*node).ok().and_then(|n| place.get_mut(n));
                *of.ok_or_else(|| wrong(format!("'categories_nodes' names node {node}, which does not exist")))? = i;
            }
        }
        let unused = Unused::of("categories", self.categories.len());
        let unused_values = Unused::of("values", self.leaf_weights.len().max(self.base_weights.len()));
        forest.add(0, nodes, 0, |node| match self.left.get(node as usize) {
            Some(-1) if width > 1 => unused_values.take(width).and_then(|()| self.leaf(node as usize, width)),
            _ => self.node(node as usize, &place, &unused),
        })
    }

    /// A leaf with several values.
    fn leaf(&self, node: usize, width: usize) -> Result<FileNode> {
        let missing = || Error::invalid("its values are not in the file");
        let (list, leaf) = match &*self.leaf_weights {
            [] => (&self.base_weights, Some(node)),
            _ => (&self.leaf_weights, self.right.get(node).and_then(|n| usize::try_from(*n).ok())),
        };
        let first = leaf.and_then(|leaf| leaf.checked_mul(width)).ok_or_else(missing)?;
        let values = first.checked_add(width).and_then(|end| list.get(first..end)).ok_or_else(missing)?;
        Ok(FileNode::Vector(values.iter().copied().map(f64::from).collect()))
    }

    fn node(&self, node: usize, place: &[usize], unused: &Unused) -> Result<FileNode> {
        let missing = || Error::invalid("it is not in every list");
        let at = |list: &[i64]| list.get(node).copied().ok_or_else(missing);
        let condition = self.conditions.get(node).copied().ok_or_else(missing)?;
        let (left, right) = (at(&self.left)?, at(&self.right)?);
        if left == -1 {
            return Ok(FileNode::Leaf(f64::from(condition)));
        }
        let index = |what: &str, n: i64| u32::try_from(n).map_err(|_| Error::invalid(format!("{what} {n} is not one")));
        let test = match self.split_types.get(node) {
            None | Some(0) => Test::Compare(Compare::Less, condition),
            Some(1) => {
                let categories = self.categories(place.get(node).copied().unwrap_or(usize::MAX), unused)?;
                // Categories of the set go right.
                Test::Pieces(Compare::Less, Pieces::categories(categories, false, false))
            }
            Some(other) => return Err(unsupported(format!("the type {other} of a split is unknown"))),
        };
        Ok(FileNode::Split {
            feature: index("feature", at(&self.features)?)?,
            test,
            left: index("left child", left)?,
            right: index("right child", right)?,
            missing_left: at(&self.default_left)? != 0,
        })
    }

    fn categories(&self, place: usize, unused: &Unused) -> Result<Vec<u32>> {
        let wrong = || Error::invalid("its categories are not in 'categories'");
        let at = |list: &[i64]| list.get(place).and_then(|n| usize::try_from(*n).ok()).ok_or_else(wrong);
        let (begin, count) = (at(&self.category_begins)?, at(&self.category_counts)?);
        unused.take(count)?;
        let end = begin.checked_add(count).ok_or_else(wrong)?;
        let categories = self.categories.get(begin..end).ok_or_else(wrong)?;
        let category = |c: &i64| u32::try_from(*c).map_err(|_| Error::invalid(format!("category {c} is not one")));
        categories.iter().map(category).collect()
    }
}

impl Learner {
    fn finish(mut self) -> Result<Ensemble> {
        let number = |name: &str, text: &str| match text {
            "" => Ok(0),
            text => text.parse::<u64>().map_err(|_| Error::invalid(format!("'{name}' is '{text}', not a number"))),
        };
        let shape = Shape {
            classes: number("num_class", &self.classes)?,
            targets: number("num_target", &self.targets)?,
            features: number("num_feature", &self.features)?,
        };
        check_booster(&self.booster)?;
        let texts = self.base_score.trim_matches(['[', ']']).split(',').map(str::trim);
        let score = |text: &str| {
            text.parse::<f32>().map_err(|_| Error::invalid(format!("the base_score '{text}' is not a number")))
        };
        let scores = texts.map(score).collect::<Result<Vec<_>>>()?;
        if self.booster == "dart" {
            weigh(&mut self.forest, &self.weight_drop)?;
        }
        finish(self.forest, &self.tree_info, &self.objective, &shape, &scores, true)
    }
}

/// Sizes of a model.
pub(crate) struct Shape {
    pub(crate) classes: u64,
    pub(crate) targets: u64,
    pub(crate) features: u64,
}

pub(crate) fn check_booster(name: &str) -> Result<()> {
    match name {
        "gbtree" | "dart" => Ok(()),
        "gblinear" => {
            Err(unsupported("the booster 'gblinear' has no trees. Train with the booster 'gbtree' or 'dart'"))
        }
        other => Err(Error::invalid(format!("the booster '{other}' is unknown"))),
    }
}

/// Multiplies the trees of "dart" by their weights.
pub(crate) fn weigh(forest: &mut Forest, weights: &[f32]) -> Result<()> {
    let (trees, found) = (forest.trees.len(), weights.len());
    if found != trees {
        return Err(Error::invalid(format!("'weight_drop' has {found} items for {trees} trees")));
    }
    for (tree, weight) in forest.trees.iter_mut().zip(weights) {
        Forest::scale(tree, Precision::Single, f64::from(*weight));
    }
    Ok(())
}

/// Common to all XGBoost formats. `scores` are predictions with `are_predictions`, otherwise sums.
pub(crate) fn finish(
    mut forest: Forest,
    tree_info: &[i64],
    objective: &str,
    shape: &Shape,
    scores: &[f32],
    are_predictions: bool,
) -> Result<Ensemble> {
    let (transform, to_sum): (_, fn(f32) -> f32) = match objective {
        "reg:squarederror"
        | "reg:linear"
        | "reg:squaredlogerror"
        | "reg:absoluteerror"
        | "reg:pseudohubererror"
        | "reg:quantileerror"
        | "reg:expectileerror"
        | "binary:logitraw"
        | "rank:pairwise"
        | "rank:ndcg"
        | "rank:map" => (Transform::Identity, |s| s),
        "reg:logistic" | "binary:logistic" => (Transform::Sigmoid { alpha: 1.0 }, logit),
        "binary:hinge" => (Transform::Hinge, |s| s),
        "count:poisson" | "reg:gamma" | "reg:tweedie" | "survival:cox" | "survival:aft" => {
            (Transform::Exponential, f32::ln)
        }
        "multi:softmax" | "multi:softprob" => (Transform::Softmax, |s| s),
        other => {
            return Err(unsupported(format!(
                "the meaning of predictions of the objective '{other}' is unknown. Train with another, or convert the \
                 model to ONNX"
            )));
        }
    };
    let is_multiclass = transform == Transform::Softmax;
    let outputs = shape.classes.max(shape.targets).max(1);
    if shape.classes > 1 && shape.targets > 1 {
        return Err(unsupported("a model with several classes and several targets"));
    }
    let (trees, found) = (forest.trees.len(), tree_info.len());
    if found != trees {
        return Err(Error::invalid(format!("'tree_info' has {found} items for {trees} trees")));
    }
    for (tree, group) in forest.trees.iter_mut().zip(tree_info) {
        tree.output = u32::try_from(*group).unwrap_or(u32::MAX);
    }
    let sum = |s: &f32| f64::from(if are_predictions { to_sum(*s) } else { *s });
    let base = match scores {
        // `Forest::finish` rejects larger numbers, so these are not allocated.
        [one] if outputs <= u64::from(crate::limits::OUTPUTS_MAX) => vec![sum(one); outputs as usize],
        all => all.iter().map(sum).collect(),
    };
    let features = shape.features;
    forest.finish(ModelFacts { features, outputs, is_multiclass, base, transform, precision: Precision::Single })
}

/// The sum that has this probability, with XGBoost's arithmetic.
fn logit(probability: f32) -> f32 {
    -(1.0 / probability - 1.0).ln()
}
