//! Pads tensors to a larger shape and cuts them back. Elements keep their index in every dimension.
//!
//! Pure geometry: the caller chooses the shape and makes sure that both shapes have the same rank.

use crate::gather::{batch_slab, frozen};
use bytes::Bytes;
use tensor::{Data, Error, Result, element_count};

/// Layout of a row-major tensor inside a larger one: pieces of `bytes` that are contiguous in both.
struct Pieces {
    bytes: usize,
    /// Outer dimensions: the size of each in the small tensor, and its stride in bytes in the large one.
    outer: Vec<(usize, usize)>,
}

impl Pieces {
    /// `None` when `large` is smaller than `small` in a dimension, or a size overflows.
    fn of(small: &[i64], large: &[i64], size: usize) -> Option<Self> {
        if small.len() != large.len() {
            return None;
        }
        let mut bytes = size;
        let mut stride = size;
        let mut is_inner = true;
        let mut outer = Vec::new();
        for (&few, &many) in small.iter().zip(large).rev() {
            let (few, many) = (usize::try_from(few).ok()?, usize::try_from(many).ok()?);
            if few > many {
                return None;
            }
            if is_inner {
                bytes = bytes.checked_mul(few)?;
            } else {
                outer.push((few, stride));
            }
            stride = stride.checked_mul(many)?;
            is_inner &= few == many;
        }
        outer.reverse();
        Some(Self { bytes, outer })
    }

    /// Calls `each` with the offsets of every piece in the small tensor and in the large one.
    fn each(&self, mut each: impl FnMut(usize, usize) -> Result<()>) -> Result<()> {
        let count =
            self.outer.iter().fold(if self.bytes == 0 { 0 } else { 1 }, |n: usize, (c, _)| n.saturating_mul(*c));
        for piece in 0..count {
            let (mut rest, mut at) = (piece, 0);
            for &(count, stride) in self.outer.iter().rev() {
                at += rest % count.max(1) * stride;
                rest /= count.max(1);
            }
            each(piece * self.bytes, at)?;
        }
        Ok(())
    }
}

/// A copy of `data` (shape `shape`) in the shape `padded`; the padding repeats `element`.
///
/// # Errors
/// RESOURCE_EXHAUSTED when there is no memory for it; INTERNAL when the data do not match the shapes.
pub fn grow(data: &Data, shape: &[i64], padded: &[i64], element: &[u8]) -> Result<Data> {
    let size = element.len();
    let len = |shape: &[i64]| usize::try_from(element_count(shape)?).ok()?.checked_mul(size);
    let (Some(pieces), Some(from), Some(to)) = (Pieces::of(shape, padded, size), len(shape), len(padded)) else {
        return Err(mismatch());
    };
    if from != data.len() {
        return Err(mismatch());
    }
    let (mut slab, charge) = batch_slab(to)?;
    if element.iter().all(|b| *b == 0) {
        slab.fill(0);
    } else {
        slab.chunks_exact_mut(size.max(1)).for_each(|place| place.copy_from_slice(element));
    }
    pieces.each(|small, large| {
        let place = slab.get_mut(large..large + pieces.bytes).ok_or_else(mismatch)?;
        data.copy_to(small, place)
    })?;
    Ok(Data::Bytes(frozen(slab, charge)))
}

/// The part of `data` (shape `padded`) that has shape `shape`: a view if it is contiguous, otherwise a copy.
///
/// # Errors
/// As `grow`.
pub fn shrink(data: &Bytes, padded: &[i64], shape: &[i64], size: usize) -> Result<Bytes> {
    let pieces = Pieces::of(shape, padded, size).ok_or_else(mismatch)?;
    let count = pieces.outer.iter().fold(1usize, |n, (c, _)| n.saturating_mul(*c));
    let len = pieces.bytes.checked_mul(count).ok_or_else(mismatch)?;
    if count <= 1 {
        return if len <= data.len() { Ok(data.slice(..len)) } else { Err(mismatch()) };
    }
    let (mut slab, charge) = batch_slab(len)?;
    pieces.each(|small, large| {
        let from = data.get(large..large + pieces.bytes).ok_or_else(mismatch)?;
        slab.get_mut(small..small + pieces.bytes).ok_or_else(mismatch)?.copy_from_slice(from);
        Ok(())
    })?;
    Ok(frozen(slab, charge))
}

