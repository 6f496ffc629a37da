//! Writes the rows of a canvas as elements of a tensor.

use super::geometry::Geometry;
use super::resize::Resizer;
use super::source::RowSource;
use super::steps::{Datatype, Layout};
use super::taps::{Filter, Resample};
use std::ops::Range;
use tensor::Result;

/// Bytes of an element; as many count as its datatype has.
pub type ElementBytes = [u8; 4];

/// Writes all of `out`. `values` has the element by channel and value of the picture.
///
/// # Errors
/// INVALID_ARG if the file is damaged that the picture is read of.
pub fn tensor(
    source: RowSource<'_>,
    geometry: Geometry,
    layout: Layout,
    datatype: Datatype,
    fill: [u8; 3],
    values: &[[ElementBytes; 256]],
    out: &mut [u8],
) -> Result<()> {
    let rows = CanvasRows::new(source, geometry, fill)?;
    match (datatype, layout) {
        (Datatype::Fp32, Layout::Nchw) => rows.planes::<4>(values, out),
        (Datatype::Fp16, Layout::Nchw) => rows.planes::<2>(values, out),
        (Datatype::Uint8, Layout::Nchw) => rows.planes::<1>(values, out),
        (Datatype::Fp32, Layout::Nhwc) => rows.pixels::<4>(values, out),
        (Datatype::Fp16, Layout::Nhwc) => rows.pixels::<2>(values, out),
        (Datatype::Uint8, Layout::Nhwc) => rows.pixels::<1>(values, out),
    }
}

/// Source of the rows that show the picture.
enum ShownRows<'a> {
    Resizer(Box<Resizer<'a>>),
    /// The canvas shows nothing of the picture.
    None(RowSource<'a>),
}

/// Rows of the canvas, made one after the other.
struct CanvasRows<'a> {
    rows: ShownRows<'a>,
    height: usize,
    /// Bytes of a row, and rows of the canvas that show the picture.
    shown: (Range<usize>, Range<usize>),
    border: Vec<u8>,
    /// Bytes of a pixel.
    places: usize,
}

impl<'a> CanvasRows<'a> {
    fn new(source: RowSource<'a>, geometry: Geometry, fill: [u8; 3]) -> Result<Self> {
        let Geometry { window, resized, resample, offset, canvas, shown: (across, down) } = geometry;
        let places = source.colour().places();
        let rows = if across.is_empty() || down.is_empty() {
            ShownRows::None(source)
        } else {
            let inside = |shown: &Range<u32>, offset: i64| {
                let inside = |at: u32| (i64::from(at) - offset) as u32;
                inside(shown.start)..inside(shown.end)
            };
            let (columns, rows) = (inside(&across, offset.0), inside(&down, offset.1));
            let resample = resample.unwrap_or(Resample { filter: Filter::Bilinear, antialias: true });
            ShownRows::Resizer(Box::new(Resizer::new(source, window, resized, resample, columns, rows)?))
        };
        let across = across.start as usize * places..across.end as usize * places;
        let shown = (across, down.start as usize..down.end as usize);
        let [a, b, c] = fill;
        let border = [a, b, c, 0][..places].repeat(canvas.0 as usize);
        Ok(Self { rows, height: canvas.1 as usize, shown, border, places })
    }

    /// Gives each row of the canvas to `write`, with its number.
    fn each(self, mut write: impl FnMut(usize, &[u8])) -> Result<()> {
        let Self { mut rows, height, shown: (across, down), border, .. } = self;
        let mut row = border.clone();
        for y in 0..height {
            match &mut rows {
                ShownRows::Resizer(resizer) if down.contains(&y) => {
                    resizer.row(y - down.start, &mut row[across.clone()])?;
                    write(y, &row);
                }
                _ => write(y, &border),
            }
        }
        match rows {
            ShownRows::Resizer(resizer) => resizer.finish(),
            ShownRows::None(source) => source.finish(),
        }
    }

    /// Writes channels, height, width in elements of `N` bytes.
    fn planes<const N: usize>(self, values: &[[ElementBytes; 256]], out: &mut [u8]) -> Result<()> {
        let places = self.places;
        let width = self.border.len() / places;
        let plane = width * self.height;
        let elements = out.as_chunks_mut::<N>().0;
        self.each(|y, row| {
            for (channel, values) in values.iter().enumerate() {
                let elements = &mut elements[channel * plane + y * width..][..width];
                let row = row.iter().skip(channel).step_by(places);
                elements.iter_mut().zip(row).for_each(|(element, &value)| *element = head(values[usize::from(value)]));
            }
        })
    }

    /// Writes height, width, channels in elements of `N` bytes.
    fn pixels<const N: usize>(self, values: &[[ElementBytes; 256]], out: &mut [u8]) -> Result<()> {
        let (channels, places) = (values.len(), self.places);
        let elements = out.as_chunks_mut::<N>().0;
        self.each(|y, row| {
            let len = row.len() / places * channels;
            let elements = &mut elements[y * len..][..len];
            for (elements, pixel) in elements.chunks_exact_mut(channels).zip(row.chunks_exact(places)) {
                for ((element, &value), values) in elements.iter_mut().zip(pixel).zip(values) {
                    *element = head(values[usize::from(value)]);
                }
            }
        })
    }
}

fn head<const N: usize>(value: ElementBytes) -> [u8; N] {
    std::array::from_fn(|i| value[i])
}

/// The nearest number of 16 bits, ties to even.
pub fn half_of_f32(number: f32) -> u16 {
    let bits = number.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    let rest = match magnitude {
        0x7f80_0001.. => 0x7e00,
        // 65520 and more round to infinity.
        0x477f_f000.. => 0x7c00,
        // Normal: the exponent moves from 127 to 15, and a carry of rounding goes into it.
        0x3880_0000.. => (magnitude - 0x3800_0000 + 0xfff + (magnitude >> 13 & 1)) >> 13,
        // Below: multiples of 2^-24. A sum with 0.5 rounds to them as all sums are rounded.
        _ => (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits(),
    };
    sign | rest as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_the_nearest_and_every_half_is_its_own() {
        for bits in (0..=u16::MAX).filter(|bits| bits & 0x7c00 != 0x7c00) {
            assert_eq!(half_of_f32(tensor::f32_of_half(bits)), bits);
        }
        let cases = [(65519.0, 0x7bff), (65520.0, 0x7c00), (2049.0, 0x6800), (2051.0, 0x6802), (3e-8, 1), (2.9e-8, 0)];
        cases.iter().for_each(|&(number, bits)| assert_eq!(half_of_f32(number), bits, "{number}"));
    }
}
