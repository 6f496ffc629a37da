//! Pictures in files to tensors: [`decode`] reads a JPEG, PNG, WebP, GIF or BMP, and a [`PicturePlan`] resizes, crops,
//! pads and normalises it into the memory of a tensor.
//!
//! Files are untrusted. Their size is compared with [`PictureLimits`] before memory for pixels is taken, a truncated
//! file is an error, and only the first frame of an animation is read. Colour profiles are ignored, as by Pillow and
//! OpenCV, and alpha is dropped, as by Pillow's `convert("RGB")`.
//!
//! JPEGs are decoded in full size: the decoder cannot decode at 1/2, 1/4 or 1/8.
//!
//! Invariant of a [`Picture`]: its sides are not zero, and it has exactly `width * height * channels` bytes.

mod bmp;
mod exif;
mod geometry;
mod gif;
mod jpeg;
mod pixels;
mod plan;
mod png;
mod resize;
mod source;
mod steps;
mod taps;
mod webp;
mod write;

pub use pixels::{Colour, PIXELS_MAX, Picture, PictureLimits};
pub use plan::PicturePlan;
pub use steps::{Align, Datatype, Layout, Output, Size, Step};
pub use taps::{Filter, Resample};

use source::RowSource;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tensor::{Error, Result};

/// Formats that are read, each with the bytes that a file of it begins with; `_` stands for any byte.
const FORMATS: [(PictureFormat, &[u8]); 5] = [
    (PictureFormat::Jpeg, b"\xff\xd8\xff"),
    (PictureFormat::Png, b"\x89PNG\r\n\x1a\n"),
    (PictureFormat::Webp, b"RIFF____WEBP"),
    (PictureFormat::Gif, b"GIF8_a"),
    (PictureFormat::Bmp, b"BM"),
];

/// Format of a picture in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PictureFormat {
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

impl PictureFormat {
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
/// INVALID_ARG: the format is not in [`PictureFormat`], the size exceeds a limit, or the file is truncated, damaged or
/// of a variety that is not read. The text says which. INTERNAL: the library that decodes the format panicked.
pub fn decode(bytes: &[u8], limits: &PictureLimits, colour: Colour) -> Result<Picture> {
    let format = PictureFormat::of(bytes).ok_or_else(|| unknown_format(bytes))?;
    guard(format, || {
        let (picture, orientation) = match format {
            PictureFormat::Jpeg => {
                let (opened, orientation) = jpeg::open(bytes, limits, colour)?;
                (opened.picture()?, orientation)
            }
            PictureFormat::Png => png::decode(bytes, limits)?,
            PictureFormat::Webp => webp::decode(bytes, limits)?,
            PictureFormat::Gif => (gif::decode(bytes, limits)?, exif::UPRIGHT),
            PictureFormat::Bmp => (bmp::decode(bytes, limits)?, exif::UPRIGHT),
        };
        Ok(exif::turn(picture.convert(colour), orientation))
    })
}

/// Runs `work` with the rows of a file, upright and in the channels asked for.
fn with_source<T>(
    bytes: &[u8],
    limits: &PictureLimits,
    colour: Colour,
    work: impl FnOnce(RowSource<'_>) -> Result<T>,
) -> Result<T> {
    if PictureFormat::of(bytes) != Some(PictureFormat::Jpeg) {
        return work(RowSource::Picture(&decode(bytes, limits, colour)?));
    }
    guard(PictureFormat::Jpeg, || match jpeg::open(bytes, limits, colour)? {
        (jpeg::OpenedJpeg::Rows(rows), exif::UPRIGHT) => work(RowSource::jpeg(rows)),
        (opened, orientation) => {
            let picture = exif::turn(opened.picture()?.convert(colour), orientation);
            work(RowSource::Picture(&picture))
        }
    })
}

/// Runs what calls a library: a panic of it, which a file can cause, is an error of that file.
fn guard<T>(format: PictureFormat, work: impl FnOnce() -> Result<T>) -> Result<T> {
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
    let head = &bytes[..bytes.len().min(16)];
    let begins = |texts: &[&str]| texts.iter().any(|text| bytes.starts_with(text.as_bytes()));
    let found = match std::str::from_utf8(head) {
        // The beginnings of the formats.
        Ok(text) if begins(&["/9j/", "iVBOR", "UklGR", "R0lGOD", "data:image/"]) => {
            format!(
                "begins with '{text}', which is base64: decode it, or set the parameter content_encoding of the input"
            )
        }
        Ok(text) if !text.contains(char::is_control) => {
            format!("begins with the text '{text}': if that is the name of a file, curl needs @ before it")
        }
        _ => {
            let bytes: Vec<_> = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("begins with the bytes {}", bytes.join(" "))
        }
    };
    Error::invalid(format!(
        "format of the picture is not known: JPEG, PNG, WebP, GIF and BMP are read, and this {found}"
    ))
}

#[cfg(test)]
mod tests;
