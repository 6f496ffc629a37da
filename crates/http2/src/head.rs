//! Heads of requests. They are checked: a head that HTTP/2 calls malformed never reaches a caller.

use crate::ledger::{HeadCharge, HeadLedger};
use smallvec::SmallVec;
use std::any::Any;
use std::cell::OnceCell;

/// Bytes a field counts in addition to its name and value.
const FIELD_BYTES: usize = 32;

#[derive(Debug, Clone, Copy, Default)]
struct Span {
    start: u32,
    end: u32,
}

/// A field: its name, directly followed by its value.
#[derive(Debug, Clone, Copy)]
struct FieldSpan {
    start: u32,
    middle: u32,
    end: u32,
}

/// Why a head is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadHead {
    /// Violates the rules of HTTP/2.
    Malformed,
    TooLarge,
    /// The heads of the connection take too much memory together.
    NoRoom,
}

/// Method, path and fields of a request. Shared by all requests with the same head.
#[derive(Debug, Default)]
pub struct RequestHead {
    text: Vec<u8>,
    method: Span,
    path: Span,
    fields: SmallVec<[FieldSpan; 12]>,
    content_length: Option<u64>,
    derived: OnceCell<Box<dyn Any>>,
    /// Charge in the connection's ledger.
    held: Option<HeadCharge>,
}

impl RequestHead {
    /// Charges the head to `ledger` for its lifetime; returns false if that is too much.
    pub(crate) fn hold(&mut self, ledger: &HeadLedger) -> bool {
        // Text grows to twice its size at most: the slack is not worth a copy, but counts.
        let fields = if self.fields.spilled() { self.fields.capacity() * size_of::<FieldSpan>() } else { 0 };
        self.held = ledger.take(size_of::<Self>() + self.text.capacity() + fields);
        self.held.is_some()
    }

    fn at(&self, span: Span) -> &[u8] {
        self.text.get(span.start as usize..span.end as usize).unwrap_or_default()
    }

    fn name(&self, field: &FieldSpan) -> &[u8] {
        self.at(Span { start: field.start, end: field.middle })
    }

    fn value(&self, field: &FieldSpan) -> &[u8] {
        self.at(Span { start: field.middle, end: field.end })
    }

    /// Method as sent.
    pub fn method(&self) -> &[u8] {
        self.at(self.method)
    }

    /// The path with its query, as sent.
    pub fn path(&self) -> &[u8] {
        self.at(self.path)
    }

    fn has_good_path(&self) -> bool {
        self.path().first() == Some(&b'/') || (self.path() == b"*" && self.method() == b"OPTIONS")
    }

    /// Fields in the order they came, names in lower case, without pseudo-header fields.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        // Names were checked to be tokens, which are ASCII.
        self.fields.iter().map(|f| (std::str::from_utf8(self.name(f)).unwrap_or_default(), self.value(f)))
    }

    /// The first field with that name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The fields with that name, in the order they came.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.fields.iter().filter(move |f| self.name(f) == name.as_bytes()).map(|f| self.value(f))
    }

    /// Announced length of the body.
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// A value that the caller derives from this head, computed once for all requests that share it: it must depend
    /// only on the head and on constants. `None` if a value of another type is stored already: a server has one type.
    pub fn derived<T: 'static>(&self, make: impl FnOnce(&Self) -> T) -> Option<&T> {
        self.derived.get_or_init(|| Box::new(make(self))).downcast_ref()
    }
}

/// Collects the fields of one block in place: the head is moved once, when it is complete.
pub struct Builder {
    head: RequestHead,
    has_method: bool,
    has_path: bool,
    has_scheme: bool,
    has_authority: bool,
    /// The values of `:authority` and `host`.
    authority: Span,
    host: Option<Span>,
    size: usize,
    size_max: usize,
    bad: Option<BadHead>,
}

impl Builder {
    /// A builder for a head of at most `size_max` bytes.
    pub fn new(size_max: usize) -> Self {
        Self {
            head: RequestHead { text: Vec::with_capacity(256), ..RequestHead::default() },
            has_method: false,
            has_path: false,
            has_scheme: false,
            has_authority: false,
            authority: Span::default(),
            host: None,
            size: 0,
            size_max,
            bad: None,
        }
    }

    fn put(&mut self, text: &[u8]) -> Span {
        let start = self.head.text.len() as u32;
        self.head.text.extend_from_slice(text);
        Span { start, end: self.head.text.len() as u32 }
    }

