//! Converts tensor data from and to JSON without a node per number.
//!
//! Reading has two paths. [`fill`] runs while the document is scanned: it checks syntax and converts in one pass, and
//! returns `None` for anything unusual. [`read_tensor`] runs on checked text and returns the exact error; it also reads
//! documents that name `data` before `datatype`.

use super::DATA_DEPTH_MAX;
use super::cursor::{Cursor, Number};
use super::print_float::write_f32s;
use super::runs::NumberText;
use super::value::Value;
use super::write::{escape_into, write_f64s};
use super::{print_integer, read_float, read_integer, runs};
use bytes::Bytes;
use tensor::allowance::Buffer;
use tensor::strings::Strings;
use tensor::{DataType, Error, Result, allowance, element_count};

/// A number or boolean of a tensor, in JSON and in memory.
trait Element: Sized {
    type Bytes: AsRef<[u8]>;
    /// Takes one element; `None` if it is malformed or needs the careful path.
    fn take(cursor: &mut Cursor<'_>) -> Option<Self>;
    fn bytes(self) -> Self::Bytes;
    /// Takes elements, each followed by a comma, while a faster path than [`Self::take`] applies. Returns the number of
    /// bytes of `slots` that it filled.
    #[inline]
    fn take_run(_cursor: &mut Cursor<'_>, _slots: &mut [u8]) -> usize {
        0
    }
    /// Reads a checked value.
    fn read(value: Value<'_>) -> Result<Self>;
    /// Appends all elements in `data`, each followed by a comma.
    fn write_all(out: &mut Vec<u8>, data: &[u8]);
}

/// Takes elements, each followed by a comma, until `take` rejects one. Returns the number of filled bytes of `slots`.
#[inline]
fn take_run<const N: usize>(
    cursor: &mut Cursor<'_>,
    slots: &mut [u8],
    take: impl Fn(&NumberText<'_>) -> Option<[u8; N]> + Copy,
) -> usize {
    let (passed, filled) = runs::read(cursor.rest(), slots, take);
    cursor.advance(passed);
    filled
}

/// Takes the digits of an integer; at most 18, so that nothing overflows.
#[inline]
fn take_digits(cursor: &mut Cursor<'_>) -> Option<i64> {
    let rest = cursor.rest();
    let mut n = 0i64;
    let mut i = 0;
    while let Some(d) = rest.get(i).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10) {
        if i == 18 {
            return None;
        }
        n = n * 10 + i64::from(d);
        i += 1;
    }
    let leading_zero = i > 1 && rest.first() == Some(&b'0');
    if i == 0 || leading_zero || matches!(rest.get(i), Some(b'.' | b'e' | b'E')) {
        return None;
    }
    cursor.advance(i);
    Some(n)
}

macro_rules! integers {
    ($($t:ty, $as:ident, $signed:literal);* $(;)?) => { $(
        impl Element for $t {
            type Bytes = [u8; size_of::<$t>()];
            #[inline]
            fn take(cursor: &mut Cursor<'_>) -> Option<Self> {
                let mut ahead = *cursor;
                let negative = $signed && ahead.eat(b'-');
                if let Some(n) = take_digits(&mut ahead) {
                    *cursor = ahead;
                    // Low bytes are kept, as in the reference (P 1.12.3): no range check.
                    return Some(if negative { -n } else { n } as Self);
                }
                cursor.number().ok().and_then(Number::$as).map(|n| n as Self)
            }
            #[inline]
            fn take_run(cursor: &mut Cursor<'_>, slots: &mut [u8]) -> usize {
                take_run(cursor, slots, |text| read_integer::take::<$signed>(text).map(|n| (n as Self).to_le_bytes()))
            }
            #[inline]
            fn bytes(self) -> Self::Bytes { self.to_le_bytes() }
            fn read(value: Value<'_>) -> Result<Self> { value.$as().map(|n| n as Self) }
            fn write_all(out: &mut Vec<u8>, data: &[u8]) {
                print_integer::write(out, data, |bytes| {
                    // Widened, because the smallest integer has no absolute value in its own type.
                    let n = Self::from_le_bytes(bytes) as i128;
                    (n < 0, n.unsigned_abs() as u64)
                });
            }
        }
    )* };
}

integers! {
    u8, as_u64, false; u16, as_u64, false; u32, as_u64, false; u64, as_u64, false;
    i8, as_i64, true; i16, as_i64, true; i32, as_i64, true; i64, as_i64, true;
}

/// Eight ASCII digits at once, in the order of the text.
#[derive(Clone, Copy)]
struct Eight(u64);

impl Eight {
    const ONES: u64 = u64::MAX / 255;

    #[inline]
    fn at(text: &[u8], i: usize) -> Option<Self> {
        text.get(i..).and_then(<[u8]>::first_chunk::<8>).map(|chunk| Self(u64::from_le_bytes(*chunk)))
    }

    /// Number of digits before the first other byte.
    #[inline]
    fn digits(self) -> usize {
        // The high half of a digit is 3, and stays 3 when 6 is added. Carries only affect bytes behind the first hit.
        let high = Self::ONES * 0xf0;
        let other = ((self.0 & high) ^ (Self::ONES * 0x30))
            | ((self.0.wrapping_add(Self::ONES * 6) & high) ^ (Self::ONES * 0x30));
        (other.trailing_zeros() / 8) as usize
    }

    /// Number of the first `n` bytes, which must be digits; `n` is 1 to 8.
    #[inline]
    fn number(self, n: usize) -> u64 {
        // Shifts zeros in front; then combines pairs, fours and eights.
        let x = (self.0.wrapping_sub(Self::ONES * 0x30)) << (8 * (8 - n));
        let x = (x.wrapping_mul(10) + (x >> 8)) & 0x00ff_00ff_00ff_00ff;
        let x = (x.wrapping_mul(100) + (x >> 16)) & 0x0000_ffff_0000_ffff;
        x.wrapping_mul(10_000).wrapping_add(x >> 32) & 0xffff_ffff
    }
}

/// A decimal number with a fraction and no exponent: its digits without the point, and how many are behind the point.
struct Fraction {
    digits: u64,
    behind: usize,
    negative: bool,
    length: usize,
}

/// Most digits that fit 64 bits, before and behind the point together.
const BEHIND_MAX: usize = 19;

impl Fraction {
    /// Reads `0.12345679104328156`, as numpy prints floats; `None` for text that needs the careful path.
    #[inline]
    fn read(text: &[u8]) -> Option<Self> {
        const POWERS: [u64; 9] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
        let sign = usize::from(text.first() == Some(&b'-'));
        let whole = Eight::at(text, sign)?;
        let before = whole.digits();
        if before == 0
            || before > 7
            || text.get(sign + before) != Some(&b'.')
            || (before > 1 && text.get(sign) == Some(&b'0'))
        {
            return None;
        }
        let mut digits = whole.number(before);
        let significant = if digits == 0 { 0 } else { before };
        let from = sign + before + 1;
        let mut at = from;
        loop {
            let eight = Eight::at(text, at)?;
            let n = eight.digits();
            if n > 0 {
                digits = digits.wrapping_mul(*POWERS.get(n)?).wrapping_add(eight.number(n));
            }
            at += n;
            if n < 8 {
                break;
            }
            if at - from > BEHIND_MAX {
                return None;
            }
        }
        let behind = at - from;
        // More digits have overflowed; exponents are read by the careful path.
        let is_usual = behind > 0 && behind + significant <= BEHIND_MAX && !matches!(text.get(at), Some(b'e' | b'E'));
        is_usual.then_some(Self { digits, behind, negative: sign == 1, length: at })
    }
}

/// The doubles nearest to 10^-0 to 10^-19.
const TENTHS: [f64; BEHIND_MAX + 1] = [
    1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15, 1e-16, 1e-17,
    1e-18, 1e-19,
];

/// The float nearest to the double nearest to a decimal number; `None` if an estimate does not decide it.
///
/// Three roundings (digits to double, the power of ten, their product) put the estimate at most three units in the last
/// place from the double. The float is the same unless the estimate is that close to the middle between two floats: 16
/// of 2^29 positions need the careful path.
#[inline]
fn nearest_float(number: &Fraction) -> Option<f32> {
    const MIDDLE: u64 = 1 << 28;
    const CLOSE: u64 = 8;
    let estimate = number.digits as f64 * TENTHS.get(number.behind)?;
    let below = estimate.to_bits() & (2 * MIDDLE - 1);
    // Zero is exact; subnormal floats are rounded at another bit.
    let is_normal = estimate >= f64::from(f32::MIN_POSITIVE) || number.digits == 0;
    (is_normal && below.abs_diff(MIDDLE) > CLOSE).then(|| {
        let float = estimate as f32;
        if number.negative { -float } else { float }
    })
}

/// Takes a float: the double in the text, rounded. `None` as in [`take_f64`].
#[inline]
fn take_f32(cursor: &mut Cursor<'_>) -> Option<f32> {
    if let Some(number) = Fraction::read(cursor.rest())
        && let Some(float) = nearest_float(&number)
    {
        cursor.advance(number.length);
        return Some(float);
    }
    take_f64(cursor).map(|v| v as f32)
}

/// Takes a double; `None` if the text needs the careful path (errors, literals, 19 or more digits before the point).
#[inline]
fn take_f64(cursor: &mut Cursor<'_>) -> Option<f64> {
    let rest = cursor.rest();
    let sign = usize::from(rest.first() == Some(&b'-'));
    let mut i = sign;
    let mut whole = 0u64;
    while let Some(d) = rest.get(i).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10) {
        whole = whole.wrapping_mul(10).wrapping_add(u64::from(d));
        i += 1;
    }
    let leading_zero = i > sign + 1 && rest.get(sign) == Some(&b'0');
    if i == sign || leading_zero {
        return cursor.number().ok().map(Number::as_f64);
    }
    match rest.get(i) {
        // The library also accepts `1.`, which is not JSON.
        Some(b'.') if !rest.get(i + 1).is_some_and(u8::is_ascii_digit) => return None,
        Some(b'.' | b'e' | b'E') => {}
        // The text is an integer first: `-0` is zero without a sign. Nineteen digits cannot overflow.
        _ if i - sign <= 19 => {
            cursor.advance(i);
            let value = whole as f64;
            return Some(if sign == 1 && whole != 0 { -value } else { value });
        }
        _ => return cursor.number().ok().map(Number::as_f64),
    }
    let (value, n) = fast_float2::parse_partial::<f64, _>(rest).ok()?;
    cursor.advance(n);
    value.is_finite().then_some(value)
}

macro_rules! floats {
    ($($t:ty, $take:ident, $run:expr, $write:expr);*) => { $(
        impl Element for $t {
            type Bytes = [u8; size_of::<$t>()];
            #[inline]
            fn take(cursor: &mut Cursor<'_>) -> Option<Self> { $take(cursor) }
            #[inline]
            fn take_run(cursor: &mut Cursor<'_>, slots: &mut [u8]) -> usize { $run(cursor, slots) }
            #[inline]
            fn bytes(self) -> Self::Bytes { self.to_le_bytes() }
            // Read as a double even for FP32, as in the reference; a number out of range becomes infinite.
            fn read(value: Value<'_>) -> Result<Self> { value.as_f64().map(|v| v as Self) }
            fn write_all(out: &mut Vec<u8>, data: &[u8]) { $write(out, data); }
        }
    )* };
}

floats! {
    f32, take_f32, |cursor, slots| take_run(cursor, slots, read_float::take), write_f32s;
    f64, take_f64, |_: &mut Cursor<'_>, _: &mut [u8]| 0, |out, data: &[u8]| {
        write_f64s(out, data.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)))
    }
}

/// A boolean in one byte: read as 0 or 1, printed as true if it is not 0.
struct Bool(u8);

impl Element for Bool {
    type Bytes = [u8; 1];
    fn take(cursor: &mut Cursor<'_>) -> Option<Self> {
        let rest = cursor.rest();
        let (n, value) = if rest.starts_with(b"true") { (4, 1) } else { (5, 0) };
        if value == 0 && !rest.starts_with(b"false") {
            return None;
        }
        cursor.advance(n);
        Some(Self(value))
    }
    fn bytes(self) -> Self::Bytes {
        [self.0]
    }
    fn read(value: Value<'_>) -> Result<Self> {
        value.as_bool().map(|b| Self(u8::from(b)))
    }
    fn write_all(out: &mut Vec<u8>, data: &[u8]) {
        for &byte in data {
            out.extend_from_slice(if byte == 0 { b"false," } else { b"true," });
        }
    }
}

/// Calls `$f::<E>($($arg),*)` for the element type of a datatype that has a JSON form.
macro_rules! dispatch {
    ($datatype:expr, $f:ident($($arg:expr),*), $otherwise:expr) => {
        match $datatype {
            DataType::Bool => $f::<Bool>($($arg),*),
            DataType::Uint8 => $f::<u8>($($arg),*),
            DataType::Uint16 => $f::<u16>($($arg),*),
            DataType::Uint32 => $f::<u32>($($arg),*),
            DataType::Uint64 => $f::<u64>($($arg),*),
            DataType::Int8 => $f::<i8>($($arg),*),
            DataType::Int16 => $f::<i16>($($arg),*),
            DataType::Int32 => $f::<i32>($($arg),*),
            DataType::Int64 => $f::<i64>($($arg),*),
            DataType::Fp32 => $f::<f32>($($arg),*),
            DataType::Fp64 => $f::<f64>($($arg),*),
            DataType::Fp16 | DataType::Bf16 | DataType::Bytes => $otherwise,
        }
    };
}

/// Takes and converts a whole `data` array of `count` elements (any number for BYTES).
///
/// `None` only means that the careful path must read the array; the cursor has not moved.
pub(crate) fn fill(cursor: &mut Cursor<'_>, datatype: DataType, count: usize) -> Option<Bytes> {
    let mut ahead = *cursor;
    let data = match datatype {
        DataType::Bytes => fill_strings(&mut ahead).map(Bytes::from),
        _ => dispatch!(datatype, fill_with(&mut ahead, count), None),
    }?;
    *cursor = ahead;
    Some(data)
}

/// Skips an array without checking its elements; false, with the cursor unmoved, if it contains a string.
///
/// For numbers whose datatype is named later; their conversion checks them. Finding the end costs 1 ns per number.
pub(crate) fn skip_array(cursor: &mut Cursor<'_>) -> bool {
    let text = cursor.rest();
    let (mut at, mut depth) = (0, 0usize);
    while let Some(n) = text.get(at..).and_then(|rest| memchr::memchr3(b'[', b']', b'"', rest)) {
        match text.get(at + n) {
            Some(b'[') => depth += 1,
            Some(b']') if depth > 0 => depth -= 1,
            _ => return false,
        }
        at += n + 1;
        if depth == 0 {
            cursor.advance(at);
            return true;
        }
    }
    false
}

fn fill_with<E: Element>(cursor: &mut Cursor<'_>, count: usize) -> Option<Bytes> {
    // Every element takes at least a digit and a comma or bracket, so the body limits the allocation.
    if count > cursor.rest().len() / 2 {
        return None;
    }
    let size = size_of::<E::Bytes>();
    // If the allocation is rejected, the careful path asks again and returns the error.
    let mut buffer = Buffer::new(count * size).ok()?;
    let data = buffer.window(0..count * size);
    let mut filled = 0;
    // Elements that are taken one by one before a run is tried again after one that took nothing.
    const BETWEEN_RUNS: usize = 8;
    let mut waits = 0;
    walk(cursor, |c| {
        if waits > 0 {
            waits -= 1;
        } else {
            let n = E::take_run(c, data.get_mut(filled..)?);
            filled += n;
            if n == 0 {
                waits = BETWEEN_RUNS;
            } else {
                // An array next to numbers is left to the careful path.
                c.white();
            }
        }
        let slot = data.get_mut(filled..)?.get_mut(..size)?;
        slot.copy_from_slice(E::take(c)?.bytes().as_ref());
        filled += size;
        Some(())
    })?;
    // Only if all of it is written: the memory may hold bytes of another request.
    (filled == count * size).then(|| buffer.freeze(filled))
}

fn fill_strings(cursor: &mut Cursor<'_>) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    walk(cursor, |c| {
        if c.peek() != b'"' {
            return None;
        }
        push_text(&mut data, c.string().ok()?).ok()?;
        Some(())
    })?;
    // An empty array of strings has its own error.
    (!data.is_empty()).then_some(data)
}

