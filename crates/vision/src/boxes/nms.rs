//! Greedy non-maximum suppression: a candidate is kept unless its intersection over union (IoU) with one that was kept
//! before is greater than the threshold. Equal to `nms` of torchvision and, for each class, to its `batched_nms`: the
//! same arithmetic in `f32`, and candidates of equal scores in their order.
//!
//! Kept boxes are in blocks of eight, so that the IoU is computed with vector instructions, and the blocks are in lists
//! by class, so that a picture of many classes needs few comparisons.

use super::candidates::{Candidate, Candidates};
use super::settings::{Settings, Suppression};

const LANES: usize = 8;

/// Lists of blocks; classes with the same remainder share one.
const LISTS: usize = 256;

/// End of a list of blocks.
const END: u32 = u32::MAX;

/// Up to eight kept boxes. In a free place all are zero, which suppresses nothing.
#[derive(Clone, Copy)]
struct KeptBlock {
    x1: [f32; LANES],
    y1: [f32; LANES],
    x2: [f32; LANES],
    y2: [f32; LANES],
    area: [f32; LANES],
    class: [u32; LANES],
    len: usize,
    next: u32,
}

const EMPTY: KeptBlock = KeptBlock {
    x1: [0.0; LANES],
    y1: [0.0; LANES],
    x2: [0.0; LANES],
    y2: [0.0; LANES],
    area: [0.0; LANES],
    class: [0; LANES],
    len: 0,
    next: END,
};

/// Boxes that were kept.
struct KeptBoxes {
    blocks: Vec<KeptBlock>,
    /// First block of each list, the only one with free places.
    first: [u32; LISTS],
    /// The greatest `f32` that is not greater than the threshold: an `f32` is greater than one if it is than the other.
    threshold: f32,
}

impl KeptBoxes {
    fn new(iou_threshold: f64) -> Self {
        let near = iou_threshold as f32;
        let threshold = if f64::from(near) > iou_threshold { near.next_down() } else { near };
        Self { blocks: Vec::new(), first: [END; LISTS], threshold }
    }

    /// Keeps the box, unless one that was kept suppresses it.
    fn add(&mut self, corners: [f32; 4], class: u32) -> bool {
        let [x1, y1, x2, y2] = corners;
        let area = (x2 - x1) * (y2 - y1);
        let list = class as usize % LISTS;
        let mut at = self.first[list];
        while let Some(block) = self.blocks.get(at as usize) {
            if block.suppresses(corners, area, class, self.threshold) {
                return false;
            }
            at = block.next;
        }
        let first = self.first[list];
        if self.blocks.get(first as usize).is_none_or(|block| block.len == LANES) {
            self.first[list] = self.blocks.len() as u32;
            self.blocks.push(KeptBlock { next: first, ..EMPTY });
        }
        let block = &mut self.blocks[self.first[list] as usize];
        let lane = block.len;
        (block.x1[lane], block.y1[lane], block.x2[lane], block.y2[lane]) = (x1, y1, x2, y2);
        (block.area[lane], block.class[lane]) = (area, class);
        block.len += 1;
        true
    }
}

impl KeptBlock {
    /// Whether a box of this class has a greater IoU than the threshold.
    #[inline]
    fn suppresses(&self, [x1, y1, x2, y2]: [f32; 4], area: f32, class: u32, threshold: f32) -> bool {
        // Numbers and not `bool`, so that it is made of vector instructions. In a free place the intersection is zero.
        let mut found = 0;
        for lane in 0..LANES {
            let width = least(x2, self.x2[lane]) - greatest(x1, self.x1[lane]);
            let height = least(y2, self.y2[lane]) - greatest(y1, self.y1[lane]);
            let both = greatest(width, 0.0) * greatest(height, 0.0);
            // Two boxes without area give NaN, which is not greater.
            let iou = both / (self.area[lane] + area - both);
            found |= u32::from(iou > threshold) & u32::from(self.class[lane] == class);
        }
        found != 0
    }
}

/// One instruction, unlike `f32::min`; the numbers are finite.
#[inline]
fn least(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

#[inline]
fn greatest(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// The boxes that stay and their scores, by descending score.
pub fn select(candidates: Candidates, settings: &Settings) -> impl Iterator<Item = (Candidate, f32)> {
    let mut kept = KeptBoxes::new(settings.iou_threshold);
    let suppression = settings.suppression;
    let is_kept = move |(candidate, _): &(Candidate, f32)| match suppression {
        Suppression::None => true,
        Suppression::PerClass => kept.add(candidate.corners, candidate.class),
        Suppression::AllClasses => kept.add(candidate.corners, 0),
    };
    candidates.sorted().filter(is_kept).take(settings.boxes_max as usize)
}
