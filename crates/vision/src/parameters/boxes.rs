//! From texts to the reader of a detection network's outputs.

use super::Parameters;
use crate::boxes::{Decoder, Layout, Settings, Suppression};
use tensor::{Error, Result};

/// Parameters of [`boxes`].
pub const BOXES: [&str; 8] =
    ["layout", "score_threshold", "iou_threshold", "boxes_max", "nms", "multi_label", "classes", "input_size"];

/// The reader and its settings; those of the layout where a parameter is absent.
///
/// # Errors
/// INVALID_ARG with the parameter, what was expected and found.
pub fn boxes(parameters: &Parameters<'_>) -> Result<(Decoder, Settings)> {
    let names: Vec<_> = Layout::ALL.iter().map(|layout| (layout.name(), *layout)).collect();
    let layout = parameters.choice("layout", &names)?.ok_or_else(|| {
        let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
        Error::invalid(format!("{} needs the parameter 'layout': {}", parameters.owner(), names.join(", ")))
    })?;
    let suppressions: Vec<_> = Suppression::ALL.iter().map(|kind| (kind.name(), *kind)).collect();
    let usual = layout.settings();
    let settings = Settings {
        suppression: parameters.choice("nms", &suppressions)?.unwrap_or(usual.suppression),
        score_threshold: parameters.number("score_threshold")?.unwrap_or(usual.score_threshold),
        iou_threshold: parameters.number("iou_threshold")?.unwrap_or(usual.iou_threshold),
        boxes_max: parameters.number("boxes_max")?.unwrap_or(usual.boxes_max),
    };
    settings.check()?;
    let input = parameters.size("input_size")?.map(|(width, height)| [width as f32, height as f32]);
    let is_multi_label = parameters.flag("multi_label", false)?;
    if is_multi_label && !layout.has_labels() {
        let (name, owner) = (layout.name(), parameters.owner());
        return Err(Error::invalid(format!(
            "{owner}: 'multi_label' is for the layouts yolov5 and yolov8, and the layout is {name}: remove the \
             parameter"
        )));
    }
    Ok((Decoder { layout, classes: parameters.number("classes")?, is_multi_label, input }, settings))
}
