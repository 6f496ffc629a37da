//! Entry point of the fuzzer: arbitrary outputs through every layout. Public for the fuzz package only.

use super::{BOXES_MAX, Decoder, Layout, Overrides, RowOutput, Suppression};
use crate::Placement;

/// A reader of the input, which goes on with zeros at its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn float(&mut self) -> f32 {
        f32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn option<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.byte() & 1 == 1).then(|| value(self))
    }
}

/// Decodes outputs made of the bytes: layout, settings, placement, shapes, and the values. Returns whether there were
/// boxes.
///
/// # Panics
/// If a box lies outside the picture, a score is not greater than the threshold or scores do not descend, or there are
/// more boxes than allowed.
pub fn boxes(data: &[u8]) -> bool {
    let mut bytes = Bytes(data);
    let layout = Layout::ALL[usize::from(bytes.byte()) % Layout::ALL.len()];
    let suppression = Suppression::ALL[usize::from(bytes.byte()) % 3];
    let overrides = Overrides {
        score_threshold: bytes.option(|b| f64::from(b.byte()) / 250.0),
        iou_threshold: bytes.option(|b| f64::from(b.byte()) / 250.0),
        boxes_max: bytes.option(|b| i64::from(b.byte())),
    };
    let mut settings = layout.settings();
    settings.suppression = suppression;
    let settings = settings.with(&overrides).unwrap_or(settings);
    let placement = bytes.option(|b| Placement {
        scale_x: b.float(),
        scale_y: b.float(),
        offset_x: b.float(),
        offset_y: b.float(),
        width: b.float(),
        height: b.float(),
    });
    let placement = placement.unwrap_or(Placement::identity(640.0, 480.0));
    let classes = bytes.option(|b| usize::from(b.byte() % 8));
    let input = bytes.option(|b| [b.float(), b.float()]);
    let is_multi_label = layout.has_labels() && bytes.byte() & 1 == 1;
    // Any shapes, or those of the layout, of which most of the code is reached.
    let any =
        bytes.option(|b| [(); 3].map(|()| (0..b.byte() % 5).map(|_| i64::from(b.byte() as i8)).collect::<Vec<_>>()));
    let (n, m, k) = (i64::from(bytes.byte() % 40), i64::from(bytes.byte() % 12), i64::from(bytes.byte() % 12));
    let shapes = any.unwrap_or_else(|| match layout {
        Layout::Yolov5 => [vec![n, 5 + m], vec![], vec![]],
        Layout::Yolov8 => [vec![4 + m, n], vec![], vec![]],
        Layout::EndToEnd => [vec![n, 6], vec![], vec![]],
        Layout::RtDetrUltralytics => [vec![n, 4 + m], vec![], vec![]],
        Layout::Detr | Layout::RtDetr => [vec![n, m], vec![n, 4], vec![]],
        Layout::CenterNet | Layout::CenterFace => [vec![m % 4, m, k], vec![2, m, k], vec![2, m, k]],
        Layout::Torchvision => [vec![n, 4], vec![n], vec![n]],
    });
    let values = shapes.each_ref().map(|shape| {
        let count = tensor::element_count(shape).unwrap_or(7).min(4096);
        // A value is a small number, which makes boxes that overlap, or any four bytes.
        (0..count)
            .map(|_| match bytes.byte() {
                255 => bytes.float(),
                small => f32::from(small) / 127.0,
            })
            .collect::<Vec<_>>()
    });
    let all = [0, 1, 2].map(|i| RowOutput { name: "output", shape: &shapes[i], data: &values[i] });
    let outputs = &all[..layout.outputs().len()];
    let Ok(found) = (Decoder { layout, classes, is_multi_label, input }).decode(outputs, &placement, &settings) else {
        return false;
    };
    let count = found.boxes.len();
    assert!(count == found.scores.len() && count == found.classes.len());
    assert!(count <= settings.boxes_max as usize && settings.boxes_max <= BOXES_MAX);
    assert!(found.scores.iter().all(|score| score.is_finite() && *score > settings.score_threshold));
    assert!(found.scores.is_sorted_by(|a, b| a >= b));
    for &[x1, y1, x2, y2] in &found.boxes {
        assert!(0.0 <= x1 && x1 <= x2 && x2 <= placement.width, "{x1} {x2}");
        assert!(0.0 <= y1 && y1 <= y2 && y2 <= placement.height, "{y1} {y2}");
    }
    count > 0
}
