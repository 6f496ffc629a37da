//! Tensor data as JSON, both ways, without a node per number.
//!
//! Reading has two paths. [`fill`] runs while the document is scanned: it checks syntax and converts at once, and gives up without a
//! verdict on anything unusual. [`read_tensor`] runs on checked text and knows why it fails; it also serves documents that name
//! `data` before `datatype`.

use super::DATA_DEPTH_MAX;
use super::cursor::{Cursor, Number};
use super::value::Value;
use super::write::{write_f64, write_f64s, write_string};
use tensor::strings::Strings;
use tensor::{DataType, Error, Result, element_count};

/// A number or boolean of a tensor, as it stands in JSON and in memory.
trait Element: Sized {
    type Bytes: AsRef<[u8]>;
    /// Takes one element; `None` when it is not one, or needs a second look.
    fn take(cursor: &mut Cursor<'_>) -> Option<Self>;
    fn bytes(self) -> Self::Bytes;
    /// From a checked value.
    fn read(value: Value<'_>) -> Result<Self>;
    fn write(self, out: &mut Vec<u8>);
}

/// Digits of an integer that ends here; at most 18, so that nothing overflows.
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
            fn bytes(self) -> Self::Bytes { self.to_le_bytes() }
            fn read(value: Value<'_>) -> Result<Self> { value.$as().map(|n| n as Self) }
            #[inline]
            fn write(self, out: &mut Vec<u8>) { out.extend_from_slice(itoa::Buffer::new().format(self).as_bytes()); }
        }
    )* };
}

integers! {
    u8, as_u64, false; u16, as_u64, false; u32, as_u64, false; u64, as_u64, false;
    i8, as_i64, true; i16, as_i64, true; i32, as_i64, true; i64, as_i64, true;
}

/// A double, unless the text needs the careful path (errors, literals, 19 digits and more before the point).
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
        // The library also takes `1.`, which is not JSON.
        Some(b'.') if !rest.get(i + 1).is_some_and(u8::is_ascii_digit) => return None,
        Some(b'.' | b'e' | b'E') => {}
        // Integers are integers first: `-0` is zero without a sign. Nineteen digits cannot have wrapped.
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
    ($($t:ty),*) => { $(
        impl Element for $t {
            type Bytes = [u8; size_of::<$t>()];
            #[inline]
            fn take(cursor: &mut Cursor<'_>) -> Option<Self> { take_f64(cursor).map(|v| v as Self) }
            #[inline]
            fn bytes(self) -> Self::Bytes { self.to_le_bytes() }
            // Through double even for FP32, as the reference does; what does not fit becomes infinite.
            fn read(value: Value<'_>) -> Result<Self> { value.as_f64().map(|v| v as Self) }
            #[inline]
            fn write(self, out: &mut Vec<u8>) { write_f64(out, self.into()); }
        }
    )* };
}

floats!(f32, f64);

/// One byte, 0 or 1 on the way in, anything but 0 is true on the way out.
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
    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.0 == 0 { b"false" } else { b"true" });
    }
}

/// Calls `$f::<E>($($arg),*)` for the element type of a datatype that JSON can carry.
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

/// Takes a whole `data` array of `count` elements (of any number for BYTES) and converts it on the way.
///
/// `None` means nothing more than "look closer": the cursor is then where it was.
pub(crate) fn fill(cursor: &mut Cursor<'_>, datatype: DataType, count: usize) -> Option<Vec<u8>> {
    let mut ahead = *cursor;
    let data = match datatype {
        DataType::Bytes => fill_strings(&mut ahead),
        _ => dispatch!(datatype, fill_with(&mut ahead, count), None),
    }?;
    *cursor = ahead;
    Some(data)
}

fn fill_with<E: Element>(cursor: &mut Cursor<'_>, count: usize) -> Option<Vec<u8>> {
    // Every element takes at least one digit and one comma or bracket, so the body bounds what we allocate.
    if count > cursor.rest().len() / 2 {
        return None;
    }
    let size = size_of::<E::Bytes>();
    let mut data = vec![0; count * size];
    let mut slots = data.chunks_exact_mut(size);
    walk(cursor, |c| {
        let slot = slots.next()?;
        slot.copy_from_slice(E::take(c)?.bytes().as_ref());
        Some(())
    })?;
    slots.next().is_none().then_some(data)
}

fn fill_strings(cursor: &mut Cursor<'_>) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    walk(cursor, |c| {
        if c.peek() != b'"' {
            return None;
        }
        push_text(&mut data, c.string().ok()?);
        Some(())
    })?;
    // An empty array of strings has its own error.
    (!data.is_empty()).then_some(data)
}

