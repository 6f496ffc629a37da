//! Converts runs of numbers, each followed by a comma, to the bytes of a tensor: most of a typical JSON body.
//!
//! Signs and numbers of digits are unpredictable, and a mispredicted branch costs as much as the rest of a number. So
//! the commas are found first, by masks of 64 bytes; then the numbers before them are converted independently. Between
//! two numbers of an array there is always the same: no space, or one.

use super::digits::{BLOCK, WINDOW, look};

/// Bytes that are examined from the start of a number.
pub(super) const REACH: usize = 40;
/// Numbers whose commas are found before the first is converted.
const AHEAD: usize = 32;

/// The text where a number is expected.
pub(super) struct NumberText<'a> {
    text: &'a [u8; REACH],
    /// Mask of the bytes that are not digits; may be incomplete behind the comma.
    others: u64,
    /// Spaces behind the comma: 0 or 1.
    blanks: usize,
}

impl NumberText<'_> {
    /// 1 if the first byte is not a digit, otherwise 0.
    #[inline]
    pub fn sign(&self) -> usize {
        (self.others & 1) as usize
    }

    /// Offsets of the first two bytes behind the sign that are not digits; large if there are none.
    #[inline]
    pub fn ends(&self) -> (usize, usize) {
        let first = self.others & !1;
        let second = first & first.wrapping_sub(1);
        (first.trailing_zeros() as usize, second.trailing_zeros() as usize)
    }

    /// The byte at `i`; 0 beyond the end.
    #[inline]
    pub fn byte(&self, i: usize) -> u8 {
        self.text.get(i).copied().unwrap_or(0)
    }

    #[inline]
    pub fn word(&self, i: usize) -> Option<u64> {
        self.text.get(i..).and_then(<[u8]>::first_chunk).map(|b| u64::from_le_bytes(*b))
    }

    #[inline]
    pub fn block(&self, i: usize) -> Option<&[u8; BLOCK]> {
        self.text.get(i..).and_then(<[u8]>::first_chunk)
    }

    /// True if the sign is valid and the comma, with its spaces, is at `end`.
    #[inline]
    pub fn is_framed(&self, end: usize) -> bool {
        // Only signs are unpredictable: no branch for them.
        let is_wrong = (self.others & 1 == 1) & (self.byte(0) != b'-');
        !is_wrong && self.byte(end) == b',' && (self.blanks == 0 || self.byte(end + 1) == b' ')
    }
}

/// Number of the first `n` bytes of a word, which must be digits; `n` is 1 to 8.
#[inline]
pub(super) fn first_digits(word: u64, n: usize) -> u64 {
    // Shifts zeros in front; then combines pairs, fours and eights.
    let x = word.wrapping_sub(0x3030_3030_3030_3030) << ((8 * (8 - n)) & 63);
    let x = x.wrapping_mul(10).wrapping_add(x >> 8) & 0x00ff_00ff_00ff_00ff;
    let x = x.wrapping_mul(100).wrapping_add(x >> 16) & 0x0000_ffff_0000_ffff;
    x.wrapping_mul(10_000).wrapping_add(x >> 32) & 0xffff_ffff
}

/// Reads numbers from the start of `text` into `slots`, `N` bytes each, until `take` rejects one that is not framed.
/// Returns the bytes read and the bytes filled; the rest of the text may begin with spaces.
#[inline]
pub(super) fn read<const N: usize>(
    text: &[u8],
    slots: &mut [u8],
    take: impl Fn(&NumberText<'_>) -> Option<[u8; N]> + Copy,
) -> (usize, usize) {
    let (mut at, mut filled) = (0, 0);
    loop {
        for blanks in [0, 1] {
            let (rest, free) = (text.get(at..).unwrap_or_default(), slots.get_mut(filled..).unwrap_or_default());
            let (passed, more) = run(rest, free, blanks, take);
            at += passed;
            filled += more;
            if blanks == 0 {
                // A number that is rejected with no space behind it is rejected with one too.
                if more == 0 || text.get(at) != Some(&b' ') {
                    return (at, filled);
                }
                at += 1;
            }
        }
    }
}

/// Like [`read`], with exactly `blanks` spaces after each comma.
#[inline]
fn run<const N: usize>(
    text: &[u8],
    slots: &mut [u8],
    blanks: usize,
    take: impl Fn(&NumberText<'_>) -> Option<[u8; N]> + Copy,
) -> (usize, usize) {
    let (mut at, mut filled) = convert(text, slots, blanks, take);
    let rest = text.get(at..).unwrap_or_default();
    if rest.len() < WINDOW + REACH {
        // The end of the text, padded with bytes that end a number.
        let mut padded = [0; 2 * (WINDOW + REACH)];
        if let Some(place) = padded.get_mut(..rest.len()) {
            place.copy_from_slice(rest);
        }
        let (passed, more) = convert(&padded, slots.get_mut(filled..).unwrap_or_default(), blanks, take);
        at += passed;
        filled += more;
    }
    (at, filled)
}

/// Start of a number, and the mask of the bytes from there on that are not digits.
type Found = (usize, u64);

#[inline]
fn convert<const N: usize>(
    text: &[u8],
    slots: &mut [u8],
    blanks: usize,
    take: impl Fn(&NumberText<'_>) -> Option<[u8; N]>,
) -> (usize, usize) {
    let (mut at, mut filled) = (0, 0);
    let mut slots = slots.as_chunks_mut::<N>().0.iter_mut();
    let mut found = [(0, 0); AHEAD];
    loop {
        let (count, next) = find(text, at, blanks, &mut found);
        for &(start, others) in found.iter().take(count) {
            // In bounds: `find` has read further.
            let number =
                text.get(start..).and_then(<[u8]>::first_chunk).map(|text| NumberText { text, others, blanks });
            let Some(number) = number.and_then(|number| take(&number)) else { return (start, filled) };
            let Some(slot) = slots.next() else { return (start, filled) };
            *slot = number;
            filled += N;
        }
        at = next;
        if count < AHEAD {
            return (at, filled);
        }
    }
}

/// Finds the numbers before the next commas from `at` on; returns how many, and the start of the one behind them. A
/// start is only correct if all numbers before it are framed.
#[inline]
fn find(text: &[u8], mut at: usize, blanks: usize, found: &mut [Found; AHEAD]) -> (usize, usize) {
    let mut places = found.iter_mut();
    while let Some(reach) = text.get(at..).and_then(<[u8]>::first_chunk::<{ WINDOW + REACH }>)
        && let Some(window) = reach.first_chunk()
    {
        let (others, mut commas) = look(window);
        let mut start = 0;
        while commas != 0 {
            let Some(place) = places.next() else { return (AHEAD, at + start) };
            *place = (at + start, others.wrapping_shr(start as u32));
            start = commas.trailing_zeros() as usize + 1 + blanks;
            commas &= commas - 1;
        }
        if start == 0 {
            // No common number is so long.
            break;
        }
        at += start;
    }
    (AHEAD - places.len(), at)
}
