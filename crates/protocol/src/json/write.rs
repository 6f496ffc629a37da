//! Strings and doubles as text, in the form of the reference.

use super::cursor::special;
use bytes::Bytes;

/// Appends `bytes` with JSON escapes. Invalid UTF-8 is copied unchanged, as in the reference (P 1.12.3).
pub fn escape_into(out: &mut Vec<u8>, mut bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    loop {
        let n = special(bytes);
        out.extend_from_slice(&bytes[..n]);
        let Some(&b) = bytes.get(n) else { return };
        match b {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', b]),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]);
            }
        }
        bytes = &bytes[n + 1..];
    }
}

/// Appends `bytes` as a string in quotation marks.
pub fn write_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    escape_into(out, bytes);
    out.push(b'"');
}

/// Appends a double in its shortest form that reads back the same: `1.0`, `1e308`, `1.5e-7`, `NaN`, `-Infinity`.
///
/// Plain notation from 1e-6 up to 1e21, like RapidJSON; RapidJSON's digits are not always the shortest (P D9).
#[inline]
pub fn write_f64(out: &mut Vec<u8>, value: f64) {
    let mut buffer = zmij::Buffer::new();
    if is_plain(value) {
        push_short(out, buffer.format_finite(value).as_bytes());
    } else if value.is_finite() {
        scientific(out, buffer.format_finite(value).as_bytes());
    } else {
        out.extend_from_slice(if value.is_nan() {
            b"NaN"
        } else if value > 0.0 {
            b"Infinity"
        } else {
            b"-Infinity"
        });
    }
}

/// Appends doubles, each followed by a comma.
///
/// Prints eight before it copies the first: reading bytes just after writing them with stores of another size stalls.
pub(super) fn write_f64s(out: &mut Vec<u8>, values: impl Iterator<Item = f64>) {
    const LANES: usize = 8;
    let mut buffers: [zmij::Buffer; LANES] = std::array::from_fn(|_| zmij::Buffer::new());
    let mut values = values.fuse();
    loop {
        let mut lane = [0.0; LANES];
        let mut n = 0;
        let mut plain = true;
        for (slot, value) in lane.iter_mut().zip(values.by_ref()) {
            *slot = value;
            plain &= is_plain(value);
            n += 1;
        }
        if n == LANES && plain {
            let mut texts: [&[u8]; LANES] = [&[]; LANES];
            for ((text, buffer), value) in texts.iter_mut().zip(&mut buffers).zip(lane) {
                *text = buffer.format_finite(value).as_bytes();
            }
            for text in texts {
                push_short(out, text);
                out.push(b',');
            }
            continue;
        }
        for value in lane.into_iter().take(n) {
            write_f64(out, value);
            out.push(b',');
        }
        if n < LANES {
            return;
        }
    }
}

/// True if both libraries use plain notation.
#[inline]
fn is_plain(value: f64) -> bool {
    let magnitude = value.abs();
    (1e-5..1e16).contains(&magnitude) || magnitude == 0.0
}

/// Appends a few bytes by two overlapping copies of fixed size: a call of `memcpy` costs as much as the digits.
#[inline]
fn push_short(out: &mut Vec<u8>, text: &[u8]) {
    let end = out.len() + text.len();
    if let (Some(head), Some(tail), 0..=24) = (text.first_chunk::<16>(), text.last_chunk::<8>(), text.len()) {
        out.extend_from_slice(head);
        out.truncate(end - 8);
        out.extend_from_slice(tail);
    } else if let (Some(head), Some(tail), 0..=16) = (text.first_chunk::<8>(), text.last_chunk::<8>(), text.len()) {
        out.extend_from_slice(head);
        out.truncate(end - 8);
        out.extend_from_slice(tail);
    } else {
        out.extend_from_slice(text);
    }
}

/// Appends `-1.5e+17` in RapidJSON's notation.
#[cold]
fn scientific(out: &mut Vec<u8>, text: &[u8]) {
    let (mantissa, exponent) = match memchr::memchr(b'e', text) {
        Some(e) => text.split_at(e),
        None => return out.extend_from_slice(text),
    };
    let exponent: i32 = std::str::from_utf8(&exponent[1..]).ok().and_then(|e| e.parse().ok()).unwrap_or(0);
    let digits: Vec<u8> = mantissa.iter().copied().filter(u8::is_ascii_digit).collect();
    if mantissa.starts_with(b"-") {
        out.push(b'-');
    }
    match exponent {
        // At least 16 digits, so every digit is before the point.
        0..=20 => {
            out.extend_from_slice(&digits);
            out.resize(out.len() + (exponent as usize + 1).saturating_sub(digits.len()), b'0');
            out.extend_from_slice(b".0");
        }
        -6..=-1 => {
            out.extend_from_slice(&b"0.0000000"[..1 + (-exponent) as usize]);
            out.extend_from_slice(&digits);
        }
        _ => {
            let (first, rest) = digits.split_at(digits.len().min(1));
            out.extend_from_slice(first);
            if !rest.is_empty() {
                out.push(b'.');
                out.extend_from_slice(rest);
            }
            out.push(b'e');
            out.extend_from_slice(itoa::Buffer::new().format(exponent).as_bytes());
        }
    }
}

/// The body of every failure: `{"error":"…"}` (P-008).
pub fn error_json(message: &str) -> Bytes {
    let mut out = Vec::with_capacity(message.len() + 16);
    out.extend_from_slice(b"{\"error\":");
    write_string(&mut out, message.as_bytes());
    out.push(b'}');
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p090_doubles_print_like_the_reference() {
        let check = |value: f64, text: &str| {
            let mut out = Vec::new();
            write_f64(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), text);
            assert!(text.parse::<f64>().map_or(value.is_nan(), |v| v == value || value.is_nan()), "{text}");
        };
        check(1.0, "1.0");
        check(-0.0, "-0.0");
        check(f64::from(0.1f32), "0.10000000149011612");
        check(1e10, "10000000000.0");
        check(9007199254740992.0, "9007199254740992.0");
        check(1.8446744073709552e19, "18446744073709552000.0");
        check(-1e17, "-100000000000000000.0");
        check(1e20, "100000000000000000000.0");
        check(1e21, "1e21");
        check(1.5e21, "1.5e21");
        check(1e308, "1e308");
        check(f64::from(3e38f32), "3.0000000054977558e38");
        check(1e-5, "0.00001");
        check(1.5e-6, "0.0000015");
        check(1e-6, "0.000001");
        check(1e-7, "1e-7");
        check(-2.5e-7, "-2.5e-7");
        check(5e-324, "5e-324");
        check(f64::NAN, "NaN");
        check(f64::INFINITY, "Infinity");
        check(f64::NEG_INFINITY, "-Infinity");
    }

    #[test]
    fn p070_strings_are_escaped() {
        let mut out = Vec::new();
        write_string(&mut out, "a\"b\\c/\n\t\r\u{8}\u{c}\u{1}\u{1f}\u{7f}ü".as_bytes());
        assert_eq!(String::from_utf8(out).unwrap(), r#""a\"b\\c/\n\t\r\b\f\u0001\u001F"#.to_owned() + "\u{7f}ü\"");
        assert_eq!(&error_json("it's \"x\"")[..], br#"{"error":"it's \"x\""}"#);
    }
}
