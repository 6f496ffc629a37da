//! Outputs of the YOLO family.

use super::candidates::Candidates;
use super::output::RowOutput;
use tensor::{Error, Result};

/// Boxes per block of the scan of `v8`: their maxima fit into the first-level cache.
const BLOCK: usize = 1024;

/// The number of classes in a row of `width` values, of which the first `head` are none.
fn classes_of(
    output: &RowOutput<'_>,
    known: Option<usize>,
    (width, boxes): (usize, usize),
    head: usize,
) -> Result<usize> {
    let order =
        |classes: &str| if head == 4 { format!("[4 + {classes}, boxes]") } else { format!("[boxes, 5 + {classes}]") };
    let found = width.saturating_sub(head);
    match known {
        _ if found == 0 => Err(output.unexpected(&order("classes"))),
        Some(classes) if found >= classes => Ok(classes),
        Some(classes) => Err(output.unexpected(&order(&classes.to_string()))),
        // Read the other way round, boxes would be classes, and every box would be wrong without an error.
        None if width > boxes && boxes > head => {
            let other = if head == 4 { "yolov5" } else { "yolov8" };
            let hint = format!(". If it is of layout '{other}', set that; else set the number of classes");
            let e = output.unexpected(&format!("{} with fewer classes than boxes", order("classes")));
            Err(Error::with_text(&e, format!("{}{hint}", e.message())))
        }
        None => Ok(found),
    }
}

/// Classes of a YOLO network.
#[derive(Clone, Copy)]
pub struct Classes {
    /// Their number, if it is known.
    pub count: Option<usize>,
    /// Whether each class over the threshold makes a box, or the best one only.
    pub is_multi_label: bool,
}

/// Adds a box per class; those that are not over the threshold are dropped.
fn push_each(place: [f32; 4], scores: impl Iterator<Item = f32>, candidates: &mut Candidates) {
    (0..).zip(scores).for_each(|(class, score)| candidates.push_center(place, score, class));
}

/// `[boxes, 5 + classes]`
pub fn v5(output: &RowOutput<'_>, classes: Classes, candidates: &mut Candidates) -> Result<()> {
    let [boxes, width] = output.dims("[boxes, 5 + classes]")?;
    let Classes { count, is_multi_label } = classes;
    let classes = classes_of(output, count, (width, boxes), 5)?;
    let threshold = candidates.threshold();
    for row in output.data.chunks_exact(width) {
        let &[x, y, w, h, objectness, ref rest @ ..] = row else { continue };
        // Most boxes end here: a class's score is at most 1. Objectness of NaN is not greater.
        if objectness > threshold {
            let scores = rest[..classes].iter().copied();
            let Some((class, best)) = best(scores.clone()) else { continue };
            if is_multi_label {
                push_each([x, y, w, h], scores.map(|score| objectness * score), candidates);
            } else {
                candidates.push_center([x, y, w, h], objectness * best, class);
            }
        }
    }
    Ok(())
}

/// `[4 + classes, boxes]`
pub fn v8(output: &RowOutput<'_>, classes: Classes, candidates: &mut Candidates) -> Result<()> {
    let [width, boxes] = output.dims("[4 + classes, boxes]")?;
    let Classes { count, is_multi_label } = classes;
    let classes = classes_of(output, count, (width, boxes), 4)?;
    if boxes == 0 {
        return Ok(());
    }
    let threshold = candidates.threshold();
    let (places, scores) = output.data.split_at(4 * boxes);
    let mut maxima = [0f32; BLOCK];
    for begin in (0..boxes).step_by(BLOCK) {
        let maxima = &mut maxima[..BLOCK.min(boxes - begin)];
        maxima.fill(f32::NEG_INFINITY);
        // By class, as the values lie in memory: each step is a run of neighbours, made of vector instructions; of four
        // classes at once, which takes a quarter less time than of one. The classes of the few boxes over the threshold
        // are looked up behind it, while the block is in a cache.
        let end = begin + maxima.len();
        let mut rows = scores.chunks_exact(boxes).take(classes).map(|row| &row[begin..end]);
        while let Some(a) = rows.next() {
            let [b, c, d] = [(); 3].map(|()| rows.next().unwrap_or(a));
            for (most, (((a, b), c), d)) in maxima.iter_mut().zip(a.iter().zip(b).zip(c).zip(d)) {
                *most = greatest(greatest(*a, *b), greatest(greatest(*c, *d), *most));
            }
        }
        for at in maxima.iter().zip(begin..).filter(|(most, _)| **most > threshold).map(|(_, at)| at) {
            let column = |row: usize| places[row * boxes + at];
            let scores = scores.iter().skip(at).step_by(boxes).take(classes).copied();
            let Some((class, best)) = best(scores.clone()) else { continue };
            let place = [column(0), column(1), column(2), column(3)];
            if is_multi_label {
                push_each(place, scores, candidates);
            } else {
                candidates.push_center(place, best, class);
            }
        }
    }
    Ok(())
}

/// The first class with the greatest score. `None` if there is none, or if a score is not finite.
pub fn best(scores: impl Iterator<Item = f32>) -> Option<(u32, f32)> {
    let (mut class, mut most, mut is_finite) = (0, f32::NEG_INFINITY, true);
    for (at, score) in (0..).zip(scores) {
        is_finite &= score.is_finite();
        if score > most {
            (class, most) = (at, score);
        }
    }
    (is_finite && most.is_finite()).then_some((class, most))
}

/// One instruction, unlike `f32::max`. NaN may hide other scores of its box, which is dropped for it.
fn greatest(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// `[boxes, 6]`
pub fn end_to_end(output: &RowOutput<'_>, candidates: &mut Candidates) -> Result<()> {
    let [_, width] = output.dims("[boxes, 6]")?;
    if width != 6 {
        return Err(output.unexpected("[boxes, 6]"));
    }
    for &[x1, y1, x2, y2, score, class] in output.rows() {
        candidates.push_final([x1, y1, x2, y2], score, class);
    }
    Ok(())
}
