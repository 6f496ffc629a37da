//! Runs of floats as numpy prints them, `-0.12345679104328156,0.5,`, turned into FP32: the bulk of most JSON bodies.
//!
//! Signs and numbers of digits of such numbers cannot be foreseen, and a branch that is guessed wrongly costs as much as the rest of
//! a number. So the ends of sign, whole part and fraction are found in one mask of 32 bytes, and digits that are not there count
//! as zeros. Whatever is not as expected ends the run, and is left to the caller: exponents, whole numbers, ends of rows,
//! tiny numbers, and floats that only all digits could round.
//!
//! A float is the double nearest to the text, rounded, as in the reference. That double is estimated here, and the float is taken
//! when everything as near to the estimate as the double must be rounds to it.

use super::digit_mask::{WINDOW, other_than_digits};

/// Digits behind the point that are read; more make the estimate too small, by less than 1e-16.
const DIGITS: u32 = 16;
/// Below this, 1e-16 are more than `CLOSE` units in the last place of a double.
const CUT_MIN: f64 = 1.0 / 4096.0;
/// How far from the middle of two floats, in units in the last place of a double, an estimate must be. Cut digits make up to
/// 4096 / 1e16 * 2^53 = 3690 of them, and three roundings at most three.
const CLOSE: u64 = 4096;
/// Units of a double between two floats, halved.
const MIDDLE: u64 = 1 << 28;

/// The number that eight digits make; what is behind `n` of them counts as zeros.
#[inline]
fn eight_digits(text: u64, n: u32) -> u64 {
    // One byte for each digit that counts.
    const MASKS: [u64; 9] = {
        let mut all = [u64::MAX; 9];
        let mut i = 0;
        while i < 8 {
            all[i] = (1 << (8 * i)) - 1;
            i += 1;
        }
        all
    };
    let mask = MASKS.get(n as usize).copied().unwrap_or(u64::MAX);
    let x = text.wrapping_sub(0x3030_3030_3030_3030) & mask;
    let x = x.wrapping_mul(10).wrapping_add(x >> 8) & 0x00ff_00ff_00ff_00ff;
    let x = x.wrapping_mul(100).wrapping_add(x >> 16) & 0x0000_ffff_0000_ffff;
    x.wrapping_mul(10_000).wrapping_add(x >> 32) & 0xffff_ffff
}

/// Takes a float, the comma behind it and one blank behind that; returns it and how many bytes that were.
#[inline]
fn take(window: &[u8; WINDOW]) -> Option<(f32, usize)> {
    let word = |i: u32| window.get(i as usize..).and_then(<[u8]>::first_chunk).map(|b| u64::from_le_bytes(*b));
    let mut others = other_than_digits(window);
    let sign = others & 1;
    others &= !1;
    let point = others.trailing_zeros();
    others &= others.wrapping_sub(1);
    let end = others.trailing_zeros();
    let before = point - sign;
    let behind = end.wrapping_sub(point + 1);
    // Neither seven digits before the point nor a second number, a blank or an exponent behind it.
    let is_usual = before.wrapping_sub(1) < 7
        && behind.wrapping_sub(1) < 23
        && window.get(point as usize) == Some(&b'.')
        && window.get(end as usize) == Some(&b',');
    let first = window[sign as usize];
    if !is_usual || (sign == 1 && window[0] != b'-') || (before > 1 && first == b'0') {
        return None;
    }
    let whole = if before == 1 {
        u64::from(first.wrapping_sub(b'0'))
    } else {
        // Those digits last, so that zeros stand before them.
        eight_digits(word(sign)? << (8 * (8 - before)) | 0x3030_3030_3030_3030 >> (8 * before), 8)
    };
    let fraction = eight_digits(word(point + 1)?, behind.min(8)) * 100_000_000
        + eight_digits(word(point + 9)?, behind.saturating_sub(8).min(8));
    let estimate = whole as i64 as f64 + fraction as i64 as f64 * 1e-16;
    let is_sure = (estimate.to_bits() & (2 * MIDDLE - 1)).abs_diff(MIDDLE) > CLOSE;
    let is_zero = whole | fraction == 0 && behind <= DIGITS;
    if !(is_zero || is_sure && estimate >= CUT_MIN) {
        return None;
    }
    let float = f32::from_bits((estimate as f32).to_bits() | sign << 31);
    let blank = window.get(end as usize + 1) == Some(&b' ');
    Some((float, end as usize + 1 + usize::from(blank)))
}

