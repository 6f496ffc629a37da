//! Outputs of detection transformers: logits, and boxes relative to a size.

use super::candidates::{CLASS_MAX, Candidates};
use super::output::RowOutput;
use super::yolo::best;
use tensor::Result;

/// Queries, values per query, and the boxes, which the outputs must have as many of.
fn check<'a>(
    logits: &RowOutput<'_>,
    boxes: &RowOutput<'a>,
    classes: Option<usize>,
    none: usize,
) -> Result<(usize, usize, &'a [[f32; 4]])> {
    let shape = |classes: &str| format!("[queries, {classes}{}]", if none == 1 { " + 1" } else { "" });
    let [queries, width] = logits.dims(&shape("classes"))?;
    match classes {
        Some(classes) if width != classes + none => return Err(logits.unexpected(&shape(&classes.to_string()))),
        _ if width <= none => return Err(logits.unexpected(&shape("classes"))),
        _ => {}
    }
    if boxes.dims("[queries, 4]")? != [queries, 4] {
        return Err(boxes.unexpected(&format!("[{queries},4], as many as the queries of '{}'", logits.name)));
    }
    Ok((queries, width, boxes.rows()))
}

/// Relative center and size to pixels.
fn pixels([x, y, w, h]: [f32; 4], [left, top, width, height]: [f32; 4]) -> [f32; 4] {
    [x * width + left, y * height + top, w * width, h * height]
}

/// Softmax over the classes and "no object", which is the last.
pub fn detr(
    logits: &RowOutput<'_>,
    boxes: &RowOutput<'_>,
    classes: Option<usize>,
    size: [f32; 4],
    candidates: &mut Candidates,
) -> Result<()> {
    let (_, width, boxes) = check(logits, boxes, classes, 1)?;
    for (row, place) in logits.data.chunks_exact(width).zip(boxes) {
        let Some((none, rest)) = row.split_last() else { continue };
        if row.iter().any(|logit| !logit.is_finite()) {
            continue;
        }
        let (mut class, mut best) = (0, f32::NEG_INFINITY);
        for (at, &logit) in (0..).zip(rest) {
            if logit > best {
                (class, best) = (at, logit);
            }
        }
        let most = best.max(*none);
        let sum: f32 = row.iter().map(|logit| (logit - most).exp()).sum();
        candidates.push_center(pixels(*place, size), (best - most).exp() / sum, class);
    }
    Ok(())
}

/// `[queries, 4 + classes]`, or `[queries, 6]` unless there are two classes.
pub fn rt_detr_ultralytics(
    output: &RowOutput<'_>,
    classes: Option<usize>,
    size: [f32; 4],
    candidates: &mut Candidates,
) -> Result<()> {
    let [_, width] = output.dims("[queries, 4 + classes]")?;
    if width == 6 && classes != Some(2) {
        for &[x, y, w, h, score, class] in output.rows() {
            if (0.0..=CLASS_MAX as f32).contains(&class) {
                candidates.push_center(pixels([x, y, w, h], size), score, class as u32);
            }
        }
        return Ok(());
    }
    match classes {
        Some(classes) if width != 4 + classes => {
            return Err(output.unexpected(&format!("[queries, 4 + {classes}] or [queries, 6]")));
        }
        _ if width <= 4 => return Err(output.unexpected("[queries, 4 + classes] or [queries, 6]")),
        _ => {}
    }
    for row in output.data.chunks_exact(width) {
        let &[x, y, w, h, ref scores @ ..] = row else { continue };
        if let Some((class, score)) = best(scores.iter().copied()) {
            candidates.push_center(pixels([x, y, w, h], size), score, class);
        }
    }
    Ok(())
}

/// Sigmoid of each class of each query, and of those the best, as many as queries.
pub fn rt_detr(
    logits: &RowOutput<'_>,
    boxes: &RowOutput<'_>,
    classes: Option<usize>,
    size: [f32; 4],
    candidates: &mut Candidates,
) -> Result<()> {
    let (queries, width, boxes) = check(logits, boxes, classes, 0)?;
    // The logit of the threshold, less by more than rounding errors: what is not greater needs no sigmoid.
    let threshold = candidates.threshold();
    let least = (threshold / (1.0 - threshold)).ln() - 1e-3;
    for (row, place) in logits.data.chunks_exact(width).zip(boxes) {
        if !row.iter().any(|&logit| logit >= least) || row.iter().any(|logit| !logit.is_finite()) {
            continue;
        }
        for (class, &logit) in (0..).zip(row).filter(|(_, logit)| **logit >= least) {
            candidates.push_center(pixels(*place, size), 1.0 / (1.0 + (-logit).exp()), class);
        }
    }
    candidates.truncate(queries);
    Ok(())
}
