//! JPEG by `zune-jpeg`, whose strict mode rejects data that ends within the picture. Planes of luma and chroma become
//! pixels here, in the arithmetic of libjpeg.

mod colours;
mod rows;

pub use rows::JpegRows;

use super::exif;
use super::pixels::{Colour, Picture, PictureLimits, damaged};
use tensor::{Error, Result};
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

const FORMAT: &str = "JPEG";
const START_OF_SCAN: u8 = 0xda;
const END_OF_IMAGE: [u8; 2] = [0xff, 0xd9];
const APP1: u8 = 0xe1;

/// A JPEG whose headers were read.
pub enum OpenedJpeg<'a> {
    /// Rows in the colour that is wanted.
    Rows(JpegRows<'a>),
    /// A picture in a colour of its own.
    Picture(Picture),
}

impl OpenedJpeg<'_> {
    /// The whole picture.
    pub fn picture(self) -> Result<Picture> {
        match self {
            Self::Picture(picture) => Ok(picture),
            Self::Rows(mut rows) => {
                let (width, height, colour) = (rows.width, rows.height, rows.colour);
                let row_bytes = width as usize * colour.channels();
                let mut pixels = vec![0; row_bytes * height as usize];
                pixels.chunks_exact_mut(row_bytes).try_for_each(|row| rows.next(Some(row)))?;
                Picture::new(width, height, colour, pixels)
            }
        }
    }
}

/// The picture and its orientation, which is not applied. Grey is the luma of the file.
pub fn open<'a>(bytes: &'a [u8], limits: &PictureLimits, colour: Colour) -> Result<(OpenedJpeg<'a>, u8)> {
    let head = Head::read(bytes)?;
    // The decoder fills what is missing of the last rows, and does not say so. Looked for from the end, where it is.
    let data = &bytes[head.data..];
    if !data.windows(2).rev().any(|pair| pair == END_OF_IMAGE) {
        return Err(damaged(FORMAT, format_args!("its {} bytes end within the picture: it is truncated", bytes.len())));
    }
    let wanted = match colour {
        Colour::Rgb => ColorSpace::RGB,
        Colour::Bgr => ColorSpace::BGR,
        Colour::Grey => ColorSpace::Luma,
    };
    let mut decoder = Box::new(decoder(bytes, limits.scans_max, wanted));
    decoder.decode_headers().map_err(|error| rejected(error, limits, (0, 0)))?;
    let (width, height) = decoder.dimensions().ok_or_else(|| damaged(FORMAT, "it has no size"))?;
    let size = limits.check(FORMAT, width as u64, height as u64)?;
    let rejected = |error| rejected(error, limits, size);
    decoder.set_options(decoder.options().jpeg_set_max_scans(limits.scans(size) as usize));
    let mut decoder = match JpegRows::new(decoder, size, colour, limits) {
        Ok(rows) => return Ok((OpenedJpeg::Rows(rows), head.orientation)),
        Err(decoder) => decoder,
    };
    let colour = match decoder.input_colorspace() {
        Some(ColorSpace::YCbCr) => colour,
        // The decoder converts these to RGB only.
        Some(ColorSpace::RGB | ColorSpace::CMYK | ColorSpace::YCCK) => Colour::Rgb,
        _ => {
            let count = decoder.info().map_or(0, |info| info.components);
            return Err(damaged(FORMAT, format_args!("it has {count} components: 1, 3 and 4 are read")));
        }
    };
    if colour == Colour::Rgb && wanted != ColorSpace::RGB {
        *decoder = self::decoder(bytes, limits.scans(size), ColorSpace::RGB);
    }
    let pixels = decoder.decode().map_err(rejected)?;
    Ok((OpenedJpeg::Picture(Picture::new(size.0, size.1, colour, pixels)?), head.orientation))
}

fn decoder(bytes: &[u8], scans_max: u32, wanted: ColorSpace) -> JpegDecoder<ZCursor<&[u8]>> {
    let side_max = usize::from(u16::MAX);
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        // Compared here, with a text of ours.
        .set_max_width(side_max)
        .set_max_height(side_max)
        .jpeg_set_max_scans(scans_max as usize)
        .jpeg_set_out_colorspace(wanted);
    JpegDecoder::new_with_options(ZCursor::new(bytes), options)
}

fn rejected(error: DecodeErrors, limits: &PictureLimits, size: (u32, u32)) -> Error {
    match error {
        DecodeErrors::Format(text) if text.starts_with("Too many scans") => {
            let (scans, (width, height)) = (limits.scans(size), size);
            let limit = if scans == limits.scans_max { "scans_max" } else { "scan_pixels_max" };
            Error::invalid(format!(
                "{FORMAT} picture of {width} x {height} pixels has too many scans: at most {scans} are accepted \
                 ({limit}); save it with fewer, or as baseline"
            ))
        }
        DecodeErrors::Format(text) => damaged(FORMAT, text.trim_end()),
        DecodeErrors::FormatStatic(text) => damaged(FORMAT, text),
        error => damaged(FORMAT, error),
    }
}

/// Facts of the segments before the data of the first scan.
struct Head {
    orientation: u8,
    /// Offset of the first scan's data.
    data: usize,
}

impl Head {
    fn read(bytes: &[u8]) -> Result<Self> {
        let truncated =
            || damaged(FORMAT, format_args!("its {} bytes end before the picture: it is truncated", bytes.len()));
        let mut orientation = exif::UPRIGHT;
        let mut at = 2;
        loop {
            // Bytes between segments are passed over, as by libjpeg; a marker is not 0xff, which fills, and not 0.
            let rest = bytes.get(at..).ok_or_else(truncated)?;
            let marker = rest.windows(2).position(|pair| pair[0] == 0xff && !matches!(pair[1], 0 | 0xff));
            let marker = at + marker.ok_or_else(truncated)?;
            let kind = bytes[marker + 1];
            // Markers without a length.
            if matches!(kind, 0x01 | 0xd0..=0xd9) {
                at = marker + 2;
                continue;
            }
            let length = bytes.get(marker + 2..).and_then(|rest| rest.first_chunk()).ok_or_else(truncated)?;
            let end = marker + 2 + usize::from(u16::from_be_bytes(*length)).max(2);
            if kind == START_OF_SCAN {
                return if end < bytes.len() { Ok(Self { orientation, data: end }) } else { Err(truncated()) };
            }
            // Frames other than baseline and progressive, of which the decoder does not know all.
            if matches!(kind, 0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf) {
                let found = "lossless, hierarchical and arithmetic coding are not read; save it as baseline";
                return Err(damaged(FORMAT, format_args!("{found} (marker 0xff{kind:02x})")));
            }
            if kind == APP1 && orientation == exif::UPRIGHT {
                let exif = bytes.get(marker + 4..end).and_then(|segment| segment.strip_prefix(b"Exif\0\0"));
                orientation = exif.map_or(orientation, exif::orientation);
            }
            at = end;
        }
    }
}
