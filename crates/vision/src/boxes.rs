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
mod layout;
mod nms;
mod output;
mod settings;
mod transformer;
mod yolo;

pub use candidates::{CANDIDATES_MAX, CLASS_MAX};
pub use layout::Layout;
pub use output::RowOutput;
pub use settings::{BOXES_MAX, Overrides, Settings, Suppression};

use crate::Placement;
use candidates::Candidates;
use tensor::{Error, Result};

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
    /// Meaning of the outputs.
    pub layout: Layout,
    /// Number of classes, if it is known; outputs with another number are rejected. In the layouts `Yolov5` and
    /// `Yolov8` there may be more values behind the classes (masks, key points), which are skipped. `EndToEnd` and
    /// `Torchvision` have no such number to check.
    pub classes: Option<usize>,
    /// Whether each class whose score is over the threshold makes a box, as `multi_label=True` of Ultralytics; else the
    /// best one only. For layouts that [have labels](Layout::has_labels).
    pub is_multi_label: bool,
    /// Width and height of the network's input in pixels, for relative boxes of a network whose input has borders
    /// around the picture. Without it they are relative to the picture, as in transformers.
    pub input: Option<[f32; 2]>,
}

impl Decoder {
    /// The placement of outputs without a picture: pixels are those of the network's input.
    pub fn unplaced(&self) -> Placement {
        let [width, height] = self.input.unwrap_or([f32::MAX; 2]);
        Placement::identity(width, height)
    }

    /// The boxes of one picture.
    ///
    /// # Errors
    /// INTERNAL by the model if an output has an unexpected shape: the text has its name and both shapes. INVALID_ARG
    /// for settings out of range.
    pub fn decode(&self, outputs: &[RowOutput<'_>], placement: &Placement, settings: &Settings) -> Result<Boxes> {
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
        let classes = yolo::Classes { count: self.classes, is_multi_label: self.is_multi_label };
        match self.layout {
            Layout::Yolov5 => yolo::v5(&outputs[0], classes, &mut candidates)?,
            Layout::Yolov8 => yolo::v8(&outputs[0], classes, &mut candidates)?,
            Layout::EndToEnd => yolo::end_to_end(&outputs[0], &mut candidates)?,
            Layout::Detr | Layout::RtDetr => {
                let size = self.relative_to(placement);
                let read = if self.layout == Layout::Detr { transformer::detr } else { transformer::rt_detr };
                read(&outputs[0], &outputs[1], self.classes, size, &mut candidates)?;
            }
            Layout::RtDetrUltralytics => {
                let size = self.relative_to(placement);
                transformer::rt_detr_ultralytics(&outputs[0], self.classes, size, &mut candidates)?;
            }
            Layout::CenterNet | Layout::CenterFace => {
                let is_face = self.layout == Layout::CenterFace;
                center::read(&outputs[0], &outputs[1], &outputs[2], self.classes, is_face, &mut candidates)?;
            }
            Layout::Torchvision => output::torchvision(&outputs[0], &outputs[1], &outputs[2], &mut candidates)?,
        }
        let mut found = Boxes::default();
        for (candidate, score) in nms::select(candidates, settings) {
            found.boxes.push(placement.original(candidate.corners));
            found.scores.push(score);
            found.classes.push(candidate.class);
        }
        Ok(found)
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
