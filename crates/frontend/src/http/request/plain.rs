//! Reads a plain head in one pass: GET or POST of a usual path, HTTP/1.1, fields without tabs. Each byte is looked up in
//! a table; httparse with what is made of its result takes three times as many instructions.
//!
//! [`RequestHead::read`] reads all other heads, also every wrong one: `None` only means that this reader does not
//! support the head. So errors, and the first of several, are decided in one place.
//!
//! Invariant: `Some` leaves the head as the general reader does.

use super::facts::FieldFacts;
use super::{HeadSpan, Method, RequestHead};

/// Most fields of a plain head: those that [`Headers`](super::Headers) holds without an allocation.
const FIELDS_MAX: usize = 16;

/// Bytes of methods and of names of fields.
pub(super) static TOKEN: [bool; 256] = table(b"!#$%&'*+-.^_`|~");
/// Bytes of names of hosts.
pub(super) static HOST: [bool; 256] = table(b"-._~!$&'()*+,;=%");
/// Bytes of usual targets.
static TARGET: [bool; 256] = table(b"!$%&'*+,-./:;=?@_~()");

/// Letters, digits and these.
const fn table(others: &[u8]) -> [bool; 256] {
    let (mut table, mut i) = ([false; 256], 0);
    while i < 128 {
        table[i] = (i as u8).is_ascii_alphanumeric();
        i += 1;
    }
    i = 0;
    while i < others.len() {
        table[others[i] as usize] = true;
        i += 1;
    }
    table
}

/// Length of the longest beginning whose bytes are all in the table.
#[inline]
pub(super) fn run(text: &[u8], table: &[bool; 256]) -> usize {
    text.iter().position(|&b| !table[usize::from(b)]).unwrap_or(text.len())
}

/// Fills `head` from a text that ends with a blank line. Leaves it in any state if it returns `None`.
pub(super) fn read(head: &mut RequestHead, text: &[u8]) -> Option<()> {
    let (method, start) = match text {
        [b'P', b'O', b'S', b'T', b' ', ..] => (Method::Post, 5),
        [b'G', b'E', b'T', b' ', ..] => (Method::Get, 4),
        _ => return None,
    };
    let target = text.get(start..)?;
    let target = target.get(..run(target, &TARGET))?;
    let mut at = start + target.len();
    if target.first() != Some(&b'/') || !text.get(at..)?.starts_with(b" HTTP/1.1\r\n") {
        return None;
    }
    at += b" HTTP/1.1\r\n".len();
    let path = memchr::memchr(b'?', target).unwrap_or(target.len());
    let span = |start: usize, end: usize| HeadSpan { start: start as u32, end: end as u32 };
    (head.method, head.is_head, head.path) = (method, false, span(start, start + path));
    (head.http11, head.keep_alive, head.expect) = (true, true, false);
    let mut facts = FieldFacts::default();
    loop {
        let rest = text.get(at..)?;
        if rest == b"\r\n" {
            return facts.finish(head).ok();
        }
        let name = run(rest, &TOKEN);
        let value = rest.get(name..)?.strip_prefix(b":")?;
        let end = memchr::memchr(b'\r', value)?;
        let (value, after) = value.split_at_checked(end)?;
        // The colon is before the value, and the line feed behind it.
        if name == 0 || !after.starts_with(b"\r\n") || has_control(value) || head.headers.fields.len() == FIELDS_MAX {
            return None;
        }
        let begin = at + name + 1;
        let blanks = value.iter().take_while(|&&b| b == b' ').count();
        let value = value.get(blanks..)?.trim_ascii_end();
        let from = begin + blanks;
        // The general reader puts the span of an empty value elsewhere; both are empty.
        head.headers.fields.push((span(at, at + name), span(from, from + value.len())));
        facts.note(head, rest.get(..name)?, value).ok()?;
        at = begin + end + 2;
    }
}

/// Branchless, so that the compiler looks at 16 bytes at a time.
#[inline]
fn has_control(value: &[u8]) -> bool {
    value.iter().fold(0, |found, &b| found | u8::from(b < b' ') | u8::from(b == 0x7f)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const HEADS: [&str; 5] = [
        "POST /v2/models/simple/versions/12/infer?a=b&c=%20d HTTP/1.1\r\nHost: [::1]:8000\r\nContent-Length: 1234\r\n\
         Content-Type: application/octet-stream\r\nInference-Header-Content-Length:207\r\ntraceparent: \
         00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nx-empty:\r\nX-Blanks:   a  b \u{fc} \r\n\r\n",
        "GET /v2/health/ready HTTP/1.1\r\nhost: localhost:8000\r\nConnection: keep-alive, x\r\nAccept: */*\r\n\r\n",
        "POST / HTTP/1.1\r\nHost:\r\nTransfer-Encoding: Chunked\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
        "POST /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 7\r\nContent-Length: 7\r\n\r\n",
        "GET /a HTTP/1.0\r\nConnection: keep-alive\r\nA: b\tc\r\n\r\n",
    ];

    /// Everything that a head says.
    fn print(head: &RequestHead) -> String {
        let RequestHead { method, is_head, http11, keep_alive, expect, framing, headers, .. } = head;
        let (path, query) = (head.path().escape_ascii(), head.query().escape_ascii());
        let fields: Vec<_> = headers.iter().collect();
        format!("{method:?} {is_head} {path} {query} {http11} {keep_alive} {expect} {framing:?} {fields:?}")
    }

    /// Compares both readers; true if this one supports the head.
    fn check(text: &[u8]) -> bool {
        let bytes = Bytes::copy_from_slice(text);
        let mut plain = RequestHead::default();
        if read(&mut plain, text).is_none() {
            return false;
        }
        plain.headers.bytes = bytes.clone();
        let mut other = RequestHead::default();
        let result = other.parse(text);
        other.headers.bytes = bytes;
        assert_eq!(result, Ok(()), "{}", text.escape_ascii());
        assert_eq!(print(&plain), print(&other), "{}", text.escape_ascii());
        true
    }

    #[test]
    fn only_plain_heads_are_supported() {
        assert_eq!(HEADS.map(|head| check(head.as_bytes())), [true, true, true, true, false]);
        let many = |n| format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "A: b\r\n".repeat(n - 1));
        assert!(check(many(FIELDS_MAX).as_bytes()) && !check(many(FIELDS_MAX + 1).as_bytes()));
    }

    #[test]
    fn both_readers_agree_on_damaged_heads() {
        let pieces = b"|0|a| |  |\t|\r|\n|\r\n|\r\n |:|/|?|#|\0|\x7f|\xff|\x0b|Host: h\r\n|\r\nContent-Length: 9";
        let pieces: Vec<&[u8]> = pieces.split(|&b| b == b'|').collect();
        let mut known = 0;
        for head in HEADS.map(str::as_bytes) {
            for at in 0..head.len() {
                for &piece in &pieces {
                    for taken in 0..2 {
                        let (before, rest) = head.split_at(at);
                        known += usize::from(check(&[before, piece, &rest[taken..]].concat()));
                    }
                }
            }
            // Each byte in each place, where it may be a name, a value, a target or a separator.
            for at in 0..head.len() {
                for byte in 0..=255 {
                    let mut damaged = head.to_vec();
                    damaged[at] = byte;
                    known += usize::from(check(&damaged));
                }
            }
        }
        assert!(known > 10_000, "{known}: most damage is none, as in a value");
    }
}