fn push_text(data: &mut Vec<u8>, text: super::cursor::Text<'_>) {
    let start = data.len();
    data.extend_from_slice(&[0; 4]);
    text.decode_into(data);
    // Bodies are limited to 2 GiB, so a length always fits.
    let length = u32::try_from(data.len() - start - 4).unwrap_or(u32::MAX);
    if let Some(head) = data.get_mut(start..start + 4) {
        head.copy_from_slice(&length.to_le_bytes());
    }
}

/// Walks an array of any nesting, row-major, and calls `scalar` at everything that is not an array.
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
            // By far the commonest: a comma, at most one blank, the next element.
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

/// Visits the scalars of checked text, once, whatever the nesting. A value that is not an array is its own only scalar.
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

/// The value at the cursor, for a closer look.
fn value_at<'a>(cursor: &mut Cursor<'a>) -> Result<Value<'a>> {
    let span = cursor.value()?;
    Ok(Value::checked(cursor.slice(span)))
}

fn too_deep() -> Error {
    Error::invalid(format!("JSON nesting depth exceeds maximum allowed limit ({DATA_DEPTH_MAX})"))
}

/// Converts checked `data` of a fixed-size datatype. The caller has refused FP16, BF16 and BYTES.
///
/// # Errors
/// P 1.12.3: wrong element type, too many, too few, nested too deep.
pub fn read_tensor(value: Value<'_>, datatype: DataType, count: usize) -> Result<Vec<u8>> {
    dispatch!(datatype, read_with(value, count), Err(Error::internal("datatype has no JSON form")))
}

fn read_with<E: Element>(value: Value<'_>, count: usize) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    let mut left = count;
    visit(value, |c| {
        left = left.checked_sub(1).ok_or_else(|| Error::internal("Shape does not match true shape of 'data' field"))?;
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
        return Err(Error::internal("Failed to parse 'data' field: shape does not match true shape"));
    }
    Ok(data)
}

/// Converts checked `data` of strings into the raw form; how many there are is checked against the shape later.
///
/// # Errors
/// P 1.12.3: not a string, nested too deep.
pub fn read_bytes_tensor(value: Value<'_>) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    visit(value, |c| {
        let text = value_at(c)?.as_text().map_err(|e| e.prefixed("Unable to parse JSON bytes array: "))?;
        push_text(&mut data, text);
        Ok(())
    })?;
    Ok(data)
}

/// Appends a tensor as one flat JSON array, or its only element alone when `scalar` is set and there is exactly one (generate).
///
/// # Errors
/// FP16 and BF16 have no JSON form; contents that do not fit the shape are a defect of the backend.
pub fn write_tensor(out: &mut Vec<u8>, datatype: DataType, shape: &[i64], data: &[u8], scalar: bool) -> Result<()> {
    let count = element_count(shape).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let unfit = || Error::internal(format!("output has {} bytes, which do not fit its shape", data.len()));
    match (datatype, datatype.byte_size()) {
        (DataType::Fp16 | DataType::Bf16, _) => {
            return Err(Error::invalid(format!(
                "sending {} data via JSON is not supported. Please use the binary data format for output",
                datatype.name()
            )));
        }
        (_, Some(size)) if count.checked_mul(size) != Some(data.len()) => return Err(unfit()),
        _ => {}
    }
    let array = !(scalar && count == 1);
    if array {
        out.push(b'[');
    }
    let start = out.len();
    if datatype == DataType::Bytes {
        let mut n = 0;
        for element in Strings::new(data) {
            if n > 0 {
                out.push(b',');
            }
            write_string(out, element.map_err(|_| unfit())?);
            n += 1;
        }
        if n != count {
            return Err(unfit());
        }
    } else {
        match datatype {
            DataType::Fp32 => write_f64s(out, data.chunks_exact(4).map(|c| f32::from_raw(c).into())),
            DataType::Fp64 => write_f64s(out, data.chunks_exact(8).map(f64::from_raw)),
            _ => dispatch!(datatype, write_with(out, data), ()),
        }
        if out.len() > start {
            out.pop();
        }
    }
    if array {
        out.push(b']');
    }
    Ok(())
}

/// Appends every element with a comma behind it.
fn write_with<E: Element + Raw>(out: &mut Vec<u8>, data: &[u8]) {
    for chunk in data.chunks_exact(size_of::<E::Bytes>()) {
        E::from_raw(chunk).write(out);
        out.push(b',');
    }
}

/// From bytes of exactly the element's size.
trait Raw {
    fn from_raw(bytes: &[u8]) -> Self;
}

macro_rules! raw {
    ($($t:ty),*) => { $( impl Raw for $t {
        #[inline]
        fn from_raw(bytes: &[u8]) -> Self { bytes.first_chunk().map_or(Self::default(), |b| Self::from_le_bytes(*b)) }
    } )* };
}

raw!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

impl Raw for Bool {
    fn from_raw(bytes: &[u8]) -> Self {
        Self(bytes.first().copied().unwrap_or(0))
    }
}
