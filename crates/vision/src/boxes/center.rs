//! Outputs of CenterNet and CenterFace: a map of probabilities for each class, whose local maxima are centers of boxes.

use super::candidates::Candidates;
use super::output::RowOutput;
use tensor::Result;

/// Pixels of the network's input per cell.
const STRIDE: f32 = 4.0;

/// Adds the local maxima. CenterFace has its pairs in the order y, x, logarithms of sizes, and centers of cells.
pub fn read(
    heatmap: &RowOutput<'_>,
    scale: &RowOutput<'_>,
    offset: &RowOutput<'_>,
    classes: Option<usize>,
    is_face: bool,
    candidates: &mut Candidates,
) -> Result<()> {
    let [found, height, width] = heatmap.dims("[classes, height, width]")?;
    if let Some(classes) = classes.filter(|classes| *classes != found) {
        return Err(heatmap.unexpected(&format!("[{classes}, height, width]")));
    }
    for output in [scale, offset] {
        if output.dims("[2, height, width]")? != [2, height, width] {
            return Err(output.unexpected(&format!("[2,{height},{width}], as '{}' has", heatmap.name)));
        }
    }
    let cells = height * width;
    if cells == 0 {
        return Ok(());
    }
    let threshold = candidates.threshold();
    for (class, map) in (0..).zip(heatmap.data.chunks_exact(cells)) {
        for (at, &score) in map.iter().enumerate().filter(|(_, score)| **score > threshold) {
            let (row, column) = (at / width, at % width);
            if !is_maximum(map, width, (row, column), score) {
                continue;
            }
            let pair = |output: &RowOutput<'_>| [output.data[at], output.data[cells + at]];
            let ([first, second], [a, b]) = (pair(scale), pair(offset));
            // The logarithm of a size may be infinite where the size is not.
            if ![first, second, a, b].iter().all(|value| value.is_finite()) {
                continue;
            }
            let (x, y) = (column as f32, row as f32);
            let place = if is_face {
                [x + b + 0.5, y + a + 0.5, second.exp(), first.exp()]
            } else {
                [x + a, y + b, first, second]
            };
            candidates.push_center(place.map(|cells| cells * STRIDE), score, class);
        }
    }
    Ok(())
}

/// Whether no neighbour is greater; neighbours of NaN are not.
fn is_maximum(map: &[f32], width: usize, (row, column): (usize, usize), score: f32) -> bool {
    let columns = column.saturating_sub(1)..(column + 2).min(width);
    let rows = map.chunks_exact(width).skip(row.saturating_sub(1)).take(if row == 0 { 2 } else { 3 });
    !rows.flat_map(|cells| &cells[columns.clone()]).any(|&cell| cell > score)
}
