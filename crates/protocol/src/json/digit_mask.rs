//! Which of 32 bytes are no digits: one instruction of the processor gathers the answer, and no safe function reaches it.

#![allow(unsafe_code)] // calls a function made for SSE2

/// Bytes that are looked at.
pub(super) const WINDOW: usize = 32;

/// A bit for every byte that is no digit, the first in the lowest bit.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(super) fn other_than_digits(window: &[u8; WINDOW]) -> u32 {
    // SAFETY: every processor of this architecture has SSE2.
    unsafe { other_than_digits_sse2(window) }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
#[target_feature(enable = "sse2")]
fn other_than_digits_sse2(window: &[u8; WINDOW]) -> u32 {
    use std::arch::x86_64::{_mm_add_epi8, _mm_cmpgt_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
    let word = |i: usize| window.get(i..).and_then(<[u8]>::first_chunk).map_or(0, |b| i64::from_le_bytes(*b));
    // Digits become the ten smallest of signed bytes.
    let down = _mm_set1_epi8((128 - b'0') as i8);
    let nine = _mm_set1_epi8(-128 + 9);
    let head = _mm_cmpgt_epi8(_mm_add_epi8(_mm_set_epi64x(word(8), word(0)), down), nine);
    let tail = _mm_cmpgt_epi8(_mm_add_epi8(_mm_set_epi64x(word(24), word(16)), down), nine);
    _mm_movemask_epi8(head) as u32 | (_mm_movemask_epi8(tail) as u32) << 16
}

/// A bit for every byte that is no digit, the first in the lowest bit; eight bytes at a time.
#[cfg(any(not(target_arch = "x86_64"), miri, test))]
#[cfg_attr(all(target_arch = "x86_64", not(miri)), allow(dead_code))]
#[inline]
fn portable(window: &[u8; WINDOW]) -> u32 {
    const ONES: u64 = u64::MAX / 255;
    let mask = |i: usize| {
        let word = window.get(i..).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from_le_bytes(*b));
        let digits = word ^ (ONES * 0x30);
        // Seven bits of each byte are compared, so that nothing is carried into the next.
        let other = (((digits & (ONES * 0x7f)) + ONES * (128 - 10)) | digits) & (ONES * 0x80);
        // Gathers the high bits of all bytes in the highest byte.
        ((other >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
    };
    mask(0) | mask(8) << 8 | mask(16) << 16 | mask(24) << 24
}

/// A bit for every byte that is no digit, the first in the lowest bit.
#[cfg(any(not(target_arch = "x86_64"), miri))]
#[inline]
pub(super) fn other_than_digits(window: &[u8; WINDOW]) -> u32 {
    portable(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_told_from_all_other_bytes() {
        for b in 0..=255u8 {
            for at in 0..WINDOW {
                for other in [b'0', b'9', 0xff] {
                    let mut window = [other; WINDOW];
                    window[at] = b;
                    let is_other = |b: &u8| !b.is_ascii_digit();
                    let expected = (0..WINDOW).fold(0, |mask, i| mask | u32::from(is_other(&window[i])) << i);
                    assert_eq!([other_than_digits(&window), portable(&window)], [expected; 2], "{b} at {at}");
                }
            }
        }
    }
}
