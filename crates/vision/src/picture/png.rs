//! PNG by `png`. Of an animation, the picture that readers without animations show.

use super::exif;
use super::pixels::{Colour, Picture, PictureLimits, compact, damaged};
use png::{BitDepth, ColorType, Decoder, Transformations};
use std::io::Cursor;
use tensor::Result;

const FORMAT: &str = "PNG";

/// The picture and its orientation.
pub fn decode(bytes: &[u8], limits: &PictureLimits) -> Result<(Picture, u8)> {
    let mut decoder = Decoder::new(Cursor::new(bytes));
    // The decoder keeps lines, palette and EXIF beside the pixels, and no more of them than the file has.
    decoder.set_limits(png::Limits { bytes: bytes.len().saturating_add(1 << 20) });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let head = decoder.read_header_info().map_err(|error| damaged(FORMAT, error))?;
    let (width, height) = limits.check(FORMAT, head.width.into(), head.height.into())?;
    decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(|error| damaged(FORMAT, error))?;
    let byte_size = reader.output_buffer_size().ok_or_else(|| damaged(FORMAT, "its size overflows"))?;
    let mut pixels = vec![0; byte_size];
    let info = reader.next_frame(&mut pixels).map_err(|error| damaged(FORMAT, error))?;
    if info.bit_depth != BitDepth::Eight || (info.width, info.height) != (width, height) {
        return Err(damaged(FORMAT, "its frame has another size than its header"));
    }
    pixels.truncate(info.buffer_size());
    let colour = match info.color_type {
        ColorType::Grayscale => Colour::Grey,
        ColorType::GrayscaleAlpha => {
            compact(&mut pixels, 2, |pixel: [u8; 1]| pixel);
            Colour::Grey
        }
        ColorType::Rgb => Colour::Rgb,
        ColorType::Rgba => {
            compact(&mut pixels, 4, |pixel: [u8; 3]| pixel);
            Colour::Rgb
        }
        ColorType::Indexed => return Err(damaged(FORMAT, "its palette was not applied")),
    };
    let orientation = reader.info().exif_metadata.as_deref().map_or(exif::UPRIGHT, exif::orientation);
    Ok((Picture::new(width, height, colour, pixels)?, orientation))
}