    /// Adds a field. Even after an error the block must be read to its end: later blocks depend on its table entries.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        if self.bad.is_some() {
            return;
        }
        self.size += name.len() + value.len() + FIELD_BYTES;
        if self.size > self.size_max {
            self.bad = Some(BadHead::TooLarge);
            // A client that repeats the index of a long field gets no memory for it.
            self.head = RequestHead::default();
        } else if !self.take(name, value) {
            self.bad = Some(BadHead::Malformed);
        }
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> bool {
        if !is_value(value) {
            return false;
        }
        if name.first() == Some(&b':') {
            return self.take_pseudo(name, value);
        }
        if name.is_empty() || !name.iter().all(|&b| NAME_BYTES[usize::from(b)]) {
            return false;
        }
        match name {
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => return false,
            b"te" if value != b"trailers" => return false,
            b"content-length" => match (number(value), self.head.content_length) {
                (Some(length), None) => self.head.content_length = Some(length),
                (Some(length), Some(before)) if length == before => {}
                _ => return false,
            },
            _ => {}
        }
        let Span { start, end: middle } = self.put(name);
        let place = self.put(value);
        self.head.fields.push(FieldSpan { start, middle, end: place.end });
        // At most one, as over HTTP/1.
        name != b"host" || self.host.replace(place).is_none()
    }

    fn take_pseudo(&mut self, name: &[u8], value: &[u8]) -> bool {
        if !self.head.fields.is_empty() {
            return false;
        }
        let (seen, may_be_empty) = match name {
            b":method" => (&mut self.has_method, false),
            b":path" => (&mut self.has_path, false),
            b":scheme" => (&mut self.has_scheme, false),
            b":authority" => (&mut self.has_authority, true),
            _ => return false,
        };
        if std::mem::replace(seen, true) || (value.is_empty() && !may_be_empty) {
            return false;
        }
        match name {
            b":method" => self.head.method = self.put(value),
            b":path" => self.head.path = self.put(value),
            b":authority" => self.authority = self.put(value),
            _ => {}
        }
        true
    }

    /// Checks that the fields are the head of a request.
    pub fn check(&self) -> Result<(), BadHead> {
        match self.bad {
            Some(bad) => Err(bad),
            // The path must start with a slash, or be `*` for the whole server (RFC 9113, 8.3.1).
            None if !self.has_one_host() => Err(BadHead::Malformed),
            None if self.has_method && self.has_path && self.has_scheme && self.head.has_good_path() => Ok(()),
            None => Err(BadHead::Malformed),
        }
    }

    /// True if `host` and `:authority` name the same host (RFC 9113, 8.3.1): a proxy may have used either.
    fn has_one_host(&self) -> bool {
        let (Some(host), true) = (self.host, self.has_authority) else { return true };
        let (host, authority) = (self.head.at(host), self.head.at(self.authority));
        is_same_host(host, authority)
    }

    /// The head collected so far.
    pub fn head_mut(&mut self) -> &mut RequestHead {
        &mut self.head
    }

    /// The head; call `check` first.
    #[inline]
    pub fn into_head(self) -> RequestHead {
        self.head
    }

    /// True if the fields may be trailers.
    pub fn are_trailers(&self) -> bool {
        self.bad.is_none() && !self.has_method && !self.has_path && !self.has_scheme && !self.has_authority
    }
}

/// Bytes of a name: a token without capitals. A table, because every byte of every unknown field is looked up.
static NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = matches!(
            b as u8,
            b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~'
        );
        b += 1;
    }
    table
};

/// True if a value has no control characters except tabs. Eight bytes at a time: trace headers are long and differ in
/// each call (traceparent, 55 bytes: 500 → 100 instructions).
fn is_value(value: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES * 128;
    // High bit of each byte that is zero; a carry may also mark the byte above it, which does not change the result.
    let zero = |x: u64| x.wrapping_sub(ONES) & !x & HIGH;
    let suspicious = |x: u64| (x.wrapping_sub(ONES * 0x20) & !x & HIGH) | zero(x ^ (ONES * 0x7f));
    let (words, rest) = value.as_chunks::<8>();
    let found = words.iter().fold(0, |found, word| found | suspicious(u64::from_le_bytes(*word)));
    let is_good = |&b: &u8| b >= 0x20 && b != 0x7f || b == b'\t';
    // `found` may be a tab or an invalid byte.
    (found == 0 || words.as_flattened().iter().all(is_good)) && rest.iter().all(is_good)
}

