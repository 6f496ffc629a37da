//! BMP without compression: 1, 4 and 8 bits with a palette, 16, 24 and 32 bits. Compressed ones (RLE) are refused.

use super::pixels::{Colour, Picture, PictureLimits, damaged};
use tensor::Result;

const FORMAT: &str = "BMP";
const FILE_HEAD: usize = 14;
/// Head of OS/2, with sides of 16 bits.
const HEAD_CORE: u32 = 12;
const HEAD_INFO: u32 = 40;
const UNCOMPRESSED: u32 = 0;
const BITFIELDS: u32 = 3;
const ALPHA_BITFIELDS: u32 = 6;

/// Reads a pixel of a row, by its column.
type ReadPixel = Box<dyn Fn(&[u8], usize) -> [u8; 3]>;

/// Integers of a file, little-endian.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn u16(&self, at: usize) -> Result<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn u32(&self, at: usize) -> Result<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N]> {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).copied().ok_or_else(|| truncated(self.0))
    }
}

fn truncated(bytes: &[u8]) -> tensor::Error {
    damaged(FORMAT, format_args!("its {} bytes end within the picture: it is truncated", bytes.len()))
}

/// The picture.
pub fn decode(bytes: &[u8], limits: &PictureLimits) -> Result<Picture> {
    let source = Source(bytes);
    let head_size = source.u32(FILE_HEAD)?;
    let (width, height, is_top_down, bits, compression, colours) = match head_size {
        HEAD_CORE => (source.u16(18)?.into(), source.u16(20)?.into(), false, source.u16(24)?, UNCOMPRESSED, 0),
        HEAD_INFO.. => {
            let (width, height) = (source.u32(18)?.cast_signed(), source.u32(22)?.cast_signed());
            let sides = (width.max(0).cast_unsigned(), height.unsigned_abs());
            (sides.0, sides.1, height < 0, source.u16(28)?, source.u32(30)?, source.u32(46)?)
        }
        _ => return Err(damaged(FORMAT, format_args!("its head of {head_size} bytes is not known"))),
    };
    let (width, height) = limits.check(FORMAT, width.into(), height.into())?;
    let is_plain = match compression {
        UNCOMPRESSED => true,
        BITFIELDS | ALPHA_BITFIELDS if matches!(bits, 16 | 32) => false,
        _ => {
            let found = format_args!("compression {compression} with {bits} bits is not read; save it without");
            return Err(damaged(FORMAT, found));
        }
    };
    let data = bytes.get(source.u32(10)? as usize..).ok_or_else(|| truncated(bytes))?;
    // Rows are padded to 4 bytes.
    let stride = (width as usize * usize::from(bits)).div_ceil(32) * 4;
    let rows = data.get(..stride * height as usize).ok_or_else(|| truncated(bytes))?;
    let palette_at = FILE_HEAD + head_size as usize;
    let read: ReadPixel = match bits {
        1 | 4 | 8 => {
            let palette = palette(bytes, palette_at, head_size, bits, colours);
            let per_byte = usize::from(8 / bits);
            Box::new(move |row, x| {
                let shift = (per_byte - 1 - x % per_byte) * usize::from(bits);
                let index = usize::from(row[x / per_byte] >> shift) & ((1 << bits) - 1);
                palette[index]
            })
        }
        24 => Box::new(|row, x| [row[3 * x + 2], row[3 * x + 1], row[3 * x]]),
        16 | 32 => {
            let masks = match (is_plain, bits) {
                (true, 16) => [0x7c00, 0x03e0, 0x001f],
                (true, _) => [0xff_0000, 0xff00, 0xff],
                (false, _) => [source.u32(54)?, source.u32(58)?, source.u32(62)?],
            };
            let fields = masks.map(Field::of);
            let bytes = usize::from(bits / 8);
            Box::new(move |row, x| {
                let pixel = row[bytes * x..][..bytes].iter().rev().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
                std::array::from_fn(|channel| fields[channel].read(pixel))
            })
        }
        _ => return Err(damaged(FORMAT, format_args!("{bits} bits per pixel: 1, 4, 8, 16, 24 and 32 are read"))),
    };
    let mut pixels = Vec::with_capacity(width as usize * height as usize * 3);
    for y in 0..height as usize {
        let y = if is_top_down { y } else { height as usize - 1 - y };
        let row = &rows[y * stride..][..stride];
        pixels.extend((0..width as usize).flat_map(|x| read(row, x)));
    }
    Picture::new(width, height, Colour::Rgb, pixels)
}

/// Colours by index; those that the file lacks are black.
fn palette(bytes: &[u8], at: usize, head_size: u32, bits: u16, colours: u32) -> [[u8; 3]; 256] {
    let entry = if head_size == HEAD_CORE { 3 } else { 4 };
    let count = if colours == 0 { 1 << bits } else { (colours as usize).min(1 << bits) };
    let entries = bytes.get(at..).unwrap_or_default().chunks_exact(entry).take(count);
    let mut palette = [[0; 3]; 256];
    palette.iter_mut().zip(entries).for_each(|(colour, entry)| *colour = [entry[2], entry[1], entry[0]]);
    palette
}

/// A channel's bits of a pixel.
#[derive(Clone, Copy)]
struct Field {
    shift: u32,
    max: u32,
}

impl Field {
    fn of(mask: u32) -> Self {
        let shift = if mask == 0 { 0 } else { mask.trailing_zeros() };
        Self { shift, max: mask >> shift }
    }

    /// The channel, spread to 8 bits.
    fn read(self, pixel: u32) -> u8 {
        let value = u64::from(pixel >> self.shift & self.max);
        (value * 255).checked_div(self.max.into()).unwrap_or(0) as u8
    }
}
