//! Integers as text, a few dozen at a time, from the last to the first: each overwrites the leading zeros of the one
//! behind it, so that the unpredictable number of digits only decides where the next one ends.

use super::digits::{BLOCK, SIXTEEN, text};

/// Integers that are printed before they are appended, so that the vector grows once for all of them.
const INTEGERS: usize = 64;
/// Most bytes of an integer: a sign, 20 digits, a comma.
const LENGTH_MAX: usize = 22;

/// Appends integers, each followed by a comma. `read` converts the `N` bytes of one to its sign and absolute value.
#[inline]
pub(super) fn write<const N: usize>(out: &mut Vec<u8>, data: &[u8], read: impl Fn([u8; N]) -> (bool, u64)) {
    // The first block has room for the leading zeros of the first integer.
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

/// Writes an integer and its comma before `end`; returns its start. `None` if there is no room, which cannot happen.
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
    // Without a sign, the comma of the integer before overwrites this byte.
    *scratch.get_mut(at.checked_sub(1)?)? = b'-';
    Some(at - usize::from(is_negative))
}

/// Writes sixteen digits that end at `end`; returns the start of the last `n`.
#[inline]
fn put_block(scratch: &mut [u8], end: usize, digits: [u8; BLOCK], n: usize) -> Option<usize> {
    *scratch.get_mut(end.checked_sub(BLOCK)?..)?.first_chunk_mut()? = digits;
    Some(end - n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_print_as_in_the_standard_library() {
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