fn push_text(data: &mut Vec<u8>, text: super::cursor::Text<'_>) -> Result<()> {
    allowance::reserve(data, 4 + text.raw.len())?;
    let start = data.len();
    data.extend_from_slice(&[0; 4]);
    text.decode_into(data);
    // Bodies are limited to 2 GiB, so a length always fits.
    let length = u32::try_from(data.len() - start - 4).unwrap_or(u32::MAX);
    if let Some(head) = data.get_mut(start..start + 4) {
        head.copy_from_slice(&length.to_le_bytes());
    }
    Ok(())
}

/// Reads an array of any nesting, row-major, and calls `scalar` at every value that is not an array.
#[inline]
fn walk<'a>(cursor: &mut Cursor<'a>, mut scalar: impl FnMut(&mut Cursor<'a>) -> Option<()>) -> Option<()> {
    let mut depth = 0;
    loop {
        if cursor.peek() == b'[' {
            depth += 1;
            if depth >= DATA_DEPTH_MAX {
                return None;
            }
            if cursor.open(false) {
                continue;
            }
            depth -= 1;
        } else if depth == 0 {
            return None;
        } else {
            scalar(cursor)?;
            // The most common case: a comma, at most one space, the next element.
            if cursor.eat(b',') {
                cursor.white();
                continue;
            }
        }
        loop {
            if depth == 0 {
                return Some(());
            }
            if cursor.another(false).ok()? {
                break;
            }
            depth -= 1;
        }
    }
}

