//! Decoded pictures, and limits of their sizes.

use std::fmt;
use tensor::{Error, Result, allowance};

/// Most pixels that any [`PictureLimits`] accept: the decoder of WebP counts bytes in 32 bits.
pub const PIXELS_MAX: u64 = 1 << 28;

/// Limits of the pictures that are decoded. Decoding takes less than 16 bytes per pixel beside the file: 3 for BMP, 7
/// for PNG, 12 for a progressive JPEG without subsampling and 14 for an animated WebP were measured; half a byte for a
/// baseline JPEG of 12 megapixels that is resized meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PictureLimits {
    /// Most pixels of a picture, and of each frame in it. More than [`PIXELS_MAX`] are never accepted.
    pub pixels_max: u64,
    /// Longest side in pixels.
    pub side_max: u32,
    /// Most scans of a JPEG.
    pub scans_max: u32,
    /// Most pixels of a JPEG times its scans: each scan visits all pixels, however few bytes it has.
    pub scan_pixels_max: u64,
}

/// Memory for a picture that is asked for (`tensor::allowance`) before it is decoded: that of a progressive JPEG
/// without subsampling. An animated WebP takes 14 for a moment.
const ASKED_BYTES_PER_PIXEL: u64 = 12;

impl Default for PictureLimits {
    /// 64 megapixels, 16384 pixels per side, and 64 scans, or 16 of the largest picture; encoders write about ten.
    fn default() -> Self {
        Self { pixels_max: 64 << 20, side_max: 16384, scans_max: 64, scan_pixels_max: 1 << 30 }
    }
}

impl PictureLimits {
    /// Compares a size that a file announces.
    pub fn check(&self, format: &str, width: u64, height: u64) -> Result<(u32, u32)> {
        if width == 0 || height == 0 {
            return Err(Error::invalid(format!("{format} picture has no pixels: {width} x {height}")));
        }
        let found = |limit: String| {
            Error::invalid(format!(
                "{format} picture of {width} x {height} pixels is too large: {limit}; \
                 send a smaller one or raise the limit"
            ))
        };
        let side = width.max(height);
        if side > u64::from(self.side_max) {
            return Err(found(format!("at most {} pixels per side are accepted (side_max)", self.side_max)));
        }
        let pixels_max = self.pixels_max.min(PIXELS_MAX);
        if width * height > pixels_max {
            return Err(found(format!("at most {pixels_max} pixels are accepted (pixels_max)")));
        }
        allowance::ask((width * height * ASKED_BYTES_PER_PIXEL) as usize)?;
        // Both fit: `side_max` has 32 bits.
        Ok((width as u32, height as u32))
    }

    /// Most scans of a JPEG of this size; one is always possible.
    pub fn scans(&self, (width, height): (u32, u32)) -> u32 {
        let pixels = u64::from(width) * u64::from(height);
        let scans = self.scan_pixels_max.checked_div(pixels).unwrap_or(u64::MAX).max(1);
        scans.min(self.scans_max.into()) as u32
    }
}

/// Channels of a pixel, and their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Colour {
    /// Red, green, blue.
    Rgb,
    /// Blue, green, red, as OpenCV has them.
    Bgr,
    /// One channel of luma: `0.299 R + 0.587 G + 0.114 B`.
    Grey,
}

impl Colour {
    /// Channels of a pixel: 3 or 1.
    pub fn channels(self) -> usize {
        if self == Self::Grey { 1 } else { 3 }
    }

    /// Bytes of a resized pixel: 4 or 1. Vectors have four places, and the last one does not count.
    pub(super) fn places(self) -> usize {
        if self == Self::Grey { 1 } else { 4 }
    }
}

/// A decoded picture of 8 bits per channel, upright: the orientation of its EXIF data is applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Picture {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) colour: Colour,
    pub(super) pixels: Vec<u8>,
}

impl Picture {
    /// A picture of `pixels` in rows, from the top.
    ///
    /// # Errors
    /// The number of bytes is not `width * height * channels`, or a side is zero.
    pub fn new(width: u32, height: u32, colour: Colour, pixels: Vec<u8>) -> Result<Self> {
        let expected = u128::from(width) * u128::from(height) * colour.channels() as u128;
        if expected == 0 || pixels.len() as u128 != expected {
            return Err(Error::invalid(format!(
                "picture of {width} x {height} pixels in {colour:?} needs {expected} bytes, not {}",
                pixels.len()
            )));
        }
        Ok(Self { width, height, colour, pixels })
    }

    /// Width in pixels, after orientation.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels, after orientation.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Channels of its pixels.
    pub fn colour(&self) -> Colour {
        self.colour
    }

    /// Rows from the top, each of `width * channels` bytes.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The picture in another colour. Grey from colours is rounded as Pillow does.
    pub fn convert(mut self, colour: Colour) -> Self {
        match (self.colour, colour) {
            (from, to) if from == to => {}
            (Colour::Grey, _) => {
                let mut pixels = Vec::with_capacity(self.pixels.len() * 3);
                pixels.extend(self.pixels.iter().flat_map(|&grey| [grey; 3]));
                self.pixels = pixels;
            }
            (from, Colour::Grey) => {
                let weights: [u32; 3] = if from == Colour::Rgb { [19595, 38470, 7471] } else { [7471, 38470, 19595] };
                compact(&mut self.pixels, 3, |p: [u8; 3]| {
                    let sum: u32 = p.iter().zip(weights).map(|(&p, weight)| u32::from(p) * weight).sum();
                    [((sum + 0x8000) >> 16) as u8]
                });
            }
            _ => self.pixels.as_chunks_mut::<3>().0.iter_mut().for_each(|p| p.swap(0, 2)),
        }
        Self { colour, ..self }
    }
}

/// Replaces pixels of `step` bytes by shorter ones, in place. The first `N` bytes of each are given to `pixel`.
pub fn compact<const N: usize, const M: usize>(bytes: &mut Vec<u8>, step: usize, pixel: impl Fn([u8; N]) -> [u8; M]) {
    let count = bytes.len() / step;
    for i in 0..count {
        let from: [u8; N] = std::array::from_fn(|k| bytes[i * step + k]);
        bytes[i * M..][..M].copy_from_slice(&pixel(from));
    }
    bytes.truncate(count * M);
}

/// An error of a decoder.
pub fn damaged(format: &str, cause: impl fmt::Display) -> Error {
    Error::invalid(format!("{format} picture cannot be decoded: {cause}"))
}
