//! Steps folded to one geometry: which part of a picture is made how large, and where it lies on the canvas of the
//! tensor.

use super::resize::SourceWindow;
use super::steps::{Align, Size, Step};
use super::taps::Resample;
use crate::Placement;
use std::ops::Range;
use tensor::{Error, Result};

/// Longest side that a picture is resized to before it is cut.
pub const SIDE_MAX: u32 = 1 << 24;

/// Where a picture lies on the canvas of the tensor: the window of it is resized, and the upper left corner of the
/// result lies at the offset.
#[derive(Clone, Debug)]
pub struct Geometry {
    pub window: SourceWindow,
    pub resized: (u32, u32),
    /// How the window is resized; none if it is as large.
    pub resample: Option<Resample>,
    pub offset: (i64, i64),
    pub canvas: (u32, u32),
    /// Columns and rows of the canvas that show the picture; the others are borders, also where a part of the picture
    /// that was cut off would lie.
    pub shown: (Range<u32>, Range<u32>),
}

impl Geometry {
    /// A picture as it is.
    pub fn new(width: u32, height: u32) -> Self {
        Self {
            window: SourceWindow { left: 0, top: 0, width, height },
            resized: (width, height),
            resample: None,
            offset: (0, 0),
            canvas: (width, height),
            shown: (0..width, 0..height),
        }
    }

    /// Folds the next step into the geometry.
    ///
    /// # Errors
    /// INVALID_ARG: the step cannot be done with a picture of this size.
    pub fn apply(&mut self, step: &Step) -> Result<()> {
        match *step {
            Step::Resize(size, resample) => {
                let (width, height) = self.canvas;
                let to = match size {
                    Size::Exact(width, height) => (width, height),
                    Size::Shortest(side) => {
                        let longer = |long: u32, short: u32| u64::from(side) * u64::from(long) / u64::from(short);
                        let longer = |long, short| longer(long, short).min(u64::from(u32::MAX)) as u32;
                        if width <= height { (side, longer(height, width)) } else { (longer(width, height), side) }
                    }
                    Size::Within(most_width, most_height) => within(self.canvas, (most_width, most_height), true),
                };
                self.resize(to, resample)?;
            }
            Step::CenterCrop(width, height) => {
                let has = self.canvas;
                if has.0 < width || has.1 < height {
                    return Err(Error::invalid(format!("picture: {}", too_small((width, height), has))));
                }
                let start = |has: u32, wanted: u32| (f64::from(has - wanted) / 2.0).round_ties_even() as i64;
                let (x, y) = (start(has.0, width), start(has.1, height));
                self.offset = (self.offset.0 - x, self.offset.1 - y);
                self.canvas = (width, height);
                let cut = |shown: &Range<u32>, start: i64, length: u32| {
                    let inside = |at: u32| (i64::from(at) - start).clamp(0, length.into()) as u32;
                    inside(shown.start)..inside(shown.end)
                };
                self.shown = (cut(&self.shown.0, x, width), cut(&self.shown.1, y, height));
            }
            Step::Letterbox { width, height, stride, enlarge, align, resample, .. } => {
                let to = within(self.canvas, (width, height), enlarge);
                self.resize(to, resample)?;
                // Half of the rest, an odd pixel at the end.
                let rest = |most: u32, has: u32| stride.map_or(most - has, |stride| (most - has) % stride);
                let (x, y) = (rest(width, to.0), rest(height, to.1));
                let before = |rest: u32| (f64::from(rest) / 2.0 - 0.1).round_ties_even() as i64;
                self.offset = if align == Align::Center { (before(x), before(y)) } else { (0, 0) };
                self.canvas = (to.0 + x, to.1 + y);
                let (left, top) = (self.offset.0 as u32, self.offset.1 as u32);
                self.shown = (left..left + to.0, top..top + to.1);
            }
            Step::Pad { left, top, right, bottom, .. } => {
                let sum = |a: u32, b: u32, c: u32| {
                    let side = u64::from(a) + u64::from(b) + u64::from(c);
                    u32::try_from(side).map_err(|_| Error::invalid(format!("side of {side} pixels is too long")))
                };
                self.canvas = (sum(self.canvas.0, left, right)?, sum(self.canvas.1, top, bottom)?);
                self.offset = (self.offset.0 + i64::from(left), self.offset.1 + i64::from(top));
                let moved = |shown: &Range<u32>, border: u32| shown.start + border..shown.end + border;
                self.shown = (moved(&self.shown.0, left), moved(&self.shown.1, top));
            }
            Step::Normalize { .. } => {}
        }
        Ok(())
    }

    /// Resizes the canvas, which has no borders yet: what was cut off before is cut off the source.
    fn resize(&mut self, to: (u32, u32), resample: Resample) -> Result<()> {
        if to.0.max(to.1) > SIDE_MAX {
            return Err(Error::invalid(format!(
                "picture of {} x {} pixels would be resized to {} x {}: a side has at most {SIDE_MAX} pixels",
                self.canvas.0, self.canvas.1, to.0, to.1
            )));
        }
        let (left, top) = (-self.offset.0, -self.offset.1);
        self.window = SourceWindow { left: left as u32, top: top as u32, width: self.canvas.0, height: self.canvas.1 };
        (self.resized, self.canvas, self.offset) = (to, to, (0, 0));
        self.shown = (0..to.0, 0..to.1);
        self.resample = Some(resample);
        Ok(())
    }

    /// The way from positions in a picture of this size to those in the tensor.
    pub fn placement(&self, (width, height): (u32, u32)) -> Placement {
        let axis = |to: u32, from: u32, start: u32, offset: i64| {
            let scale = f64::from(to) / f64::from(from);
            (scale as f32, (offset as f64 - f64::from(start) * scale) as f32)
        };
        let (scale_x, offset_x) = axis(self.resized.0, self.window.width, self.window.left, self.offset.0);
        let (scale_y, offset_y) = axis(self.resized.1, self.window.height, self.window.top, self.offset.1);
        Placement { scale_x, scale_y, offset_x, offset_y, width: width as f32, height: height as f32 }
    }
}

/// Text of a crop that is larger than the picture.
pub fn too_small((width, height): (u32, u32), has: (u32, u32)) -> String {
    format!("{width} x {height} pixels cannot be cut out of {} x {}: resize before, or pad", has.0, has.1)
}

/// Largest size of the same aspect ratio within another; not larger than the picture unless `enlarge`.
fn within((width, height): (u32, u32), most: (u32, u32), enlarge: bool) -> (u32, u32) {
    let ratio = (f64::from(most.0) / f64::from(width)).min(f64::from(most.1) / f64::from(height));
    let ratio = if enlarge { ratio } else { ratio.min(1.0) };
    let side = |side: u32, most: u32| ((f64::from(side) * ratio).round_ties_even() as u32).clamp(1, most);
    (side(width, most.0), side(height, most.1))
}