fn mismatch() -> Error {
    Error::internal(
        "a tensor does not have the shape it was padded to; this is a defect of the server, please report it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(data: &[u8]) -> Data {
        Data::Bytes(Bytes::copy_from_slice(data))
    }

    #[test]
    fn padding_follows_the_elements_in_each_dimension() {
        let check = |shape: &[i64], padded: &[i64], data: &[u8], expected: &[u8]| {
            let grown = grow(&bytes(data), shape, padded, &[9]).expect("fits").to_vec().expect("in memory");
            assert_eq!(grown, expected, "{shape:?} to {padded:?}");
            let back = shrink(&Bytes::from(grown), padded, shape, 1).expect("fits");
            assert_eq!(&back[..], data, "{padded:?} back to {shape:?}");
        };
        check(&[1, 2], &[1, 4], b"ab", b"ab\t\t");
        check(&[2, 2], &[2, 3], b"abcd", b"ab\tcd\t");
        check(&[1, 2, 2], &[1, 3, 2], b"abcd", b"abcd\t\t");
        check(&[1, 2, 2], &[1, 3, 3], b"abcd", b"ab\tcd\t\t\t\t");
        check(&[2, 1, 1, 2], &[2, 2, 1, 2], b"abcd", b"ab\t\tcd\t\t");
        check(&[3], &[3], b"abc", b"abc");
        check(&[2, 0], &[2, 1], b"", b"\t\t");
    }

    #[test]
    fn elements_of_several_bytes_are_padded_whole() {
        let grown = grow(&bytes(&[1, 0, 2, 0]), &[2, 1], &[2, 2], &[7, 8]).expect("fits");
        assert_eq!(grown.to_vec().expect("in memory"), [1, 0, 7, 8, 2, 0, 7, 8]);
    }

    #[test]
    fn rows_of_one_request_are_cut_without_a_copy() {
        let padded = Bytes::from(vec![1u8; 12]);
        let own = shrink(&padded, &[1, 4, 3], &[1, 2, 3], 1).expect("fits");
        assert_eq!((own.len(), own.as_ptr()), (6, padded.as_ptr()));
    }

    #[test]
    fn shapes_that_do_not_match_are_an_error() {
        assert!(grow(&bytes(b"ab"), &[2], &[1], &[0]).is_err());
        assert!(grow(&bytes(b"ab"), &[2], &[2, 2], &[0]).is_err());
        assert!(grow(&bytes(b"abc"), &[2], &[3], &[0]).is_err(), "data longer than their shape");
        assert!(grow(&bytes(b"ab"), &[2], &[i64::MAX], &[0; 8]).is_err());
        assert!(shrink(&Bytes::from_static(b"ab"), &[1, 8], &[1, 4], 1).is_err());
        assert!(shrink(&Bytes::from_static(b"ab"), &[2, 8], &[2, 4], 1).is_err());
    }

    #[test]
    fn random_shapes_survive_padding_and_cutting() {
        let mut state = 7u64;
        let mut below = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) % n
        };
        for _ in 0..2000 {
            let rank = 1 + below(4) as usize;
            let shape: Vec<i64> = (0..rank).map(|_| 1 + below(4) as i64).collect();
            let padded: Vec<i64> = shape.iter().map(|d| d + below(3) as i64).collect();
            let data: Vec<u8> = (0..element_count(&shape).unwrap() * 4).map(|_| below(256) as u8).collect();
            let grown = grow(&bytes(&data), &shape, &padded, &[1, 2, 3, 4]).expect("fits");
            let back = shrink(&grown.to_bytes().expect("in memory"), &padded, &shape, 4).expect("fits");
            assert_eq!(&back[..], data, "{shape:?} {padded:?}");
        }
    }
}