/// Visits each scalar of checked text at any nesting. A value that is not an array is its own only scalar.
fn visit<'a>(value: Value<'a>, mut scalar: impl FnMut(&mut Cursor<'a>) -> Result<()>) -> Result<()> {
    let mut cursor = Cursor::new(value.text());
    let mut depth = 0;
    loop {
        if cursor.peek() == b'[' {
            depth += 1;
            if depth >= DATA_DEPTH_MAX {
                return Err(too_deep());
            }
            if cursor.open(false) {
                continue;
            }
            depth -= 1;
        } else {
            scalar(&mut cursor)?;
        }
        loop {
            if depth == 0 {
                return Ok(());
            }
            if cursor.another(false)? {
                break;
            }
            depth -= 1;
        }
    }
}

fn value_at<'a>(cursor: &mut Cursor<'a>) -> Result<Value<'a>> {
    let span = cursor.value()?;
    Ok(Value::checked(cursor.slice(span)))
}

fn too_deep() -> Error {
    Error::invalid(format!("JSON nesting depth exceeds maximum allowed limit ({DATA_DEPTH_MAX})"))
}

/// Converts checked `data` of a fixed-size datatype. The caller has rejected FP16, BF16 and BYTES.
///
/// # Errors
/// P 1.12.3: wrong element type, too many, too few, nested too deep.
pub fn read_tensor(value: Value<'_>, datatype: DataType, count: usize) -> Result<Vec<u8>> {
    dispatch!(datatype, read_with(value, count), Err(Error::internal("datatype has no JSON form")))
}

