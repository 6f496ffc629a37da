//! Parses the two length headers (P-077) as `std::stoi` does: white space, a sign, digits, and any other text behind.

use tensor::{Error, Result};

fn parse(name: &str, text: &str) -> Result<i32> {
    let trimmed = text.trim_start_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}']);
    let (negative, digits) = match trimmed.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    let n = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    if n == 0 {
        return Err(Error::invalid(format!("Unable to parse {name}, got: {text}")));
    }
    let magnitude = digits[..n].iter().try_fold(0i64, |v, d| v.checked_mul(10)?.checked_add(i64::from(d - b'0')));
    let value = magnitude.map(|v| if negative { -v } else { v }).and_then(|v| i32::try_from(v).ok());
    value.ok_or_else(|| {
        Error::invalid(format!(
            "Unable to parse {name}, value is out of range [ {}, {} ], got: {text}",
            i32::MIN,
            i32::MAX
        ))
    })
}

/// Parses the common case: a few digits and nothing else.
fn plain(text: &[u8]) -> Option<usize> {
    if !(1..=9).contains(&text.len()) {
        return None;
    }
    text.iter().try_fold(0, |value, &b| b.is_ascii_digit().then(|| value * 10 + usize::from(b - b'0')))
}

/// The value of `Inference-Header-Content-Length` for a body of `body_len` (decompressed) bytes.
///
/// # Errors
/// INVALID_ARG: not a number, out of range, negative, or longer than the body.
#[inline]
pub fn parse_header_length(text: &[u8], body_len: usize) -> Result<usize> {
    match plain(text) {
        Some(value) if value <= body_len => Ok(value),
        _ => parse_unusual(&String::from_utf8_lossy(text), body_len),
    }
}

#[cold]
fn parse_unusual(text: &str, body_len: usize) -> Result<usize> {
    let value = parse("Inference-Header-Content-Length", text)?;
    usize::try_from(value)
        .ok()
        .filter(|&v| v <= body_len)
        .ok_or_else(|| Error::invalid(format!("inference header size should be in range (0, {body_len}), got: {text}")))
}

/// The value of `Content-Length` of an inference body.
///
/// # Errors
/// INVALID_ARG: not a number, negative, or 2 GiB and more.
pub fn parse_content_length(text: &str) -> Result<usize> {
    let value = parse("Content-Length", text)?;
    usize::try_from(value).map_err(|_| Error::invalid(format!("Unable to parse Content-Length, got: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<usize, &str>) {
        let got = parse_header_length(text.as_bytes(), 100);
        assert_eq!(got.as_ref().map(|v| *v).map_err(Error::message), expected);
    }

    #[test]
    fn p077_header_length_is_read_like_stoi() {
        check("0", Ok(0));
        check("100", Ok(100));
        check("+10", Ok(10));
        check(" 10", Ok(10));
        check("10x", Ok(10));
        check("10.5", Ok(10));
        check("abc", Err("Unable to parse Inference-Header-Content-Length, got: abc"));
        check("", Err("Unable to parse Inference-Header-Content-Length, got: "));
        check("-1", Err("inference header size should be in range (0, 100), got: -1"));
        check("101", Err("inference header size should be in range (0, 100), got: 101"));
        let range =
            "Unable to parse Inference-Header-Content-Length, value is out of range [ -2147483648, 2147483647 ], got: ";
        check("2147483648", Err(&format!("{range}2147483648")));
        check("99999999999999999999", Err(&format!("{range}99999999999999999999")));
    }

    #[test]
    fn p077_content_length_ends_below_two_gibibytes() {
        assert_eq!(parse_content_length("2147483647").unwrap(), 2_147_483_647);
        assert_eq!(
            parse_content_length("2147483648").unwrap_err().message(),
            "Unable to parse Content-Length, value is out of range [ -2147483648, 2147483647 ], got: 2147483648"
        );
        assert_eq!(parse_content_length("x").unwrap_err().message(), "Unable to parse Content-Length, got: x");
    }
}
