//! Outputs of a classification network to the classes with the greatest scores.

use std::cmp::Ordering;

/// The function that makes scores of a network's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activation {
    /// Nothing: the output has scores.
    None,
    /// Logits of classes that exclude each other.
    Softmax,
    /// Logits of classes of which several may apply.
    Sigmoid,
}

impl Activation {
    /// Every activation.
    pub const ALL: [Self; 3] = [Self::None, Self::Softmax, Self::Sigmoid];

    /// Name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Softmax => "softmax",
            Self::Sigmoid => "sigmoid",
        }
    }
}

/// Classes of one row by descending score; both have the same length.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Top {
    /// Ids of the classes.
    pub classes: Vec<u32>,
    /// Scores of the classes.
    pub scores: Vec<f32>,
}

/// The `count` classes with the greatest scores of one row, or all if there are fewer. Of equal scores, the lower class
/// comes first; NaN comes last, and does not change the scores of other classes.
pub fn top(row: &[f32], activation: Activation, count: usize) -> Top {
    let row = row.get(..u32::MAX as usize).unwrap_or(row);
    let order = |a: &u32, b: &u32| descending(row[*a as usize], row[*b as usize]).then(a.cmp(b));
    let mut classes: Vec<u32> = (0..row.len() as u32).collect();
    if count == 0 {
        classes.clear();
    } else if classes.len() > count {
        classes.select_nth_unstable_by(count - 1, order);
        classes.truncate(count);
    }
    // Both activations ascend, so the order of the logits is that of the scores.
    classes.sort_unstable_by(order);
    let logits = classes.iter().map(|&class| row[class as usize]);
    let scores = match activation {
        Activation::None => logits.collect(),
        Activation::Sigmoid => logits.map(|logit| 1.0 / (1.0 + (-logit).exp())).collect(),
        Activation::Softmax => {
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            // An infinite logit minus itself would be NaN.
            let share = |logit: f32| if logit == most { 1.0 } else { (logit - most).exp() };
            let sum: f32 = row.iter().filter(|logit| !logit.is_nan()).map(|&logit| share(logit)).sum();
            logits.map(|logit| share(logit) / sum).collect()
        }
    };
    Top { classes, scores }
}

fn descending(a: f32, b: f32) -> Ordering {
    b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
