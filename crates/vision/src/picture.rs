//! Pictures in files to tensors: [`decode`] reads a JPEG, PNG, WebP, GIF or BMP, and a [`Plan`] resizes, crops, pads
//! and normalises it into the memory of a tensor.
//!
//! Files are untrusted. Their size is compared with [`Limits`] before memory for pixels is taken, a truncated file is
//! an error, and no reader follows what has no end: of an animation, only the first frame is read. Colour profiles are
//! ignored, as by Pillow and OpenCV, and alpha is dropped, as by Pillow's `convert("RGB")`.
//!
//! JPEGs are decoded in full size: the decoder cannot decode at 1/2, 1/4 or 1/8.
//!
//! Invariant of a [`Picture`]: its sides are not zero, and it has exactly `width * height * channels` bytes.

mod bmp;
mod exif;
mod gif;
mod jpeg;
mod plan;
mod png;
mod resize;
mod taps;
mod webp;
mod write;

pub use plan::{Datatype, Filter, Layout, Output, Placement, Plan, Resample, Size, Step};

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tensor::{Error, Result, allowance};

/// Most pixels that any [`Limits`] accept: a decoder counts bytes in 32 bits.
pub const PIXELS_MAX: u64 = 1 << 28;

/// Memory for a picture that is asked for (`tensor::allowance`) before it is decoded: its channels, and a copy that a
/// decoder or a turn needs. Pictures of 16 bits and alpha take more for a moment.
const ASKED_BYTES_PER_PIXEL: u64 = 6;

/// Limits of what [`decode`] accepts. Memory stays below 16 bytes per pixel and thrice the size of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most pixels of a picture, and of each frame in it. More than [`PIXELS_MAX`] are never accepted.
    pub pixels_max: u64,
    /// Longest side in pixels.
    pub side_max: u32,
    /// Most scans of a progressive JPEG. Each one visits all pixels, however few bytes it has.
    pub scans_max: u32,
}

impl Default for Limits {
    /// 64 megapixels, 16384 pixels per side, and 64 scans; encoders write about ten.
    fn default() -> Self {
        Self { pixels_max: 64 << 20, side_max: 16384, scans_max: 64 }
    }
}

impl Limits {
    /// Compares a size that a file announces.
    fn check(&self, format: &str, width: u64, height: u64) -> Result<(u32, u32)> {
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
}

/// A decoded picture of 8 bits per channel, upright: the orientation of its EXIF data is applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Picture {
    width: u32,
    height: u32,
    colour: Colour,
    pixels: Vec<u8>,
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
    fn convert(mut self, colour: Colour) -> Self {
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
fn compact<const N: usize, const M: usize>(bytes: &mut Vec<u8>, step: usize, pixel: impl Fn([u8; N]) -> [u8; M]) {
    let count = bytes.len() / step;
    for i in 0..count {
        let from: [u8; N] = std::array::from_fn(|k| bytes[i * step + k]);
        bytes[i * M..][..M].copy_from_slice(&pixel(from));
    }
    bytes.truncate(count * M);
}

/// Formats that are read, each with the bytes that a file of it begins with; `_` stands for any byte.
const FORMATS: [(Format, &[u8]); 5] = [
    (Format::Jpeg, b"\xff\xd8\xff"),
    (Format::Png, b"\x89PNG\r\n\x1a\n"),
    (Format::Webp, b"RIFF____WEBP"),
    (Format::Gif, b"GIF8_a"),
    (Format::Bmp, b"BM"),
];

/// Format of a picture in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Baseline and progressive, of 8 bits.
    Jpeg,
    /// Any; of 16 bits, the upper 8 are taken.
    Png,
    /// Lossy and lossless.
    Webp,
    /// The first frame.
    Gif,
    /// Without compression.
    Bmp,
}

impl Format {
    /// The format that a file begins with.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let begins = |magic: &[u8]| {
            bytes.len() >= magic.len() && magic.iter().zip(bytes).all(|(&m, &byte)| m == b'_' || m == byte)
        };
        FORMATS.iter().find(|(_, magic)| begins(magic)).map(|&(format, _)| format)
    }
}

/// Decodes a picture into the channels asked for. The format is found by its first bytes.
///
/// # Errors
/// INVALID_ARG: the format is none of [`Format`], the size exceeds a limit, or the file is truncated, damaged or of a
/// variety that is not read. The text says which. INTERNAL: the library that decodes the format panicked.
pub fn decode(bytes: &[u8], limits: &Limits, colour: Colour) -> Result<Picture> {
    let format = Format::of(bytes).ok_or_else(|| unknown_format(bytes))?;
    let (picture, orientation) = guard(format, || match format {
        Format::Jpeg => jpeg::decode(bytes, limits, colour),
        Format::Png => png::decode(bytes, limits),
        Format::Webp => webp::decode(bytes, limits),
        Format::Gif => gif::decode(bytes, limits).map(|picture| (picture, exif::UPRIGHT)),
        Format::Bmp => bmp::decode(bytes, limits).map(|picture| (picture, exif::UPRIGHT)),
    })?;
    Ok(exif::turn(picture.convert(colour), orientation))
}

/// Runs what calls a library: a panic of it, which a file can cause, is an error of that file.
fn guard<T>(format: Format, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let why = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        let why = why.unwrap_or("unknown");
        Err(Error::internal(format!("the code that decodes {format:?} pictures panicked: {why}")))
    })
}

fn unknown_format(bytes: &[u8]) -> Error {
    if bytes.is_empty() {
        return Error::invalid("picture is empty: it has no bytes");
    }
    let head: Vec<_> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Error::invalid(format!(
        "format of the picture is not known: JPEG, PNG, WebP, GIF and BMP are read, and this begins with the bytes {}",
        head.join(" ")
    ))
}

/// An error of a decoder.
fn damaged(format: &str, cause: impl fmt::Display) -> Error {
    Error::invalid(format!("{format} picture cannot be decoded: {cause}"))
}

#[cfg(test)]
mod tests;
