//! Reads runs of integers in JSON text. The caller reads those with more than 19 digits, and all other text.

use super::digits::EIGHT;
use super::runs::{NumberText, first_digits};

/// The integer in `text`, in two's complement if it is negative.
#[inline]
pub(super) fn take<const SIGNED: bool>(text: &NumberText<'_>) -> Option<u64> {
    let (sign, (end, _)) = (text.sign(), text.ends());
    let digits = end.wrapping_sub(sign);
    let is_usual = digits.wrapping_sub(1) < 19 && (digits == 1 || text.byte(sign) != b'0') && text.is_framed(end);
    if !is_usual || (!SIGNED && sign == 1) {
        return None;
    }
    let first = text.word(sign)?;
    let last = |n: usize| Some(first_digits(text.word(end.wrapping_sub(n))?, 8));
    let value = if digits <= 8 {
        first_digits(first, digits)
    } else if digits <= 16 {
        first_digits(first, digits - 8) * EIGHT + last(8)?
    } else {
        (first_digits(first, digits - 16) * EIGHT + last(16)?) * EIGHT + last(8)?
    };
    if SIGNED && value > i64::MAX as u64 {
        return None;
    }
    Some(if sign == 1 { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::super::runs::read;
    use super::*;

    fn signed(text: &str) -> (usize, Vec<i64>) {
        let mut slots = [0; 80];
        let (passed, filled) = read(text.as_bytes(), &mut slots, |text| take::<true>(text).map(u64::to_le_bytes));
        (passed, slots[..filled].chunks(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect())
    }

    fn unsigned(text: &str) -> (usize, Vec<u64>) {
        let mut slots = [0; 80];
        let (passed, filled) = read(text.as_bytes(), &mut slots, |text| take::<false>(text).map(u64::to_le_bytes));
        (passed, slots[..filled].chunks(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect())
    }

    #[test]
    fn integers_of_any_length_are_read_at_every_end_of_a_window() {
        let mut state = 5u64;
        for round in 0..100_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let numbers: Vec<i64> =
                (0..10).map(|i| (state.rotate_left(7 * i) as i64) >> ((state >> (i + 20)) % 64)).collect();
            let separator = if round % 2 == 0 { "," } else { ", " };
            let text: String = numbers.iter().map(|n| format!("{n}{separator}")).collect();
            let until = numbers.iter().position(|n| *n == i64::MIN).unwrap_or(10);
            assert_eq!(signed(&text).1, numbers[..until], "{text}");
            let numbers: Vec<u64> = numbers.iter().map(|n| n.unsigned_abs()).collect();
            let text: String = numbers.iter().map(|n| format!("{n}{separator}")).collect();
            assert_eq!(unsigned(&text), (text.len(), numbers), "{text}");
        }
        assert_eq!(signed("-0,9223372036854775807,7]"), (23, vec![0, i64::MAX]));
    }

    #[test]
    fn other_text_than_common_integers_ends_the_run() {
        for text in ["01,", "-01,", "+1,", "1.0,", "1e3,", "1 ,", "1]", "-,", "--1,", ",", "x1,", "true,", "1"] {
            assert_eq!(signed(text), (0, vec![]), "{text}");
        }
        assert_eq!(signed("9223372036854775808,"), (0, vec![]));
        assert_eq!(unsigned("9223372036854775808,"), (20, vec![1 << 63]));
        assert_eq!(unsigned("-1,"), (0, vec![]));
        assert_eq!(unsigned("18446744073709551615,"), (0, vec![]), "20 digits");
        assert_eq!(signed("1,2, 3, 4,5,  6,"), (13, vec![1, 2, 3, 4, 5]));
    }
}