/// Reads floats from the beginning of `text` into `floats`, four bytes each, as far as they are usual, a comma follows, and what is
/// behind it begins at once or behind one blank. Returns how many bytes of each were passed.
pub(super) fn read_run(text: &[u8], floats: &mut [u8]) -> (usize, usize) {
    let mut at = 0;
    let mut filled = 0;
    for slot in floats.chunks_exact_mut(4) {
        let Some((float, n)) = text.get(at..).and_then(<[u8]>::first_chunk).and_then(take) else { break };
        slot.copy_from_slice(&float.to_le_bytes());
        at += n;
        filled += 4;
    }
    (at, filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: &str) -> [u8; WINDOW] {
        let mut window = [b'x'; WINDOW];
        window[..text.len()].copy_from_slice(text.as_bytes());
        window
    }

    /// Whether it was taken; what is taken is right.
    fn check(number: &str) -> bool {
        let expected = number.parse::<f64>().expect("a number") as f32;
        for (behind, n) in [(",-", 1), (", ", 2)] {
            let Some((float, length)) = take(&window(&format!("{number}{behind}"))) else { return false };
            assert_eq!((float.to_bits(), length), (expected.to_bits(), number.len() + n), "{number}");
        }
        true
    }

    #[test]
    fn p105_floats_of_a_run_are_the_double_rounded_however_they_are_written() {
        let mut state = 11u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let (mut taken, mut usual) = (0, 0);
        for i in 0..2_000_000 {
            let bits = random();
            let unit = (bits >> 11) as f64 / (1u64 << 53) as f64;
            let float = f64::from(unit as f32);
            let text = match i % 8 {
                0 => format!("{:?}", f64::from((unit * 2.0 - 1.0) as f32)),
                1 => format!("-{float:?}"),
                2 => format!("{:?}", f64::from((unit * 300.0) as f32)),
                3 => format!("{:.*}", (bits % 22) as usize + 1, unit * [1.0, 9.0, 1e3, 1e6][bits as usize >> 8 & 3]),
                // The middle between two floats, its neighbours among the doubles, and what lies between those.
                4 => {
                    let middle = f64::from_bits((float.to_bits() | MIDDLE).wrapping_add(bits % 5).wrapping_sub(2));
                    format!("{middle:.*}", 16 + (bits >> 3) as usize % 8)
                }
                5 => {
                    let far = bits % (4 * CLOSE);
                    format!(
                        "{:?}",
                        f64::from_bits((float.to_bits() | MIDDLE).wrapping_add(far).wrapping_sub(2 * CLOSE))
                    )
                }
                6 => format!("{:.20}", unit / [1.0, 1e3, 1e4, 1e5][bits as usize >> 8 & 3]),
                _ => format!("{unit:?}"),
            };
            if text.len() > 24 || text.contains('e') {
                continue;
            }
            let is_taken = check(&text);
            if i % 8 < 3 {
                usual += 1;
                taken += u32::from(is_taken);
            }
        }
        assert!(taken as f64 > 0.99 * f64::from(usual), "{taken} of {usual}");
        for text in ["0.0", "-0.0", "1.0", "-1.5", "127.5", "1234567.25", "0.1", "0.0000000000000000"] {
            assert!(check(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_usual_number_ends_the_run() {
        for text in [
            "1,",
            "1.,",
            ".5,",
            "-.5,",
            "+1.5,",
            "01.5,",
            "-01.5,",
            "1.5e3,",
            "1e5,",
            "1.5]",
            "1.5 ,",
            "--1.5,",
            "1.5",
            "x1.5,",
            "12345678.5,",
            "1.2.3,",
            "0.00000001,",
            "1.234567890123456789012345,",
            "NaN,",
            "-,",
            ",",
            "1-5,",
            "1.-5,",
        ] {
            assert_eq!(take(&window(text)), None, "{text}");
        }
        let text = b"1.5,-2.5, 0.25,  3.5,                                ";
        let mut floats = [9; 20];
        assert_eq!(read_run(text, &mut floats), (16, 12));
        assert_eq!(floats[8..], [0.25f32.to_le_bytes(), [9; 4], [9; 4]].concat());
        assert_eq!(read_run(text, &mut floats[..4]), (4, 4));
    }
}
