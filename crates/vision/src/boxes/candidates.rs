//! Candidates: finite boxes in pixels of the network's input, whose score is greater than the threshold.

/// Most candidates that NMS compares, those with the greatest scores; more are dropped. Ultralytics has the same number
/// (`max_nms`).
pub const CANDIDATES_MAX: usize = 30_000;

/// Classes beyond this number are dropped: greater ones are not exact in `f32`.
pub const CLASS_MAX: u32 = (1 << 24) - 1;

/// A box before suppression.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The corners x1, y1, x2, y2, with x1 <= x2 and y1 <= y2.
    pub corners: [f32; 4],
    pub class: u32,
}

/// Candidates in the order of the outputs.
pub struct Candidates {
    threshold: f32,
    list: Vec<Candidate>,
    /// For each candidate its score and position. Ascending keys are descending scores, and those of equal scores are
    /// in the order of the outputs: the bits of numbers that are not negative ascend with the numbers.
    keys: Vec<u64>,
}

impl Candidates {
    /// An empty list; the threshold is at least 0.
    pub fn new(threshold: f32) -> Self {
        Self { threshold, list: Vec::new(), keys: Vec::new() }
    }

    /// The limit that a score must exceed.
    pub fn threshold(&self) -> f32 {
        self.threshold
    }

    /// Adds a box by its corners, unless its score is too small or its values are no box.
    pub fn push(&mut self, corners: [f32; 4], score: f32, class: u32) {
        let [x1, y1, x2, y2] = corners;
        let is_box = x1 <= x2 && y1 <= y2 && corners.iter().all(|value| value.is_finite());
        let position = self.list.len();
        if is_box && score > self.threshold && score.is_finite() && position < u32::MAX as usize {
            self.keys.push(u64::from(!score.to_bits()) << 32 | position as u64);
            self.list.push(Candidate { corners, class });
        }
    }

    /// Adds a box by its center and size.
    pub fn push_center(&mut self, [x, y, width, height]: [f32; 4], score: f32, class: u32) {
        let (half_width, half_height) = (width / 2.0, height / 2.0);
        self.push([x - half_width, y - half_height, x + half_width, y + half_height], score, class);
    }

    /// Adds a box whose class is a number of the output, unless that is no id.
    pub fn push_final(&mut self, corners: [f32; 4], score: f32, class: f32) {
        if class >= 0.0 && class <= CLASS_MAX as f32 {
            self.push(corners, score, class as u32);
        }
    }

    /// Keeps the `count` with the greatest scores.
    pub fn truncate(&mut self, count: usize) {
        if count == 0 {
            self.keys.clear();
        } else if self.keys.len() > count {
            self.keys.select_nth_unstable(count - 1);
            self.keys.truncate(count);
        }
    }

    /// At most [`CANDIDATES_MAX`] candidates and their scores, by descending score.
    pub fn sorted(mut self) -> impl Iterator<Item = (Candidate, f32)> {
        self.truncate(CANDIDATES_MAX);
        self.keys.sort_unstable();
        let list = self.list;
        self.keys.into_iter().map(move |key| (list[key as u32 as usize], f32::from_bits(!((key >> 32) as u32))))
    }
}