fn read_with<E: Element>(value: Value<'_>, count: usize) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    let mut left = count;
    allowance::reserve(&mut data, count.min(value.text().len() / 2 + 1) * size_of::<E::Bytes>())?;
    visit(value, |c| {
        left =
            left.checked_sub(1).ok_or_else(|| Error::malformed("Shape does not match true shape of 'data' field"))?;
        let mut ahead = *c;
        let element = match E::take(&mut ahead) {
            Some(element) => {
                *c = ahead;
                element
            }
            None => E::read(value_at(c)?)?,
        };
        data.extend_from_slice(element.bytes().as_ref());
        Ok(())
    })
    .map_err(|e| e.prefixed("Unable to parse 'data': "))?;
    if left > 0 {
        return Err(Error::malformed("Failed to parse 'data' field: shape does not match true shape"));
    }
    Ok(data)
}

/// Converts checked `data` of strings to the binary form; their number is checked against the shape later.
///
/// # Errors
/// P 1.12.3: not a string, nested too deep.
pub fn read_bytes_tensor(value: Value<'_>) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    visit(value, |c| {
        let text = value_at(c)?.as_text().map_err(|e| e.prefixed("Unable to parse JSON bytes array: "))?;
        push_text(&mut data, text)
    })?;
    Ok(data)
}

