//! Integers as text, a few dozen at a time: from the last to the first, so that zeros in front are written over by what stands there,
//! and numbers of digits, which cannot be foreseen, decide nothing but where the next one ends.

use super::digits::{BLOCK, SIXTEEN, text};

/// Integers that are printed before they are appended: the vector grows once for all of them.
const INTEGERS: usize = 64;
/// Most bytes of one: a sign, 20 digits, a comma.
const LENGTH_MAX: usize = 22;

/// Appends integers with a comma behind each: their bytes, `N` each, which `read` turns into a sign and what is behind it.
#[inline]
pub(super) fn write<const N: usize>(out: &mut Vec<u8>, data: &[u8], read: impl Fn([u8; N]) -> (bool, u64)) {
    // In front there is room for zeros of the first.
    let mut scratch = [0; BLOCK + INTEGERS * LENGTH_MAX];
    for some in data.as_chunks::<N>().0.chunks(INTEGERS) {
        let mut at = scratch.len();
        for bytes in some.iter().rev() {
            let (is_negative, value) = read(*bytes);
            at = put(&mut scratch, at, is_negative, value).unwrap_or(at);
        }
        out.extend_from_slice(scratch.get(at..).unwrap_or_default());
    }
}

/// Puts an integer and its comma before `end`; returns where it begins. `None` when there is no room, which cannot be.
#[inline]
fn put(scratch: &mut [u8], end: usize, is_negative: bool, value: u64) -> Option<usize> {
    let mut at = end.checked_sub(1)?;
    *scratch.get_mut(at)? = b',';
    let mut rest = value;
    if rest >= SIXTEEN {
        let (digits, _) = text(rest % SIXTEEN);
        at = put_block(scratch, at, digits, BLOCK)?;
        rest /= SIXTEEN;
    }
    let (digits, used) = text(rest);
    at = put_block(scratch, at, digits, BLOCK - (used | 1 << (BLOCK - 1)).trailing_zeros() as usize)?;
    // Where there is no sign, the comma before it comes here.
    *scratch.get_mut(at.checked_sub(1)?)? = b'-';
    Some(at - usize::from(is_negative))
}

/// Puts the last `n` of sixteen digits, with the others in front of them.
#[inline]
fn put_block(scratch: &mut [u8], end: usize, digits: [u8; BLOCK], n: usize) -> Option<usize> {
    *scratch.get_mut(end.checked_sub(BLOCK)?..)?.first_chunk_mut()? = digits;
    Some(end - n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_print_as_they_do_everywhere() {
        let mut state = 9u64;
        let mut numbers: Vec<i64> = vec![0, -1, 1, i64::MIN, i64::MAX, 9_999_999_999_999_999, 10_000_000_000_000_000];
        numbers.extend((0..100_000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state as i64) >> (state >> 58)
        }));
        let data: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let mut out = b"[".to_vec();
        write(&mut out, &data, |b| {
            let n = i64::from_le_bytes(b);
            (n < 0, n.unsigned_abs())
        });
        let expected: String = numbers.iter().map(|n| format!("{n},")).collect();
        assert!(out[1..] == *expected.as_bytes());
        let mut out = Vec::new();
        write(&mut out, &data, |b| (false, u64::from_le_bytes(b)));
        let expected: String = numbers.iter().map(|n| format!("{},", *n as u64)).collect();
        assert!(out == expected.as_bytes());
        write(&mut out, &[], |b: [u8; 1]| (false, b[0].into()));
        assert_eq!(out.len(), expected.len());
    }
}
