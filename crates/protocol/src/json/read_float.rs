//! Reads runs of floats as numpy prints them, `-0.12345679104328156,0.5,`, as FP32.
//!
//! Missing digits count as zeros, so that neither sign nor number of digits needs a branch. A run ends before
//! exponents, ends of rows, tiny numbers, and floats whose rounding depends on more digits; the caller reads those.
//!
//! A float is the double nearest to the text, rounded, as in the reference. This module estimates the double, and
//! accepts the float if every double within the error of the estimate rounds to it.

use super::digits::{BLOCK, SIXTEEN, number};
use super::runs::{NumberText, first_digits};

/// Smallest magnitude: below it, 1e-16 is more than `CLOSE` units in the last place of a double.
const CUT_MIN: f64 = 1.0 / 4096.0;
/// Smallest distance of an estimate from the middle of two floats, in units in the last place of a double. Digits after
/// the sixteenth are not read, an error of less than 1e-16, or 4096 / 1e16 * 2^53 = 3690 units; three roundings add at
/// most three.
const CLOSE: u64 = 4096;
/// Half the distance of two floats, in units in the last place of a double.
const MIDDLE: u64 = 1 << 28;
/// Most digits behind the point.
const BEHIND_MAX: usize = 23;

/// The bytes of the float in `text`; `None` if the caller must read it.
#[inline]
pub(super) fn take(text: &NumberText<'_>) -> Option<[u8; 4]> {
    let (sign, (point, end)) = (text.sign(), text.ends());
    let first = text.byte(sign);
    let before = point.wrapping_sub(sign);
    let whole = match before {
        1 => u64::from(first.wrapping_sub(b'0')),
        // At most seven digits, without leading zeros.
        2..=7 if first != b'0' => first_digits(text.word(sign)?, before),
        _ => return None,
    };
    if text.byte(point) != b'.' {
        // The text is an integer first: `-0` is zero without a sign.
        let value = whole as u32 as f32;
        return text.is_framed(point).then(|| if sign == 1 && whole != 0 { -value } else { value }.to_le_bytes());
    }
    let behind = end.wrapping_sub(point + 1);
    if behind.wrapping_sub(1) >= BEHIND_MAX || !text.is_framed(end) {
        return None;
    }
    let fraction = number(text.block(point + 1)?, behind);
    let estimate = match before {
        1 => (whole * SIXTEEN + fraction) as i64 as f64 * 1e-16,
        _ => whole as i64 as f64 + fraction as i64 as f64 * 1e-16,
    };
    let below = estimate.to_bits() & (2 * MIDDLE - 1);
    let is_sure = below.wrapping_sub(MIDDLE - CLOSE) > 2 * CLOSE && estimate >= CUT_MIN;
    if !is_sure && (whole | fraction != 0 || behind > BLOCK) {
        return None;
    }
    Some(((estimate as f32).to_bits() | (sign as u32) << 31).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::runs::read;
    use super::*;

    /// The first float of a text, and the number of bytes that it takes.
    fn first(text: &str) -> Option<(f32, usize)> {
        let mut slot = [0; 4];
        let (passed, filled) = read(text.as_bytes(), &mut slot, take);
        (filled == 4).then(|| (f32::from_le_bytes(slot), passed))
    }

    /// True if the fast path accepts a number; checks that its result is right.
    fn check(number: &str) -> bool {
        let expected = number.parse::<f64>().expect("a number") as f32;
        for (behind, n) in [(",-", 1), (", ", 2)] {
            let Some((float, length)) = first(&format!("{number}{behind}")) else { return false };
            assert_eq!((float.to_bits(), length), (expected.to_bits(), number.len() + n), "{number}");
        }
        true
    }

    #[test]
    fn p105_floats_of_a_run_are_the_double_rounded_however_they_are_written() {
        let mut random = crate::json::random_bits(11);
        let (mut taken, mut usual) = (0, 0);
        for i in 0..crate::json::volume(250_000, 2_000_000) {
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
        for text in
            ["0.0", "-0.0", "1.0", "-1.5", "127.5", "1234567.25", "0.1", "0.0000000000000000", "7", "-1234567", "0"]
        {
            assert!(check(text), "{text}");
        }
        assert_eq!(first("-0,").map(|(float, _)| float.to_bits()), Some(0), "an integer");
    }

    #[test]
    fn what_is_no_usual_number_ends_the_run() {
        for text in [
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
            "01,",
            "-01,",
            "12345678,",
            "1 ,",
            "1]",
        ] {
            assert_eq!(first(text), None, "{text}");
        }
        let text = b"1.5,-2.5, 0.25,  3.5,                                ";
        let mut floats = [9; 20];
        assert_eq!(read(text, &mut floats, take), (16, 12));
        assert_eq!(floats[8..], [0.25f32.to_le_bytes(), [9; 4], [9; 4]].concat());
        assert_eq!(read(text, &mut floats[..4], take), (4, 4));
    }
}
