//! Steps from a picture to a tensor, and the form of the tensor.

use super::pixels::Colour;
use super::taps::Resample;

/// Size that a picture is resized to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// Width and height, whatever the aspect ratio.
    Exact(u32, u32),
    /// Length of the shorter side; the longer one keeps the aspect ratio and is rounded down, as in torchvision.
    Shortest(u32),
    /// Largest size of the same aspect ratio within a width and height. Sides are rounded to the nearest, ties to even.
    Within(u32, u32),
}

/// Where a letterbox has the picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// In the middle; an odd row or column of borders lies at the end.
    Center,
    /// In the upper left corner: all borders lie at the end.
    UpperLeft,
}

/// A step of a plan. Colours have one value per channel, in the order of the output's [`Colour`]; the first one counts
/// if that is grey.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// Resizes the picture.
    Resize(Size, Resample),
    /// Cuts a width and height out of the middle; an odd rest is shared as in torchvision, half to even.
    CenterCrop(u32, u32),
    /// Resizes to the largest size within a width and height, and adds borders around it, as ultralytics does.
    Letterbox {
        /// Width of the tensor; with `stride`, the most.
        width: u32,
        /// Height of the tensor; with `stride`, the most.
        height: u32,
        /// Makes borders only so large that both sides are multiples of this (`auto=True`).
        stride: Option<u32>,
        /// Whether a smaller picture is enlarged (`scaleup`).
        enlarge: bool,
        /// Where the picture lies (`center`).
        align: Align,
        /// Colour of borders.
        colour: [u8; 3],
        /// How pixels are made.
        resample: Resample,
    },
    /// Adds borders.
    Pad {
        /// Columns on the left.
        left: u32,
        /// Rows on top.
        top: u32,
        /// Columns on the right.
        right: u32,
        /// Rows at the bottom.
        bottom: u32,
        /// Colour of borders.
        colour: [u8; 3],
    },
    /// `(value * scale - mean) / std`, in 32 bits and this order. Borders are normalised as well.
    Normalize {
        /// Usually `1.0 / 255.0`.
        scale: f32,
        /// Per channel.
        mean: [f32; 3],
        /// Per channel, not zero.
        std: [f32; 3],
    },
}

/// Order of a tensor's dims, without its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Channels, height, width.
    Nchw,
    /// Height, width, channels.
    Nhwc,
}

/// Datatype of a tensor's elements, little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Datatype {
    /// 32 bits.
    Fp32,
    /// 16 bits, rounded to the nearest, ties to even.
    Fp16,
    /// 8 bits, as in the picture: not with [`Step::Normalize`].
    Uint8,
}

impl Datatype {
    /// The same datatype in requests and responses.
    pub fn in_protocol(self) -> tensor::DataType {
        match self {
            Self::Fp32 => tensor::DataType::Fp32,
            Self::Fp16 => tensor::DataType::Fp16,
            Self::Uint8 => tensor::DataType::Uint8,
        }
    }

    /// Bytes per element.
    pub fn byte_size(self) -> usize {
        match self {
            Self::Fp32 => 4,
            Self::Fp16 => 2,
            Self::Uint8 => 1,
        }
    }
}

/// Form of the tensor that a plan writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Output {
    /// Channels; pictures are decoded to the same.
    pub colour: Colour,
    /// Order of dims.
    pub layout: Layout,
    /// Type of elements.
    pub datatype: Datatype,
    /// Most pixels of one tensor. A plan whose size depends on the picture refuses pictures that would need more.
    pub pixels_max: u64,
}
