//! Outputs of a detection network to boxes in pixels of the original picture, with scores and classes.
//!
//! One call takes one row: the outputs of one picture, without the batch dimension. A layout's reader turns them into
//! candidates, which are in pixels of the network's input, finite, and have a score greater than the threshold;
//! then non-maximum suppression (NMS), if the layout needs it; then the way back to the original picture.
//!
//! Bounded: one pass over the outputs, at most [`CANDIDATES_MAX`] candidates, and for each of those at most
//! `boxes_max` comparisons with boxes that were kept. Without masks, key points and rotated boxes.
//!
//! Invariant of [`Boxes`]: scores descend and are greater than the threshold, boxes lie within the original picture.

mod candidates;
mod center;
pub mod fuzz;
mod nms;
mod output;
mod transformer;
mod yolo;

pub use output::Output;

use candidates::Candidates;
use tensor::{Error, Result};

/// Most candidates that NMS compares, those with the greatest scores; more are dropped. Ultralytics has the same number
/// (`max_nms`).
pub const CANDIDATES_MAX: usize = 30_000;

/// Greatest `boxes_max`. With it, NMS takes at most `CANDIDATES_MAX * BOXES_MAX` comparisons.
pub const BOXES_MAX: u32 = 3_000;

/// Classes beyond this number are dropped: greater ones are not exact in `f32`.
pub const CLASS_MAX: u32 = (1 << 24) - 1;

/// How a picture was placed in the network's input: `original = (input - offset) / scale`, in pixels.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs)]
pub struct Placement {
    pub scale_x: f32,
    pub scale_y: f32,
    pub offset_x: f32,
    pub offset_y: f32,
    /// Width of the original picture in pixels.
    pub width: f32,
    /// Height of the original picture in pixels.
    pub height: f32,
}

impl Placement {
    /// The placement of a picture that is the network's input as it is.
    pub fn identity(width: f32, height: f32) -> Self {
        Self { scale_x: 1.0, scale_y: 1.0, offset_x: 0.0, offset_y: 0.0, width, height }
    }

    fn check(&self) -> Result<()> {
        let is_scale = |scale: f32| scale.is_normal() && scale > 0.0;
        let is_size = |size: f32| size.is_finite() && size >= 0.0;
        let is_valid = is_scale(self.scale_x)
            && is_scale(self.scale_y)
            && is_size(self.width)
            && is_size(self.height)
            && self.offset_x.is_finite()
            && self.offset_y.is_finite();
        let text = || format!("the placement of a picture needs scales > 0 and finite sizes and offsets, got {self:?}");
        if is_valid { Ok(()) } else { Err(Error::internal(text())) }
    }

    /// The box in pixels of the original picture, cut at its borders.
    fn original(&self, [x1, y1, x2, y2]: [f32; 4]) -> [f32; 4] {
        let x = |x: f32| ((x - self.offset_x) / self.scale_x).max(0.0).min(self.width);
        let y = |y: f32| ((y - self.offset_y) / self.scale_y).max(0.0).min(self.height);
        [x(x1), y(y1), x(x2), y(y2)]
    }
}

/// What a network's outputs mean. Shapes are those of one row, in the order in which [`Decoder::decode`] takes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// YOLOv5 and YOLOv7: `[boxes, 5 + classes]`, each center x, center y, width, height, objectness, and the
    /// classes' scores. The score is objectness × the best class's.
    Yolov5,
    /// YOLOv8, v9, v11 and v12: `[4 + classes, boxes]`: center x, center y, width, height, and the classes' scores.
    /// The score is the best class's.
    Yolov8,
    /// YOLOv10 and others that end with their own selection: `[boxes, 6]`, each x1, y1, x2, y2, score, class.
    EndToEnd,
    /// DETR: logits `[queries, classes + 1]`, with "no object" as the last class, and boxes `[queries, 4]`: center x,
    /// center y, width, height, relative to the picture. The score is the softmax of the best class.
    Detr,
    /// RT-DETR, Deformable DETR and others with focal loss: logits `[queries, classes]` and boxes as of `Detr`. Scores
    /// are sigmoids; one query may have several classes, and there are at most as many boxes as queries.
    RtDetr,
    /// CenterNet: probabilities `[classes, height, width]`, sizes `[2, height, width]` (width, height) and offsets
    /// `[2, height, width]` (x, y), both in cells of 4 pixels. Each local maximum of 3 × 3 cells is a box.
    CenterNet,
    /// CenterFace: probabilities `[classes, height, width]`, logarithms of sizes `[2, height, width]` (height, width)
    /// and offsets `[2, height, width]` (y, x), both in cells of 4 pixels. Each local maximum of 3 × 3 cells is a box.
    /// CenterFace's own code takes the other cells too and leaves them to NMS.
    CenterFace,
    /// Detection networks exported from torchvision: boxes `[boxes, 4]`, each x1, y1, x2, y2; labels `[boxes]`; scores
    /// `[boxes]`. They are final. Networks trained on COCO have "background" as label 0.
    Torchvision,
}

/// The layout, its name in configurations, and the role and shape of each output.
type LayoutRow = (Layout, &'static str, &'static [(&'static str, &'static str)]);

const LAYOUTS: [LayoutRow; 8] = [
    (Layout::Yolov5, "yolov5", &[("boxes", "[boxes, 5 + classes]")]),
    (Layout::Yolov8, "yolov8", &[("boxes", "[4 + classes, boxes]")]),
    (Layout::EndToEnd, "yolov10", &[("boxes", "[boxes, 6]")]),
    (Layout::Detr, "detr", &[("logits", "[queries, classes + 1]"), ("boxes", "[queries, 4]")]),
    (Layout::RtDetr, "rtdetr", &[("logits", "[queries, classes]"), ("boxes", "[queries, 4]")]),
    (Layout::CenterNet, "centernet", &CENTER),
    (Layout::CenterFace, "centerface", &CENTER),
    (Layout::Torchvision, "torchvision", &[("boxes", "[boxes, 4]"), ("labels", "[boxes]"), ("scores", "[boxes]")]),
];

