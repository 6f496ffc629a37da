//! Settings of a model and of a request, with their ranges.

use tensor::{Error, Result};

/// Greatest `boxes_max`. With it, NMS takes at most `CANDIDATES_MAX * BOXES_MAX` comparisons, 0.1 s of CPU time; with
/// 300 boxes, 0.01 s.
pub const BOXES_MAX: u32 = 3_000;

/// Which boxes suppress a box that overlaps them and has a smaller score.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suppression {
    /// No box: the network has selected its boxes.
    None,
    /// Boxes of the same class.
    PerClass,
    /// Boxes of every class.
    AllClasses,
}

impl Suppression {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::None, Self::PerClass, Self::AllClasses];

    /// Name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::PerClass => "per_class",
            Self::AllClasses => "all_classes",
        }
    }
}

/// Which candidates become boxes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// A box has a greater score; 0 to 1.
    pub score_threshold: f32,
    /// A box is suppressed by one with which its intersection over union is greater; 0 to 1. In `f64`, as PyTorch
    /// compares it: 0.7 as `f32` is less than 0.7.
    pub iou_threshold: f64,
    /// Most boxes, those with the greatest scores; 1 to [`BOXES_MAX`].
    pub boxes_max: u32,
    /// Boxes that suppress others.
    pub suppression: Suppression,
}

/// Settings of one request; those that are absent are the model's.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[allow(missing_docs)]
pub struct Overrides {
    pub score_threshold: Option<f64>,
    pub iou_threshold: Option<f64>,
    pub boxes_max: Option<i64>,
}

impl Settings {
    /// Checks the ranges.
    ///
    /// # Errors
    /// INVALID_ARG with the setting's name, its range, and what was found.
    pub fn check(&self) -> Result<()> {
        self.with(&Overrides::default()).map(|_| ())
    }

    /// The settings of a request.
    ///
    /// # Errors
    /// INVALID_ARG with the setting's name, its range, and what was found.
    pub fn with(&self, overrides: &Overrides) -> Result<Self> {
        let share = |name: &str, value: f64| {
            let text = || Error::invalid(format!("'{name}' must be a number from 0 to 1, got {value}"));
            if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(text()) }
        };
        let score_threshold = overrides.score_threshold.unwrap_or(self.score_threshold.into());
        let iou_threshold = overrides.iou_threshold.unwrap_or(self.iou_threshold);
        let boxes_max = overrides.boxes_max.unwrap_or(self.boxes_max.into());
        if !(1..=i64::from(BOXES_MAX)).contains(&boxes_max) {
            return Err(Error::invalid(format!("'boxes_max' must be a number from 1 to {BOXES_MAX}, got {boxes_max}")));
        }
        Ok(Self {
            score_threshold: share("score_threshold", score_threshold)? as f32,
            iou_threshold: share("iou_threshold", iou_threshold)?,
            boxes_max: boxes_max as u32,
            suppression: self.suppression,
        })
    }
}
