//! The way from the network's input back to the original picture.

use tensor::{Error, Result};

/// How a picture was placed in the network's input: `original = (input - offset) / scale`, in pixels.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs)]
pub struct Placement {
    pub scale_x: f32,
    pub scale_y: f32,
    pub offset_x: f32,
    pub offset_y: f32,
    /// Width of the original picture in pixels.
    pub width: f32,
    /// Height of the original picture in pixels.
    pub height: f32,
}

impl Placement {
    /// The placement of a picture that is the network's input as it is.
    pub fn identity(width: f32, height: f32) -> Self {
        Self { scale_x: 1.0, scale_y: 1.0, offset_x: 0.0, offset_y: 0.0, width, height }
    }

    pub(super) fn check(&self) -> Result<()> {
        let is_scale = |scale: f32| scale.is_normal() && scale > 0.0;
        let is_size = |size: f32| size.is_finite() && size >= 0.0;
        let is_valid = is_scale(self.scale_x)
            && is_scale(self.scale_y)
            && is_size(self.width)
            && is_size(self.height)
            && self.offset_x.is_finite()
            && self.offset_y.is_finite();
        let text = || format!("the placement of a picture needs scales > 0 and finite sizes and offsets, got {self:?}");
        if is_valid { Ok(()) } else { Err(Error::internal(text())) }
    }

    /// The box in pixels of the original picture, cut at its borders.
    pub(super) fn original(&self, [x1, y1, x2, y2]: [f32; 4]) -> [f32; 4] {
        let x = |x: f32| ((x - self.offset_x) / self.scale_x).max(0.0).min(self.width);
        let y = |y: f32| ((y - self.offset_y) / self.scale_y).max(0.0).min(self.height);
        [x(x1), y(y1), x(x2), y(y2)]
    }
}
