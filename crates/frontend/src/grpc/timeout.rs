//! The `grpc-timeout` header: a number and a unit.
//!
//! Accepts what gRPC's own servers accept, which is more than the protocol allows (eight digits): nine digits, and
//! blanks around both parts.

use std::time::Duration;

/// The value is not a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable;

/// Larger numbers mean that there is no deadline.
const NUMBER_MAX: u64 = 1_000_000_000;

/// Parses a timeout; `Ok(None)` if there is no deadline.
///
/// # Errors
/// The value is not a timeout. The call has to fail, because its client expects a deadline.
pub fn parse(value: &[u8]) -> Result<Option<Duration>, Unreadable> {
    let value = value.trim_ascii();
    let length = value.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, unit) = value.split_at(length);
    if digits.is_empty() {
        return Err(Unreadable);
    }
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    let Some(number) = number.filter(|number: &u64| *number <= NUMBER_MAX) else { return Ok(None) };
    Ok(Some(match unit.trim_ascii_start() {
        b"H" => Duration::from_secs(number * 3600),
        b"M" => Duration::from_secs(number * 60),
        b"S" => Duration::from_secs(number),
        b"m" => Duration::from_millis(number),
        b"u" => Duration::from_micros(number),
        b"n" => Duration::from_nanos(number),
        _ => return Err(Unreadable),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_parsed_as_grpc_servers_parse_them() {
        for (text, expected) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("15S", Duration::from_secs(15)),
            ("250m", Duration::from_millis(250)),
            ("7u", Duration::from_micros(7)),
            ("99999999n", Duration::from_nanos(99_999_999)),
            ("99999999H", Duration::from_secs(99_999_999 * 3600)),
            ("0S", Duration::ZERO),
            ("123456789S", Duration::from_secs(123_456_789)),
            ("1 S", Duration::from_secs(1)),
            (" 1S ", Duration::from_secs(1)),
        ] {
            assert_eq!(parse(text.as_bytes()), Ok(Some(expected)), "{text:?}");
        }
        for endless in ["1000000001S", "99999999999999H", "99999999999999999999999999999999H"] {
            assert_eq!(parse(endless.as_bytes()), Ok(None), "{endless:?}");
        }
        for wrong in ["", " ", "5", "S", "-1S", "+1S", "1s", "1.5S", "1SS", "1S 2S", "abc", "0x1S", "\u{661}S"] {
            assert_eq!(parse(wrong.as_bytes()), Err(Unreadable), "{wrong:?}");
        }
    }
}
