//! SIMD digit parsing, 16 bytes at a time: finds digits and commas, converts 16 digits to a number and back. No safe
//! function reaches these instructions.

#![allow(unsafe_code)] // calls functions for SSE2, which load and store sixteen bytes

/// Bytes that are classified at once.
pub(super) const WINDOW: usize = 64;
/// Digits that are converted at once.
pub(super) const BLOCK: usize = 16;

pub(super) const EIGHT: u64 = 100_000_000;
pub(super) const SIXTEEN: u64 = EIGHT * EIGHT;

/// One mask of the bytes that are not digits and one of the commas; the lowest bit is the first byte.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(super) fn look(window: &[u8; WINDOW]) -> (u64, u64) {
    // SAFETY: every processor of this architecture has SSE2.
    unsafe { sse2::look(window) }
}

/// Number of the first `n` of sixteen digits, with zeros for the others.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(super) fn number(text: &[u8; BLOCK], n: usize) -> u64 {
    // SAFETY: every processor of this architecture has SSE2.
    unsafe { sse2::number(text, n) }
}

/// The sixteen digits of a number below 10^16, and a mask of those that are not zero; the lowest bit is the first.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(super) fn text(number: u64) -> ([u8; BLOCK], u32) {
    let high = number / EIGHT;
    // SAFETY: every processor of this architecture has SSE2.
    unsafe { sse2::text(high as u32, (number - high * EIGHT) as u32) }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
