//! The relation of a picture and a network's input.

use tensor::{Error, Result};

/// Relation of positions in the picture and in the tensor, which leads boxes back: a position `x` in the picture is
/// `x * scale_x + offset_x` in the tensor, where both count from the outer edge of the first pixel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Placement {
    /// Tensor pixels per picture pixel.
    pub scale_x: f32,
    /// Tensor pixels per picture pixel.
    pub scale_y: f32,
    /// Where the picture's left edge lies in the tensor; negative if it is cut off.
    pub offset_x: f32,
    /// Where the picture's upper edge lies in the tensor; negative if it is cut off.
    pub offset_y: f32,
    /// Width of the picture in pixels, after orientation.
    pub width: f32,
    /// Height of the picture in pixels, after orientation.
    pub height: f32,
}

impl Placement {
    /// The placement of a picture that is the network's input as it is.
    pub fn identity(width: f32, height: f32) -> Self {
        Self { scale_x: 1.0, scale_y: 1.0, offset_x: 0.0, offset_y: 0.0, width, height }
    }

    /// The values in the order of a tensor: scale x, scale y, offset x, offset y, width, height.
    pub fn values(self) -> [f32; 6] {
        let Self { scale_x, scale_y, offset_x, offset_y, width, height } = self;
        [scale_x, scale_y, offset_x, offset_y, width, height]
    }

    /// The placement of [`values`](Self::values), unchecked.
    pub fn from_values([scale_x, scale_y, offset_x, offset_y, width, height]: [f32; 6]) -> Self {
        Self { scale_x, scale_y, offset_x, offset_y, width, height }
    }

    /// Checks that it leads back to a picture.
    ///
    /// # Errors
    /// Returns INTERNAL if not: it is an output of a model.
    pub(crate) fn check(&self) -> Result<()> {
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

    /// The box in pixels of the picture, cut at its borders.
    pub(crate) fn original(&self, [x1, y1, x2, y2]: [f32; 4]) -> [f32; 4] {
        let x = |x: f32| ((x - self.offset_x) / self.scale_x).max(0.0).min(self.width);
        let y = |y: f32| ((y - self.offset_y) / self.scale_y).max(0.0).min(self.height);
        [x(x1), y(y1), x(x2), y(y2)]
    }
}
