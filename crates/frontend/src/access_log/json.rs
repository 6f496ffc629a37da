//! JSON values on one line. Text of clients is escaped so that it can neither end the line nor control a terminal: both
//! ranges of control characters, DEL and the two line separators of Unicode. Invalid UTF-8 becomes U+FFFD.

use std::io::Write;

/// Appends a quoted string of at most `most` bytes of `text`, and an ellipsis if `text` is longer.
pub fn put_text(out: &mut Vec<u8>, text: &[u8], most: usize) {
    out.push(b'"');
    let kept = text.get(..most).unwrap_or(text);
    if kept.iter().all(|&b| is_plain(b)) {
        out.extend_from_slice(kept);
    } else {
        // The cut may be inside a character, whose first bytes are dropped.
        let kept = if kept.len() < text.len() { whole(kept) } else { kept };
        for chunk in kept.utf8_chunks() {
            chunk.valid().chars().for_each(|c| put_char(out, c));
            if !chunk.invalid().is_empty() {
                out.extend_from_slice("\u{fffd}".as_bytes());
            }
        }
    }
    if kept.len() < text.len() {
        out.extend_from_slice("…".as_bytes());
    }
    out.push(b'"');
}

/// Removes an incomplete character from the end.
fn whole(text: &[u8]) -> &[u8] {
    // A character has at most four bytes, and all but its first begin with 10.
    let first = text.iter().rev().take(4).position(|b| b & 0xc0 != 0x80).map(|back| text.len() - 1 - back);
    match first.and_then(|at| text.get(at..).map(|last| (at, last))) {
        Some((at, last)) if std::str::from_utf8(last).is_err_and(|e| e.error_len().is_none()) => {
            text.get(..at).unwrap_or_default()
        }
        _ => text,
    }
}

fn is_plain(b: u8) -> bool {
    (b' '..=b'~').contains(&b) && b != b'"' && b != b'\\'
}

fn put_char(out: &mut Vec<u8>, c: char) {
    match c {
        '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
        '\n' => out.extend_from_slice(b"\\n"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\t' => out.extend_from_slice(b"\\t"),
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' |
        // Unicode's Bidi_Control: they show text in another order than it has.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            // Writing to a vector does not fail.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        }
        c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Appends a time as the quoted string `YYYY-MM-DDThh:mm:ss.uuuuuuZ`.
pub fn put_time(out: &mut Vec<u8>, epoch_us: u64) {
    let (seconds, micros) = (epoch_us / 1_000_000, epoch_us % 1_000_000);
    let (year, month, day) = civil(seconds / 86_400);
    let second = seconds % 86_400;
    out.push(b'"');
    put_digits(out, year, 4);
    for (before, number) in
        [(b'-', month), (b'-', day), (b'T', second / 3600), (b':', second / 60 % 60), (b':', second % 60)]
    {
        out.push(before);
        put_digits(out, number, 2);
    }
    out.push(b'.');
    put_digits(out, micros, 6);
    out.extend_from_slice(b"Z\"");
}

/// Year, month and day in the Gregorian calendar, from the number of days since 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that a leap day is the last day. An era is 400 years; all have the same length.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let in_month = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    (era * 400 + year, month, in_month)
}

fn put_digits(out: &mut Vec<u8>, mut number: u64, width: usize) {
    let start = out.len();
    out.resize(start + width, b'0');
    for digit in out.iter_mut().skip(start).rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::json::Value;

    fn text(bytes: &[u8], most: usize) -> String {
        let mut out = Vec::new();
        put_text(&mut out, bytes, most);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn text_of_clients_is_escaped_to_one_line() {
        for (bytes, most, expected) in [
            (&b"plain"[..], 9, r#""plain""#),
            (b"a\"b\\c", 9, r#""a\"b\\c""#),
            (b"\n\r\t\0\x1b[31m", 19, r#""\n\r\t\u0000\u001b[31m""#),
            ("\u{7f}\u{85}\u{2028}\u{2029}ü".as_bytes(), 19, "\"\\u007f\\u0085\\u2028\\u2029ü\""),
            (
                "\u{61c}\u{200e}\u{202a}\u{202e}\u{2066}\u{2069}".as_bytes(),
                19,
                "\"\\u061c\\u200e\\u202a\\u202e\\u2066\\u2069\"",
            ),
            (b"\xff\xfea\xc3", 9, "\"\u{fffd}\u{fffd}a\u{fffd}\""),
            (b"0123456789", 4, "\"0123…\""),
            ("aüü".as_bytes(), 2, "\"a…\""),
            ("aüü".as_bytes(), 3, "\"aü…\""),
            ("中中".as_bytes(), 5, "\"中…\""),
            ("🦀🦀".as_bytes(), 7, "\"🦀…\""),
            (b"", 0, "\"\""),
        ] {
            assert_eq!(text(bytes, most), expected, "{bytes:?}");
        }
    }

    #[test]
    fn any_bytes_make_a_string_that_reads_back_without_control_characters() {
        // A deterministic generator, so that a failure is repeatable.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..20_000 {
            let length = (next() % 40) as usize;
            let bytes: Vec<u8> = (0..length)
                .map(|_| [next() as u8, b'"', b'\\', b'\n', 0xe2, 0x80, 0xa8][(next() % 7) as usize])
                .collect();
            let most = (next() % 50) as usize;
            let written = text(&bytes, most);
            assert!(!written.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')), "{written:?}");
            let read = Value::parse(written.as_bytes()).expect("JSON").as_string().expect("a string");
            let kept = String::from_utf8_lossy(&bytes[..most.min(length)]).into_owned();
            assert!(most < length || read == kept, "{bytes:?} as {read:?}");
        }
    }

    #[test]
    fn times_are_rfc_3339_with_microseconds() {
        for (us, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
            (1_709_251_199_999_999, "2024-02-29T23:59:59.999999Z"),
            (1_735_689_599_123_456, "2024-12-31T23:59:59.123456Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
        ] {
            let mut out = Vec::new();
            put_time(&mut out, us);
            assert_eq!(String::from_utf8(out).unwrap(), format!("\"{expected}\""));
        }
    }
}