/// True if two names mean the same host: case is ignored, and so is a default port of a scheme.
fn is_same_host(one: &[u8], other: &[u8]) -> bool {
    let adds_default_port = |longer: &[u8], shorter: &[u8]| {
        longer
            .split_at_checked(shorter.len())
            .is_some_and(|(host, port)| host.eq_ignore_ascii_case(shorter) && matches!(port, b":80" | b":443" | b":"))
    };
    one.eq_ignore_ascii_case(other) || adds_default_port(one, other) || adds_default_port(other, one)
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 3] = [(":method", "POST"), (":scheme", "http"), (":path", "/a?b")];

    fn head(fields: &[(&str, &str)], size_max: usize) -> Result<RequestHead, BadHead> {
        let mut builder = Builder::new(size_max);
        fields.iter().for_each(|(n, v)| builder.field(n.as_bytes(), v.as_bytes()));
        builder.check().map(|()| builder.into_head())
    }

    #[test]
    fn rfc9113_8_1_1_malformed_heads_are_rejected() {
        let with = |more: &[(&'static str, &'static str)]| head(&[&GOOD, more].concat(), 10_000).err();
        assert_eq!(with(&[(":authority", "x"), ("te", "trailers"), ("a", "b\tc"), ("a", "")]), None);
        for bad in [
            &[("A", "b")][..],
            &[("", "b")],
            &[("a b", "c")],
            &[("a", "b\r\nc: d")],
            &[("a", "\0")],
            &[("connection", "close")],
            &[("transfer-encoding", "chunked")],
            &[("te", "gzip")],
            &[(":status", "200")],
            &[(":method", "POST")],
            &[(":path", "/")],
            &[("a", "b"), (":authority", "x")],
            &[("content-length", "1"), ("content-length", "2")],
            &[("content-length", "-1")],
            &[("content-length", "")],
        ] {
            assert_eq!(with(bad), Some(BadHead::Malformed), "{bad:?}");
        }
        for left_out in 0..3 {
            let mut fields = GOOD.to_vec();
            fields.remove(left_out);
            assert_eq!(head(&fields, 10_000).err(), Some(BadHead::Malformed));
        }
    }

    #[test]
    fn rfc9113_8_3_1_host_and_authority_must_name_the_same_host() {
        for (authority, hosts, is_good) in [
            (Some("a:8001"), &["a:8001"][..], true),
            (Some("A.example"), &["a.EXAMPLE:80"], true),
            (Some("[::1]:443"), &["[::1]"], true),
            (Some("a"), &[], true),
            (None, &["a"], true),
            (Some("a"), &["b"], false),
            (Some("a:8001"), &["a:8002"], false),
            (Some("a:8001"), &["a"], false),
            (Some("a:80"), &["a:443"], false),
            (Some(""), &["a"], false),
            (Some("a"), &[""], false),
            (Some("a"), &["a", "b"], false),
            (Some("a"), &["a", "a"], false),
            (None, &["a", "b"], false),
        ] {
            let authority = authority.map(|name| (":authority", name));
            let fields: Vec<_> =
                GOOD.iter().copied().chain(authority).chain(hosts.iter().map(|host| ("host", *host))).collect();
            assert_eq!(head(&fields, 10_000).err(), (!is_good).then_some(BadHead::Malformed), "{fields:?}");
        }
    }

    #[test]
    fn control_characters_are_rejected_at_any_position_of_a_value() {
        for length in 1..30 {
            for at in 0..length {
                for b in 0..=255u8 {
                    let mut value = vec![b'a'; length];
                    value[at] = b;
                    assert_eq!(is_value(&value), b >= 0x20 && b != 0x7f || b == b'\t', "{b} at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn rfc9113_8_3_1_a_path_begins_with_a_slash_and_a_star_is_for_options() {
        for (method, path, is_good) in [
            ("GET", "/", true),
            ("POST", "/inference.GRPCInferenceService/ModelInfer", true),
            ("GET", "/*", true),
            ("OPTIONS", "*", true),
            ("GET", "", false),
            ("GET", "v2", false),
            ("POST", "inference.GRPCInferenceService/ModelInfer", false),
            ("GET", "http://x/v2", false),
            ("GET", "*", false),
            ("OPTIONS", "**", false),
            ("GET", "?a", false),
        ] {
            let head = head(&[(":method", method), (":scheme", "http"), (":path", path)], 1000);
            assert_eq!(head.err(), (!is_good).then_some(BadHead::Malformed), "{method} {path}");
        }
    }

    #[test]
    fn fields_are_found_and_sizes_count_as_in_the_protocol() {
        let all = [&GOOD[..], &[("content-length", "12"), ("k", "1"), ("k", "2")]].concat();
        let size: usize = all.iter().map(|(n, v)| n.len() + v.len() + 32).sum();
        assert_eq!(head(&all, size - 1).err(), Some(BadHead::TooLarge));
        let head = head(&all, size).unwrap();
        assert_eq!((head.method(), head.path(), head.content_length()), (&b"POST"[..], &b"/a?b"[..], Some(12)));
        assert_eq!((head.get("k"), head.get("none")), (Some(&b"1"[..]), None));
        assert_eq!(head.fields().map(|f| f.0).collect::<Vec<_>>(), ["content-length", "k", "k"]);
        let mut made = 0;
        for _ in 0..3 {
            assert_eq!(head.derived(|h| (made += 1, h.path().len()).1), Some(&4));
        }
        assert_eq!((made, head.derived(|_| "another type")), (1, None));
    }
}
