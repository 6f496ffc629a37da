//! The orientation in EXIF data, which is a TIFF of one tag that counts here, and its application to pixels.

use super::pixels::Picture;

/// Orientation of a picture whose first row is on top and whose first column is on the left.
pub const UPRIGHT: u8 = 1;
const ORIENTATION: u16 = 0x0112;
const SHORT: u16 = 3;

/// The orientation, 1 to 8, that EXIF data from its TIFF header on has. Data that cannot be read has none.
pub fn orientation(tiff: &[u8]) -> u8 {
    find(tiff).filter(|value| (1..=8).contains(value)).map_or(UPRIGHT, |value| value as u8)
}

fn find(tiff: &[u8]) -> Option<u16> {
    let is_little = match tiff.first_chunk()? {
        b"II*\0" => true,
        b"MM\0*" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes = *tiff.get(at..)?.first_chunk()?;
        Some(if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let bytes = *tiff.get(4..)?.first_chunk()?;
    let directory = if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) };
    let directory = usize::try_from(directory).ok()?;
    let entries = usize::from(short(directory)?);
    let first = directory.checked_add(2)?;
    let entry = (0..entries).map_while(|i| first.checked_add(i * 12)).find(|&at| short(at) == Some(ORIENTATION))?;
    // The value of one short lies in the entry itself.
    if short(entry + 2)? == SHORT { short(entry + 8) } else { None }
}

/// The picture as it is to be looked at.
pub fn turn(mut picture: Picture, orientation: u8) -> Picture {
    let (width, height, channels) = (picture.width as usize, picture.height as usize, picture.colour.channels());
    let row_bytes = width * channels;
    if matches!(orientation, 3 | 4 | 6 | 7) {
        // Upside down: rows change places with their counterparts.
        let (upper, lower) = picture.pixels.split_at_mut(height / 2 * row_bytes);
        let lower = lower.chunks_exact_mut(row_bytes).rev();
        upper.chunks_exact_mut(row_bytes).zip(lower).for_each(|(a, b)| a.swap_with_slice(b));
    }
    if matches!(orientation, 2 | 3 | 7 | 8) {
        picture.pixels.chunks_exact_mut(row_bytes).for_each(|row| mirror(row, channels));
    }
    if orientation < 5 {
        return picture;
    }
    picture.pixels = match channels {
        1 => transpose(picture.pixels.as_chunks::<1>().0, width, height),
        _ => transpose(picture.pixels.as_chunks::<3>().0, width, height),
    };
    (picture.width, picture.height) = (picture.height, picture.width);
    picture
}

fn mirror(row: &mut [u8], channels: usize) {
    if channels == 1 { row.reverse() } else { row.as_chunks_mut::<3>().0.reverse() }
}

/// Exchanges rows and columns, in squares that stay in the cache.
fn transpose<const N: usize>(pixels: &[[u8; N]], width: usize, height: usize) -> Vec<u8> {
    const SIDE: usize = 32;
    let mut turned = vec![[0; N]; pixels.len()];
    for top in (0..height).step_by(SIDE) {
        for left in (0..width).step_by(SIDE) {
            for x in left..width.min(left + SIDE) {
                for y in top..height.min(top + SIDE) {
                    turned[x * height + y] = pixels[y * width + x];
                }
            }
        }
    }
    turned.into_flattened()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orientation_is_read_in_both_byte_orders_and_nothing_else_is_believed() {
        let little = b"II*\0\x08\0\0\0\x02\0\x0f\x01\x02\0\x04\0\0\0abc\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0";
        assert_eq!(orientation(little), 6);
        let mut big = *b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0";
        assert_eq!(orientation(&big), 8);
        for length in 0..20 {
            assert_eq!(orientation(&big[..length]), UPRIGHT, "{length}");
        }
        // A value that is no orientation, a type that is not short, and a directory that lies outside.
        for (at, value) in [(19, 9), (13, 4), (4, 0xff), (7, 0xff)] {
            let before = std::mem::replace(&mut big[at], value);
            assert_eq!(orientation(&big), UPRIGHT, "{at}");
            big[at] = before;
        }
    }
}
