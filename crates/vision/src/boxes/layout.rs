//! Layouts: what is known of the outputs of each family of networks.

use super::settings::{Settings, Suppression};

/// Meaning of the outputs of a network. Shapes are of one row, in the order in which
/// [`decode`](super::Decoder::decode) takes outputs.
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
    /// RT-DETR as Ultralytics exports it, without NMS: `[queries, 4 + classes]`, each center x, center y, width,
    /// height, relative to the picture, and the classes' scores; or `[queries, 6]`, where the best score and its class
    /// follow.
    /// The score is the best class's.
    RtDetrUltralytics,
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

const LAYOUTS: [LayoutRow; 9] = [
    (Layout::Yolov5, "yolov5", &[("boxes", "[boxes, 5 + classes]")]),
    (Layout::Yolov8, "yolov8", &[("boxes", "[4 + classes, boxes]")]),
    (Layout::EndToEnd, "yolov10", &[("boxes", "[boxes, 6]")]),
    (Layout::Detr, "detr", &[("logits", "[queries, classes + 1]"), ("boxes", "[queries, 4]")]),
    (Layout::RtDetr, "rtdetr", &[("logits", "[queries, classes]"), ("boxes", "[queries, 4]")]),
    (Layout::RtDetrUltralytics, "rtdetr_ultralytics", &[("boxes", "[queries, 4 + classes]")]),
    (Layout::CenterNet, "centernet", &CENTER),
    (Layout::CenterFace, "centerface", &CENTER),
    (Layout::Torchvision, "torchvision", &[("boxes", "[boxes, 4]"), ("labels", "[boxes]"), ("scores", "[boxes]")]),
];

const CENTER: [(&str, &str); 3] =
    [("heatmap", "[classes, height, width]"), ("scale", "[2, height, width]"), ("offset", "[2, height, width]")];

impl Layout {
    /// Every layout.
    pub const ALL: [Self; 9] = {
        let mut all = [Self::Yolov5; 9];
        let mut i = 0;
        while i < 9 {
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

    /// Role and shape of each output, in the order in which [`decode`](super::Decoder::decode) takes them.
    pub fn outputs(self) -> &'static [(&'static str, &'static str)] {
        LAYOUTS[self as usize].2
    }

    /// Number of dims of each output.
    pub fn ranks(self) -> impl Iterator<Item = usize> {
        self.outputs().iter().map(|(_, shape)| shape.split(',').count())
    }

    /// Whether a box has a score per class, so that it may have several labels.
    pub fn has_labels(self) -> bool {
        matches!(self, Self::Yolov5 | Self::Yolov8)
    }

    /// Usual settings: those of the prediction commands and examples of the frameworks that the layouts come from.
    pub fn settings(self) -> Settings {
        let (score_threshold, iou_threshold, boxes_max, suppression) = match self {
            Self::Yolov5 => (0.25, 0.45, 1000, Suppression::PerClass),
            Self::Yolov8 => (0.25, 0.7, 300, Suppression::PerClass),
            Self::EndToEnd => (0.25, 0.7, 300, Suppression::None),
            Self::RtDetrUltralytics => (0.25, 0.7, 300, Suppression::None),
            Self::Detr | Self::RtDetr => (0.5, 0.7, 300, Suppression::None),
            Self::CenterNet => (0.3, 0.5, 100, Suppression::None),
            Self::CenterFace => (0.5, 0.3, 300, Suppression::PerClass),
            Self::Torchvision => (0.05, 0.5, 300, Suppression::None),
        };
        Settings { score_threshold, iou_threshold, boxes_max, suppression }
    }
}
