//! WebP by `image-webp`. Of an animation, the first frame.

use super::exif;
use super::pixels::{Colour, Picture, PictureLimits, compact, damaged};
use image_webp::WebPDecoder;
use std::io::Cursor;
use tensor::Result;

const FORMAT: &str = "WebP";

/// The picture and its orientation.
pub fn decode(bytes: &[u8], limits: &PictureLimits) -> Result<(Picture, u8)> {
    // The decoder fills what is missing of a lossy picture, and does not say so.
    let announced = bytes.get(4..).and_then(|rest| rest.first_chunk()).map_or(0, |&size| u32::from_le_bytes(size));
    if bytes.len() < 8 + announced as usize {
        let found = format_args!("it has {} bytes of {}: it is truncated", bytes.len(), 8 + u64::from(announced));
        return Err(damaged(FORMAT, found));
    }
    check_frames(bytes, 12, bytes.len(), limits)?;
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|error| damaged(FORMAT, error))?;
    decoder.set_memory_limit(bytes.len());
    let (width, height) = decoder.dimensions();
    let (width, height) = limits.check(FORMAT, width.into(), height.into())?;
    let byte_size = decoder.output_buffer_size().ok_or_else(|| damaged(FORMAT, "its size overflows"))?;
    let mut pixels = vec![0; byte_size];
    decoder.read_image(&mut pixels).map_err(|error| damaged(FORMAT, error))?;
    if decoder.has_alpha() {
        compact(&mut pixels, 4, |pixel: [u8; 3]| pixel);
    }
    let exif = decoder.exif_metadata().ok().flatten().unwrap_or_default();
    let tiff = exif.strip_prefix(b"Exif\0\0").unwrap_or(&exif);
    Ok((Picture::new(width, height, Colour::Rgb, pixels)?, exif::orientation(tiff)))
}

/// Compares the sizes of lossy frames. Each frame has its own, for which the decoder takes memory before it compares
/// it with that of the picture.
fn check_frames(bytes: &[u8], mut at: usize, end: usize, limits: &PictureLimits) -> Result<()> {
    const LOSSY_SIZE: usize = 6;
    const FRAME_HEAD: usize = 16;
    while let Some(&[a, b, c, d, ..]) = bytes.get(at..end).and_then(|rest| rest.first_chunk::<8>()) {
        let data = at + 8;
        let length = bytes[at + 4..data].iter().rev().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
        let data_end = data.saturating_add(length).min(end);
        match &[a, b, c, d] {
            b"VP8 " => {
                if let Some(&[w0, w1, h0, h1]) = bytes.get(data + LOSSY_SIZE..).and_then(|rest| rest.first_chunk()) {
                    // The upper two bits tell how to enlarge it, and are ignored by all decoders.
                    let side = |low, high| u64::from(u16::from_le_bytes([low, high]) & 0x3fff);
                    limits.check(FORMAT, side(w0, w1), side(h0, h1))?;
                }
            }
            // Frames lie in the file only, not in one another: this calls itself once.
            b"ANMF" if at >= 12 && end == bytes.len() => {
                check_frames(bytes, data + FRAME_HEAD, data_end, limits)?;
            }
            _ => {}
        }
        at = data.saturating_add(length).saturating_add(length & 1);
    }
    Ok(())
}