pub(super) use portable::{look, number, text};

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod sse2 {
    use super::{BLOCK, EIGHT, WINDOW};
    use std::arch::x86_64::*;

    #[inline]
    #[target_feature(enable = "sse2")]
    fn load(bytes: &[u8; BLOCK]) -> __m128i {
        // SAFETY: sixteen readable bytes; the instruction needs no alignment.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn look(window: &[u8; WINDOW]) -> (u64, u64) {
        // Maps the digits to the ten smallest signed bytes.
        let down = _mm_set1_epi8((128 - b'0') as i8);
        let nine = _mm_set1_epi8(-128 + 9);
        let comma = _mm_set1_epi8(b',' as i8);
        let parts = window.as_chunks::<BLOCK>().0.iter().enumerate();
        parts.fold((0, 0), |(others, commas), (i, part)| {
            let part = load(part);
            let other = _mm_movemask_epi8(_mm_cmpgt_epi8(_mm_add_epi8(part, down), nine));
            let is_comma = _mm_movemask_epi8(_mm_cmpeq_epi8(part, comma));
            (others | (other as u64) << (BLOCK * i), commas | (is_comma as u64) << (BLOCK * i))
        })
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn number(text: &[u8; BLOCK], n: usize) -> u64 {
        /// A block that starts n bytes before the zeros keeps n bytes.
        static MASKS: [u8; 3 * BLOCK] = {
            let mut all = [0; 3 * BLOCK];
            let mut i = 0;
            while i < 2 * BLOCK {
                // The value bits of a digit.
                all[i] = 0x0f;
                i += 1;
            }
            all
        };
        let mask = MASKS.get((2 * BLOCK).wrapping_sub(n)..).and_then(<[u8]>::first_chunk).unwrap_or(&[0x0f; BLOCK]);
        let digits = _mm_and_si128(load(text), load(mask));
        // Combines digits to pairs, fours and eights: ten times the first plus the second, and so on.
        let tens = _mm_mullo_epi16(_mm_and_si128(digits, _mm_set1_epi16(0xff)), _mm_set1_epi16(10));
        let pairs = _mm_add_epi16(tens, _mm_srli_epi16(digits, 8));
        let fours = _mm_madd_epi16(pairs, _mm_set1_epi32(1 << 16 | 100));
        let eights = _mm_madd_epi16(_mm_packs_epi32(fours, fours), _mm_set1_epi32(1 << 16 | 10_000));
        let both = _mm_cvtsi128_si64(eights) as u64;
        (both & 0xffff_ffff) * EIGHT + (both >> 32)
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn text(high: u32, low: u32) -> ([u8; BLOCK], u32) {
        // Divides lanes of 64, 32 and 16 bits at once; the factors are exact for the values of a lane.
        let eights = _mm_set_epi64x(low.into(), high.into());
        let quotients = _mm_srli_epi64(_mm_mul_epu32(eights, _mm_set1_epi64x(0xd1b7_1759)), 45);
        let rests = _mm_sub_epi32(eights, _mm_mul_epu32(quotients, _mm_set1_epi64x(10_000)));
        let fours = _mm_or_si128(quotients, _mm_slli_epi64(rests, 32));
        let quotients = _mm_srli_epi16(_mm_mulhi_epu16(fours, _mm_set1_epi32(5243)), 3);
        let rests = _mm_sub_epi16(fours, _mm_mullo_epi16(quotients, _mm_set1_epi32(100)));
        let pairs = _mm_or_si128(quotients, _mm_slli_epi32(rests, 16));
        let quotients = _mm_mulhi_epu16(pairs, _mm_set1_epi16(6554));
        let rests = _mm_sub_epi16(pairs, _mm_mullo_epi16(quotients, _mm_set1_epi16(10)));
        let digits = _mm_or_si128(quotients, _mm_slli_epi16(rests, 8));
        let zeros = _mm_movemask_epi8(_mm_cmpeq_epi8(digits, _mm_setzero_si128())) as u32;
        let mut text = [0; BLOCK];
        // SAFETY: sixteen writable bytes; the instruction needs no alignment.
        unsafe { _mm_storeu_si128(text.as_mut_ptr().cast(), _mm_or_si128(digits, _mm_set1_epi8(0x30))) };
        (text, zeros ^ 0xffff)
    }
}

/// Portable versions, eight bytes at a time.
#[cfg(any(not(target_arch = "x86_64"), miri, test))]
#[cfg_attr(all(target_arch = "x86_64", not(miri)), allow(dead_code))]
mod portable {
    use super::{BLOCK, EIGHT, WINDOW};

    const ONES: u64 = u64::MAX / 255;

    pub fn look(window: &[u8; WINDOW]) -> (u64, u64) {
        // Sets the high bit of each byte that is not below `least`. Compares seven bits, so that no carry leaves a
        // byte.
        let from = |word: u64, least: u64| (((word & (ONES * 0x7f)) + ONES * (128 - least)) | word) & (ONES * 0x80);
        // Gathers the high bits of all bytes in one byte.
        let gathered = |bits: u64| (bits >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        window.as_chunks::<8>().0.iter().enumerate().fold((0, 0), |(others, commas), (i, word)| {
            let word = u64::from_le_bytes(*word);
            let other = from(word ^ (ONES * 0x30), 10);
            let comma = from(word ^ (ONES * u64::from(b',')), 1) ^ (ONES * 0x80);
            (others | gathered(other) << (8 * i), commas | gathered(comma) << (8 * i))
        })
    }

    pub fn number(text: &[u8; BLOCK], n: usize) -> u64 {
        let digit = |(i, b): (usize, &u8)| if i < n { u64::from(b & 0x0f) } else { 0 };
        text.iter().enumerate().map(digit).fold(0, |number, digit| number * 10 + digit)
    }

    pub fn text(number: u64) -> ([u8; BLOCK], u32) {
        let (a, b) = (eight(number / EIGHT), eight(number % EIGHT));
        let mut text = [0; BLOCK];
        let (head, tail) = text.split_at_mut(8);
        head.copy_from_slice(&(a | (ONES * 0x30)).to_le_bytes());
        tail.copy_from_slice(&(b | (ONES * 0x30)).to_le_bytes());
        let used = (0..BLOCK).fold(0, |mask, i| mask | u32::from(text.get(i) != Some(&b'0')) << i);
        (text, used)
    }

    /// The values of eight digits, the first in the lowest byte.
    fn eight(n: u64) -> u64 {
        let high = n / 10_000;
        let fours = high | (n - high * 10_000) << 32;
        let high = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
        let pairs = high | (fours - high * 100) << 16;
        let high = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
        high | (pairs - high * 10) << 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_classified_as_digit_comma_or_other() {
        for b in 0..=255u8 {
            for at in 0..WINDOW {
                for other in [b'0', b'9', b',', 0xff] {
                    let mut window = [other; WINDOW];
                    window[at] = b;
                    let mask = |is: fn(&u8) -> bool| (0..WINDOW).fold(0, |m, i| m | u64::from(is(&window[i])) << i);
                    let expected = (mask(|b| !b.is_ascii_digit()), mask(|b| *b == b','));
                    assert_eq!([look(&window), portable::look(&window)], [expected; 2], "{b} at {at}");
                }
            }
        }
    }

    #[test]
    fn sixteen_digits_round_trip() {
        let mut random = crate::json::random_bits(3);
        let most = EIGHT * EIGHT;
        let edges = (0..16).flat_map(|k| [10u64.pow(k) - 1, 10u64.pow(k), 10u64.pow(k) + 1]).chain([most - 1]);
        let mut numbers: Vec<u64> = edges.chain((0..10_000).map(|n| n * 10_001)).collect();
        numbers.extend((0..200_000).map(|_| {
            let n = random();
            n % 10u64.pow(1 + (n >> 58) as u32 % 16)
        }));
        for n in numbers {
            let expected = format!("{n:016}");
            let (digits, used) = text(n);
            assert_eq!(digits, *expected.as_bytes());
            let zeros = expected.bytes().enumerate().fold(0, |mask, (i, b)| mask | u32::from(b != b'0') << i);
            assert_eq!((used, portable::text(n)), (zeros, (digits, used)), "{n}");
            // Bytes behind the digits do not count.
            let many = random() as usize % 17;
            let mut cut = digits;
            cut[many..].fill(random() as u8);
            let worth = n - n % 10u64.pow(16 - many as u32);
            assert_eq!([number(&cut, many), portable::number(&cut, many)], [worth; 2], "{many} digits of {expected}");
        }
    }
}