/// Appends a tensor as one flat JSON array, or without brackets if `scalar` is set and there is exactly one element
/// (generate). Asks for the memory of long text (`tensor::allowance`).
///
/// # Errors
/// FP16 and BF16, which have no JSON form; contents that do not match the shape, a bug of the backend; the errors of
/// `tensor::allowance`.
pub fn write_tensor(out: &mut Vec<u8>, datatype: DataType, shape: &[i64], data: &[u8], scalar: bool) -> Result<()> {
    write_in_parts(out, datatype, shape, data, scalar, &mut |out, more| {
        // The vector grows by itself for short text, as in most responses.
        let is_short = out.len() + more <= allowance::UNASKED_BYTES_MAX;
        if is_short { Ok(()) } else { allowance::reserve(out, more + PART_TEXT_BYTES_MAX) }
    })
}

/// Most bytes of text of one part: each byte of a string may become `\u0001`, and no number has more than 25 bytes.
const PART_TEXT_BYTES_MAX: usize = 6 * STRING_PART_BYTES;

/// Bytes of a string that are printed at once.
const STRING_PART_BYTES: usize = 4096;
/// Elements that are printed at once.
const PART_ELEMENTS: usize = 512;

/// Like [`write_tensor`], but regularly passes the text to `part`, which may take it out, with the approximate number
/// of bytes that will follow.
///
/// # Errors
/// FP16 and BF16, contents that do not match the shape, and the errors of `part`.
pub(crate) fn write_in_parts(
    out: &mut Vec<u8>,
    datatype: DataType,
    shape: &[i64],
    data: &[u8],
    scalar: bool,
    part: &mut dyn FnMut(&mut Vec<u8>, usize) -> Result<()>,
) -> Result<()> {
    let count = element_count(shape).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let unfit = || Error::internal(format!("output has {} bytes, which do not fit its shape", data.len())).by_model();
    if matches!(datatype, DataType::Fp16 | DataType::Bf16) {
        return Err(Error::invalid(format!(
            "sending {} data via JSON is not supported. Please use the binary data format for output",
            datatype.name()
        )));
    }
    let array = !(scalar && count == 1);
    if array {
        out.push(b'[');
    }
    match datatype.byte_size() {
        Some(size) if count.checked_mul(size) != Some(data.len()) => return Err(unfit()),
        Some(size) => write_numbers(out, datatype, size, data, part)?,
        None if write_strings(out, data, part)? == Some(count) => {}
        None => return Err(unfit()),
    }
    if array {
        out.push(b']');
    }
    Ok(())
}

