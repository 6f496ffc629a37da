//! The output of a model.

use crate::ensemble::Ensemble;

/// Name of the input: rows of features.
pub const INPUT: &str = "input__0";
/// Name of the output.
pub const OUTPUT: &str = "output__0";

/// Kind of the model's output.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum OutputKind {
    /// The framework's prediction.
    Prediction,
    /// The class as a number: the index of the largest prediction of several classes, the first of equal ones.
    LargestClass,
    /// For each output 1 if the prediction is above the threshold, otherwise 0.
    Above {
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
            Self::LargestClass => 1,
            Self::BothClasses => 2,
            Self::Prediction | Self::Above { .. } => ensemble.outputs,
        }
    }
}