const CENTER: [(&str, &str); 3] =
    [("heatmap", "[classes, height, width]"), ("scale", "[2, height, width]"), ("offset", "[2, height, width]")];

impl Layout {
    /// Every layout.
    pub const ALL: [Self; 8] = {
        let mut all = [Self::Yolov5; 8];
        let mut i = 0;
        while i < 8 {
            all[i] = LAYOUTS[i].0;
            i += 1;
        }
        all
    };

    /// Name in configurations.
    pub fn name(self) -> &'static str {
        LAYOUTS[self as usize].1
    }

    /// The layout with this name in configurations.
    pub fn from_name(name: &str) -> Option<Self> {
        LAYOUTS.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Role and shape of each output, in the order in which [`Decoder::decode`] takes them.
    pub fn outputs(self) -> &'static [(&'static str, &'static str)] {
        LAYOUTS[self as usize].2
    }

    /// Usual settings: those of the prediction commands and examples of the frameworks that the layouts come from.
    pub fn settings(self) -> Settings {
        let (score_threshold, iou_threshold, boxes_max, suppression) = match self {
            Self::Yolov5 => (0.25, 0.45, 1000, Suppression::PerClass),
            Self::Yolov8 => (0.25, 0.7, 300, Suppression::PerClass),
            Self::EndToEnd => (0.25, 0.7, 300, Suppression::None),
            Self::Detr | Self::RtDetr => (0.5, 0.7, 300, Suppression::None),
            Self::CenterNet => (0.3, 0.5, 100, Suppression::None),
            Self::CenterFace => (0.5, 0.3, 300, Suppression::PerClass),
            Self::Torchvision => (0.05, 0.5, 300, Suppression::None),
        };
        Settings { score_threshold, iou_threshold, boxes_max, suppression }
    }
}

/// Which boxes suppress a box that overlaps them and has a smaller score.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suppression {
    /// None: the network has selected its boxes.
    None,
    /// Those of the same class.
    PerClass,
    /// Those of every class.
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
    /// What suppresses overlapping boxes.
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

/// Boxes of one picture by descending score; the three have the same length.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Boxes {
    /// Each x1, y1, x2, y2 in pixels of the original picture.
    pub boxes: Vec<[f32; 4]>,
    /// Scores, each greater than the threshold.
    pub scores: Vec<f32>,
    /// Ids of the classes.
    pub classes: Vec<u32>,
}

/// The reader of one model's outputs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decoder {
    /// What the outputs mean.
    pub layout: Layout,
    /// Number of classes, if it is known: outputs with fewer are rejected. Of the layouts `Yolov5` and `Yolov8`, values
    /// behind the classes (masks, key points) are skipped; the others must have exactly this number.
    pub classes: Option<usize>,
    /// Width and height of the network's input in pixels, for relative boxes of a network whose input has borders
    /// around the picture. Without it they are relative to the picture, as in transformers.
    pub input: Option<[f32; 2]>,
}

impl Decoder {
    /// The boxes of one picture.
    ///
    /// # Errors
    /// INTERNAL by the model if an output has an unexpected shape: the text has its name and both shapes. INVALID_ARG
    /// for settings out of range.
    pub fn decode(&self, outputs: &[Output<'_>], placement: &Placement, settings: &Settings) -> Result<Boxes> {
        settings.check()?;
        placement.check()?;
        let expected = self.layout.outputs();
        if outputs.len() != expected.len() {
            let (name, found) = (self.layout.name(), outputs.len());
            let roles = expected.iter().map(|(role, shape)| format!("{role} {shape}")).collect::<Vec<_>>().join(", ");
            let text = format!("layout '{name}' needs {} outputs ({roles}), got {found}", expected.len());
            return Err(Error::internal(text).by_model());
        }
        let mut candidates = Candidates::new(settings.score_threshold);
        match self.layout {
            Layout::Yolov5 => yolo::v5(&outputs[0], self.classes, &mut candidates)?,
            Layout::Yolov8 => yolo::v8(&outputs[0], self.classes, &mut candidates)?,
            Layout::EndToEnd => yolo::end_to_end(&outputs[0], &mut candidates)?,
            Layout::Detr | Layout::RtDetr => {
                let size = self.relative_to(placement);
                let read = if self.layout == Layout::Detr { transformer::detr } else { transformer::rt_detr };
                read(&outputs[0], &outputs[1], self.classes, size, &mut candidates)?;
            }
            Layout::CenterNet | Layout::CenterFace => {
                let is_face = self.layout == Layout::CenterFace;
                center::read(&outputs[0], &outputs[1], &outputs[2], self.classes, is_face, &mut candidates)?;
            }
            Layout::Torchvision => output::torchvision(&outputs[0], &outputs[1], &outputs[2], &mut candidates)?,
        }
        Ok(nms::select(candidates, placement, settings))
    }

    /// Left and top edge, width and height of what relative boxes are relative to, in pixels of the network's input.
    fn relative_to(&self, placement: &Placement) -> [f32; 4] {
        match self.input {
            Some([width, height]) => [0.0, 0.0, width, height],
            None => {
                let (width, height) = (placement.width * placement.scale_x, placement.height * placement.scale_y);
                [placement.offset_x, placement.offset_y, width, height]
            }
        }
    }
}
