//! Planes of luma and chroma to pixels, in the arithmetic of libjpeg: chroma is enlarged by its "fancy" filter, which
//! rounds once, and converted by the constants of JFIF in 16 bits of a fraction.
//!
//! Written so that compilers make vectors of it: arrays of a fixed length, products of 16 bits.

use super::super::pixels::Colour;

/// Pixels that are converted at once.
const BLOCK: usize = 32;

/// How many pixels share one value of chroma: 1 or 2 in each direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subsampling {
    pub across: usize,
    pub down: usize,
}

/// Rows of chroma around a row of pixels: the one it lies in, and the nearest other one.
#[derive(Clone, Copy)]
pub struct ChromaRows<'a> {
    pub near: &'a [u8],
    pub far: &'a [u8],
    /// Whether `far` lies above.
    pub is_far_above: bool,
}

/// Converts rows, in memory that it keeps for the next one.
pub struct RowConverter {
    /// Values of chroma that were combined vertically, with one more at each end.
    sums: Vec<u16>,
    chroma: [Vec<u8>; 2],
}

impl RowConverter {
    /// Memory for rows of so many values of chroma.
    pub fn new(chroma_width: usize) -> Self {
        let chroma = || vec![0; chroma_width * 2];
        Self { sums: vec![0; chroma_width + 2], chroma: [chroma(), chroma()] }
    }

    /// Writes a row of RGB or BGR; all planes are as wide as the picture after enlarging, or wider.
    pub fn convert(
        &mut self,
        luma: &[u8],
        chroma: [ChromaRows<'_>; 2],
        subsampling: Subsampling,
        colour: Colour,
        out: &mut [u8],
    ) {
        let Self { sums, chroma: [blue, red] } = self;
        let [near_blue, near_red] = chroma.map(|rows| rows.near);
        let (blue, red) = if subsampling == (Subsampling { across: 1, down: 1 }) {
            (near_blue, near_red)
        } else {
            enlarge(chroma[0], subsampling, sums, blue);
            enlarge(chroma[1], subsampling, sums, red);
            (&blue[..], &red[..])
        };
        match colour {
            Colour::Bgr => convert::<2, 0>(luma, blue, red, out),
            Colour::Rgb | Colour::Grey => convert::<0, 2>(luma, blue, red, out),
        }
    }
}

/// Makes chroma as fine as luma. Every value is three quarters of the one it lies in and a quarter of the nearest
/// other one, in each direction that is subsampled.
fn enlarge(rows: ChromaRows<'_>, Subsampling { across, down }: Subsampling, sums: &mut [u16], out: &mut [u8]) {
    let ChromaRows { near, far, is_far_above } = rows;
    let width = near.len();
    if down == 2 && across == 1 {
        let bias = if is_far_above { 1 } else { 2 };
        let values = near.iter().zip(far).map(|(&near, &far)| (u16::from(near) * 3 + u16::from(far) + bias) >> 2);
        return out.iter_mut().zip(values).for_each(|(out, value)| *out = value as u8);
    }
    // As libjpeg, which does not filter what is so narrow.
    if width <= 2 {
        return out.as_chunks_mut().0.iter_mut().zip(near).for_each(|(out, &near)| *out = [near; 2]);
    }
    let sums = &mut sums[..width + 2];
    let inner = sums[1..=width].iter_mut();
    match down {
        1 => inner.zip(near).for_each(|(sum, &near)| *sum = near.into()),
        _ => {
            inner.zip(near.iter().zip(far)).for_each(|(sum, (&near, &far))| *sum = u16::from(near) * 3 + u16::from(far))
        }
    }
    (sums[0], sums[width + 1]) = (sums[1], sums[width]);
    match down {
        1 => widen::<2, 1, 2>(sums, out),
        _ => widen::<4, 8, 7>(sums, out),
    }
}

/// Two values per sum, by the sums on both sides.
fn widen<const SHIFT: u32, const LEFT: u16, const RIGHT: u16>(sums: &[u16], out: &mut [u8]) {
    let width = sums.len() - 2;
    let (before, own, after) = (&sums[..width], &sums[1..=width], &sums[2..]);
    let pairs = &mut out.as_chunks_mut::<2>().0[..width];
    for (((pair, &before), &own), &after) in pairs.iter_mut().zip(before).zip(own).zip(after) {
        let own = own * 3;
        *pair = [((own + before + LEFT) >> SHIFT) as u8, ((own + after + RIGHT) >> SHIFT) as u8];
    }
}

/// Pixels whose red and blue have the places `RED` and `BLUE`.
fn convert<const RED: usize, const BLUE: usize>(luma: &[u8], blue: &[u8], red: &[u8], out: &mut [u8]) {
    let pixels = out.as_chunks_mut::<3>().0;
    let width = pixels.len();
    let (luma, blue, red) = (&luma[..width], &blue[..width], &red[..width]);
    let (blocks, rest) = pixels.as_chunks_mut::<BLOCK>();
    let inputs = luma.as_chunks::<BLOCK>().0.iter().zip(blue.as_chunks().0).zip(red.as_chunks().0);
    for (block, ((luma, blue), red)) in blocks.iter_mut().zip(inputs) {
        convert_block::<RED, BLUE>(luma, blue, red, block);
    }
    if !rest.is_empty() {
        let start = width - rest.len();
        let block =
            |values: &[u8]| -> [u8; BLOCK] { std::array::from_fn(|i| values.get(start + i).copied().unwrap_or(0)) };
        let mut last = [[0; 3]; BLOCK];
        convert_block::<RED, BLUE>(&block(luma), &block(blue), &block(red), &mut last);
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

#[inline]
fn convert_block<const RED: usize, const BLUE: usize>(
    luma: &[u8; BLOCK],
    blue: &[u8; BLOCK],
    red: &[u8; BLOCK],
    out: &mut [[u8; 3]; BLOCK],
) {
    // `floor(a * b / 2^16)`, an instruction of its own.
    let high = |a: i16, b: i16| ((i32::from(a) * i32::from(b)) >> 16) as i16;
    let cut = |value: i16| value.clamp(0, 255) as u8;
    let mut planes = [[0; BLOCK]; 3];
    for i in 0..BLOCK {
        let (y, cb, cr) = (i16::from(luma[i]), i16::from(blue[i]) - 128, i16::from(red[i]) - 128);
        // 1.402 is 1 + 26345 / 2^16, and 1.772 is 2 - 14942 / 2^16. Twice the value, then half of it, rounds.
        let r = y + cr + ((high(2 * cr, 26345) + 1) >> 1);
        let b = y + 2 * cb + ((high(2 * cb, -14942) + 1) >> 1);
        // 0.34414 is 22554 / 2^16, and 0.71414 is 1 - 18734 / 2^16.
        let g = (i32::from(cb) * -22554 + i32::from(cr) * 18734 + (1 << 15)) >> 16;
        planes[RED][i] = cut(r);
        planes[BLUE][i] = cut(b);
        planes[1][i] = cut(y - cr + g as i16);
    }
    for (i, pixel) in out.iter_mut().enumerate() {
        *pixel = [planes[0][i], planes[1][i], planes[2][i]];
    }
}