fn write_numbers(
    out: &mut Vec<u8>,
    datatype: DataType,
    size: usize,
    data: &[u8],
    part: &mut dyn FnMut(&mut Vec<u8>, usize) -> Result<()>,
) -> Result<()> {
    let mut printed = 0;
    let mut left = data.len();
    for some in data.chunks(PART_ELEMENTS * size) {
        if printed > 0 {
            // Assumes that the rest is as long per byte as the text so far.
            let more = (printed as u128 * left as u128).checked_div((data.len() - left) as u128);
            part(out, more.and_then(|more| usize::try_from(more).ok()).unwrap_or_default())?;
        }
        let start = out.len();
        dispatch!(datatype, write_all(out, some), ());
        printed += out.len() - start;
        left -= some.len();
    }
    // Removes the last comma, which `part` has not taken.
    if printed > 0 {
        out.pop();
    }
    Ok(())
}

fn write_all<E: Element>(out: &mut Vec<u8>, data: &[u8]) {
    E::write_all(out, data);
}

/// Returns the number of strings; `None` if the contents are malformed.
fn write_strings(
    out: &mut Vec<u8>,
    data: &[u8],
    part: &mut dyn FnMut(&mut Vec<u8>, usize) -> Result<()>,
) -> Result<Option<usize>> {
    let (mut n, mut left) = (0, data.len());
    for element in Strings::new(data) {
        let Ok(element) = element else { return Ok(None) };
        part(out, left)?;
        if n > 0 {
            out.push(b',');
        }
        out.push(b'"');
        for piece in element.chunks(STRING_PART_BYTES) {
            escape_into(out, piece);
            left = left.saturating_sub(piece.len());
            if piece.len() == STRING_PART_BYTES {
                part(out, left)?;
            }
        }
        out.push(b'"');
        // Its length in the binary form: about as long as quotation marks and a comma.
        left = left.saturating_sub(4);
        n += 1;
    }
    Ok(Some(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn double_then_float(text: &str) -> f32 {
        text.parse::<f64>().expect("a number") as f32
    }

    fn take(text: &str) -> Option<f32> {
        let padded = format!("{text},        ");
        let mut cursor = Cursor::new(padded.as_bytes());
        let taken = take_f32(&mut cursor)?;
        assert_eq!(cursor.offset(), text.len(), "{text}");
        Some(taken)
    }

    #[test]
    fn p105_floats_in_any_notation_are_the_rounded_double() {
        let mut random = crate::json::random_bits(7);
        for i in 0..400_000 {
            let bits = random();
            let float = f32::from_bits(bits as u32);
            let unit = (bits >> 11) as f64 / (1u64 << 53) as f64;
            let text = match i % 6 {
                0 if float.is_finite() => format!("{:?}", f64::from(float)),
                1 => format!("{:?}", f64::from(unit as f32)),
                2 => format!("{unit:?}"),
                3 => format!("{:.*}", (bits % 22) as usize + 1, unit * 1000.0),
                // The middle between two floats, and the neighbouring doubles.
                4 => {
                    let middle = f64::from(unit as f32).to_bits() | 1 << 28;
                    format!("{:?}", f64::from_bits(middle.wrapping_add(bits % 5).wrapping_sub(2)))
                }
                _ => format!("{:.17}", -unit / 1e5),
            };
            assert_eq!(take(&text).map(f32::to_bits), Some(double_then_float(&text).to_bits()), "{text}");
        }
    }

    #[test]
    fn a_malformed_number_is_left_to_the_careful_path() {
        for text in ["1.", "01.5", "-.5", "+1.5", ".5", "00.1", "-", "1.e5"] {
            assert!(Fraction::read(format!("{text},        ").as_bytes()).is_none(), "{text}");
        }
        let read = |text: &str| Fraction::read(text.as_bytes()).map(|f| (f.digits, f.behind, f.negative, f.length));
        assert_eq!(read("-12.0625]          "), Some((120_625, 4, true, 8)));
        assert_eq!(read("0.0, 1.5           "), Some((0, 1, false, 3)));
        assert_eq!(read("0.1"), None, "the end of the text is read with care");
    }

    #[test]
    fn runs_and_single_elements_make_the_same_tensor_for_any_white_space() {
        let mut random = 5u64;
        for round in 0..2000 {
            let separator = [",", ", ", ",\n    ", " , ", "],["][round % 5];
            let mut texts = Vec::new();
            for _ in 0..round % 37 + 1 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let unit = f64::from((random >> 40) as u32) / f64::from(1 << 24) * 2.0 - 1.0;
                texts.push(match random >> 33 & 15 {
                    0 => format!("{}", (unit * 1000.0) as i32),
                    1 => format!("{unit:e}"),
                    2 => "-0.0".to_owned(),
                    3 => format!("{:.20}", unit / 1e6),
                    _ => format!("{unit:?}"),
                });
            }
            let expected: Vec<u8> =
                texts.iter().flat_map(|t| (t.parse::<f64>().unwrap() as f32).to_le_bytes()).collect();
            let text = format!("[[{}]]                                ", texts.join(separator));
            let (mut cursor, count) = (Cursor::new(text.as_bytes()), texts.len());
            assert_eq!(fill(&mut cursor, DataType::Fp32, count).as_deref(), Some(&expected[..]), "{text}");
            assert_eq!(cursor.offset(), text.trim_end().len());
            assert_eq!(
                read_tensor(Value::parse(text.trim_end().as_bytes()).unwrap(), DataType::Fp32, count).unwrap(),
                expected
            );
            for wrong in [count - 1, count + 1] {
                assert_eq!(fill(&mut Cursor::new(text.as_bytes()), DataType::Fp32, wrong), None, "{text}");
            }
        }
        // A misplaced or missing comma where a run ends.
        for text in ["[0.5,]", "[0.5,0.25,]", "[0.5,,0.25]", "[0.5,0.25 0.5]"] {
            let padded = format!("{text}                                  ");
            for count in 1..4 {
                assert_eq!(fill(&mut Cursor::new(padded.as_bytes()), DataType::Fp32, count), None, "{text}");
            }
        }
    }

    #[test]
    fn an_array_is_skipped_to_its_own_end() {
        let skip = |text: &str| {
            let mut cursor = Cursor::new(text.as_bytes());
            skip_array(&mut cursor).then(|| cursor.offset())
        };
        assert_eq!(skip("[1,[2,3],[]] ]"), Some(12));
        assert_eq!(skip("[]"), Some(2));
        for text in ["[1,2", "[\"]\"]", "1]", "]", ""] {
            assert_eq!(skip(text), None, "{text}");
        }
    }
}
